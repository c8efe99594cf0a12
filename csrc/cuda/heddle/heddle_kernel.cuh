// The heddle kernel; heddle_config.h draws the GEMM.
//
// If a sum came out NaN, it is added up again, of products that exist: zeros from outside of dY are multiplied too, and
// 0 * inf is NaN.
#pragma once

#include "cuda/device/as_multiplied.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/heddle/heddle_stage.cuh"

namespace convt2d::cuda::heddle {

// Of a thread: [kernel row][tap][8 input channels][output channel g or g + 8, input channel 2 t or the next].
template <int ROW>
using Sums = float[kTiles[ROW].taps_h][kTiles[ROW].taps_w][kTiles[ROW].inputs][4];

// What a warp works on: the first of its kernel rows, output and input channels, in the block; and which chunks.
struct WarpPart {
  int row, output, input, part;
  __device__ __forceinline__ WarpPart(const Params& p, Tile tile, int warp) {
    part = warp / units(p);
    const int unit = warp - part * units(p);
    row = unit % p.row_units * tile.taps_h;
    const int rest = unit / p.row_units;
    output = rest % p.out_units * kOutputs;
    input = rest / p.out_units * tile.inputs * 8;
  }
};

// A lane's words of a line of dY, from the first one on, which is `lead` words into its vectors.
template <int ROW>
__device__ __forceinline__ void fetch_line(uint32_t (&word)[lane_words(kTiles[ROW])], uint32_t from,
                                           int lead) {
  constexpr int kWords = lane_words(kTiles[ROW]), kVectors = lane_vectors(kTiles[ROW]);
  uint32_t raw[kVectors * 4];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    uint32_t four[4] = {};
    // Of the last one few leads want something.
    if (i < kVectors - 1 || lead + kWords > i * 4) load_shared_16(from + i * 16, four);
#pragma unroll
    for (int j = 0; j < 4; ++j) raw[i * 4 + j] = four[j];
  }
  const bool two = lead & 2, one = lead & 1;
  uint32_t by_two[kWords + 1];
#pragma unroll
  for (int i = 0; i < kWords + 1; ++i) by_two[i] = two ? raw[i + 2] : raw[i];
#pragma unroll
  for (int i = 0; i < kWords; ++i) word[i] = one ? by_two[i + 1] : by_two[i];
}

// A lane's part of a chunk, of all taps of a kernel row.
template <class M, int ROW>
__device__ __forceinline__ void multiply_row(
    float (&sum)[kTiles[ROW].taps_w][kTiles[ROW].inputs][4],
    const uint32_t (&x)[kTiles[ROW].inputs][kLaneWords],
    const uint32_t (&low_x)[kTiles[ROW].inputs][M::kSplit ? kLaneWords : 1],
    const uint32_t (&y)[2][lane_words(kTiles[ROW])]) {
  constexpr Tile tile = kTiles[ROW];
  const auto operand = [&](uint32_t (&a)[4], int slice, int tap) {
#pragma unroll
    for (int w = 0; w < 4; ++w) a[w] = y[w % 2][(slice * 2 + w / 2) * tile.stride + tap];
  };
  if constexpr (M::kSplit) {
    static_assert(kSlices == M::kFoldSteps);
    float part[tile.taps_w][tile.inputs][4] = {};
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      // The lesser products come first, while there is little to cut digits off from.
#pragma unroll
      for (int product = 0; product < 3; ++product)
#pragma unroll
        for (int tap = 0; tap < tile.taps_w; ++tap) {
          uint32_t a[4];
          operand(a, slice, tap);
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            uint32_t high, low;
            M::split(a[w], high, low);
            a[w] = product == 0 ? low : high;
          }
#pragma unroll
          for (int j = 0; j < tile.inputs; ++j)
            M::mma(part[tap][j], a, product == 1 ? low_x[j][slice * 2] : x[j][slice * 2],
                   product == 1 ? low_x[j][slice * 2 + 1] : x[j][slice * 2 + 1]);
        }
    }
#pragma unroll
    for (int tap = 0; tap < tile.taps_w; ++tap)
#pragma unroll
      for (int j = 0; j < tile.inputs; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[tap][j][e] += part[tap][j][e];
  } else {
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice)
#pragma unroll
      for (int tap = 0; tap < tile.taps_w; ++tap) {
        uint32_t a[4];
        operand(a, slice, tap);
#pragma unroll
        for (int j = 0; j < tile.inputs; ++j)
          M::mma(sum[tap][j], a, x[j][slice * 2], x[j][slice * 2 + 1]);
      }
  }
}

// A step.
template <class M, int ROW>
__device__ __forceinline__ void multiply(const Params& p, const Scope& at, const WarpPart& warp,
                                         int stage, uint32_t stages, uint32_t slots,
                                         Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kWords = lane_words(tile);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t from_x =
      stages + stage * stage_bytes(p, tile) + (warp.input + g) * p.x_pitch + t * kLaneWords * 4;
  const uint32_t from_y = slots + (warp.output + g) * p.y_pitch + t * kLaneWords * 4 * tile.stride;
  uint32_t told[2];
  load_shared_8(told_at(p, slots, stage), told);
  // Of a channel's first number of a line, and eight channels further, which of 16 bytes it is.
  const int first = told[0] + (warp.output + g) * p.y_plane, slot = told[1];
#pragma unroll 1
  for (int chunk = warp.part; chunk < p.chunks; chunk += p.parts) {
    uint32_t x[tile.inputs][kLaneWords], low_x[tile.inputs][M::kSplit ? kLaneWords : 1] = {};
#pragma unroll
    for (int j = 0; j < tile.inputs; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t four[4];
        load_shared_16(from_x + j * 8 * p.x_pitch + chunk * kChunkWords * 4 + half * 16, four);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          x[j][half * 4 + w] = M::round(four[w]);
          if constexpr (M::kSplit) M::split(four[w], x[j][half * 4 + w], low_x[j][half * 4 + w]);
        }
      }
#pragma unroll
    for (int row = 0; row < tile.taps_h; ++row) {
      const int tap_h = warp.row + row;
      if (at.kernel_h + tap_h >= p.kernel_h) break;
      const uint32_t line = from_y + slot_of_line(p, slot, tap_h * p.tap_lines) * slot_bytes(p) +
                            chunk * kChunkWords * 4 * tile.stride;
      const int lead = first + tap_h * p.dilation_h * p.y_w & 3;
      uint32_t y[2][kWords];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        fetch_line<ROW>(y[half], line + half * 8 * p.y_pitch, lead);
#pragma unroll
        for (int w = 0; w < kWords; ++w) y[half][w] = M::round(y[half][w]);
      }
      multiply_row<M, ROW>(sum[row], x, low_x, y);
    }
  }
}

// One sum of the block, of the products that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M, int ROW>
__device__ __noinline__ float sum_with_care(const Params& p, const Scope& at, int input, int output,
                                            int tap_h, int tap_w) {
  constexpr int kStride = kTiles[ROW].stride;
  const int pixels = p.chunks * kChunkWords * (4 / int(sizeof(typename M::Element)));
  float sum = 0;
  for (int i = at.begin; i < at.end; ++i) {
    const Step step(p, at.begin, i);
    const int h = step.h * p.stride_h - p.pad_h + tap_h * p.dilation_h;
    if (h < 0 || h >= p.y_h) continue;
    const int x_row = (((step.n * p.groups + at.group) * p.rows + input) * p.x_h + step.h) * p.x_w;
    const int y_row = ((step.n * p.groups + at.group) * p.columns + output) * p.y_plane + h * p.y_w;
    const int end = min((step.tile + 1) * pixels, p.x_w);
    for (int x_w = step.tile * pixels; x_w < end; ++x_w) {
      const int w = x_w * kStride - p.pad_w + tap_w;
      if (w >= 0 && w < p.y_w)
        sum = fmaf(as_multiplied<M>(p.x, x_row + x_w), as_multiplied<M>(p.y, y_row + w), sum);
    }
  }
  return sum;
}

// Sums of a warp to shared memory, for store_sums().
template <int ROW>
__device__ __forceinline__ void put_sums(uint32_t shared, const Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  shared += (threadIdx.x / 32 * sums(tile) * 32 + threadIdx.x % 32) * 4;
#pragma unroll
  for (int row = 0; row < tile.taps_h; ++row)
#pragma unroll
    for (int tap = 0; tap < tile.taps_w; ++tap)
#pragma unroll
      for (int j = 0; j < tile.inputs; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          store_shared_4(shared + ((((row * tile.taps_w + tap) * tile.inputs + j) * 4 + e) << 7),
                         __float_as_uint(sum[row][tap][j][e]));
}

// From there to dW or to partial sums, those of warps that differ in chunks alone added in their order; what is NaN once
// more. By all threads.
template <class M, int ROW, class To>
__device__ __forceinline__ void store_sums(const Params& p, const Scope& at, uint32_t shared,
                                           To* to) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kSums = sums(tile);
  const int lane = threadIdx.x % 32, of_part = units(p) * kSums * 128;
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < units(p) * kSums; i += tile.warps) {
    const int unit = i / kSums, number = i - unit * kSums;
    const WarpPart warp(p, tile, unit);
    const int e = number % 4, j = number / 4 % tile.inputs, tap = number / 4 / tile.inputs;
    const int output = at.output + warp.output + lane / 4 + e / 2 * 8;
    const int input = at.input + warp.input + lane % 4 * 2 + j * 8 + e % 2;
    const int tap_h = at.kernel_h + warp.row + tap / tile.taps_w;
    const int tap_w = at.kernel_w + tap % tile.taps_w;
    if (tap_h >= p.kernel_h || tap_w >= p.kernel_w || input >= p.rows || output >= p.columns)
      continue;
    const uint32_t from = shared + i * 128 + lane * 4;
    float sum = load_shared<float>(from);
    for (int part = 1; part < p.parts; ++part) sum += load_shared<float>(from + part * of_part);
    if (sum != sum) sum = sum_with_care<M, ROW>(p, at, input, output, tap_h, tap_w);
    store(to + (at.group * p.rows + input) * p.stride[0] + output * p.stride[1] +
              tap_h * p.stride[2] + tap_w * p.stride[3],
          sum);
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(threads(kTiles[ROW]), 1)
    convt2d_heddle_grad_weight_kernel(const __grid_constant__ Params p) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  extern __shared__ __align__(128) unsigned char smem[];
  const uint32_t stages = shared_address(smem), slots = stages + p.stages * stage_bytes(p, tile);
  const Scope at = scope_of(p, tile);
  const WarpPart warp(p, tile, threadIdx.x / 32);
  Sums<ROW> sum = {};
  let_successor_start();    // the sum of the pieces; there is no place for it until a block ends
  int stage = 0, slot = 0;  // of the step that is asked for
#pragma unroll 1
  for (int step = at.begin - p.stages + 1; step < at.end; ++step) {
    if (step >= at.begin) {
      copy_async_wait(p.stages - 2);
      __syncthreads();  // all have what they asked for, and have multiplied the step before
    }
    if (const int asked = step + p.stages - 1; asked < at.end) {
      const Step ahead(p, at.begin, asked);
      if (asked > at.begin) slot = next_slot(p, slot, ahead.fresh);
      bring_x<T, ROW>(p, at, ahead, stages + stage * stage_bytes(p, tile));
      bring_y<T, ROW>(p, at, ahead, slot, slots);
      tell<T, ROW>(p, at, ahead, slot, told_at(p, slots, stage));
    }
    copy_async_commit();
    stage = stage + 1 == p.stages ? 0 : stage + 1;  // that of this step, too
    if (step >= at.begin && warp.part < p.parts)
      multiply<M, ROW>(p, at, warp, stage, stages, slots, sum);
  }
  __syncthreads();  // all have read the stages
  put_sums<ROW>(stages, sum);
  __syncthreads();
  if (p.partials) {
    store_sums<M, ROW>(p, at, stages, p.partials + int64_t{at.piece} * p.piece_floats);
  } else {
    store_sums<M, ROW>(p, at, stages, static_cast<T*>(p.weight));
  }
#endif
}

}  // namespace convt2d::cuda::heddle
