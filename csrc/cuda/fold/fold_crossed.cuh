// Crossed tiles: words, 2 x 2 kernels that are their stride; a kernel of their own.
//
//   products[pixel, (co, tap)] = sum over ci of x[ci][pixel] * w[ci][(co, tap)]
//
// The first operand of wgmma may come from registers, so x is never turned: a lane fetches two neighbours of a line, which
// are rows g and g + 8 of the instruction. Its products then are four neighbours of a row of y. Weights stay: a block turns
// them once, as fold_words.cuh turns x.
//
//   x          [warpgroup][stage][32 pixels][channel][128 B, swizzled]
//   weights    [8 channels][32 rows][8 rows][even channels, odd ones][row][16 B]
//
// Lines of 32 pixels are numbered through all planes, the last one of each with what it has. A warpgroup has two of a
// tile's, which may be of two images, and a warp that asks the copy engine for them. Only the weights are shared, so one
// warpgroup may store while others multiply.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/elect.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/fold/fold_kernel.cuh"
#include "cuda/gather_device.cuh"

namespace convt2d::cuda::fold {

template <int ROW>
using CrossedSums = float[1][row_blocks(kTiles[ROW]) * kRows / 2];

template <int ROW>
constexpr int kPartLines = kTiles[ROW].width / line_numbers(4);

// Calls `visit` with the first line of a warpgroup's part of each tile, if there are lines for it.
template <int ROW, class Visit>
__device__ __forceinline__ void for_parts(const Params& p, const Scope& at, int group,
                                          Visit&& visit) {
  const int lines = p.batch * p.image_lines;
  for (int item = at.walker; item < p.items; item += p.walkers) {
    const int line = (item * parts(kTiles[ROW]) + group) * kPartLines<ROW>;
    if (line < lines) visit(line);
  }
}

// The image and first pixel of a line.
struct Line {
  int n, first;
};
__device__ __forceinline__ Line line_of(const Params& p, int number) {
  const int n = number / p.image_lines;
  return {n, (number - n * p.image_lines) * line_numbers(4)};
}

// A warpgroup's pixels, in its ring.
template <int ROW>
__device__ __forceinline__ void bring_pixels(const Params& p, const Maps& maps, const Scope& at,
                                             int group, StageRing& ring) {
  for_parts<ROW>(p, at, group, [&](int number) {
    Line line[kPartLines<ROW>];
#pragma unroll
    for (int i = 0; i < kPartLines<ROW>; ++i) line[i] = line_of(p, number + i);
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), ring.bytes);
#pragma unroll
      for (int i = 0; i < kPartLines<ROW>; ++i)
        copy_box(ring.stage() + i * p.depth * kLine, &maps.x_line, ring.full(), line[i].first,
                 chunk * p.depth, line[i].n * p.groups + at.group, 0);
    }
  });
}

// A block's weights: the warps that multiply ask for regions of them, each for its share, and turn them when all are there.
template <int ROW>
__device__ __forceinline__ void turn_weights(const Params& p, const Maps& maps, const Scope& at,
                                             uint32_t weights, uint32_t arrived) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kLines = weight_lines(tile, 4), kWarps = consumers(tile) / 32;
  const int warp = warp_of_block(), first = at.column_block * row_blocks(tile) * kRows;
  const uint32_t bytes = p.chunks * weight_bytes(p, tile);
  if (threadIdx.x == 0) barrier_expect(arrived, bytes);
  if (elected()) {
    for (int region = warp; region < bytes / kRegion; region += kWarps)
      copy_box(weights + region * kRegion, &maps.w_line, arrived,
               first + region % kLines * line_numbers(4), region / kLines * kRegionChannels,
               at.group, 0);
  }
  __syncwarp();
  barrier_wait(arrived, 0);
  for (uint32_t from = warp * 2 * kRegion; from < bytes; from += kWarps * 2 * kRegion)
    turn_regions<false>(weights + from, 0, threadIdx.x % 32 * 4);
  fence_for_wgmma();
  barrier_among(1, consumers(tile));
}

// Multiplies a chunk of SLICES x 8 channels. `pixels`: where a lane finds its two of channels 2 t and 2 t + 1.
template <int ROW, int SLICES>
__device__ __forceinline__ void multiply_pixels(CrossedSums<ROW>& sum, const uint32_t (&pixels)[2],
                                                uint32_t stage, uint64_t weights) {
  constexpr Tile tile = kTiles[ROW];
  uint32_t word[2][4];
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
    uint32_t pair[2][2];
#pragma unroll
    for (int odd = 0; odd < 2; ++odd)
      load_shared_8(stage + pixels[odd] + slice * kRegion, pair[odd]);
#pragma unroll
    for (int i = 0; i < 4; ++i) word[slice % 2][i] = pair[i / 2][i % 2];
    wgmma_fence();
    WgmmaFetched<float, row_blocks(tile) * kRows>::add(
        sum[0], word[slice % 2], advance(weights, slice * weight_lines(tile, 4) * (kRegion >> 4)));
    wgmma_commit();
    wgmma_wait<1>();
  }
}

// A warp has half of a line. What a lane has of two pixels are four neighbours of a row of y: column 2 t of eight is tap row t % 2 of a channel.
template <int ROW>
__device__ __forceinline__ void store_crossed(const Params& p, const Scope& at, const Line& line,
                                              uint32_t bias, const CrossedSums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  const int lane = threadIdx.x % 32, channel = lane % 4 / 2, tap_row = lane % 2;
  const int pixel = line.first + threadIdx.x / 32 % 2 * 16 + lane / 4 * 2;
  const int column = first_channel(p, tile, at, 0) + channel;
  const int64_t y_plane = int64_t{p.x_w} * taps(p),
                image = int64_t{line.n * p.groups + at.group} * p.columns + column;
  float* to = static_cast<float*>(p.destination) + image * y_plane +
              2 * (pixel + p.row_w * (divide(pixel, p.row_magic) + tap_row));
  const int last = line.n < p.batch && pixel < p.x_w ? p.columns - column - 1 : -1;
#pragma unroll
  for (int i = 0; i < row_blocks(tile) * kRows / 8; ++i, to += 2 * y_plane) {
    const float add = load_shared<float>(bias + (channel + 2 * i) * 4);
    const float* const value = sum[0] + 4 * i;
    store_words_if<4>(last - 2 * i, to, __float_as_uint(value[0] + add),
                      __float_as_uint(value[1] + add), __float_as_uint(value[2] + add),
                      __float_as_uint(value[3] + add));
  }
}

template <int ROW>
__device__ __forceinline__ void consume_crossed(const Params& p, const Scope& at, int group,
                                                uint32_t shared, StageRing& ring) {
  constexpr Tile tile = kTiles[ROW];
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const uint64_t layout = operand_layout(kLine, 2 * kLine);
  uint32_t pixels[2];
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    const int channel = lane % 4 * 2 + odd;
    pixels[odd] =
        (warp / 2 * p.depth + channel) * kLine + (warp % 2 * 64 + lane / 4 * 8 ^ channel << 4);
  }
  for_parts<ROW>(p, at, group, [&](int number) {
    CrossedSums<ROW> sum;
    clear(sum);
    uint32_t weights = shared + p.weights_at;
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.full(), ring.parity);
      if (p.depth == 4 * kRegionChannels)
        multiply_pixels<ROW, 4>(sum, pixels, ring.stage(), operand(layout, weights));
      else
        multiply_pixels<ROW, 2>(sum, pixels, ring.stage(), operand(layout, weights));
      // What is multiplied has been fetched.
      if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
      weights += weight_bytes(p, tile);
    }
    wgmma_wait<0>();
    finished(sum[0]);
    store_crossed<ROW>(p, at, line_of(p, number + warp / 2), shared + kBiasAt, sum);
  });
}

template <int ROW>
__global__ void __launch_bounds__(threads(kTiles[ROW]), 1)
    convt2d_fold_crossed_kernel(const __grid_constant__ Params p,
                                const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  constexpr Tile tile = kTiles[ROW];
  constexpr int kWarps = consumers(tile) / 32;
  const Scope at = scope_of(p);
  const int warp = warp_of_block(), group = warp < kWarps ? warp / 4 : warp - kWarps;
  const int bytes = stage_bytes(p, tile) / parts(tile);
  StageRing ring{shared + kRingsAt + group * kRingBytes,
                 shared + p.stages_at + group * p.stages * bytes, p.stages, bytes};
  const uint32_t arrived = shared + kHelpedAt;
  if (threadIdx.x == 0) {
    barrier_init(arrived, 1);
    for (int i = 0; i < parts(tile); ++i)
      for (int stage = 0; stage < p.stages; ++stage) {
        const uint32_t full = shared + kRingsAt + i * kRingBytes + stage * 16;
        barrier_init(full, 1);
        barrier_init(full + 8, 4);
      }
  }
  bring_bias<float, ROW>(p, at, shared);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp >= kWarps) {
    fewer_registers<producer_registers(tile, 4)>();
    if (elected()) bring_pixels<ROW>(p, maps, at, group, ring);
  } else {
    more_registers<consumer_registers(tile, 4)>();
    turn_weights<ROW>(p, maps, at, shared + p.weights_at, arrived);
    consume_crossed<ROW>(p, at, group, shared, ring);
  }
#endif
}

}  // namespace convt2d::cuda::fold
