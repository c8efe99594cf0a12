// The held tiles of reed; reed_held.h says what they are.
#pragma once

#include "cuda/reed/reed_held_stage.cuh"

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

// Of the positions of a block what write_places() tells, and their slots.
template <int KM>
__device__ __forceinline__ void write_held_places(const Held& h, const Scope& at, int first,
                                                  uint32_t places) {
  const Params& p = h.base;
  const int extent = p.by_image.divisor, width = p.by_width.divisor;
  const int grid = h.by_grid.divisor;
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
  constexpr int kChunk = chunk_of(sizeof(T));
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
      bring_held<T, kHeldThreads>(p, weight_row, next, stages + stage * kStage);
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
#pragma unroll 1
  for (int i = 0; i < p.stages - 1; ++i) ask(i);
  const int first = first_slot(h, at);
  write_held_places<KM>(h, at, first, places);
  write_sources(h, at, first, sources);
  float of_row = bias_of<T>(p, at.group, at.row, threadIdx.x);
  __syncthreads();
  bring_pixels<M>(h, at, first, sources,
                  [&](int slot, int unit) { return pixels + slot * h.pitch + unit * 16; });
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
    of_row = bias_of<T>(p, at.group, at.row + step, threadIdx.x);
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
