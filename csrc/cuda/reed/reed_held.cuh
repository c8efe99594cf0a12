// The held tiles of reed; reed_held.h says what they are.
#pragma once

#include "cuda/reed/reed_held.h"
#include "cuda/reed/reed_store.cuh"

namespace convt2d::cuda::reed {

template <int KM>
using HeldSums = float[KM][kHeldColumns][4];

__device__ __forceinline__ int held_warp_m() { return threadIdx.x / 32 % kHeldAcross; }
__device__ __forceinline__ int held_first_row() {
  return threadIdx.x / 32 / kHeldAcross * kHeldColumns * 8;
}
// The first position of a warp's tile: warps take turns.
__device__ __forceinline__ int held_position(int tile) {
  return (tile * kHeldAcross + held_warp_m()) * 16;
}

// The first slot of a block, among those of all images.
__device__ __forceinline__ int first_slot(const Held& h, const Scope& at) {
  const Params& p = h.base;
  const int image = p.by_image.quotient(at.position);
  const int in_image = at.position - image * int(p.by_image.divisor);
  const int row = p.by_width.quotient(in_image);
  return (image * h.grid_h + row) * h.grid_w + in_image - row * int(p.by_width.divisor);
}

// Where the slots of a block are in x, -1 of those beside it; of its positions what write_places() tells, and their slots.
template <int KM>
__device__ __forceinline__ void write_held_places(const Held& h, const Scope& at, uint32_t places,
                                                  uint32_t sources) {
  const Params& p = h.base;
  const int extent = p.by_image.divisor, width = p.by_width.divisor;
  const int above_h = p.taps_h - 1, above_w = p.taps_w - 1;
  const int grid = h.by_grid.divisor, first = first_slot(h, at);
#pragma unroll 1
  for (int n = threadIdx.x; n < held_positions(KM); n += kHeldThreads) {
    const int number = at.position + min(n, h.tiles * 16 - 1);
    const int image = p.by_image.quotient(number), in_image = number - image * extent;
    const int row = p.by_width.quotient(in_image), column = in_image - row * width;
    const int q_h = row + p.first_h, q_w = column + p.first_w;
    const uint32_t x = uint32_t(at.group) * p.x_group + uint32_t(image) * p.x_image +
                       uint32_t(q_h) * p.x_row + uint32_t(q_w) * p.x_pixel;
    const uint32_t y = uint32_t(at.group) * p.y_group + uint32_t(image) * p.y_image +
                       uint32_t(q_h * p.stride_h - p.pad_h) * p.y_row + uint32_t(q_w) * p.unit -
                       p.pad_w;
    const uint32_t q = n < h.tiles * 16 && unsigned(number) < unsigned(p.positions)
                           ? uint32_t(q_h) << 16 | (q_w & 0xffff)
                           : kNowhere;
    const int slot = image * grid + row * h.grid_w + column - first + h.ahead;
    store_shared_16(places + n * 16, {x, y, q, uint32_t(slot)});
  }
#pragma unroll 1
  for (int slot = threadIdx.x; slot < h.slots; slot += kHeldThreads) {
    const int number = first + slot, image = h.by_grid.quotient(number);
    const int in_image = number - image * grid, row = h.by_grid_w.quotient(in_image);
    const int x_h = row - above_h + p.first_h,
              x_w = in_image - row * h.grid_w - above_w + p.first_w;
    const bool there =
        image < h.images && unsigned(x_h) < unsigned(p.x_h) && unsigned(x_w) < unsigned(p.x_w);
    store_shared_4(sources + slot * 4,
                   there ? uint32_t(at.group) * p.x_group + uint32_t(image) * p.x_image +
                               uint32_t(x_h) * p.x_row + uint32_t(x_w) * p.x_pixel
                         : ~0u);
  }
}

// Runs of 16 bytes of a row of x, as many channels as they have numbers: those of a slot, turned. Neighbouring threads have
// the same channels of two runs, which are a sector, and the next ones those of the channels behind.
template <class M>
__device__ __forceinline__ void turn_pixels(const Held& h, const Scope& at, uint32_t sources,
                                            uint32_t to) {
  using T = typename M::Element;
  const Params& p = h.base;
  constexpr int kNumbers = 16 / int(sizeof(T)), kAtOnce = 8 / kNumbers;
  const T* const x = static_cast<const T*>(p.x) + int64_t{at.group} * p.x_group;
  const int first = first_slot(h, at), first_row = h.by_grid_w.quotient(first);
  const int rows = int(h.by_grid_w.quotient(first + h.slots - 1)) - first_row + 1;
  const int pairs = h.by_pairs.divisor, count = rows * pairs * h.units * 2;
#pragma unroll 1
  for (int item = threadIdx.x; item < count; item += kAtOnce * kHeldThreads) {
    uint32_t word[kAtOnce][kNumbers][4];
    int slot[kAtOnce], column[kAtOnce], unit[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int here = item + i * kHeldThreads;
      const int run = h.by_units.quotient(here / 2), row = h.by_pairs.quotient(run);
      unit[i] = here / 2 - run * h.units;
      const int x_w = ((run - row * pairs) * 2 + here % 2) * kNumbers;
      const int of_all = first_row + row, image = h.by_grid.quotient(of_all * h.grid_w);
      const int x_h = of_all - image * h.grid_h - (p.taps_h - 1) + p.first_h;
      const bool there =
          here < count && x_w < p.x_w && image < h.images && unsigned(x_h) < unsigned(p.x_h);
      column[i] = there ? x_w + p.taps_w - 1 - p.first_w : -kNumbers;
      slot[i] = of_all * h.grid_w - first + column[i];
      const T* from = x;
      if (there)
        from += image * p.x_image + x_h * p.x_row + x_w + int64_t{unit[i] * kNumbers} * p.x_channel;
      const int left = there ? p.terms - unit[i] * kNumbers : 0;
#pragma unroll
      for (int c = 0; c < kNumbers; ++c) {
        load_16_if(from, c, left, word[i][c]);
        from += p.x_channel;
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int s = 0; s < kNumbers; ++s) {
        uint32_t turned[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if constexpr (sizeof(T) == 4) {
            turned[c] = M::round(word[i][c][s]);
          } else {
            const uint32_t a = word[i][2 * c][s / 2], b = word[i][2 * c + 1][s / 2];
            turned[c] = s % 2 ? a >> 16 | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
          }
        }
        if (unsigned(slot[i] + s) < unsigned(h.slots) &&
            unsigned(column[i] + s) < unsigned(h.grid_w))
          store_shared_16(to + (slot[i] + s) * h.pitch + unit[i] * 16, turned);
      }
  }
#pragma unroll 1
  for (int slot = threadIdx.x / 32; slot < h.slots; slot += kHeldThreads / 32)
    if (load_shared_4(sources + slot * 4) == ~0u)
#pragma unroll 1
      for (int unit = threadIdx.x % 32; unit < h.units; unit += 32)
        store_shared_16(to + slot * h.pitch + unit * 16, {0, 0, 0, 0});
}

// All channels of all slots, a few units of 16 bytes of a thread at once: where channels are neighbours as whole units,
// else lanes have neighbouring slots.
template <class M>
__device__ __forceinline__ void hold_pixels(const Held& h, uint32_t sources, uint32_t to) {
  using T = typename M::Element;
  const Params& p = h.base;
  constexpr int kNumbers = 16 / int(sizeof(T));
  const T* const x = static_cast<const T*>(p.x);
  if (p.way == kVectors) {
    constexpr int kAtOnce = 6;
    const int count = h.slots * h.units;
#pragma unroll 1
    for (int item = threadIdx.x; item < count; item += kAtOnce * kHeldThreads) {
      uint32_t word[kAtOnce][4], place[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int here = min(item + i * kHeldThreads, count - 1);
        const int slot = h.by_units.quotient(here), unit = here - slot * h.units;
        const int source = load_shared_4(sources + slot * 4);
        place[i] = slot * h.pitch + unit * 16;
        load_16_if(x + max(source, 0) + unit * kNumbers, unit * kNumbers, source < 0 ? 0 : p.terms,
                   word[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int v = 0; v < 4; ++v) word[i][v] = M::round(word[i][v]);
        if (item + i * kHeldThreads < count) store_shared_16(to + place[i], word[i]);
      }
    }
    return;
  }
  constexpr int kAtOnce = sizeof(T) == 4 ? 6 : 4, kWarps = kHeldThreads / 32;
  const int lane = threadIdx.x % 32, count = (h.slots + 31) / 32 * h.units;
#pragma unroll 1
  for (int item = threadIdx.x / 32; item < count; item += kAtOnce * kWarps) {
    uint32_t number[kAtOnce][kNumbers], place[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int here = min(item + i * kWarps, count - 1);
      const int part = h.by_units.quotient(here), unit = here - part * h.units;
      const int slot = part * 32 + lane;
      const int source = slot < h.slots ? int(load_shared_4(sources + slot * 4)) : -1;
      place[i] = item + i * kWarps < count && slot < h.slots ? slot * h.pitch + unit * 16 : ~0u;
      const T* from = x + max(source, 0) + int64_t{unit * kNumbers} * p.x_channel;
      const int left = source < 0 ? 0 : p.terms - unit * kNumbers;
#pragma unroll
      for (int v = 0; v < kNumbers; ++v) {
        number[i][v] = load_if<sizeof(T)>(from, v, left);
        from += p.x_channel;
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      uint32_t word[4];
#pragma unroll
      for (int v = 0; v < 4; ++v)
        word[v] = sizeof(T) == 4
                      ? M::round(number[i][v])
                      : number[i][v * 2 % kNumbers] | number[i][(v * 2 + 1) % kNumbers] << 16;
      if (place[i] != ~0u) store_shared_16(to + place[i], word);
    }
  }
}

// A row of 32 bytes of K, of operands that begin there. x_row: where a lane's row of an operand begins.
template <class M, int KM>
__device__ __forceinline__ void multiply_held(HeldSums<KM>& sum, const uint32_t (&x_row)[KM],
                                              uint32_t x, uint32_t w) {
  using T = typename M::Element;
  constexpr int kPitch = w_pitch(kTiles[kHeldTile], sizeof(T));
  uint32_t columns[kHeldColumns][2], low[M::kSplit ? kHeldColumns : 1][2];
#pragma unroll
  for (int j = 0; j < kHeldColumns; j += 2) {
    const uint32_t from = w + j * 8 * int(sizeof(T));
    if constexpr (M::kRow == 8) {  // neighbours, which belong to both
      uint32_t first[2], second[2];
      load_shared_8(from, first);
      load_shared_8(from + 4 * kPitch, second);
      columns[j][0] = first[0], columns[j + 1][0] = first[1];
      columns[j][1] = second[0], columns[j + 1][1] = second[1];
    } else {
      uint32_t two[4];
      ldmatrix_x4_turned(two, from);
      columns[j][0] = two[0], columns[j][1] = two[1];
      columns[j + 1][0] = two[2], columns[j + 1][1] = two[3];
    }
  }
#pragma unroll
  for (int j = 0; j < kHeldColumns; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (M::kSplit) {
        M::split(columns[j][half], columns[j][half], low[j][half]);
      } else {
        columns[j][half] = M::round(columns[j][half]);
      }
    }
#pragma unroll
  for (int i = 0; i < KM; ++i) {
    uint32_t rows[4];
    ldmatrix_x4(rows, x_row[i] + x);
    if constexpr (M::kSplit) {  // the lesser products first
      uint32_t rest[4];
#pragma unroll
      for (int v = 0; v < 4; ++v) M::split(rows[v], rows[v], rest[v]);
#pragma unroll
      for (int j = 0; j < kHeldColumns; ++j) M::mma(sum[i][j], rest, columns[j][0], columns[j][1]);
#pragma unroll
      for (int j = 0; j < kHeldColumns; ++j) M::mma(sum[i][j], rows, low[j][0], low[j][1]);
    }
#pragma unroll
    for (int j = 0; j < kHeldColumns; ++j) M::mma(sum[i][j], rows, columns[j][0], columns[j][1]);
  }
}

// A chunk of which `steps` rows of 32 bytes of K are there. In pairs, the latter half of it are the same channels of the next
// j, `pair` bytes further.
template <class M, int KM>
__device__ __forceinline__ void multiply_chunk(HeldSums<KM>& sum, const uint32_t (&x_row)[KM],
                                               uint32_t x, uint32_t pair, uint32_t w, int steps,
                                               bool paired) {
  constexpr int kStep = M::kRow * w_pitch(kTiles[kHeldTile], sizeof(typename M::Element));
  constexpr int kHalf = kSteps / 2;
  if (steps >= (paired ? kHalf : kSteps)) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      multiply_held<M, KM>(sum, x_row, x + step * 32 + (step < kHalf ? 0 : pair), w + step * kStep);
    return;
  }
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step)
    if ((paired ? step % kHalf : step) < steps)
      multiply_held<M, KM>(sum, x_row, x + step * 32 + (step < kHalf ? 0 : pair), w + step * kStep);
}

// As bring_weights(), of rows that come 16 bytes at once: four of a thread, which are as far apart.
template <class T>
__device__ __forceinline__ void bring_held(const Params& p, const WeightRow& row, const Walk& walk,
                                           uint32_t to) {
  constexpr Tile tile = kTiles[kHeldTile];
  constexpr int kPitch = w_pitch(tile, sizeof(T)), kUnits = tile.rows / (16 / int(sizeof(T)));
  constexpr int kTurns = chunk_of(tile, sizeof(T)) * kUnits / kHeldThreads;
  const int thread = threadIdx.x >> p.paired, second = threadIdx.x & p.paired;
  const int step_h = p.joined ? 0 : walk.h, step_w = p.joined ? walk.h : walk.w + second;
  const bool exists =
      row.exists && row.h + step_h * p.runs < p.run_h && row.w + step_w * p.run < p.run_w;
  const int k = thread / kUnits, at_once = kHeldThreads / kUnits >> p.paired;
  const T* const w = static_cast<const T*>(p.w);
  const T* from = w + row.offset + step_h * p.runs * p.run_w + step_w * p.run +
                  int64_t{walk.channel + k} * p.w_channel;
  to += (second * (chunk_of(tile, sizeof(T)) / 2) + k) * kPitch + thread % kUnits * 16;
  const int left = exists ? p.terms - walk.channel - k : 0;
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    copy_async<16>(to + i * at_once * kPitch, i * at_once < left ? from : w, i * at_once < left);
    from += int64_t{at_once} * p.w_channel;
  }
}

// Of a thread's sums of a position, of two tiles of columns four: the vth of them, and its row in those 16. Of words they are
// four neighbours (multiply_held() reads rows as pairs), of 16 bits two and two.
template <class M, int KM>
__device__ __forceinline__ float held_sum(const HeldSums<KM>& sum, int i, int half, int pair,
                                          int v) {
  return M::kRow == 8 ? sum[i][pair * 2 + v % 2][half * 2 + v / 2]
                      : sum[i][pair * 2 + v / 2][half * 2 + v % 2];
}
template <class M>
__device__ __forceinline__ int held_row(int pair, int v) {
  const int t = threadIdx.x % 4;
  return held_first_row() + pair * 16 + (M::kRow == 8 ? t * 4 + v : v / 2 * 8 + t * 2 + v % 2);
}

// The phases of a row and where it is in y from a position's place; far outside where there is none.
struct HeldRow {
  int h, w, y;
  __device__ __forceinline__ HeldRow(const Params& p, const Scope& at, int row) {
    const RowOf of(p, at.row + row);
    h = has_row(p, at, row) ? of.h : int(0xc0000000), w = of.w, y = of.y;
  }
  __device__ __forceinline__ bool there(const Params& p, const Place& place) const {
    return unsigned(place.h * p.stride_h - p.pad_h + h) < unsigned(p.y_h) &&
           unsigned(place.w * p.unit - p.pad_w + w) < unsigned(p.y_w);
  }
};

// Sums to y, four neighbours at once. In 16 bits lanes exchange two of four, so that each has neighbours.
template <class M, int KM>
__device__ __forceinline__ void store_held(const Params& p, const Scope& at,
                                           const HeldSums<KM>& sum, uint32_t places,
                                           uint32_t bias) {
  using T = typename M::Element;
  constexpr bool kHalf = sizeof(T) == 2;
  T* const y = static_cast<T*>(p.y);
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const bool odd = t % 2;
  float more[2][4], finite = 0;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair)
#pragma unroll
    for (int v = 0; v < 4; ++v) more[pair][v] = load_shared<float>(bias + held_row<M>(pair, v) * 4);
  const int first = held_first_row() + (kHalf ? t % 2 * 8 + t / 2 * 4 : t * 4);
  const HeldRow row[2] = {{p, at, first}, {p, at, first + 16}};
#pragma unroll
  for (int i = 0; i < KM; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Place place = place_at(places, held_position(i) + half * 8 + g);
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        float value[4];
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          value[v] = held_sum<M, KM>(sum, i, half, pair, v);
          finite = fmaf(value[v], 0.f, finite);
          value[v] += more[pair][v];
        }
        const bool there = row[pair].there(p, place);
        T* const to = y + (place.y + row[pair].y);
        if constexpr (kHalf) {
          const uint32_t low = pack<T>(value[0], value[1]), high = pack<T>(value[2], value[3]);
          const uint32_t got = __shfl_xor_sync(~0u, odd ? low : high, 1);
          if (there) store_words(to, odd ? got : low, odd ? high : got);
        } else {
          if (there)
            store_words(to, __float_as_uint(value[0]), __float_as_uint(value[1]),
                        __float_as_uint(value[2]), __float_as_uint(value[3]));
        }
      }
    }
  if (!__any_sync(~0u, finite != finite)) return;
  // What is NaN once more, of products that exist, by whom it was multiplied.
  uint64_t nan = 0;
#pragma unroll
  for (int i = 0; i < KM; ++i)
#pragma unroll
    for (int place = 0; place < 16; ++place) {
      const float value = held_sum<M, KM>(sum, i, place / 8, place / 4 % 2, place % 4);
      nan |= uint64_t{value != value} << (i * 16 + place);
    }
  __syncwarp();  // all have stored
#pragma unroll 1
  for (int bit = 0; bit < KM * 16; ++bit) {
    if (!(nan >> bit & 1)) continue;
    const Place place = place_at(places, held_position(bit / 16) + bit / 8 % 2 * 8 + g);
    const int of = held_row<M>(bit / 4 % 2, bit % 4);
    const HeldRow here(p, at, of);
    if (here.there(p, place))
      store(y + (place.y + here.y),
            sum_with_care<M>(p, at, place, at.row + of) + load_shared<float>(bias + of * 4));
  }
}

template <class M, int KM>
__global__ void __launch_bounds__(kHeldThreads, M::kSplit ? 1 : 2)
    convt2d_reed_held_kernel(const __grid_constant__ Held h) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return;  // declined by the planner
#else
  using T = typename M::Element;
  constexpr int kStage = held_stage_bytes(sizeof(T)),
                kPitch = w_pitch(kTiles[kHeldTile], sizeof(T));
  constexpr int kChunk = chunk_of(kTiles[kHeldTile], sizeof(T));
  extern __shared__ __align__(16) unsigned char smem[];
  const Params& p = h.base;
  const uint32_t places = shared_address(smem), bias = places + held_positions(KM) * 16,
                 sources = bias + 2 * kHeldRows * 4,
                 stages = places + held_table_bytes(KM, h.slots),
                 pixels = stages + p.stages * kStage;
  Scope at;
  const int rest = blockIdx.x / p.position_blocks;
  at.position = (blockIdx.x - rest * p.position_blocks) * h.tiles * 16;
  at.group = rest / h.parts;
  const int part = rest - at.group * h.parts;
  at.row = part * p.used;
  const int tiles = h.each + (part < h.more), step = h.parts * p.used;

  const int channels = kChunk >> p.paired;  // of a chunk
  // Weights are asked for a few chunks ahead, of the next tile's rows too.
  Scope ahead = at;
  WeightRow weight_row(p, ahead, kHeldRows, 16 / int(sizeof(T)));
  Walk next;
  int left = tiles * p.chunks;
  const auto ask = [&](int stage) {
    if (left > 0) {
      bring_held<T>(p, weight_row, next, stages + stage * kStage);
      next.advance(p, channels);
      if (next.channel >= p.terms) {
        next = Walk();
        ahead.row += step;
        weight_row = WeightRow(p, ahead, kHeldRows, 16 / int(sizeof(T)));
      }
      --left;
    }
    copy_async_commit();
  };
  const auto bias_of = [&](int first) {
    if (!p.bias || threadIdx.x >= p.used || first + int(threadIdx.x) >= p.rows) return 0.f;
    const RowOf row(p, first + threadIdx.x);
    return load(static_cast<const T*>(p.bias) + at.group * p.group_out + row.output(p));
  };
#pragma unroll 1
  for (int i = 0; i < p.stages - 1; ++i) ask(i);
  write_held_places<KM>(h, at, places, sources);
  float of_row = bias_of(at.row);
  __syncthreads();
  if (h.turned) {
    turn_pixels<M>(h, at, sources, pixels);
  } else {
    hold_pixels<M>(h, sources, pixels);
  }
  const int lane = threadIdx.x % 32;
  uint32_t x_row[KM];
#pragma unroll
  for (int i = 0; i < KM; ++i)
    x_row[i] = pixels + load_shared_4(places + (held_position(i) + lane % 16) * 16 + 12) * h.pitch +
               lane / 16 * 16;
  const uint32_t w =
      stages + (M::kRow == 8 ? lane % 4 * kPitch + (held_first_row() + lane / 4 * 2) * 4
                             : lane % 16 * kPitch + (held_first_row() + lane / 16 * 8) * 2);
  const uint32_t pair = p.paired ? -h.pitch - kSteps / 2 * 32 : 0;
  int from = 0, to = p.stages - 1;  // stages
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t biases = bias + tile % 2 * (kHeldRows * 4);
    if (threadIdx.x < kHeldRows) store_shared_4(biases + threadIdx.x * 4, __float_as_uint(of_row));
    of_row = bias_of(at.row + step);
    HeldSums<KM> sum = {};
    Walk here;
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      copy_async_wait(p.stages - 2);
      __syncthreads();  // all have what they asked for, and have multiplied the chunk before
      ask(to);
      const int steps = (p.terms - here.channel + M::kRow - 1) / M::kRow;
      const uint32_t x = here.channel * int(sizeof(T)) - (here.h * h.grid_w + here.w) * h.pitch;
      if constexpr (M::kSplit) {  // sums of a chunk apart
        static_assert(kSteps == MmaF32x3::kFoldSteps);
        HeldSums<KM> of_chunk = {};
        multiply_chunk<M, KM>(of_chunk, x_row, x, pair, w + from * kStage, steps, p.paired);
#pragma unroll
        for (int i = 0; i < KM; ++i)
#pragma unroll
          for (int j = 0; j < kHeldColumns; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[i][j][e] += of_chunk[i][j][e];
      } else {
        multiply_chunk<M, KM>(sum, x_row, x, pair, w + from * kStage, steps, p.paired);
      }
      here.advance(p, channels);
      from = from + 1 == p.stages ? 0 : from + 1;
      to = to + 1 == p.stages ? 0 : to + 1;
    }
    store_held<M, KM>(p, at, sum, places, biases);
    at.row += step;
  }
#endif
}

}  // namespace convt2d::cuda::reed
