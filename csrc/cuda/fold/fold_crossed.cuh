// Crossed tiles: 2 x 2 kernels that are their stride, TF32; a kernel of their own.
//
//   products[pixel, (co, tap)] = sum over ci of x[ci][pixel] * w[ci][(co, tap)]
//
// The first operand of wgmma may come from registers, so x is multiplied as it lies: a lane fetches 8 bytes of a line, which
// are neighbours. They are rows g and g + 8 of an instruction. Their products are neighbours of a row of y, 16 bytes. Weights
// stay; a block turns them once, as fold_words.cuh turns x.
//
//   x          [warpgroup][stage][line of 128 B][channel][128 B, swizzled]
//   weights    [8 channels][32 rows][8 rows][even channels, odd ones][row][16 B]
//
// Lines are numbered through all planes, the last one of each with what it has. A warpgroup has two of a tile's, which may be
// of two images, and a warp that asks the copy engine for them. Only the weights are shared, so one warpgroup may store
// while others multiply.
//
// Planes that two by two are whole 16 bytes: the copy engine brings lines of 28 pixels, with 4 more. The second
// planes begin half a vector further on, so that is where lanes fetch them.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/elect.cuh"
#include "cuda/device/hidden_zero.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/fold/fold_kernel.cuh"
#include "cuda/gather_device.cuh"

namespace convt2d::cuda::fold {

constexpr int kLanePixels = 2;
template <int ROW>
constexpr int kBlockRows = row_blocks(kTiles[ROW]) * kRows;
template <int ROW>
using CrossedSums = float[kBlockRows<ROW> / 2];
using PixelWords = uint32_t[4];

// Calls `visit` with the first line of a warpgroup's part of each tile, if there are lines for it.
template <int ROW, class Visit>
__device__ __forceinline__ void for_parts(const Params& p, const Scope& at, int group,
                                          Visit&& visit) {
  const int lines = p.batch * p.image_lines;
  for (int item = at.walker; item < p.items; item += p.walkers) {
    const int line = (item * parts(kTiles[ROW]) + group) * kPartLines;
    if (line < lines) visit(line);
  }
}

// The image and first pixel of a line.
struct Line {
  int n, first;
};
__device__ __forceinline__ Line line_of(const Params& p, int number) {
  const int n = number / p.image_lines;
  return {n, (number - n * p.image_lines) * line_pixels(p)};
}

// A warpgroup's pixels, in its ring.
template <int ROW>
__device__ __forceinline__ void bring_pixels(const Params& p, const Maps& maps, const Scope& at,
                                             int group, StageRing& ring) {
  for_parts<ROW>(p, at, group, [&](int number) {
    Line line[kPartLines];
#pragma unroll
    for (int i = 0; i < kPartLines; ++i) line[i] = line_of(p, number + i);
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), ring.bytes);
#pragma unroll
      for (int i = 0; i < kPartLines; ++i)
        copy_box(ring.stage() + i * p.depth * kLine, &maps.x_line, ring.full(), line[i].first,
                 chunk * (p.depth >> p.set_shift), line[i].n * p.groups + at.group, 0);
    }
  });
}

// A block's weights: the warps that multiply ask for boxes of them, each for its share, and turn them when all are there.
template <int ROW>
__device__ __forceinline__ void bring_crossed_weights(const Params& p, const Maps& maps,
                                                      const Scope& at, uint32_t weights,
                                                      uint32_t arrived) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kLines = weight_lines(tile, 4), kWarps = consumers(tile) / 32;
  const int warp = warp_of_block(), first = at.column_block * kBlockRows<ROW>;
  const uint32_t bytes = p.chunks * weight_bytes(p, tile);
  if (threadIdx.x == 0) barrier_expect(arrived, bytes);
  if (elected()) {
    int line = warp % kLines, channel = warp / kLines * (kRegionChannels >> p.set_shift);
    for (uint32_t to = warp * kRegion; to < bytes; to += kWarps * kRegion) {
      copy_box(weights + to, &maps.w_line, arrived, first + line * line_numbers(4), channel,
               at.group, 0);
      channel += kWarps / kLines * (kRegionChannels >> p.set_shift);
    }
  }
  __syncwarp();
  barrier_wait(arrived, 0);
  for (uint32_t from = warp * 2 * kRegion; from < bytes; from += kWarps * 2 * kRegion)
    turn_regions<false>(weights + from, 0, threadIdx.x % 32 * 4);
  fence_for_wgmma();
  barrier_among(1, consumers(tile));
}

// Where a lane finds its pixels of channels 2 t and 2 t + 1: of first planes, and of second ones.
using PixelPlaces = uint32_t[2][2];
__device__ __forceinline__ void find_pixels(const Params& p, PixelPlaces& place) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
  for (int second = 0; second < 2; ++second)
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const int channel = lane % 4 * 2 + odd, ahead = second && p.set_shift > 0 ? 8 : 0;
      place[second][odd] = (warp / 2 * p.depth + channel) * kLine +
                           (warp % 2 * 64 + lane / 4 * 8 + ahead ^ channel << 4);
    }
}

// What a lane fetches of a slice, and makes of it: the first operand.
using Fetched = uint32_t[2][2];
__device__ __forceinline__ void fetch_pixels(Fetched& fetched, const uint32_t (&place)[2],
                                             uint32_t region) {
#pragma unroll
  for (int i = 0; i < 2; ++i) load_shared_8(region + place[i], fetched[i]);
}
__device__ __forceinline__ void arrange_pixels(PixelWords& word, const Fetched& fetched) {
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = fetched[i / 2][i % 2] | hidden_zero();
  computed(word);
}

// Multiplies a tile's chunks of SLICES, an even number, of which the first half have first planes. The words of a slice stay
// until it is multiplied, two slices later; those of the next one are fetched meanwhile, since that takes as long.
template <int ROW, int SLICES>
__device__ __forceinline__ void multiply_pixels(const Params& p, CrossedSums<ROW>& sum,
                                                const PixelPlaces& place, StageRing& ring,
                                                uint32_t at_weights, uint64_t layout) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kWeights = kRegion * weight_lines(tile, 4) >> 4;
  PixelWords word[2];
  Fetched fetched;
  barrier_wait(ring.full(), ring.parity);
  fetch_pixels(fetched, place[0], ring.stage());
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, at_weights += weight_bytes(p, tile)) {
    const uint64_t weights = operand(layout, at_weights);
    const uint32_t stage = ring.stage();
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
      arrange_pixels(word[slice % 2], fetched);
      wgmma_fence();
      WgmmaFetched<float, kBlockRows<ROW>>::add(sum, word[slice % 2],
                                                advance(weights, slice * kWeights));
      wgmma_commit();
      if (slice + 1 < SLICES) {
        fetch_pixels(fetched, place[2 * (slice + 1) >= SLICES], stage + (slice + 1) * kRegion);
      } else {
        __syncwarp();  // all have their words
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
        ring.advance();
        if (chunk + 1 < p.chunks) {
          barrier_wait(ring.full(), ring.parity);
          fetch_pixels(fetched, place[0], ring.stage());
        }
      }
      wgmma_wait<1>();
    }
  }
  wgmma_wait<0>();
}

// A warp has half of a line. Of a lane's pixels, column 2 t of eight is the first output of tap row t % 2 of a channel.
template <int ROW>
__device__ __forceinline__ void store_crossed(const Params& p, const Scope& at, const Line& line,
                                              uint32_t bias, const CrossedSums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  const int lane = threadIdx.x % 32, channel = lane % 4 / 2, tap_row = lane % 2;
  const int inside = (threadIdx.x / 32 % 2 * 8 + lane / 4) * kLanePixels,
            pixel = line.first + inside;
  const int column = first_channel(p, tile, at, 0) + channel;
  const int64_t y_plane = int64_t{p.x_w} * taps(p),
                image = int64_t{line.n * p.groups + at.group} * p.columns + column;
  float* to = static_cast<float*>(p.destination) + image * y_plane +
              2 * (pixel + p.row_w * (divide(pixel, p.row_magic) + tap_row));
  const bool exists = line.n < p.batch && inside < line_pixels(p) && pixel < p.x_w;
  const int last = exists ? p.columns - column - 1 : -1;
#pragma unroll
  for (int i = 0; i < kBlockRows<ROW> / 8; ++i, to += 2 * y_plane) {
    const float add = load_shared<float>(bias + (channel + 2 * i) * 4);
    uint32_t word[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) word[j] = __float_as_uint(sum[4 * i + j] + add);
    store_words_if<4>(last - 2 * i, to, word[0], word[1], word[2], word[3]);
  }
}

template <int ROW>
__device__ __forceinline__ void consume_crossed(const Params& p, const Scope& at, int group,
                                                uint32_t shared, StageRing& ring) {
  const uint64_t layout = operand_layout(kLine, 2 * kLine);
  PixelPlaces place;
  find_pixels(p, place);
  for_parts<ROW>(p, at, group, [&](int number) {
    CrossedSums<ROW> sum = {};
    if (p.depth == 4 * kRegionChannels) {
      multiply_pixels<ROW, 4>(p, sum, place, ring, shared + p.weights_at, layout);
    } else {
      multiply_pixels<ROW, 2>(p, sum, place, ring, shared + p.weights_at, layout);
    }
    finished(sum);
    store_crossed<ROW>(p, at, line_of(p, number + threadIdx.x / 64 % 2), shared + kBiasAt, sum);
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
  // Whose pixels this warp asks for or multiplies.
  const int warp = warp_of_block(), group = warp < kWarps ? warp / 4 : warp - kWarps;
  const int bytes = stage_bytes(p, tile) / parts(tile);
  StageRing ring{shared + kRingsAt + group * kRingBytes,
                 shared + p.stages_at + group * p.stages * bytes, p.stages, bytes};
  const uint32_t arrived = shared + kHelpedAt;
  if (threadIdx.x == 0) barrier_init(arrived, 1);
  if (threadIdx.x < parts(tile) * kMostStages) {
    const uint32_t full = shared + kRingsAt + threadIdx.x * 16;
    barrier_init(full, 1);
    barrier_init(full + 8, 4);
  }
  bring_bias<float, ROW>(p, at, shared);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp >= kWarps) {
    fewer_registers<producer_registers(tile, 4)>();
    if (group < parts(tile) && elected()) bring_pixels<ROW>(p, maps, at, group, ring);
  } else {
    more_registers<consumer_registers(tile, 4)>();
    bring_crossed_weights<ROW>(p, maps, at, shared + p.weights_at, arrived);
    consume_crossed<ROW>(p, at, group, shared, ring);
  }
#endif
}

}  // namespace convt2d::cuda::fold
