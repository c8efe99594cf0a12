// The kernel of reed's broad tiles; reed_broad.h says what they are.
//
// One thread asks for weights, `full` ends a phase when a stage has arrived, `empty` when every warp has multiplied it.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/reed/reed_broad.h"
#include "cuda/reed/reed_held_stage.cuh"

namespace convt2d::cuda::reed {

using BroadSums = float[kBroadRows / 2];

// Of a thread's sums of a position, of 16 rows four: the vth of them, and its row.
__device__ __forceinline__ float broad_sum(const BroadSums& sum, int pair, int half, int v) {
  return sum[(pair * 2 + v / 2) * 4 + half * 2 + v % 2];
}
__device__ __forceinline__ int broad_row(int pair, int v) {
  return pair * 16 + v / 2 * 8 + threadIdx.x % 4 * 2 + v % 2;
}

// Where the positions of a block are; a slot is one.
__device__ __forceinline__ void write_broad_places(const Held& h, const Scope& at, uint32_t places,
                                                   int threads) {
  const Params& p = h.base;
  for (int n = threadIdx.x; n < h.slots; n += threads) {
    const int number = at.position + n, image = p.by_image.quotient(number);
    const int in_image = number - image * int(p.by_image.divisor);
    const int row = p.by_width.quotient(in_image);
    const int q_h = row + p.first_h, q_w = in_image - row * int(p.by_width.divisor) + p.first_w;
    const uint32_t x = uint32_t(at.group) * p.x_group + uint32_t(image) * p.x_image +
                       uint32_t(q_h) * p.x_row + uint32_t(q_w) * p.x_pixel;
    const uint32_t y = uint32_t(at.group) * p.y_group + uint32_t(image) * p.y_image +
                       uint32_t(q_h * p.stride_h - p.pad_h) * p.y_row + uint32_t(q_w) * p.unit -
                       p.pad_w;
    const uint32_t q = number < p.positions ? uint32_t(q_h) << 16 | (q_w & 0xffff) : kNowhere;
    store_shared_16(places + n * 16, {x, y, q, 0});
  }
}

// The products of a tile of rows: pixels of a warpgroup, all channels of them, by chunks of weights.
template <class T>
__device__ __forceinline__ void multiply_broad(const Held& h, uint32_t pixels, uint32_t stages,
                                               uint32_t barriers, Ring& ring, BroadSums& sum) {
  const Params& p = h.base;
  const uint64_t along = swizzled_layout(128, 1024), turned = turned_layout(128, kBroadChunk * 128);
#pragma unroll
  for (int i = 0; i < kBroadRows / 2; ++i) sum[i] = 0;
  uint32_t before = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    const uint32_t full = barriers + ring.stage * 16;
    barrier_wait(full, ring.parity);
    const uint64_t x = operand(along, pixels + chunk * h.slots * 128),
                   w = operand(turned, stages + ring.stage * kBroadStage);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBroadChunk / 16; ++k)
      Wgmma<T, kBroadRows, true>::add(sum, advance(x, k * (32 >> 4)),
                                      advance(w, k * (16 * 128 >> 4)));
    wgmma_commit();
    if (chunk > 0) {
      wgmma_wait<1>();
      if (threadIdx.x % 32 == 0) barrier_arrive(before);
    }
    before = full + 8;
    ring.advance(p.stages);
  }
  wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) barrier_arrive(before);
  finished(sum);
}

// Sums to y, two neighbours at once, or two of two positions: then lanes of neighbouring positions exchange one of two.
template <class M>
__device__ __forceinline__ void store_broad_pairs(const Held& h, const Scope& at,
                                                  const BroadSums& sum, uint32_t places,
                                                  uint32_t bias, float& finite) {
  using T = typename M::Element;
  const Params& p = h.base;
  T* const y = static_cast<T*>(p.y);
  const int t = threadIdx.x % 4;
  const bool odd = threadIdx.x / 4 % 2;
  const Place place[2] = {place_at(places, 0), place_at(places, 8)};
#pragma unroll
  for (int pair = 0; pair < kBroadRows / 16; ++pair) {
    const HeldRow row(p, at, pair * 16 + odd * 8 + t * 2),
        other(p, at, pair * 16 + !odd * 8 + t * 2);
    uint32_t word[2][2];  // of both eights of rows
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      uint32_t more[2];
      load_shared_8(bias + (pair * 16 + part * 8 + t * 2) * 4, more);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float a = broad_sum(sum, pair, half, part * 2),
                    b = broad_sum(sum, pair, half, part * 2 + 1);
        finite = fmaf(a, 0.f, fmaf(b, 0.f, finite));
        word[half][part] = pack<T>(a + __uint_as_float(more[0]), b + __uint_as_float(more[1]));
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t own = odd ? word[half][1] : word[half][0],
                     rest = odd ? word[half][0] : word[half][1];
      const bool there = row.there(p, place[half]);
      T* const to = y + (place[half].y + row.y);
      if (h.together) {
        const uint32_t got = __shfl_xor_sync(~0u, rest, 4);
        if (there) store_words(to - (odd ? 2 : 0), odd ? got : own, odd ? own : got);
      } else {
        if (there) *reinterpret_cast<uint32_t*>(to) = own;
        if (other.there(p, place[half]))
          *reinterpret_cast<uint32_t*>(y + (place[half].y + other.y)) = rest;
      }
    }
  }
}

// Sums to y, four neighbours at once: lanes exchange two of four, so that each has neighbours.
template <class M>
__device__ __forceinline__ void store_broad_fours(const Params& p, const Scope& at,
                                                  const BroadSums& sum, uint32_t places,
                                                  uint32_t bias, float& finite) {
  using T = typename M::Element;
  T* const y = static_cast<T*>(p.y);
  const int t = threadIdx.x % 4;
  const bool odd = t % 2;
  const Place place[2] = {place_at(places, 0), place_at(places, 8)};
#pragma unroll
  for (int pair = 0; pair < kBroadRows / 16; ++pair) {
    const HeldRow row(p, at, pair * 16 + t % 2 * 8 + t / 2 * 4);
    float more[4];
#pragma unroll
    for (int v = 0; v < 4; ++v) more[v] = load_shared<float>(bias + broad_row(pair, v) * 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float value[4];
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        value[v] = broad_sum(sum, pair, half, v);
        finite = fmaf(value[v], 0.f, finite);
        value[v] += more[v];
      }
      const uint32_t low = pack<T>(value[0], value[1]), high = pack<T>(value[2], value[3]);
      const uint32_t got = __shfl_xor_sync(~0u, odd ? low : high, 1);
      if (row.there(p, place[half]))
        store_words(y + (place[half].y + row.y), odd ? got : low, odd ? high : got);
    }
  }
}

template <class M>
__device__ __forceinline__ void store_broad(const Held& h, const Scope& at, const BroadSums& sum,
                                            uint32_t places, uint32_t bias) {
  using T = typename M::Element;
  const Params& p = h.base;
  T* const y = static_cast<T*>(p.y);
  float finite = 0;
  if (p.vector >= 4) {
    store_broad_fours<M>(p, at, sum, places, bias, finite);
  } else {
    store_broad_pairs<M>(h, at, sum, places, bias, finite);
  }
  if (!__any_sync(~0u, finite != finite)) return;
  // What is NaN once more, of products that exist, by whom it was multiplied.
  uint64_t nan = 0;
#pragma unroll
  for (int i = 0; i < kBroadRows / 2; ++i) {
    const float value = broad_sum(sum, i / 8, i / 4 % 2, i % 4);
    nan |= uint64_t{value != value} << i;
  }
  __syncwarp();  // all have stored
#pragma unroll 1
  for (int i = 0; i < kBroadRows / 2; ++i) {
    if (!(nan >> i & 1)) continue;
    const Place here = place_at(places, i / 4 % 2 * 8);
    const int of = broad_row(i / 8, i % 4);
    const HeldRow row(p, at, of);
    if (row.there(p, here))
      store(y + (here.y + row.y),
            sum_with_care<M>(p, at, here, at.row + of) + load_shared<float>(bias + of * 4));
  }
}

template <class M>
__global__ void __launch_bounds__(kMostBroadThreads, 1)
    convt2d_reed_broad_kernel(const __grid_constant__ Held h,
                              const __grid_constant__ CUtensorMap weights) {
#ifdef CONVT2D_HAS_WGMMA
  using T = typename M::Element;
  extern __shared__ __align__(1024) unsigned char smem[];
  const Params& p = h.base;
  const int groups = h.slots / kBroadPositions, threads = groups * 128;
  const uint32_t pixels = shared_address(smem), stages = pixels + h.units * 16 * h.slots,
                 barriers = stages + p.stages * kBroadStage,
                 places = barriers + kMostBroadStages * 16, bias = places + h.slots * 16,
                 sources = bias + groups * 2 * kBroadRows * 4;
  Scope at;
  const int rest = blockIdx.x / p.position_blocks;
  at.position = (blockIdx.x - rest * p.position_blocks) * h.slots;
  at.group = rest / h.parts;
  const int part = rest - at.group * h.parts;
  at.row = part * p.used;
  const int tiles = h.each + (part < h.more), step = h.parts * p.used;
  const int all = tiles * p.chunks, first = min(p.stages, all);
  const bool asks = int(threadIdx.x) == threads;
  int chunk = 0, row = at.row;  // that are asked for next
  const auto ask = [&](int stage) {
    const uint32_t full = barriers + stage * 16, to = stages + stage * kBroadStage;
    barrier_expect(full, kBroadStage);
#pragma unroll
    for (int i = 0; i < kBroadRows / kBroadBlock; ++i)
      copy_box(to + i * (kBroadStage / 2), &weights, full, row + i * kBroadBlock,
               chunk * kBroadChunk, at.group, 0);
    if (++chunk == p.chunks) chunk = 0, row += step;
  };
  if (asks) {
    prefetch_map(&weights);
#pragma unroll 1
    for (int i = 0; i < p.stages; ++i) {
      barrier_init(barriers + i * 16, 1);
      barrier_init(barriers + i * 16 + 8, threads / 32);
    }
    fence_for_wgmma();  // for the copy engine
#pragma unroll 1
    for (int i = 0; i < first; ++i) ask(i);
  }
  if (int(threadIdx.x) < threads) {
    write_broad_places(h, at, places, threads);
    write_sources(h, at, at.position, sources, threads);
  }
  __syncthreads();
  if (int(threadIdx.x) >= threads) {
    if (!asks) return;
    Ring ring;
#pragma unroll 1
    for (int i = first; i < all; ++i) {
      barrier_wait(barriers + ring.stage * 16 + 8, ring.parity);
      ask(ring.stage);
      ring.advance(p.stages);
    }
    return;
  }
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  float of_row = bias_of<T>(p, at.group, at.row, thread);
  bring_pixels<M>(
      h, at, at.position, sources,
      [&](int slot, int unit) {
        return pixels + (unit / 8 * h.slots + slot) * 128 + ((unit ^ slot) & 7) * 16;
      },
      threads);
  fence_for_wgmma();
  barrier_among(1 + groups, threads);
  const uint32_t own_pixels = pixels + group * kBroadPositions * 128,
                 own_places =
                     places + (group * kBroadPositions + thread / 32 * 16 + thread % 32 / 4) * 16;
  Ring ring;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t biases = bias + (group * 2 + tile % 2) * (kBroadRows * 4);
    store_shared_4(biases + thread * 4, __float_as_uint(of_row));
    of_row = bias_of<T>(p, at.group, at.row + step, thread);
    BroadSums sum;
    multiply_broad<T>(h, own_pixels, stages, barriers, ring, sum);
    barrier_among(1 + group, 128);  // biases
    store_broad<M>(h, at, sum, own_places, biases);
    at.row += step;
  }
#endif
}

}  // namespace convt2d::cuda::reed
