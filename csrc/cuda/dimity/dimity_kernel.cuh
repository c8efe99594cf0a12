// The dimity kernel; dimity_config.h draws the GEMM.
//
// If a sum came out NaN, it is added up again, of products that exist: zeros from beside rows are multiplied too, and
// 0 * inf is NaN.
#pragma once

#include "cuda/device/as_multiplied.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/dimity/dimity_lane.cuh"
#include "cuda/dimity/dimity_pixels.cuh"
#include "cuda/dimity/dimity_warp.cuh"

namespace convt2d::cuda::dimity {

// A step: a row of dY and all rows of x that it meets.
template <class M, int ROW>
__device__ __forceinline__ void multiply(const Params& p, const Scope& at, const WarpPart& warp,
                                         const Steps& steps, int phase, int row_h, uint32_t stage,
                                         uint32_t slots, int slot, Sums<ROW>& sum) {
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kSize = int(sizeof(T)), kWords = words_of<T>(lane_numbers(tile));
  constexpr int kPixelWords = words_of<T>(kLanePixels);
  const int lane = threadIdx.x % 32, g = lane / 4, pixel = lane % 4 * kLanePixels;

  // The warp's kernel rows that this row of dY has, and where their rows of x lie for this lane.
  bool has[tile.taps_h];
  uint32_t from_x[tile.taps_h];
  bool any = false;
  const int channel_x = warp.input + g;
#pragma unroll
  for (int row = 0; row < tile.taps_h; ++row) {
    const int tap_h = warp.row + row;
    has[row] = meets(p, at, steps, phase, tap_h);
    any |= has[row];
    const int back = look_back(p, tap_h, has[row]), row_x = steps.q - back;
    const int lead = x_row(p, at, steps.n, row_x) + channel_x * p.x_plane & kVector<T> - 1;
    from_x[row] = slots + slot_before(p, slot, back) * p.slot_bytes + channel_x * p.x_pitch +
                  (lead + pixel) * kSize;
  }
  if (!any) return;

  const int first_column = steps.column(p, at), channel_y = warp.output + g;
  const int first = y_row(p, at, steps.n, row_h) + first_column + channel_y * p.y_plane;
  uint32_t from_y[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    from_y[half] = stage + (channel_y + half * 8) * p.y_pitch +
                   ((first + half * 8 * p.y_plane & kVector<T> - 1) + pixel * p.stride_w +
                    warp.tap * p.dilation_w) *
                       kSize;

#pragma unroll 1
  for (int chunk = warp.part; chunk < p.chunks; chunk += p.parts) {
    const int chunk_pixel = chunk * kChunkPixels, left = p.x_w - steps.pixel - chunk_pixel;
    if (left <= 0) break;
    uint32_t x[tile.taps_h][kPixelWords], y[2][kWords], low_y[2][kWords];
#pragma unroll
    for (int row = 0; row < tile.taps_h; ++row)
      fetch_pixels<T>(x[row], from_x[row] + chunk_pixel * kSize, p.x_whole);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      fetch_numbers<T, ROW>(p, y[half], from_y[half] + chunk_pixel * p.stride_w * kSize);
    // Of the chunk's columns, the first one and the last one: few chunks are at an edge.
    const int column = first_column + chunk_pixel * p.stride_w + warp.tap * p.dilation_w;
    const int last = column + (kChunkPixels - 1) * p.stride_w + (tile.taps_w - 1) * p.dilation_w;
    if (left < kChunkPixels || column < 0 || last >= p.y_w) {
#pragma unroll
      for (int row = 0; row < tile.taps_h; ++row)
        keep_if<T>(x[row], [&](int number) { return pixel + number < left; });
#pragma unroll
      for (int half = 0; half < 2; ++half)
        keep_if<T>(y[half], [&](int number) {
          return unsigned(column + pixel * p.stride_w + column_of<ROW>(p, number)) <
                 unsigned(p.y_w);
        });
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) round_or_split<M>(y[half], low_y[half]);
    Operands<T, ROW> a, low_a;
    a.take(y);
    if constexpr (M::kSplit) low_a.take(low_y);
#pragma unroll
    for (int row = 0; row < tile.taps_h; ++row) {
      if (!has[row]) continue;
      uint32_t low_x[kPixelWords];
      round_or_split<M>(x[row], low_x);
      multiply_row<M, ROW>(sum[row], a, low_a, x[row], low_x);
    }
  }
}

// All steps of a block, by a warp that multiplies: multiply(steps, phase, row of dY, stage, slot).
template <class Multiply>
__device__ __forceinline__ void multiply_steps(const Params& p, const Scope& at,
                                               const WarpPart& warp, uint32_t shared,
                                               uint32_t stages, Multiply&& multiply) {
  Ring ring;
  int slot = p.window - 1, turn = 0;
#pragma unroll 1
  for (int number = at.begin; number < at.end; ++number) {
    const Steps steps(p, number);
#pragma unroll 1
    for (int phase = 0; phase < p.phases; ++phase) {
      const uint32_t full = shared + ring.stage * 16;
      const int row_h = steps.row(p, at, phase);
      barrier_wait(full, ring.parity);  // others' steps as well: a parity tells the next one only
      if (turn == warp.turn && unsigned(row_h) < unsigned(p.y_h))
        multiply(steps, phase, row_h, stages + ring.stage * p.stage_bytes, slot);
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(full + 8);
      ring.advance(p.stages);
      turn = turn + 1 == p.turns ? 0 : turn + 1;
    }
    slot = slot_after(p, slot);
  }
}

// One sum of the block, of the products that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M, bool CHANNELS_LAST>
__device__ __noinline__ float sum_with_care(const Params& p, const Scope& at, int group, int input,
                                            int output, int tap_h, int tap_w) {
  float sum = 0;
#pragma unroll 1
  for (int number = at.begin; number < at.end; ++number) {
    const Steps steps(p, number);
    const int row_h = steps.row(p, at, p.phase[tap_h]), row_x = steps.q - p.back[tap_h];
    if (unsigned(row_h) >= unsigned(p.y_h) || unsigned(row_x) >= unsigned(p.x_h)) continue;
    const int channels_x = p.groups * p.rows, channels_y = p.groups * p.columns;
    const int x = CHANNELS_LAST ? (steps.n * p.x_plane + row_x * p.x_w) * channels_x +
                                      group * p.rows + at.input + input
                                : x_row(p, at, steps.n, row_x) + input * p.x_plane;
    const int y = CHANNELS_LAST ? (steps.n * p.y_plane + row_h * p.y_w) * channels_y +
                                      group * p.columns + at.output + output
                                : y_row(p, at, steps.n, row_h) + output * p.y_plane;
    const int step_x = CHANNELS_LAST ? channels_x : 1, step_y = CHANNELS_LAST ? channels_y : 1;
    const int end = min(steps.pixel + p.chunks * kChunkPixels, p.x_w);
#pragma unroll 1
    for (int pixel = steps.pixel; pixel < end; ++pixel) {
      const int column = pixel * p.stride_w + (at.kernel_w + tap_w) * p.dilation_w - p.pad_w;
      if (unsigned(column) < unsigned(p.y_w))
        sum = fmaf(as_multiplied<M>(p.x, x + pixel * step_x),
                   as_multiplied<M>(p.y, y + column * step_y), sum);
    }
  }
  return sum;
}

// Sums of a warp to shared memory, for store_sums().
template <int ROW>
__device__ __forceinline__ void put_sums(uint32_t shared, int warp, const Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  shared += (warp * sums(tile) * 32 + threadIdx.x % 32) * 4;
#pragma unroll
  for (int row = 0; row < tile.taps_h; ++row)
#pragma unroll
    for (int tap = 0; tap < tile.taps_w; ++tap)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        store_shared_sum(shared + (((row * tile.taps_w + tap) * 4 + e) << 7), sum[row][tap][e]);
}

// From there to dW or to partial sums, those of warps that differ in chunks or steps alone added in their order; what is NaN once
// more. By all warps that multiply.
template <class M, int ROW>
__device__ __forceinline__ void store_sums(const Params& p, const Scope& at, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kSums = sums(tile);
  const int lane = threadIdx.x % 32, of_sharer = units(p) * kSums * 128;
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < units(p) * kSums; i += kWarps) {
    const int unit = i / kSums, number = i - unit * kSums, tap = number / 4, e = number % 4;
    const WarpPart warp(p, tile, unit);
    const int group = at.group + warp.group;
    const int output = warp.output + output_of<typename M::Element>(tile, lane, e / 2);
    const int input = warp.input + lane % 4 * 2 + e % 2;
    const int tap_h = warp.row + tap / tile.taps_w, tap_w = warp.tap + tap % tile.taps_w;
    if (at.kernel_h + tap_h >= p.kernel_h || at.kernel_w + tap_w >= p.kernel_w ||
        at.input + input >= p.rows || at.output + output >= p.columns || group >= p.groups)
      continue;
    const uint32_t from = shared + i * 128 + lane * 4;
    float sum = load_shared<float>(from);
#pragma unroll 1
    for (int i = 1; i < sharers(p); ++i) sum += load_shared<float>(from + i * of_sharer);
    if (sum != sum)
      sum = sum_with_care<M, tile.channels_last>(p, at, group, input, output, tap_h, tap_w);
    const int place = (group * p.rows + at.input + input) * p.stride[0] +
                      (at.output + output) * p.stride[1] + (at.kernel_h + tap_h) * p.stride[2] +
                      (at.kernel_w + tap_w) * p.stride[3];
    if (p.partials) {
      p.partials[int64_t{at.piece} * p.piece_floats + place] = sum;
    } else {
      store(static_cast<typename M::Element*>(p.weight) + place, sum);
    }
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_dimity_grad_weight_kernel(const __grid_constant__ Params p,
                                      const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem), stages = shared + stages_at(tile);
  const uint32_t slots = shared + slots_at(p, tile);
  const int warp = warp_of_block();
  const Scope at = scope_of(p, tile);
  start_stages(shared, p.stages, tile.channels_last ? 1 : kMostChannels, units(p) * sharers(p));
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  if (warp >= kWarps) {
    if constexpr (M::kSplit) fewer_registers<kBringerRegisters>();
    if constexpr (tile.channels_last) {
      return bring_pixels<T>(p, at, maps, shared, stages, slots);
    } else {
      return bring_steps<T>(p, at, shared, stages, slots);
    }
  }
  if constexpr (M::kSplit) more_registers<kStrictRegisters>();
  const WarpPart part(p, tile, warp);
  Sums<ROW> sum = {};
  if (part.turn < p.turns) {
    if constexpr (tile.channels_last) {
      const Places<T, ROW> places(p, part);
      multiply_steps(p, at, part, shared, stages,
                     [&](const Steps& steps, int phase, int, uint32_t stage, int slot) {
                       multiply_pixels<M, ROW>(p, at, part, places, steps, phase, stage, slots,
                                               slot, sum);
                     });
    } else {
      multiply_steps(p, at, part, shared, stages,
                     [&](const Steps& steps, int phase, int row_h, uint32_t stage, int slot) {
                       multiply<M, ROW>(p, at, part, steps, phase, row_h, stage, slots, slot, sum);
                     });
    }
  }
  const auto all_are_here = [] { barrier_among(1, kWarps * 32); };
  all_are_here();  // and have read the stages
  put_sums<ROW>(stages, warp, sum);
  all_are_here();
  store_sums<M, ROW>(p, at, stages);
#endif
}

}  // namespace convt2d::cuda::dimity
