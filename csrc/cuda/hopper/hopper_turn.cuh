// 16-bit loads of 16 bytes across K, turned on their way to shared memory: of several channels, neighbours
// along a row of NCHW pixels, along the kernels of NCHW weights, or along the columns of a tap of NHWC weights
// become rows of 16 bytes along K. A warp turns 8 channels x 32 neighbours at once (stmatrix). Where a neighbour
// goes is free, so those that nobody wants go to a dump.
//
// 32-bit numbers are as well loaded one by one: a warp's loads are whole sectors then.
#pragma once

#include <type_traits>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/hopper/hopper_scope.cuh"

namespace convt2d::cuda::hopper {

// Where things lie in shared memory, by address.
struct Places {
  unsigned char* base;
  const int* taps;
  const ColumnInfo* columns;
  bool pairs, even;  // of columns: see Tables
  uint32_t full_source, empty_source, full_weight, empty_weight,
      full_rows;  // barriers, 8 bytes a stage; strict fp32: full_rows if weights are split
  uint32_t rows, patch, weights, staging, dump;
  const int* kernel;  // turned kernels: see build_kernel
};

constexpr int kTurnedVector = 8;       // neighbours of a load
constexpr int kTurnedNeighbours = 32;  // of an item, which a warp does
constexpr int kTurnedChannels = 8;     // half a slice

// A lane's part of an item.
template <class T>
struct Turned {
  const T* from;  // its neighbours in its first channel
  int mask;       // which of their words exist
  uint32_t row;   // address of its row in the first half of the first slice; 0: to the dump
};

// Which neighbours a lane loads, the first of them, of which channel; and whose row it addresses. Spread so
// that the eight rows of each tile of a store lie in different banks.
__device__ __forceinline__ int loaded_neighbour() { return (threadIdx.x & 3) * kTurnedVector; }
__device__ __forceinline__ int loaded_channel() { return (threadIdx.x & 31) >> 2; }
__device__ __forceinline__ int addressed_neighbour() {
  const int lane = threadIdx.x & 31, vector = (lane & 7) >> 1;
  return vector * kTurnedVector + (((lane >> 3) + vector) & 3) * 2 + (lane & 1);
}
__device__ __forceinline__ void rotate(uint32_t (&word)[4], int by) {
  const bool one = by & 1, two = by & 2;
  const uint32_t a = one ? word[1] : word[0], b = one ? word[2] : word[1],
                 c = one ? word[3] : word[2], d = one ? word[0] : word[3];
  word[0] = two ? c : a;
  word[1] = two ? d : b;
  word[2] = two ? a : c;
  word[3] = two ? b : d;
}

// The words of one load.
template <bool WIDE>
__device__ __forceinline__ void load_vector(uint32_t (&word)[4], const void* from, int mask) {
  if constexpr (WIDE) {
    const uint4 vector = mask ? __ldg(static_cast<const uint4*>(from)) : make_uint4(0, 0, 0, 0);
    word[0] = vector.x, word[1] = vector.y, word[2] = vector.z, word[3] = vector.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word[i] = load_if<4>(static_cast<const char*>(from) + 4 * i, 0, mask & 1 << i);
  }
}

// How the halves of slices follow each other, in memory and in a buffer.
struct Steps {
  int64_t channel;  // elements
  int channels;     // that exist, from this lane's first one
  uint32_t half, slice, dump;
};

// This warp's part of `items`, of which `warps` warps take turns: four slices of loads at once, of which
// those of one item share its addresses. `ready` is called before the first delivery.
template <class T, bool WIDE, int SLICES, class Pick, class Ready>
__device__ __forceinline__ void turn(int items, int warp, int warps, const Steps& steps,
                                     Pick&& pick, Ready&& ready) {
  constexpr int kItems = 4 / SLICES;
  const int64_t half_bytes = steps.channel * (kTurnedChannels * int64_t(sizeof(T)));
  asm volatile("" : "+r"(warp));  // or what follows from it fills the registers between the calls
  bool waits = true;
  for (int first = warp; first < items; first += kItems * warps) {
    Turned<T> item[kItems];
    uint32_t word[kItems][SLICES][2][4];
#pragma unroll
    for (int b = 0; b < kItems; ++b) {
      item[b].mask = 0;
      if (first + b * warps < items) item[b] = pick(first + b * warps);
      const char* from = reinterpret_cast<const char*>(item[b].from);
#pragma unroll
      for (int i = 0; i < 2 * SLICES; ++i) {
        load_vector<WIDE>(word[b][i / 2][i % 2], from,
                          i * kTurnedChannels < steps.channels ? item[b].mask : 0);
        from += half_bytes;
      }
    }
    if (waits) ready();
    waits = false;
#pragma unroll
    for (int b = 0; b < kItems; ++b) {
      if (first + b * warps >= items) break;
#pragma unroll
      for (int i = 0; i < 2 * SLICES; ++i) {
        rotate(word[b][i / 2][i % 2], threadIdx.x & 3);
        const uint32_t offset = i / 2 * steps.slice + i % 2 * steps.half;
        store_turned(item[b].row ? item[b].row + offset : steps.dump, word[b][i / 2][i % 2]);
      }
    }
  }
  if (waits) ready();
}

template <class T, bool WIDE, class Pick, class Ready>
__device__ __forceinline__ void turn_slices(const GatherParams& p, int items, int thread,
                                            int threads, const Steps& steps, Pick&& pick,
                                            Ready&& ready) {
  const int warp = thread / 32, warps = threads / 32;
  if (p.slice_shift == 2) {
    turn<T, WIDE, 4>(items, warp, warps, steps, pick, ready);
  } else if (p.slice_shift == 1) {
    turn<T, WIDE, 2>(items, warp, warps, steps, pick, ready);
  } else {
    turn<T, WIDE, 1>(items, warp, warps, steps, pick, ready);
  }
}

// ---- the source: items are four vectors of pixels (hopper_scope.cuh)

template <class M, bool WIDE, class Ready>
__device__ __forceinline__ void turn_source(const GatherParams& p, const Scope& at, int units,
                                            int shift, int chunk, const int2* sources,
                                            uint32_t stage, uint32_t dump, int thread, int threads,
                                            Ready&& ready) {
  using T = typename M::Element;
  constexpr int kUnits = kTurnedNeighbours / kTurnedVector;
  const int channel = (chunk << p.slice_shift) * M::kRow + loaded_channel();
  const Steps steps = {p.source_stride[1], p.reduce - channel, static_cast<uint32_t>(p.source_half),
                       static_cast<uint32_t>(p.source_slice), dump + threadIdx.x % 32 * kHalfBytes};
  const T* const source = static_cast<const T*>(p.source) +
                          static_cast<int64_t>(at.group * p.reduce + channel) * p.source_stride[1];
  const int unit = addressed_neighbour() / kTurnedVector,
            pixel = addressed_neighbour() % kTurnedVector;
  const uint32_t row = stage + turned_row(p, shift, pixel);
  turn_slices<T, WIDE>(
      p, (units + kUnits - 1) / kUnits, thread, threads, steps,
      [&](int index) {
        const int2 mine = sources[index * kUnits + loaded_neighbour() / kTurnedVector];
        const int addressed = sources[index * kUnits + unit].y;
        return Turned<T>{source + mine.x, turned_mask(mine.y),
                         turned_wanted(addressed, pixel) ? row + turned_base(addressed) : 0};
      },
      ready);
}

// ---- rows of pixels that the copy engine has brought, by 32 pixels of all channels of a chunk

// It starts at multiples of 16 bytes only, or of fetched rows at those of `row_start`: so many pixels before the patch's first.
__device__ __forceinline__ int copied_lead(const GatherParams& p, const Scope& at, TileOrigin o,
                                           int start) {
  return (o.w * p.w.source_step + at.low_w) * p.pixel_channels & (start - 1);
}
template <class T>
__device__ __forceinline__ int copied_lead(const GatherParams& p, const Scope& at, TileOrigin o) {
  return copied_lead(p, at, o, 16 / int(sizeof(T)));
}

__device__ __forceinline__ void turn_rows(const GatherParams& p, uint32_t rows, uint32_t stage,
                                          uint32_t dump, uint32_t groups_magic, int lead, int warp,
                                          int warps) {
  const int lane = threadIdx.x & 31, groups = (p.copied_w + 31) / 32, slices = 1 << p.slice_shift;
  const uint32_t each = channel_bytes(p);
  for (int item = warp; item < p.tile_n * p.load_h * groups; item += warps) {
    const int row = divide(item, groups_magic), group = item - row * groups;
    const int image = divide(row, p.load_h_magic), h = row - image * p.load_h;
    const int y = divide(h, p.planes_h_magic), plane_y = h - y * p.planes_h;
    const int column = group * 32 + lane - lead;
    const int x = divide(column, p.planes_w_magic), plane_x = column - x * p.planes_w;
    const int pixel =
        (((plane_y * p.planes_w + plane_x) * p.tile_n + image) * p.plane_h + y) * p.plane_w + x;
    const bool wanted = column >= 0 && column < p.load_w;
    uint32_t to = wanted ? stage + pixel * kHalfBytes : dump + lane * kHalfBytes;
    const uint32_t half = wanted ? p.source_half : 0, slice = wanted ? p.source_slice : 0;
    // A lane loads 8 pixels of a channel, from rows that follow each other.
    uint32_t from = rows + (row * slices * 16 + (lane & 7)) * each + group * 64 + (lane >> 3) * 16;
    for (int s = 0; s < slices; ++s) {
      uint32_t word[2][4];
      load_tiles(from, word[0]);
      load_tiles(from + 8 * each, word[1]);
      store_turned(to, word[0]);
      store_turned(to + half, word[1]);
      from += 16 * each;
      to += slice;
    }
  }
}

// ---- weights: units are one, all kernels of a channel (turned kernels), or the taps (turned columns)

// For each tap of a turned kernel, where the rows of its product and phase start, or -1.
__device__ __forceinline__ void build_kernel(const GatherParams& p, const Scope& at, TileRow tile,
                                             const int* taps, int* kernel) {
  const int stack = stacked(p, tile);
  for (int tap = threadIdx.x; tap < p.kernel_taps; tap += threads(tile)) {
    int found = -1;
    for (int i = 0; i < at.products * stack; ++i)
      if (taps[i] == tap)
        found = i / stack * p.product_bytes + first_row(p, tile, i % stack) * kHalfBytes;
    kernel[tap] = found;
  }
}

template <class M, bool KERNELS, class Ready>
__device__ __forceinline__ void turn_weights(const GatherParams& p, const Scope& at, TileRow tile,
                                             int chunk, const Places& places, uint32_t stage,
                                             int thread, int threads, Ready&& ready) {
  using T = typename M::Element;
  const int stack = stacked(p, tile), rows = weight_rows(tile);
  const int taps = KERNELS ? p.kernel_taps : 1, units = KERNELS ? 1 : at.products * stack;
  const int blocks = (p.tile_channels * taps + kTurnedNeighbours - 1) / kTurnedNeighbours;
  const uint32_t blocks_magic = magic_of(blocks);
  const int first_channel = at.column_tile * p.tile_channels;
  const int limit = min(p.columns - first_channel, p.tile_channels) * taps;
  const int channel = (chunk << p.slice_shift) * M::kRow + loaded_channel();
  const Steps steps = {p.weight_reduce, p.reduce - channel,
                       static_cast<uint32_t>(rows * kHalfBytes),
                       static_cast<uint32_t>(p.part_products * p.product_bytes),
                       places.dump + threadIdx.x % 32 * kHalfBytes};
  const T* const weight =
      static_cast<const T*>(p.weight) + static_cast<int64_t>(at.group) * p.weight_group +
      static_cast<int64_t>(channel) * p.weight_reduce + first_channel * p.weight_column;
  turn_slices<T, true>(
      p, units * blocks, thread, threads, steps,
      [&](int index) {
        const int unit = KERNELS ? 0 : divide(index, blocks_magic);
        const int first = (index - unit * blocks) * kTurnedNeighbours;
        const int tap = KERNELS ? 0 : places.taps[unit];
        const int mine = first + loaded_neighbour(), neighbour = first + addressed_neighbour();
        const int column = KERNELS ? divide(neighbour, p.kernel_taps_magic) : neighbour;
        int at_rows = -1;  // of the product and phase
        if (column < p.tile_channels)
          at_rows = KERNELS ? places.kernel[neighbour - column * taps]
                            : unit / stack * p.product_bytes +
                                  first_row(p, tile, unit % stack) * kHalfBytes;
        return Turned<T>{
            weight + (tap + mine), tap < 0 || mine >= limit ? 0 : 15,
            at_rows < 0 ? 0 : stage + at_rows + row_of<T>(p, tile, column) * kHalfBytes};
      },
      ready);
}

// ---- weights of which each column is [K][taps] (turned runs): a lane takes eight K of a column, all taps or eight of
// them, and puts them in order in its registers, so that neither loads nor stores are narrow

// Calls `visit` with a kernel's taps as a type, 8 for any multiple of it (turnable_run).
template <class Visit>
__device__ __forceinline__ void visit_run(int taps, Visit&& visit) {
  if (taps % 8 == 0) return visit(std::integral_constant<int, 8>());
  if (taps == 9) return visit(std::integral_constant<int, 9>());
  if (taps == 4) return visit(std::integral_constant<int, 4>());
  if (taps == 3) return visit(std::integral_constant<int, 3>());
  if (taps == 2) return visit(std::integral_constant<int, 2>());
  visit(std::integral_constant<int, 1>());
}

// Eight K and TAPS taps of a column; the words of a load follow each other.
template <int TAPS>
__device__ __forceinline__ void load_run(uint32_t (&word)[4 * TAPS], const void* from, int bytes,
                                         bool there) {
#pragma unroll
  for (int v = 0; v < TAPS; ++v) {
    const uint4* const at =
        reinterpret_cast<const uint4*>(static_cast<const char*>(from) + v * bytes);
    const uint4 four = there ? __ldg(at) : make_uint4(0, 0, 0, 0);
    word[4 * v] = four.x, word[4 * v + 1] = four.y;
    word[4 * v + 2] = four.z, word[4 * v + 3] = four.w;
  }
}
// The eight K of one of these taps.
template <int TAPS>
__device__ __forceinline__ void pick_tap(const uint32_t (&word)[4 * TAPS], int tap,
                                         uint32_t (&row)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int a = 2 * j * TAPS + tap, b = a + TAPS;  // where the two numbers of a word stand
    row[j] = __byte_perm(word[a / 2], word[b / 2],
                         (a % 2 ? 0x0032 : 0x0010) | (b % 2 ? 0x7600 : 0x5400));
  }
}

template <class M, int TAPS, class Ready>
__device__ __forceinline__ void turn_runs(const GatherParams& p, const Scope& at, TileRow tile,
                                          int chunk, const Places& places, uint32_t stage,
                                          int thread, int threads, Ready&& ready) {
  using T = typename M::Element;
  constexpr int kAtOnce = TAPS < 8 ? 8 / TAPS : 1;
  const int lane = threadIdx.x & 31, warps = threads / 32, octets = 2 << p.slice_shift;
  const int eights = TAPS == 8 ? p.kernel_taps / 8 : 1;
  const int items = (p.tile_channels + 31) / 32 * octets * eights;
  // From a vector to the next: neighbours, or, if only eight taps of each K are wanted, the next K.
  const int bytes = TAPS == 8 ? p.kernel_taps * int(sizeof(T)) : 16;
  const uint32_t half = weight_rows(tile) * kHalfBytes, slice = p.part_products * p.product_bytes;
  const int first_column = at.column_tile * p.tile_channels;
  const int depth = (chunk << p.slice_shift) * M::kRow;
  const T* const weight =
      static_cast<const T*>(p.weight) + (static_cast<int64_t>(at.group) * p.weight_group +
                                         first_column * p.weight_column + depth * p.kernel_taps);
  bool waits = true;
  for (int first = thread / 32; first < items; first += kAtOnce * warps) {
    uint32_t word[kAtOnce][4 * TAPS], to[kAtOnce];
    int tap[kAtOnce];
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) {
      const int item = first + b * warps;
      const int rest = eights > 1 ? item / eights : item;
      const int octet = rest & (octets - 1), column = rest / octets * 32 + lane;
      tap[b] = (item - rest * eights) * 8;
      load_run<TAPS>(
          word[b], weight + (column * p.weight_column + octet * 8 * p.kernel_taps + tap[b]), bytes,
          item < items && first_column + column < p.columns && depth + octet * 8 < p.reduce);
      to[b] = item < items && column < p.tile_channels
                  ? stage + row_of<T>(p, tile, column) * kHalfBytes + (octet & 1) * half +
                        (octet >> 1) * slice
                  : 0;
    }
    if (waits) ready();
    waits = false;
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) {
      if (to[b] == 0) continue;
#pragma unroll
      for (int i = 0; i < TAPS; ++i) {
        uint32_t row[4];
        pick_tap<TAPS>(word[b], i, row);
        const int product = places.kernel[tap[b] + i];
        if (product >= 0) store_shared_16(to[b] + product, row);
      }
    }
  }
  if (waits) ready();
}

}  // namespace convt2d::cuda::hopper
