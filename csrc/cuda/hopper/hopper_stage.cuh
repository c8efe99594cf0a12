// The producers: source patches and weights from global memory through registers to shared memory.
//
// What arrives must be turned (NCHW channels into rows of 16 bytes), rounded (tf32) or zeroed (borders), so
// it goes through registers, as parcels of up to 32 bytes, a batch at a time: a thread has few
// scoreboards, so a pipeline of parcels would wait for its newest load whenever it needs the oldest.
#pragma once

#include <type_traits>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/strict_product.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/hopper/hopper_shift.cuh"
#include "cuda/hopper/hopper_turn.cuh"

namespace convt2d::cuda::hopper {

constexpr int kSecondTeam = 64;  // the thread of the producers that asks for its source

struct Parcel {
  uint32_t word[8];
  uint32_t address;  // shared; 0: nothing to deliver
};

// Eight elements, `stride` bytes apart, of which `left` exist; the others are zero.
template <int BYTES>
__device__ __forceinline__ void load_eight(uint32_t (&word)[8], const char* from, int64_t stride,
                                           int left) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    word[j] = load_if<BYTES>(from, j, left);
    from += stride;
  }
}

// A slice of neighbours, of which `left` exist: a multiple of 16 bytes.
template <int ELEMENTS>
__device__ __forceinline__ void load_slice(uint32_t (&word)[8], const char* from, int left) {
  const uint4 zero = make_uint4(0, 0, 0, 0);
  const uint4 low = left > 0 ? __ldg(reinterpret_cast<const uint4*>(from)) : zero;
  const uint4 high = left > ELEMENTS / 2 ? __ldg(reinterpret_cast<const uint4*>(from) + 1) : zero;
  word[0] = low.x, word[1] = low.y, word[2] = low.z, word[3] = low.w;
  word[4] = high.x, word[5] = high.y, word[6] = high.z, word[7] = high.w;
}

// How many parcels a chunk's patch and the weights of a part are.
template <class M>
__device__ __forceinline__ int source_parcels(const GatherParams& p, int units) {
  const bool halves = sizeof(typename M::Element) == 2 && p.source_mode != kVectors;
  return units << (p.slice_shift + halves);
}
template <class M>
__device__ __forceinline__ int weight_parcels(const GatherParams& p, TileRow tile) {
  const bool halves = sizeof(typename M::Element) == 2 && p.weight_mode != kWeightVectors;
  return (p.part_products * weight_rows(tile)) << (p.slice_shift + halves);
}

template <class M, SourceMode MODE>
__device__ __forceinline__ void pick_source(const GatherParams& p, const Scope& at, Parcel& parcel,
                                            int index, int units, uint32_t units_magic, int chunk,
                                            const int2* sources, uint32_t stage) {
  using T = typename M::Element;
  constexpr bool kHalf = sizeof(T) == 2;
  parcel.address = 0;
  if (index >= source_parcels<M>(p, units)) return;
  const char* const source = static_cast<const char*>(p.source);
  if constexpr (MODE == kVectors) {
    const int slice = index & ((1 << p.slice_shift) - 1);
    const int2 unit = sources[index >> p.slice_shift];
    parcel.address = stage + slice * p.source_slice + unit.y;
    const int channel = ((chunk << p.slice_shift) + slice) * M::kRow;
    const int left = unit.x < 0 ? 0 : p.reduce - channel;
    load_slice<M::kRow>(
        parcel.word,
        source + (static_cast<int64_t>(unit.x) + at.group * p.reduce + channel) * int(sizeof(T)),
        left);
  } else {
    const int octet = divide(index, units_magic);
    const int2 unit = sources[index - octet * units];
    const int slice = kHalf ? octet >> 1 : octet;
    parcel.address =
        stage + slice * p.source_slice + (kHalf && octet & 1 ? p.source_half : 0) + unit.y;
    const int channel = (chunk << p.slice_shift) * M::kRow + octet * 8;
    const int left = unit.x < 0 ? 0 : p.reduce - channel;
    const int64_t stride = static_cast<int64_t>(p.source_stride[1]) * sizeof(T);
    load_eight<sizeof(T)>(
        parcel.word,
        source + (at.group * p.reduce + channel) * stride + unit.x * int64_t(sizeof(T)), stride,
        left);
  }
}

// Weights of one row and product: a slice of channels (fp32, or contiguous), or half a slice.
template <class M, bool VECTORS>
__device__ __forceinline__ void pick_weights(const GatherParams& p, const Scope& at, TileRow tile,
                                             Parcel& parcel, int index, uint32_t products_magic,
                                             int chunk, int first_product, const Places& places,
                                             uint32_t stage) {
  using T = typename M::Element;
  const int rows = weight_rows(tile), count = p.part_products;
  constexpr bool halves = sizeof(T) == 2 && !VECTORS;
  parcel.address = 0;
  if (index >= weight_parcels<M>(p, tile)) return;
  int piece, product, row;
  if (p.weight_columns_first) {
    row = index % rows;
    const int rest = index / rows;
    piece = divide(rest, products_magic);
    product = rest - piece * count;
  } else {
    const int rest = divide(index, products_magic);
    product = index - rest * count;
    row = rest % rows;
    piece = rest / rows;
  }
  if (first_product + product >= at.products) return;
  const int slice = halves ? piece >> 1 : piece, half = halves ? piece & 1 : 0;
  parcel.address =
      stage + slice * p.weight_slice + product * p.product_bytes + (half * rows + row) * kHalfBytes;
  const ColumnInfo column = places.columns[row];
  const int phase = column.phase_h * p.w.slots + column.phase_w;
  const int tap =
      column.offset < 0 ? -1 : places.taps[(first_product + product) * stacked(p, tile) + phase];
  const int channel = ((chunk << p.slice_shift) + slice) * M::kRow + half * 8;
  const int left = tap < 0 ? 0 : p.reduce - channel;
  const char* from = static_cast<const char*>(p.weight) +
                     (static_cast<int64_t>(at.group) * p.weight_group +
                      column.channel * p.weight_column + channel * p.weight_reduce + tap) *
                         int(sizeof(T));
  if constexpr (VECTORS) {
    load_slice<M::kRow>(parcel.word, from, left);
  } else {
    load_eight<sizeof(T)>(parcel.word, from, p.weight_reduce * int64_t(sizeof(T)), left);
  }
}

enum class Shape { kSlice, kHalf };

// Bytes from the first 16 of a slice to its other 16; and, of strict fp32, from the high parts of its numbers to the
// low ones.
struct Apart {
  int second, low;
};

template <class M>
__device__ __forceinline__ void deliver(const Parcel& parcel, Shape shape, Apart apart) {
  if (parcel.address == 0) return;
  if constexpr (M::kSplit) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t high[4], low[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) M::split(parcel.word[half * 4 + j], high[j], low[j]);
      store_shared_16(parcel.address + half * apart.second, high);
      store_shared_16(parcel.address + half * apart.second + apart.low, low);
    }
    return;
  }
  uint32_t low[4], high[4];
  if (sizeof(typename M::Element) == 2 && shape == Shape::kHalf) {
#pragma unroll
    for (int j = 0; j < 4; ++j) low[j] = parcel.word[2 * j] | parcel.word[2 * j + 1] << 16;
    store_shared_16(parcel.address, low);
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    low[j] = M::round(parcel.word[j]);
    high[j] = M::round(parcel.word[j + 4]);
  }
  store_shared_16(parcel.address, low);
  store_shared_16(parcel.address + apart.second, high);
}

// Calls `visit` with the weights' mode as a type: one that goes with the element, the source and the tile.
template <class T, SourceMode SOURCE, int ROW, class Visit>
__device__ __forceinline__ void visit_weight_mode(int mode, Visit&& visit) {
  constexpr bool kTurns = sizeof(T) == 2;
  if constexpr (kTiles[ROW].columns_copied) {
    visit(std::integral_constant<WeightMode, kColumnsCopied>());
  } else if constexpr (SOURCE == kFetchedRows || lean(kTiles[ROW])) {
    visit(std::integral_constant<WeightMode, kWeightCopied>());
  } else {
    if constexpr (SOURCE == kVectors || SOURCE == kCopied) {
      if constexpr (SOURCE == kCopied)
        if (mode == kWeightCopied)
          return visit(std::integral_constant<WeightMode, kWeightCopied>());
      if (mode == kWeightVectors)
        return visit(std::integral_constant<WeightMode, kWeightVectors>());
      if constexpr (kTurns)
        if (mode == kTurnedColumns)
          return visit(std::integral_constant<WeightMode, kTurnedColumns>());
    } else if constexpr (kTurns) {
      if (mode == kTurnedKernels)
        return visit(std::integral_constant<WeightMode, kTurnedKernels>());
      if constexpr (SOURCE != kPixels)
        if (mode == kTurnedRuns) return visit(std::integral_constant<WeightMode, kTurnedRuns>());
    }
    visit(std::integral_constant<WeightMode, kElements>());
  }
}
template <class T, int ROW, class Visit>
__device__ __forceinline__ void visit_source_mode(int mode, Visit&& visit) {
  if constexpr (kTiles[ROW].copied) {
    constexpr SourceMode kMode = kTiles[ROW].turned    ? kCopiedRows
                                 : kTiles[ROW].fetched ? kFetchedRows
                                                       : kCopied;
    return visit(std::integral_constant<SourceMode, kMode>());
  }
  if (mode == kVectors) return visit(std::integral_constant<SourceMode, kVectors>());
  if constexpr (sizeof(T) == 2) {
    if (mode == kTurned) return visit(std::integral_constant<SourceMode, kTurned>());
    if (mode == kTurnedWords) return visit(std::integral_constant<SourceMode, kTurnedWords>());
  }
  visit(std::integral_constant<SourceMode, kPixels>());
}

template <class M, bool VECTORS>
constexpr Shape kWeightShape =
    sizeof(typename M::Element) == 2 && !VECTORS ? Shape::kHalf : Shape::kSlice;

// A chunk of the weights of products [first, last) by the copy engine; one thread asks, and has told the
// barrier how much will come. No more instructions than it takes: a thread alone needs six cycles for each.
template <class T, WeightMode MODE>
__device__ __forceinline__ void copy_weights(const GatherParams& p, const Scope& at, TileRow tile,
                                             const TensorMaps& maps, int chunk, int first, int last,
                                             const Places& places, uint32_t stage, uint32_t full) {
  const int depth = chunk_bytes(p) / int(sizeof(T));
  const int column = at.column_tile * p.tile_channels;
  const uint32_t taps = shared_address(places.taps);
  if (MODE == kWeightCopied && tile.fetched) {  // one product
    copy_box(stage, &maps.weight, full, chunk * depth, at.group * p.columns + column, 0, 0);
  } else if constexpr (MODE == kWeightCopied) {
    const int rows = (at.group * p.columns + column) /
                     (one_by_one(tile, p.store_mode) ? 1 : 64 / int(sizeof(T)));
#pragma unroll 1
    for (int i = first; i < last; ++i) {
      copy_box(stage, &maps.weight, full, load_shared_4(taps + i * 4) + chunk * depth, 0, 0, 0,
               rows);
      stage += p.product_bytes;
    }
  } else {  // phases without a tap at this offset lie outside of the tensor and become zeros
    const int stack = stacked(p, tile), each = column_row(p) / int(sizeof(T));
    const int channel = at.group * p.reduce + chunk * depth;
    const int block = p.blocks_at_once ? column / each : 0;
#pragma unroll 1
    for (int i = first * stack; i < last * stack; ++i) {
      const int tap = load_shared_4(taps + i * 4);
      if (p.blocks_at_once) {
        copy_box(stage, &maps.weight, full, 0, channel, block, tap);
        stage += p.blocks_at_once * column_block(p);
      } else {
        for (int c = 0; c < p.tile_channels; c += each) {
          copy_box(stage, &maps.weight, full, column + c, channel, 0, tap);
          stage += column_block(p);
        }
      }
    }
  }
}

// A chunk of the weights of all products, as they lie in memory.
template <class M, WeightMode MODE, class Ready>
__device__ __forceinline__ void turn_all(const GatherParams& p, const Scope& at, TileRow tile,
                                         int chunk, const Places& places, uint32_t stage,
                                         int thread, int threads, Ready&& ready) {
  if constexpr (MODE == kTurnedRuns) {
    visit_run(p.kernel_taps, [&](auto taps) {
      turn_runs<M, decltype(taps)::value>(p, at, tile, chunk, places, stage, thread, threads,
                                          ready);
    });
  } else {
    turn_weights<M, MODE == kTurnedKernels>(p, at, tile, chunk, places, stage, thread, threads,
                                            ready);
  }
}

// The weights of all of K, where that is one chunk: 16 bytes of a row at a time.
template <class M, int ROW>
__device__ __forceinline__ void gather_weights(const GatherParams& p, const Scope& at,
                                               const Places& places, const SharedMap& map) {
  using T = typename M::Element;
  constexpr int kRows = weight_rows(kTiles[ROW]), kPiece = 16 / int(sizeof(T));
  const int* const weights =
      weights_of_numbers(p, reinterpret_cast<int*>(places.base + map.offsets));
  for (int i = threadIdx.x; i < p.slices * 2 * kRows; i += consumers(kTiles[ROW])) {
    const int half = i / kRows, row = i % kRows;
    const ColumnInfo column = places.columns[row];
    const char* const from =
        static_cast<const char*>(p.weight) + (static_cast<int64_t>(at.group) * p.weight_group +
                                              int64_t{column.channel} * p.weight_column) *
                                                 int(sizeof(T));
    uint32_t number[kPiece], word[4], low[4];
#pragma unroll
    for (int j = 0; j < kPiece; ++j) {
      const int weight = column.offset < 0 ? -1 : weights[half * kPiece + j];
      number[j] =
          load_if<sizeof(T)>(from + int64_t{max(weight, 0)} * int(sizeof(T)), 0, weight + 1);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      word[j] = kPiece == 4 ? M::round(number[j])
                            : number[j * (kPiece / 4)] | number[(j + 1) * (kPiece / 4) - 1] << 16;
      if constexpr (M::kSplit) M::split(word[j], word[j], low[j]);
    }
    const uint32_t to =
        places.weights + half / 2 * p.weight_slice + (half % 2 * kRows + row) * kHalfBytes;
    store_shared_16(to, word);
    if constexpr (M::kSplit) store_shared_16(to + p.weight_low, low);
  }
}

// Strict fp32: what the tensor core cuts off of `bytes` of weights goes behind them, by `threads` threads, of whom this is
// one. TOGETHER times 16 bytes at a time.
template <int TOGETHER>
__device__ __forceinline__ void split_weights(uint32_t weights, int bytes, int thread,
                                              int threads) {
#pragma unroll 1
  for (int first = thread * 16; first < bytes; first += TOGETHER * threads * 16) {
    uint32_t word[TOGETHER][4];
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k) load_shared_16(weights + first + k * threads * 16, word[k]);
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k) {
#pragma unroll
      for (uint32_t& each : word[k]) each = cut_off(each);
      store_shared_16(weights + bytes + first + k * threads * 16, word[k]);
    }
  }
}

// Weights that stay: the consumers bring them in before they start.
template <class M, int ROW>
__device__ __forceinline__ void bring_all_weights(const GatherParams& p, const Scope& at,
                                                  const TensorMaps& maps, const Places& places,
                                                  int weight_stage) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  const auto with_mode = [&](auto mode) {
    constexpr WeightMode kMode = decltype(mode)::value;
    constexpr bool kAsks = copied(kMode) && !by_steps(tile);  // else a producer does
    if (kAsks && threadIdx.x == 0)
      barrier_expect(places.full_weight, p.chunks * at.products * p.product_bytes);
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      const uint32_t stage = places.weights + chunk * weight_stage;
      if constexpr (copied(kMode)) {
        if (kAsks && threadIdx.x == 0)
          copy_weights<T, kMode>(p, at, tile, maps, chunk, 0, at.products, places, stage,
                                 places.full_weight);
      } else if constexpr (kMode >= kTurnedKernels) {
        turn_all<M, kMode>(p, at, tile, chunk, places, stage, threadIdx.x, consumers(tile), [] {});
      } else {
        constexpr bool kVectors = kMode == kWeightVectors;
        const uint32_t products = magic_of(p.part_products);
        const int parcels = weight_parcels<M>(p, tile);
        for (int i = threadIdx.x; i < parcels; i += 2 * consumers(tile)) {
          Parcel parcel[2];
#pragma unroll
          for (int k = 0; k < 2; ++k)
            pick_weights<M, kVectors>(p, at, tile, parcel[k], i + k * consumers(tile), products,
                                      chunk, 0, places, stage);
#pragma unroll
          for (int k = 0; k < 2; ++k)
            deliver<M>(parcel[k], kWeightShape<M, kVectors>,
                       {weight_rows(tile) * kHalfBytes, p.weight_low});
        }
      }
    }
    if constexpr (copied(kMode)) barrier_wait(places.full_weight, 0);
    if constexpr (copied(kMode) && M::kSplit) {
      for (int chunk = 0; chunk < p.chunks; ++chunk)
        split_weights<1>(places.weights + chunk * weight_stage, p.product_bytes, threadIdx.x,
                         consumers(tile));
    }
  };
  if constexpr (straight(tile)) {
    visit_weight_mode<T, tile.fetched ? kFetchedRows : kCopied, ROW>(p.weight_mode, with_mode);
  } else if (p.source_mode == kVectors) {
    visit_weight_mode<T, kVectors, ROW>(p.weight_mode, with_mode);
  } else {
    visit_weight_mode<T, kTurned, ROW>(p.weight_mode, with_mode);
  }
}

// Named barriers of the producer groups; the consumers' come before (hopper_gather.cuh).
// (Rows of channels:) all threads, once what all of them look up is written.
enum { kProducerGroup0 = 6, kTables = 8 };

// The two producer groups fill buffers in turn: while one waits for its loads, the other stores. Within a
// buffer, kBatch parcels a thread are on their way at once. A group owns every second stage of a ring,
// whose stages are even in number, and nobody else fills it: a barrier knows only whether its phase is
// odd, so whoever left a stage out could not tell a turn from the next but one.
template <class M, int ROW>
struct Producer {
  using T = typename M::Element;
  static constexpr TileRow tile = kTiles[ROW];
  static constexpr int kBatch = tile.copied ? 4 : 6, kThreadsOfGroup = 128;

  const GatherParams& p;
  const Scope& at;
  const SharedMap& map;
  const TensorMaps& maps;
  const Places& places;
  const int group = (threadIdx.x - consumers(tile)) / kThreadsOfGroup;
  const int thread = threadIdx.x % kThreadsOfGroup;
  const int units = source_units(p);
  const uint32_t units_magic = magic_of(units), products_magic = magic_of(p.part_products);
  int2* const sources = reinterpret_cast<int2*>(places.base + map.sources) + group * (units + 3);
  int listed = -1;  // the tile that `sources` is about
  int shift = 0;    // of its vectors: see turned_row

  template <SourceMode MODE>
  __device__ __forceinline__ void list_sources(int now, TileOrigin origin) {
    if (listed == now) return;
    listed = now;
    barrier_among(kProducerGroup0 + group, kThreadsOfGroup);  // all are done with the list before
    if constexpr (MODE >= kTurned) {
      shift = turned_shift(p, turned_lead(p, at, origin));
      build_turned_sources(p, at, origin, sources, thread, kThreadsOfGroup);
    } else {
      build_sources(p, at, origin, sources, thread, kThreadsOfGroup);
    }
    barrier_among(kProducerGroup0 + group, kThreadsOfGroup);
  }

  // All parcels of a buffer: loads in batches, the first of which need not wait for the buffer.
  template <class Pick>
  __device__ __forceinline__ void bring(int parcels, uint32_t empty, const Ring& ring, Shape shape,
                                        Apart apart, Pick&& pick) {
    int first = thread;
    asm volatile("" : "+r"(first));  // as in turn()
    for (; first - thread < parcels; first += kBatch * kThreadsOfGroup) {
      Parcel parcel[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) pick(parcel[k], first + k * kThreadsOfGroup);
      if (first < kThreadsOfGroup) barrier_wait(empty + ring.stage * 8, ring.parity ^ 1);
#pragma unroll
      for (int k = 0; k < kBatch; ++k) deliver<M>(parcel[k], shape, apart);
    }
  }

  template <SourceMode MODE>
  __device__ __forceinline__ void bring_source(int chunk, const Ring& ring) {
    constexpr bool kHalf = sizeof(T) == 2;
    const uint32_t stage = places.patch + ring.stage * map.patch_stage;
    if constexpr (MODE >= kTurned) {
      turn_source<M, MODE == kTurned>(
          p, at, units, shift, chunk, sources, stage, places.dump, thread, kThreadsOfGroup,
          [&] { barrier_wait(places.empty_source + ring.stage * 8, ring.parity ^ 1); });
    } else {
      bring(source_parcels<M>(p, units), places.empty_source, ring,
            MODE == kPixels && kHalf ? Shape::kHalf : Shape::kSlice, {p.source_half, p.source_low},
            [&](Parcel& parcel, int index) {
              pick_source<M, MODE>(p, at, parcel, index, units, units_magic, chunk, sources, stage);
            });
    }
  }

  template <WeightMode MODE>
  __device__ __forceinline__ void bring_weights(int chunk, int first, const Ring& ring) {
    const uint32_t stage = places.weights + ring.stage * map.weight_stage;
    if constexpr (MODE >= kTurnedKernels) {
      turn_all<M, MODE>(p, at, tile, chunk, places, stage, thread, kThreadsOfGroup, [&] {
        barrier_wait(places.empty_weight + ring.stage * 8, ring.parity ^ 1);
      });
    } else {
      constexpr bool kVectors = MODE == kWeightVectors;
      bring(weight_parcels<M>(p, tile), places.empty_weight, ring, kWeightShape<M, kVectors>,
            {weight_rows(tile) * kHalfBytes, p.weight_low}, [&](Parcel& parcel, int index) {
              pick_weights<M, kVectors>(p, at, tile, parcel, index, products_magic, chunk, first,
                                        places, stage);
            });
    }
  }

  // One thread asks the copy engine for a plane of a patch.
  __device__ __forceinline__ void copy_plane(int chunk, int plane, const Ring& ring, TileOrigin o) {
    barrier_wait(places.empty_source + ring.stage * 8, ring.parity ^ 1);
    const uint32_t full = places.full_source + ring.stage * 8;
    const int row = chunk_bytes(p);
    barrier_expect(full, p.tile_n * p.plane_h * p.plane_w * row);
    const int plane_h = divide(plane, p.planes_w_magic), plane_w = plane - plane_h * p.planes_w;
    copy_box(places.patch + ring.stage * map.patch_stage, &maps.source, full,
             at.group * p.reduce + chunk * (row / int(sizeof(T))),
             o.w * p.w.source_step + at.low_w + plane_w, o.h * p.h.source_step + at.low_h + plane_h,
             o.n);
  }

  // The same for rows with zeros around them.
  __device__ __forceinline__ void copy_bordered(int chunk, const Ring& ring, TileOrigin o) {
    barrier_wait(places.empty_source + ring.stage * 8, ring.parity ^ 1);
    if constexpr (has_alike_halves(tile)) {
      if (p.spread) return copy_runs(chunk, ring, o);
    }
    const uint32_t full =
        (has_alike_halves(tile) && p.shifted ? places.full_rows : places.full_source) +
        ring.stage * 8;
    barrier_expect(full, fetched_rows_bytes(p));
    const int channel = at.group * p.reduce + first_channel<T>(p, chunk),
              row = o.h * p.h.source_step + at.low_h;
    copy_box(
        places.patch + ring.stage * map.patch_stage, &maps.source, full,
        (o.w * p.w.source_step + at.low_w) * p.pixel_channels - copied_lead(p, at, o, p.row_start),
        p.rows_inside ? row : channel, p.rows_inside ? channel : row, o.n);
  }

  // The same for runs of whole rows, which will be spread.
  __device__ __forceinline__ void copy_runs(int chunk, const Ring& ring, TileOrigin o) {
    const uint32_t full = places.full_rows + ring.stage * 8;
    barrier_expect(full, p.spread_boxes * p.tile_n * p.window * p.spread_words * 4);
    uint32_t to = places.patch + ring.stage * map.patch_stage + spread_at(p);
    int first = (o.h * p.h.source_step + at.low_h) * p.row_elements;
#pragma unroll 1
    for (int box = 0; box < p.spread_boxes; ++box) {
      copy_box(to, &maps.source, full, (first & -kSpreadStart) / 2,
               at.group * p.reduce + first_channel<T>(p, chunk), o.n, 0);
      to += spread_box_bytes(p);
      first += p.spread_rows * p.row_elements;
    }
  }

  // What came is moved by a number, or spread, by the last two warps: a chunk each by turns.
  __device__ __forceinline__ void shift_all_rows() {
    const RowShift shift(fetched_rows_bytes(p) / channel_bytes(p), channel_bytes(p));
    for_my_chunks([&](uint32_t stage, TileOrigin) { shift.move(stage); });
  }
  __device__ __forceinline__ void spread_all_rows() {
    const RowSpread spread(p, at.low_w, shared_address(places.base + map.pieces));
    for_my_chunks([&](uint32_t stage, TileOrigin o) {
      const int first = (o.h * p.h.source_step + at.low_h) * p.row_elements;
      spread.move(stage, spread_at(p) + (first & (kSpreadStart - 1)) * int(sizeof(T)));
    });
  }
  // visit(address of a stage, origin of the tile), for every second chunk. As for_planes(), whose look-ups of planes and products
  // were a third of what these warps did.
  template <class Visit>
  __device__ __forceinline__ void for_my_chunks(Visit&& visit) {
    constexpr int kWarps = kShifters / 32;
    const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
    Ring ring;
    TileWalk walk(p, at);
    int left = thread / 32 - (kThreadsOfGroup / 32 - kWarps);  // chunks until one is mine
#pragma unroll 1
    for (int now = at.walker; now < tiles; now += at.walkers, walk.advance(p)) {
      const TileOrigin origin = walk.origin(p);
#pragma unroll 1
      for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance(p.source_stages)) {
        if (left-- > 0) continue;
        left = kWarps - 1;
        barrier_wait(places.full_rows + ring.stage * 8, ring.parity);
        visit(places.patch + ring.stage * map.patch_stage, origin);
        filled(places.full_source + ring.stage * 8);
      }
    }
  }

  // Threads bring them, where rows are no whole 16 bytes. What lies in memory side by side in 16 bytes does so in a patch,
  // and what lies beside a row is the next one: consumers know better than to fetch that.
  __device__ __forceinline__ void bring_bordered(int bringer, int chunk, const Ring& ring,
                                                 TileOrigin o) {
    constexpr int kPiece = 16 / int(sizeof(T));
    const int first = fetched_pixel<T>(p, at, o, chunk), elements = source_elements(p);
    const uint32_t patch =
        places.patch + ring.stage * map.patch_stage + (first & (kPiece - 1)) * int(sizeof(T));
    const T* const source = static_cast<const T*>(p.source);
    barrier_wait(places.empty_source + ring.stage * 8, ring.parity ^ 1);
    if (first >= 0 && uint32_t(first) + uint32_t(p.reach) <= uint32_t(elements)) {
      for_pieces<4>(bringer, first, patch,
                    [&](uint32_t to, int from) { copy_async_16(to, source + from, true); });
    } else {  // some of it is before or behind the tensor
      for_pieces<1>(bringer, first, patch, [&](uint32_t to, int from) {
        const bool there = from >= 0 && from < elements;
        copy_async_16_part(to, source + (there ? from : 0),
                           there ? min(elements - from, kPiece) * int(sizeof(T)) : 0);
      });
    }
    copy_async_arrive(places.full_source + ring.stage * 8);
  }

  // visit(shared address, element in memory) of all pieces of a patch whose first pixel is `first`, TOGETHER of them at a
  // time. Few instructions, since three warps have all of them to do.
  template <int TOGETHER, class Visit>
  __device__ __forceinline__ void for_pieces(int bringer, int first, uint32_t patch,
                                             Visit&& visit) {
    constexpr int kPiece = 16 / int(sizeof(T));
    uint32_t pieces = shared_address(places.base + map.pieces) + bringer * 8;
    const uint32_t end = shared_address(places.base + map.pieces) + p.brought_pieces * 8;
    const auto bring = [&](const uint32_t (&piece)[2]) {
      visit(patch + piece[1] & ~15u, first + int(piece[0]) & -kPiece);
    };
    if constexpr (TOGETHER > 1) {
#pragma unroll 1
      for (; pieces + (TOGETHER - 1) * kBringers * 8 < end; pieces += TOGETHER * kBringers * 8) {
        uint32_t piece[TOGETHER][2];
#pragma unroll
        for (int k = 0; k < TOGETHER; ++k) load_shared_8(pieces + k * kBringers * 8, piece[k]);
#pragma unroll
        for (int k = 0; k < TOGETHER; ++k) bring(piece[k]);
      }
    }
#pragma unroll 1
    for (; pieces < end; pieces += kBringers * 8) {
      uint32_t piece[2];
      load_shared_8(pieces, piece);
      bring(piece);
    }
  }

  template <SourceMode SOURCE>
  __device__ __forceinline__ void copy_source(int chunk, int plane, const Ring& ring,
                                              TileOrigin origin) {
    if constexpr (SOURCE == kFetchedRows) {
      copy_bordered(chunk, ring, origin);
    } else {
      copy_plane(chunk, plane, ring, origin);
    }
  }

  // The products of a chunk that read a plane.
  __device__ __forceinline__ int2 products_of_plane(int plane) const {
    if (p.planes_apart == 1) return make_int2(0, at.products);
    const uint32_t firsts = shared_address(places.base + map.firsts) + plane * 4;
    return make_int2(load_shared_4(firsts), load_shared_4(firsts + 4));
  }

  // visit(chunk, plane, its products, origin of the tile), for every plane of every chunk that a product reads.
  template <class Visit>
  __device__ __forceinline__ void for_planes(Visit&& visit) {
    const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
    TileWalk walk(p, at);
#pragma unroll 1
    for (int now = at.walker; now < tiles; now += at.walkers, walk.advance(p)) {
      const TileOrigin origin = walk.origin(p);
#pragma unroll 1
      for (int chunk = 0; chunk < p.chunks; ++chunk)
#pragma unroll 1
        for (int plane = 0; plane < p.planes_apart; ++plane) {
          const int2 products = products_of_plane(plane);
          if (products.x < products.y) visit(chunk, plane, products, origin);
        }
    }
  }

  // A thread asks the copy engine for the source.
  template <SourceMode SOURCE>
  __device__ __forceinline__ void ask_for_source() {
    Ring ring;
    for_planes([&](int chunk, int plane, int2, TileOrigin origin) {
      copy_source<SOURCE>(chunk, plane, ring, origin);
      ring.advance(p.source_stages);
    });
  }

  // The same by the threads of three warps, of whom two split weights too.
  __device__ __forceinline__ void bring_all_rows() {
    Ring ring, weight;
    const int bringer = thread < 32 ? thread : thread - 32;
    for_planes([&](int chunk, int, int2, TileOrigin origin) {
      bring_bordered(bringer, chunk, ring, origin);
      ring.advance(p.source_stages);
      if constexpr (tile.strict) {
        if (splits()) split_chunk(weight);
      }
    });
  }

  // Strict fp32: what is cut off of weights that do not stay.
  __device__ __forceinline__ bool splits() const {
    return p.weight_stages && thread >= kThreadsOfGroup - kSplitters;
  }
  __device__ __forceinline__ void split_chunk(Ring& ring) {
    constexpr int kLeast = weight_rows(tile) * kSliceBytes * slices_fetched(tile),  // of a chunk
        kTogether = kLeast < kSplitters * 64 ? kLeast / (kSplitters * 16) : 4;
    barrier_wait(places.full_weight + ring.stage * 8, ring.parity);
    split_weights<kTogether>(places.weights + ring.stage * map.weight_stage, p.product_bytes,
                             thread - (kThreadsOfGroup - kSplitters), kSplitters);
    filled(places.full_rows + ring.stage * 8);
    ring.advance(p.weight_stages);
  }
  __device__ __forceinline__ void split_all_weights() {
    Ring ring;
    for_planes([&](int, int, int2, TileOrigin) { split_chunk(ring); });
  }

  // A thread asks it for the weights.
  template <WeightMode WEIGHT>
  __device__ __forceinline__ void ask_for_weights() {
    Ring ring;
    for_planes([&](int chunk, int, int2 products, TileOrigin) {
#pragma unroll 1
      for (int from = products.x; from < products.y; from += p.part_products) {
        const int to = min(from + p.part_products, products.y);
        const uint32_t full = places.full_weight + ring.stage * 8;
        barrier_wait(places.empty_weight + ring.stage * 8, ring.parity ^ 1);
        barrier_expect(full, (to - from) * p.product_bytes);
        copy_weights<T, WEIGHT>(p, at, tile, maps, chunk, from, to, places,
                                places.weights + ring.stage * map.weight_stage, full);
        ring.advance(p.weight_stages);
      }
    });
  }

  // The same once for weights that stay, if it can bring them.
  __device__ __forceinline__ void ask_for_all_weights() {
    visit_weight_mode<T, kCopied, ROW>(p.weight_mode, [&](auto mode) {
      constexpr WeightMode kMode = decltype(mode)::value;
      if constexpr (copied(kMode)) {
        barrier_expect(places.full_weight, p.chunks * at.products * p.product_bytes);
        for (int chunk = 0; chunk < p.chunks; ++chunk)
          copy_weights<T, kMode>(p, at, tile, maps, chunk, 0, at.products, places,
                                 places.weights + chunk * map.weight_stage, places.full_weight);
      }
    });
  }

  // The one producer group where the copy engine brings the source.
  template <SourceMode SOURCE, WeightMode WEIGHT>
  __device__ __forceinline__ void run_copied() {
    if constexpr (copied(WEIGHT) || WEIGHT == kResident) {
      // Threads of two warps, since what they have to say takes them as long as multiplying what comes.
      const bool asks = thread == 0 || (may_be_teams(tile) && p.teams > 1 && thread == kSecondTeam);
      if (asks && !p.brought_pieces) ask_for_source<SOURCE>();
      if (thread == 32) {
        if constexpr (WEIGHT != kResident) {
          ask_for_weights<WEIGHT>();
        } else if constexpr (by_steps(tile)) {
          ask_for_all_weights();
        }
      }
      if constexpr (tile.strict) {
        if (splits()) split_all_weights();
      }
      if constexpr (has_alike_halves(tile)) {
        if (thread >= kThreadsOfGroup - kShifters) {
          if (p.shifted) shift_all_rows();
          if (p.spread) spread_all_rows();
        }
      }
    } else {
      Ring source, weight;
      for_planes([&](int chunk, int plane, int2 products, TileOrigin origin) {
        if (thread == 0) copy_source<SOURCE>(chunk, plane, source, origin);
        source.advance(p.source_stages);
        for (int from = products.x; from < products.y; from += p.part_products) {
          __syncwarp();
          bring_weights<WEIGHT>(chunk, from, weight);
          filled(places.full_weight + weight.stage * 8);
          weight.advance(p.weight_stages);
        }
      });
    }
  }

  // One thread asks the copy engine for the rows of a patch.
  __device__ __forceinline__ void copy_rows(int chunk, int stage, TileOrigin o) {
    const uint32_t full = places.full_rows + stage * 8;
    const int channels = chunk_bytes(p) / int(sizeof(T));
    barrier_expect(full, p.tile_n * p.load_h * channels * channel_bytes(p));
    copy_box(places.rows + stage * row_stage_bytes(p), &maps.source, full,
             o.w * p.w.source_step + at.low_w - copied_lead<T>(p, at, o),
             at.group * p.reduce + chunk * channels, o.h * p.h.source_step + at.low_h, o.n);
  }

  // The one producer group where rows of pixels come by the copy engine, kRowStages chunks ahead.
  template <WeightMode WEIGHT>
  __device__ __forceinline__ void run_turned() {
    const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
    const uint32_t groups_magic = magic_of((p.copied_w + 31) / 32);
    Ring source, weight, rows, ahead;
    TileWalk walk(p, at), ahead_walk(p, at);
    int ahead_tile = at.walker, ahead_chunk = 0;
    const auto look_ahead = [&] {
      if (ahead_tile >= tiles) return;
      if (thread == 0) copy_rows(ahead_chunk, ahead.stage, ahead_walk.origin(p));
      ahead.advance(kRowStages);
      if (++ahead_chunk < p.chunks) return;
      ahead_chunk = 0, ahead_tile += at.walkers;
      ahead_walk.advance(p);
    };
    for (int i = 0; i < kRowStages; ++i) look_ahead();
    for (int now = at.walker; now < tiles; now += at.walkers, walk.advance(p))
      for (int chunk = 0; chunk < p.chunks; ++chunk) {
        barrier_wait(places.full_rows + rows.stage * 8, rows.parity);
        barrier_wait(places.empty_source + source.stage * 8, source.parity ^ 1);
        turn_rows(p, places.rows + rows.stage * row_stage_bytes(p),
                  places.patch + source.stage * map.patch_stage, places.dump, groups_magic,
                  copied_lead<T>(p, at, walk.origin(p)), thread / 32, kThreadsOfGroup / 32);
        filled(places.full_source + source.stage * 8);
        source.advance(p.source_stages);
        rows.advance(kRowStages);
        barrier_among(kProducerGroup0, kThreadsOfGroup);  // all have read the rows
        look_ahead();
        if constexpr (WEIGHT != kResident) {
          for (int first = 0; first < at.products; first += p.part_products) {
            bring_weights<WEIGHT>(chunk, first, weight);
            filled(places.full_weight + weight.stage * 8);
            weight.advance(p.weight_stages);
          }
        }
      }
  }

  __device__ __forceinline__ void filled(uint32_t full) const {
    fence_for_wgmma();
    __syncwarp();
    if (thread % 32 == 0) barrier_arrive(full);
  }

  // Both producer groups, where threads bring everything.
  template <SourceMode SOURCE, WeightMode WEIGHT>
  __device__ __forceinline__ void run_fed() {
    const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
    Ring source, weight;
    TileWalk walk(p, at);
    for (int now = at.walker; now < tiles; now += at.walkers, walk.advance(p))
      for (int chunk = 0; chunk < p.chunks; ++chunk) {
        if (source.stage % 2 == group) {
          list_sources<SOURCE>(now, walk.origin(p));
          bring_source<SOURCE>(chunk, source);
          filled(places.full_source + source.stage * 8);
        }
        source.advance(p.source_stages);
        if constexpr (WEIGHT != kResident) {
          for (int part = 0; part < at.parts; ++part) {
            // Not who brought the patch, so that a chunk's patch and its first weights come together.
            if (weight.stage % 2 != group) {
              bring_weights<WEIGHT>(chunk, part * p.part_products, weight);
              filled(places.full_weight + weight.stage * 8);
            }
            weight.advance(p.weight_stages);
          }
        }
      }
  }

  template <SourceMode SOURCE, WeightMode WEIGHT>
  __device__ __forceinline__ void run() {
    if constexpr (SOURCE == kCopiedRows) {
      run_turned<WEIGHT>();
    } else if constexpr (kTiles[ROW].copied) {
      run_copied<SOURCE, WEIGHT>();
    } else {
      run_fed<SOURCE, WEIGHT>();
    }
  }
};

// One loop for each pair of modes: with all of them in one, their invariants fill the registers.
template <class M, int ROW>
__device__ __forceinline__ void produce(const GatherParams& p, const Scope& at,
                                        const SharedMap& map, const TensorMaps& maps,
                                        const Places& places) {
  using T = typename M::Element;
  // Who waits for weights that stay does so whether there are any.
  if (at.products == 0 && !(by_steps(kTiles[ROW]) && !p.weight_stages)) return;
  using Copy = std::integral_constant<bool, may_be_teams(kTiles[ROW])>;
  std::conditional_t<Copy::value, Scope, const Scope&> of_team = at;
  std::conditional_t<Copy::value, Places, const Places&> own = places;
  if constexpr (may_be_teams(kTiles[ROW])) {
    if (p.teams > 1) {
      const int team = threadIdx.x % 128 / kSecondTeam;
      of_team = scope_of_team(p, kTiles[ROW], at, team);
      own.full_source += team * kTeamStages * 8;
      own.empty_source += team * kTeamStages * 8;
      own.patch += team * p.source_stages * map.patch_stage;
    }
  }
  Producer<M, ROW> producer{p, of_team, map, maps, own};
  if constexpr (kTiles[ROW].fetched) {
    if (p.brought_pieces && producer.thread / 32 != 1) return producer.bring_all_rows();
  }
  visit_source_mode<T, ROW>(p.source_mode, [&](auto source) {
    constexpr SourceMode kSource = decltype(source)::value;
    if (!p.weight_stages) return producer.template run<kSource, kResident>();
    visit_weight_mode<T, kSource, ROW>(p.weight_mode, [&](auto weight) {
      producer.template run<kSource, decltype(weight)::value>();
    });
  });
}

}  // namespace convt2d::cuda::hopper
