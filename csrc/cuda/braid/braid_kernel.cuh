// The braid kernel; braid_config.h draws the GEMM, braid_stage.cuh brings it to shared memory.
//
// If a sum came out NaN, it is added up again, of pixels that exist: zeros from outside of x and dY are multiplied too, and
// 0 * inf is NaN.
#pragma once

#include <type_traits>

#include "cuda/braid/braid_stage.cuh"
#include "cuda/device/as_multiplied.cuh"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/elect.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"

namespace convt2d::cuda::braid {

// Of a thread: [slab][input channel 8 i + 2 t or + 1, row of the slab].
template <int ROW>
using Sums = float[kTiles[ROW].slabs][kTiles[ROW].width / 2];

// The row of a slab that a thread's sums of rows g (`below` 0) and g + 8 (1) of wgmma belong to.
template <class T, int ROW>
__device__ __forceinline__ int slab_row(int below) {
  constexpr bool kPairs = kTiles[ROW].wide && sizeof(T) == 2;
  const int warp = threadIdx.x % 128 / 32, g = threadIdx.x % 32 / 4;
  return warp * 16 + (kPairs ? 2 * g + below : g + 8 * below);
}

// Where a thread finds dY of its rows in a stage: wide, of each slab, the first number at position t, or in 16 bits at 2 t.
template <class T, int ROW>
struct Places {
  static constexpr int kRows = sizeof(T) == 2 ? 1 : 2;
  uint32_t of[kTiles[ROW].slabs][kRows];

  __device__ __forceinline__ explicit Places(const Params& p) {
    const int group = threadIdx.x / 128, t = threadIdx.x % 4;
#pragma unroll
    for (int below = 0; below < kRows; ++below) {
      const int row = slab_row<T, ROW>(below), channel = row / p.taps;
      // Beyond the slab's channels are rows that are nobody's: of its last one.
      const int first = channel < p.channels ? channel : p.channels - 1;
      const int number = p.lead + row % p.taps + t * p.step_w * (4 / int(sizeof(T)));
      const uint32_t place =
          x_bytes(kTiles[ROW]) + first * p.pitch + (number * int(sizeof(T)) & ~3);
#pragma unroll
      for (int slab = 0; slab < kTiles[ROW].slabs; ++slab)
        of[slab][below] = place + (group * kTiles[ROW].slabs + slab) * p.channels * p.pitch;
    }
  }
};

// Wide, 16 bits: whether a word's upper half has the first of two taps, and the next word the second one; at the first of
// two positions (1) and at the second (2).
__device__ __forceinline__ int odd_words(const Params& p) {
  return p.lead % 2 | (p.lead + p.step_w) % 2 << 1;
}

// What a lane holds of a slice of a slab, as mma.sync has it.
template <class T, int ROW, int ODD>
__device__ __forceinline__ void fetch(uint32_t (&word)[4], uint32_t from, int step_w,
                                      const uint32_t (&place)[Places<T, ROW>::kRows]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t there = from + place[0] + half * 16 * step_w;
    if constexpr (sizeof(T) == 2) {
      const uint32_t position[2] = {there, there + ((step_w + ODD % 2) * 2 & ~3)};
      uint32_t tap[2][2];  // of a position: the words that have the taps
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        tap[i][0] = load_shared_4(position[i]);
        tap[i][1] = ODD >> i & 1 ? load_shared_4(position[i] + 4) : tap[i][0];
      }
      constexpr int kLow = 0x10, kHigh = 0x32, kSecond = 0x4400;  // bytes; of the second position
      word[half * 2] =
          __byte_perm(tap[0][0], tap[1][0],
                      (ODD & 1 ? kHigh : kLow) + (kSecond | (ODD & 2 ? kHigh : kLow) << 8));
      word[half * 2 + 1] =
          __byte_perm(tap[0][1], tap[1][1],
                      (ODD & 1 ? kLow : kHigh) + (kSecond | (ODD & 2 ? kLow : kHigh) << 8));
    } else {
      word[half * 2] = load_shared_4(there);
      word[half * 2 + 1] = load_shared_4(there + place[1] - place[0]);
    }
  }
}

// Adds the products of SLICES slices of a stage, by a warpgroup.
template <class T, int ROW, int ODD, int SLICES>
__device__ __forceinline__ void add_slices(Sums<ROW>& sum, const Params& p,
                                           const Places<T, ROW>& places, int group,
                                           uint32_t stage) {
  constexpr Tile tile = kTiles[ROW];
  const uint64_t layout = swizzled_layout(kLine, 8 * kLine), x = operand(layout, stage);
  if constexpr (tile.wide) {
    uint32_t word[SLICES][tile.slabs][4];
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
#pragma unroll
      for (int slab = 0; slab < tile.slabs; ++slab)
        fetch<T, ROW, ODD>(word[s][slab], stage + p.slice_at[s], p.step_w, places.of[slab]);
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
#pragma unroll
      for (int slab = 0; slab < tile.slabs; ++slab) computed(word[s][slab]);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
#pragma unroll
      for (int slab = 0; slab < tile.slabs; ++slab)
        WgmmaFetched<T, tile.width>::add(sum[slab], word[s][slab], advance(x, s * (kSlice >> 4)));
  } else {
    const uint64_t y = operand(layout, stage + x_bytes(tile) + group * tile.slabs * kSlab * kLine);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
#pragma unroll
      for (int slab = 0; slab < tile.slabs; ++slab)
        Wgmma<T, tile.width>::add(sum[slab],
                                  advance(y, slab * (kSlab * kLine >> 4) + s * (kSlice >> 4)),
                                  advance(x, s * (kSlice >> 4)));
  }
  wgmma_commit();
  wgmma_wait<0>();
}

// So many slices at once: each number of them has code of its own, without branches between multiplications.
template <class T, int ROW, int ODD = 0>
__device__ __forceinline__ void add_chunk(Sums<ROW>& sum, const Params& p,
                                          const Places<T, ROW>& places, int group, uint32_t stage,
                                          int slices, int odd) {
  if constexpr (kTiles[ROW].wide && sizeof(T) == 2 && ODD < 3)
    if (odd != ODD) {
      add_chunk<T, ROW, ODD + 1>(sum, p, places, group, stage, slices, odd);
      return;
    }
  const auto add = [&](auto count) {
    add_slices<T, ROW, ODD, decltype(count)::value>(sum, p, places, group, stage);
  };
  if (slices == kSlices) {
    add(std::integral_constant<int, kSlices>());
  } else if (slices == 3) {
    add(std::integral_constant<int, 3>());
  } else if (slices == 2) {
    add(std::integral_constant<int, 2>());
  } else {
    add(std::integral_constant<int, 1>());
  }
}

// Multiplies all of a block's chunks.
template <class T, int ROW>
__device__ __forceinline__ void multiply(const Params& p, const Scope& at, Sums<ROW>& sum,
                                         StageRing& ring) {
  const Places<T, ROW> places(p);
  const int group = warpgroup_of_block(), odd = odd_words(p);
  Chunk chunk(p, at.begin);
#pragma unroll 1
  for (int k = at.begin; k < at.end; ++k, chunk.advance(p), ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    add_chunk<T, ROW>(sum, p, places, group, ring.stage(), chunk.last(p) ? p.last_slices : kSlices,
                      odd);
    // All lanes have read dY, or they would not have multiplied.
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
  }
#pragma unroll
  for (int slab = 0; slab < kTiles[ROW].slabs; ++slab) finished(sum[slab]);
}

// One sum, of the pixels that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M, int ROW>
__device__ __noinline__ float sum_with_care(const Params& p, const Scope& at, int input,
                                            int place) {
  constexpr int kNumbers = kLine / sizeof(typename M::Element);
  const int output = place / p.taps, tap = place % p.taps;
  const int tap_h = kTiles[ROW].wide ? 0 : tap, tap_w = kTiles[ROW].wide ? tap : 0;
  float sum = 0;
  Chunk chunk(p, at.begin);
  for (int k = at.begin; k < at.end; ++k, chunk.advance(p)) {
    const int h = chunk.h * p.step_h - p.pad_h + tap_h;
    if (h < 0 || h >= p.y_h) continue;
    const int first = chunk.line * kNumbers;
    const int x = ((chunk.image * p.groups + at.group) * p.rows + input) * p.x_h + chunk.h;
    const int y = ((chunk.image * p.groups + at.group) * p.columns + output) * p.y_h + h;
    for (int at_w = first; at_w < min(first + kNumbers, p.x_w); ++at_w) {
      const int w = at_w * p.step_w - p.pad_w + tap_w;
      if (w < 0 || w >= p.y_w) continue;
      sum =
          fmaf(as_multiplied<M>(p.x, x * p.x_w + at_w), as_multiplied<M>(p.y, y * p.y_w + w), sum);
    }
  }
  return sum;
}

// Sums to shared memory, in the place of the stages: [input channel][row].
template <class T, int ROW>
__device__ __forceinline__ void lay_sums(const Params& p, const Sums<ROW>& sum, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  const int group = threadIdx.x / 128, t = threadIdx.x % 4;
#pragma unroll
  for (int slab = 0; slab < tile.slabs; ++slab)
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int row = slab_row<T, ROW>(below);
      const uint32_t to =
          shared + 2 * t * sum_pitch(tile) + ((group * tile.slabs + slab) * slab_rows(p) + row) * 4;
      if (row < slab_rows(p))
#pragma unroll
        for (int i = 0; i < tile.width / 4; ++i)
          store_shared_sum(to + (i / 2 * 8 + i % 2) * sum_pitch(tile),
                           sum[slab][i / 2 * 4 + below * 2 + i % 2]);
    }
}

// What lay_sums left to `to`, the group's first one in dW, by four neighbours; those that are NaN once more. A warp has an
// input channel at a time.
template <class M, int ROW, class To>
__device__ __forceinline__ void store_sums(const Params& p, const Scope& at, uint32_t shared,
                                           To* to) {
  constexpr Tile tile = kTiles[ROW];
  const int first = at.channel * p.taps, rows = min(block_rows(p, tile), p.sums - first);
  const int inputs = min(tile.width, p.rows - at.row);
#pragma unroll 1
  for (int column = threadIdx.x / 32; column < inputs; column += kConsumers / 32)
#pragma unroll 1
    for (int row = threadIdx.x % 32 * 4; row < rows; row += 32 * 4) {
      uint32_t four[4];
      load_shared_16(shared + column * sum_pitch(tile) + row * 4, four);
      float value[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] = __uint_as_float(four[i]);
      To* const place = to + int64_t{at.row + column} * p.sums + first + row;
      if constexpr (sizeof(To) == 4) {
        store_words(place, four[0], four[1], four[2], four[3]);
      } else {
        store_words(place, pack<To>(value[0], value[1]), pack<To>(value[2], value[3]));
      }
#pragma unroll 1
      for (int i = 0; i < 4; ++i) {
        const float sum = load_shared<float>(shared + column * sum_pitch(tile) + (row + i) * 4);
        if (sum != sum)
          store(place + i, sum_with_care<M, ROW>(p, at, at.row + column, first + row + i));
      }
    }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_braid_grad_weight_kernel(const __grid_constant__ Params p,
                                     const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  using T = typename M::Element;
  extern __shared__ __align__(1024) unsigned char smem[];
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  const Scope at = scope_of(p, kTiles[ROW]);
  const uint32_t shared = shared_address(smem);
  StageRing ring{shared, shared + kHeader, p.stages, p.stage_bytes};
  start_stages(ring.barriers, p.stages, 1, kConsumers / 32);
  if (threadIdx.x == 32) prefetch_map(&maps.x);
  if (threadIdx.x == 64) prefetch_map(&maps.y);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  const int warp = warp_of_block();
  if (warp >= kConsumers / 32) {
    fewer_registers<kProducerRegisters>();
    if (warp == kConsumers / 32 && elected()) bring<T, ROW>(p, maps, at, ring);
  } else {
    more_registers<kConsumerRegisters>();
    Sums<ROW> sum;
    clear(sum);
    multiply<T, ROW>(p, at, sum, ring);
    barrier_among(1, kConsumers);  // nobody reads a stage any more
    lay_sums<T, ROW>(p, sum, ring.stages);
    barrier_among(1, kConsumers);
    const int64_t first = int64_t{at.group} * p.rows * p.sums;
    if (p.partials) {
      store_sums<M, ROW>(p, at, ring.stages,
                         p.partials + int64_t{at.piece} * p.piece_floats + first);
    } else {
      store_sums<M, ROW>(p, at, ring.stages, static_cast<T*>(p.weight) + first);
    }
  }
#endif
}

}  // namespace convt2d::cuda::braid
