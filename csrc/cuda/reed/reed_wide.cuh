// Held tiles of TF32 on Hopper's wgmma: rows are an instruction's rows again, weights come from registers, where they are
// rounded, and pixels lie as the copy engine would write them, 32 channels of a slot in 128 bytes. The columns of a block are
// slots as they follow each other; those beside y are not stored.
//
// Each of two warpgroups takes tiles of 128 rows of its own, and loads the weights of a chunk while the one before is
// multiplied. A thread has four rows, which are neighbours in y: a row of an instruction and the eighth behind it, twice.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/reed/reed_held_stage.cuh"

namespace convt2d::cuda::reed {

// Where a slot lies: with one j only, of eight neighbours the first four go to even columns, so that the columns of one
// register of four threads are neighbours.
__device__ __forceinline__ int column_of(const Held& h, int slot) {
  return h.ahead ? slot : (slot & ~7) | (slot & 3) << 1 | (slot >> 2 & 1);
}

// Of the columns of a block what write_places() tells.
template <int WIDTH>
__device__ __forceinline__ void write_wide_places(const Held& h, const Scope& at, uint32_t places) {
  const Params& p = h.base;
#pragma unroll 1
  for (int n = threadIdx.x; n < WIDTH; n += kHeldThreads) {
    const int number = at.position + h.ahead + n, image = h.by_grid.quotient(number);
    const int in_image = number - image * int(h.by_grid.divisor);
    const int above = h.by_grid_w.quotient(in_image);
    const int row = above - (p.taps_h - 1), column = in_image - above * h.grid_w - (p.taps_w - 1);
    const int q_h = row + p.first_h, q_w = column + p.first_w;
    const uint32_t x = uint32_t(at.group) * p.x_group + uint32_t(image) * p.x_image +
                       uint32_t(q_h) * p.x_row + uint32_t(q_w) * p.x_pixel;
    const uint32_t y = uint32_t(at.group) * p.y_group + uint32_t(image) * p.y_image +
                       uint32_t(q_h * p.stride_h - p.pad_h) * p.y_row + uint32_t(q_w) * p.unit -
                       p.pad_w;
    const bool there = row >= 0 && column >= 0 && image < h.images;
    store_shared_16(places + column_of(h, n) * 16,
                    {x, y, there ? uint32_t(q_h) << 16 | (q_w & 0xffff) : kNowhere, 0});
  }
}

// The weights of a chunk: of each row of 32 bytes of K those of two instructions.
using WideWeights = uint32_t[kSteps][2][4];
__device__ __forceinline__ void load_weights(WideWeights& a, uint32_t from) {
  constexpr int kPitch = w_pitch(kTiles[kHeldTile], 4);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t low[4], high[4];
    load_shared_16(from + step * 8 * kPitch, low);
    load_shared_16(from + (step * 8 + 4) * kPitch, high);
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        a[step][i][j] = MmaTF32::round(low[i * 2 + j]);
        a[step][i][2 + j] = MmaTF32::round(high[i * 2 + j]);
      }
  }
}

template <int WIDTH>
using WideSums = float[2][WIDTH / 2];

// The vth row of the four of a thread, of its warpgroup's 128.
__device__ __forceinline__ int wide_row() {
  return threadIdx.x % 128 / 32 * 32 + threadIdx.x % 32 / 4 * 4;
}

template <int WIDTH>
__device__ __forceinline__ void store_wide(const Params& p, const Scope& at,
                                           const WideSums<WIDTH>& sum, uint32_t places,
                                           uint32_t bias) {
  float* const y = static_cast<float*>(p.y);
  const int t = threadIdx.x % 4;
  const HeldRow row(p, at, wide_row());
  uint32_t more[4];
  load_shared_16(bias + wide_row() * 4, more);
  const auto value_of = [&](int column, int e, int v) {
    return sum[v / 2][column * 4 + v % 2 * 2 + e];
  };
  float finite = 0;
#pragma unroll
  for (int column = 0; column < WIDTH / 8; ++column)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const Place place = place_at(places, column * 8 + t * 2 + e);
      uint32_t word[4];
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const float value = value_of(column, e, v);
        finite = fmaf(value, 0.f, finite);
        word[v] = __float_as_uint(value + __uint_as_float(more[v]));
      }
      if (row.there(p, place))
        store_words(y + (place.y + row.y), word[0], word[1], word[2], word[3]);
    }
  if (!__any_sync(~0u, finite != finite)) return;
  // What is NaN once more, of products that exist.
#pragma unroll
  for (int part = 0; part < WIDTH / 64; ++part) {
    uint64_t nan = 0;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const float value = value_of(part * 8 + i / 8, i / 4 % 2, i % 4);
      nan |= uint64_t{value != value} << i;
    }
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < 64; ++i) {
      if (!(nan >> i & 1)) continue;
      const Place place = place_at(places, (part * 8 + i / 8) * 8 + t * 2 + i / 4 % 2);
      if (row.there(p, place))
        store(y + (place.y + row.y + i % 4),
              sum_with_care<MmaTF32>(p, at, place, at.row + wide_row() + i % 4) +
                  load_shared<float>(bias + (wide_row() + i % 4) * 4));
    }
  }
}

template <int WIDTH>
__global__ void __launch_bounds__(kHeldThreads, 1)
    convt2d_reed_wide_kernel(const __grid_constant__ Held h) {
#ifdef CONVT2D_HAS_WGMMA
  constexpr int kStage = held_stage_bytes(4), kPitch = w_pitch(kTiles[kHeldTile], 4);
  constexpr int kChunk = chunk_of(4);
  extern __shared__ __align__(16) unsigned char smem[];
  const Params& p = h.base;
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  const int slots = wide_slots(h.slots);
  const uint32_t pixels = (shared_address(smem) + 1023) & ~1023u,
                 places = pixels + slots * h.units * 16, bias = places + WIDTH * 16,
                 sources = bias + kWideGroups * 2 * kHeldRows * 4,
                 all_stages = pixels + slots * h.units * 16 + wide_table_bytes(WIDTH, h.slots),
                 stages = all_stages + group * p.stages * kStage;
  Scope at;
  const int rest = blockIdx.x / p.position_blocks;
  at.position = (blockIdx.x - rest * p.position_blocks) * WIDTH;
  at.group = rest / h.parts;
  const int part = (rest - at.group * h.parts) * kWideGroups + group;
  at.row = part * p.used;
  const int tiles = h.each + (part < h.more), step = h.parts * kWideGroups * p.used;

  // Weights are asked for a few chunks ahead, of the next tile's rows too.
  const int channels = kChunk >> p.paired;  // of a chunk
  Scope ahead = at;
  WeightRow weight_row(p, ahead, kHeldRows, 4);
  Walk next;
  int unasked = tiles * p.chunks;
  const auto ask = [&](int stage) {
    if (unasked > 0) {
      bring_held<float, 128>(p, weight_row, next, stages + stage * kStage);
      next.advance(p, channels);
      if (next.channel >= p.terms) {
        next = Walk();
        ahead.row += step;
        weight_row = WeightRow(p, ahead, kHeldRows, 4);
      }
      --unasked;
    }
    copy_async_commit();
  };
#pragma unroll 1
  for (int i = 0; i < p.stages - 1; ++i) ask(i);
  write_wide_places<WIDTH>(h, at, places);
  write_sources(h, at, at.position, sources);
  float of_row = bias_of<float>(p, at.group, at.row, thread);
  __syncthreads();
  bring_pixels<MmaTF32>(h, at, at.position, sources, [&](int slot, int unit) {
    const int row = unit / 8 * slots + column_of(h, slot);
    return pixels + row * 128 + ((unit ^ row) & 7) * 16;
  });
  fence_for_wgmma();
  __syncthreads();
  if (tiles == 0) return;

  const uint32_t w = stages + thread % 4 * kPitch + wide_row() * 4;
  const uint64_t layout = swizzled_layout(128, 1024);
  const uint32_t pair = p.paired ? -128 - kSteps / 2 * 32 : 0;
  int from = 0, to = p.stages - 1;  // stages
  WideWeights here, coming;
  const auto load_next = [&](WideWeights& a) {
    copy_async_wait(p.stages - 2);
    barrier_among(1 + group,
                  128);  // all have what they asked for, and the chunk before in registers
    ask(to);
    load_weights(a, w + from * kStage);
    from = from + 1 == p.stages ? 0 : from + 1;
    to = to + 1 == p.stages ? 0 : to + 1;
  };
  load_next(here);
  int left = tiles * p.chunks;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t biases = bias + (group * 2 + tile % 2) * (kHeldRows * 4);
    store_shared_4(biases + thread * 4, __float_as_uint(of_row));
    of_row = bias_of<float>(p, at.group, at.row + step, thread);
    WideSums<WIDTH> sum;
    clear(sum);
    Walk walk;
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      const uint32_t x = pixels + walk.channel / kChunk * slots * 128 + walk.channel % kChunk * 4 +
                         (h.ahead - walk.h * h.grid_w - walk.w) * 128;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) computed(here[k][0]), computed(here[k][1]);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kSteps; ++k)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          WgmmaFetched<float, WIDTH>::add(
              sum[i], here[k][i], operand(layout, x + k * 32 + (k < kSteps / 2 ? 0 : pair)));
      wgmma_commit();
      const bool more = --left > 0;
      if (more) load_next(coming);
      wgmma_wait<0>();
      finished(sum[0]), finished(sum[1]);
      if (more)
#pragma unroll
        for (int k = 0; k < kSteps; ++k)
#pragma unroll
          for (int v = 0; v < 8; ++v) here[k][v / 4][v % 4] = coming[k][v / 4][v % 4];
      walk.advance(p, channels);
    }
    barrier_among(1 + group, 128);  // biases
    store_wide<WIDTH>(p, at, sum, places, biases);
    at.row += step;
  }
#endif
}

}  // namespace convt2d::cuda::reed
