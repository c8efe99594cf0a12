// The hank kernel; hank_config.h draws the product.
//
// A warp asks the copy engine for steps in a ring of stages: `full` ends a phase when a stage has arrived, `empty` when all warps
// that multiply have fetched it.
#pragma once

#include "cuda/device/as_multiplied.cuh"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/elect.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/hank/hank_scope.cuh"

namespace convt2d::cuda::hank {

// All steps of a block, by a lane: what is outside of a tensor comes as zeros.
__device__ __forceinline__ void bring_steps(const Params& p, const Scope& at, const Maps& maps,
                                            StageRing ring) {
  const uint32_t bytes =
      (at.phase_rows * p.phase_columns * step_pixels(p) + step_x_pixels(p)) * kLine;
#pragma unroll 1
  for (int number = at.begin; number < at.end; ++number, ring.advance()) {
    const Step step(p, number);
    barrier_wait(ring.empty(), ring.parity ^ 1);
    barrier_expect(ring.full(), bytes);
    copy_box(ring.stage() + p.x_at, &maps.x, ring.full(), at.channel, step.pixel - p.window_w + 1,
             step.q - p.window_h + 1, step.n);
    const int row = step.q * p.stride_h - p.pad_h + at.phase_row,
              column = step.pixel * p.stride_w - p.pad_w;
    uint32_t to = ring.stage();
#pragma unroll 1
    for (int f = 0; f < at.phase_rows; ++f)
#pragma unroll 1
      for (int g = 0; g < p.phase_columns; ++g, to += p.plane_bytes)
        copy_box(to, &maps.y, ring.full(), at.channel, column + g, row + f, step.n);
  }
}

// What boxes leave of stages, and lanes fetch.
__device__ __forceinline__ void clear_ends(const Params& p, uint32_t stages) {
  const int parts = phases(p) + 1, lane = threadIdx.x % 32;
#pragma unroll 1
  for (int i = warp_of_block(); i < p.stages * parts; i += kThreads / 32) {
    const int stage = i / parts, part = i - stage * parts;
    const bool of_x = part + 1 == parts;
    const int begin = part * p.plane_bytes + (of_x ? step_x_pixels(p) : step_pixels(p)) * kLine,
              end = of_x ? p.stage_bytes : (part + 1) * p.plane_bytes;
    for (int byte = begin + lane * 16; byte < end; byte += 32 * 16)
      store_shared_16(stages + stage * p.stage_bytes + byte, {0, 0, 0, 0});
  }
}

// Where a lane finds its 16 bytes, or its word, of a chunk's line.
__device__ __forceinline__ uint32_t place(int line, int byte) {
  return line * kLine + (byte ^ (line & 7) << 4);
}

// What a lane fetches of a stage's first chunk. 16 bits: a row of matrices that the tensor core turns, 8 pixels of a phase each, or
// of x at one of two columns. Words: pixel 2 t, which is number t of K, and behind it number t + 4, so that lanes meet in no bank;
// of x two columns have three. In place of a phase that a block does not have, or a row or column of x, another one is multiplied,
// and not stored.
template <class M, int ROW>
struct Places {
  using T = typename M::Element;
  static constexpr bool kWords = sizeof(T) == 4;
  static constexpr int kPhases = kTiles[ROW].phases, kMatrices = kWords ? 1 : 2;
  static constexpr int kLanePixels = kWords ? kWindow + 1 : 1;
  uint32_t y[kPhases / kMatrices], x[kWindow][kLanePixels];

  __device__ __forceinline__ Places(const Params& p, int unit) {
    const int lane = threadIdx.x % 32, last = phases(p) - 1;
    const int line = kWords ? lane % 4 * 2 : lane % 8 + lane / 16 * 8,
              byte = unit * kEight * int(sizeof(T)) + (kWords ? lane / 4 * 4 : 0);
    const int line_x = kWords ? line : lane % 16, column = kWords ? 1 : lane / 16;
#pragma unroll
    for (int i = 0; i < kPhases / kMatrices; ++i) {
      const int phase = i * kMatrices + (kWords ? 0 : lane / 8 % 2);
      y[i] = min(phase, last) * p.plane_bytes + place(line, byte);
      keep_in_register(y[i]);  // else it is summed up anew for every chunk
    }
#pragma unroll
    for (int back = 0; back < kWindow; ++back)
#pragma unroll
      for (int i = 0; i < kLanePixels; ++i) {
        const int row = max(p.window_h - 1 - back, 0), before = p.window_w - 1 - column + i;
        x[back][i] = p.x_at + place(line_x + row * p.x_pixels + max(before, 0), byte);
        keep_in_register(x[back][i]);
      }
  }

  // Of a chunk: two phases of dY, and x at two columns.
  __device__ __forceinline__ void fetch_y(uint32_t (&to)[4], int pair, uint32_t from) const {
    if constexpr (kWords) {
      constexpr uint32_t kNextLine = kLine | 0x10;  // of an even one
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to[i] = load_shared_4(from + y[pair * 2 + i % 2] ^ i / 2 * kNextLine);
    } else {
      ldmatrix_x4_turned(to, from + y[pair]);
    }
  }
  __device__ __forceinline__ void fetch_x(uint32_t (&to)[kWindow][2], int back,
                                          uint32_t from) const {
    if constexpr (kWords) {
      to[1][0] = load_shared_4(from + x[back][0]);
      to[0][0] = to[1][1] = load_shared_4(from + x[back][1]);
      to[0][1] = load_shared_4(from + x[back][2]);
    } else {
      uint32_t both[4];
      ldmatrix_x4_turned(both, from + x[back][0]);
      to[0][0] = both[0], to[0][1] = both[1], to[1][0] = both[2], to[1][1] = both[3];
    }
  }
};

// Of a thread: [two phases][row of x][column of x][channel of the first phase, of the second, at one column and the next].
template <int ROW>
using Sums = float[kTiles[ROW].phases / 2][kWindow][kWindow][4];

// All steps of a block, by a warp that multiplies its share of their chunks. One whose channels are not there only says so.
template <class M, int ROW>
__device__ __forceinline__ void multiply_steps(const Params& p, const Scope& at, int warp,
                                               StageRing ring, Sums<ROW>& sum) {
  using T = typename M::Element;
  constexpr int kPairs = kTiles[ROW].phases / 2, kSharers = sharers(sizeof(T)),
                kUnits = kWarps / kSharers, kChunk = chunk_pixels(sizeof(T)) * kLine;
  const int unit = warp % kUnits;
  const int chunks = at.channel + unit * kEight < p.groups ? p.chunks : 0;
  const Places<M, ROW> places(p, unit);
#pragma unroll 1
  for (int number = at.begin; number < at.end; ++number, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
#pragma unroll 1
    for (int chunk = warp / kUnits; chunk < chunks; chunk += kSharers) {
      const uint32_t from = ring.stage() + chunk * kChunk;
      uint32_t x[kWindow][kWindow][2], y[kPairs][4];
#pragma unroll
      for (int back = 0; back < kWindow; ++back) places.fetch_x(x[back], back, from);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) places.fetch_y(y[pair], pair, from);
#pragma unroll
      for (int back = 0; back < kWindow; ++back) {
        if (back >= p.window_h) break;
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair)
#pragma unroll
          for (int column = 0; column < kWindow; ++column)
            M::mma(sum[pair][back][column], y[pair], x[back][column][0], x[back][column][1]);
      }
    }
    __syncwarp();  // all have their words
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
  }
}

// A warp's diagonals, to shared memory: lines of 8 channels of each warp. A lane has row g of both phases, columns 2 t and 2 t + 1.
template <int ROW>
__device__ __forceinline__ void put_sums(uint32_t to, int warp, const Sums<ROW>& sum) {
  const int lane = threadIdx.x % 32, g = lane / 4;
  if (g / 2 != lane % 4) return;
  to += (warp * kEight + g) * 4;
#pragma unroll
  for (int phase = 0; phase < kTiles[ROW].phases; ++phase)
#pragma unroll
    for (int i = 0; i < kWindow * kWindow; ++i) {
      const float* const mine = sum[phase / 2][i / kWindow][i % kWindow] + phase % 2 * 2;
      store_shared_sum(to + (phase * kWindow * kWindow + i) * kSumLine, g % 2 ? mine[1] : mine[0]);
    }
}

// One sum of the block, of the products that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M>
__device__ __noinline__ float sum_with_care(const Params& p, const Scope& at, int channel,
                                            int tap_h, int tap_w) {
  const int back = tap_h / p.stride_h, column = tap_w / p.stride_w;
  float sum = 0;
#pragma unroll 1
  for (int number = at.begin; number < at.end; ++number) {
    const Step step(p, number);
#pragma unroll 1
    for (int i = 0; i < step_pixels(p); ++i) {
      const int q = i / p.pixels, x_h = step.q + q - back,
                x_w = step.pixel + i - q * p.pixels - column;
      const int y_h = x_h * p.stride_h - p.pad_h + tap_h, y_w = x_w * p.stride_w - p.pad_w + tap_w;
      if (unsigned(x_h) < unsigned(p.x_h) && unsigned(x_w) < unsigned(p.x_w) &&
          unsigned(y_h) < unsigned(p.y_h) && unsigned(y_w) < unsigned(p.y_w))
        sum =
            fmaf(as_multiplied<M>(p.x, ((step.n * p.x_h + x_h) * p.x_w + x_w) * p.groups + channel),
                 as_multiplied<M>(p.y, ((step.n * p.y_h + y_h) * p.y_w + y_w) * p.groups + channel),
                 sum);
    }
  }
  return sum;
}

// From shared memory to dW or to partial sums; what is NaN once more. By all warps that multiply.
template <class M, int ROW>
__device__ __forceinline__ void store_sums(const Params& p, const Scope& at, uint32_t shared) {
  using T = typename M::Element;
  constexpr int kChannels = line_channels(sizeof(T));
#pragma unroll 1
  for (int i = threadIdx.x; i < phases(p) * kWindow * kWindow * kChannels; i += kConsumers) {
    Digits number{i};
    const int in_line = number.next(kChannels), channel = at.channel + in_line;
    const int line = number.rest, column = number.next(kWindow), back = number.next(kWindow);
    const int phase_column = number.next(p.phase_columns), phase_row = number.rest;
    const int tap_h = at.phase_row + phase_row + back * p.stride_h,
              tap_w = phase_column + column * p.stride_w;
    if (channel >= p.groups || phase_row >= at.phase_rows || tap_h >= p.kernel_h ||
        tap_w >= p.kernel_w)
      continue;
    const uint32_t from = shared + line * kSumLine + in_line * 4;
    float sum = load_shared<float>(from);
#pragma unroll
    for (int i = 1; i < sharers(sizeof(T)); ++i)
      sum += load_shared<float>(from + i * kChannels * 4);
    if (sum != sum) sum = sum_with_care<M>(p, at, channel, tap_h, tap_w);
    const int place = channel * p.stride[0] + tap_h * p.stride[2] + tap_w * p.stride[3];
    if (p.partials) {
      p.partials[int64_t{at.piece} * p.piece_floats + place] = sum;
    } else {
      store(static_cast<T*>(p.weight) + place, sum);
    }
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_hank_grad_weight_kernel(const __grid_constant__ Params p,
                                    const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem), stages = shared + kStagesAt;
  const int warp = warp_of_block();
  const Scope at = scope_of<typename M::Element>(p);
  const StageRing ring{shared, stages, p.stages, p.stage_bytes};
  start_stages(shared, p.stages, 1, kWarps);
  clear_ends(p, stages);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();  // the sum of the pieces
  if (warp == kWarps) {
    if (elected()) bring_steps(p, at, maps, ring);
    return;
  }
  Sums<ROW> sum = {};
  multiply_steps<M, ROW>(p, at, warp, ring, sum);
  const auto all_are_here = [] { barrier_among(1, kConsumers); };
  all_are_here();  // and have read the stages
  put_sums<ROW>(stages, warp, sum);
  all_are_here();
  store_sums<M, ROW>(p, at, stages);
#endif
}

}  // namespace convt2d::cuda::hank
