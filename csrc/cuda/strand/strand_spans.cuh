// The kernel of strand's spans; strand_spans.h draws its operands.
//
// One thread asks for chunks, `full` ends a phase when one has arrived, `empty` when every warp has multiplied it.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/strand/strand_spans.h"
#include "cuda/strand/strand_store.cuh"

namespace convt2d::cuda::strand {

constexpr int kSpanSixteens = kSpanRows / 2 / 16, kSpanEights = kSpan / 8;  // of a warp
using SpanSums = float[kSpanSixteens][kSpanEights][4];

// What a block works on: the first of the tile, and its chunks.
struct SpanScope {
  int row, span;
  int begin, end;
};

// A span: of which image and row of x, and its first pixel.
struct Span {
  int image, row, pixel;
  __device__ __forceinline__ Span(const SpanParams& p, int number) {
    const int of_all = p.by_row.quotient(number);
    pixel = (number - of_all * int(p.by_row.divisor)) * kSpan;
    image = p.by_image.quotient(of_all);
    row = of_all - image * int(p.by_image.divisor);
    if (of_all >= p.rows) image = 1 << 24;
  }
};

// Asks for a chunk.
template <class T, bool PIXELS>
__device__ __forceinline__ void ask_for_spans(const SpanParams& p, const SpanScope& at, int chunk,
                                              const CUtensorMap& source, const CUtensorMap& weights,
                                              uint32_t stage, uint32_t full) {
  constexpr int kNumbers = kSpanChunk / int(sizeof(T));
  barrier_expect(full, kSpanWeights + p.source_bytes);
  const int tap = p.by_parts.quotient(chunk),
            part = (chunk - tap * int(p.by_parts.divisor)) * kNumbers;
  const int tap_h = p.by_kernel.quotient(tap), tap_w = tap - tap_h * int(p.by_kernel.divisor);
  copy_box(stage, &weights, full, PIXELS ? tap * p.of_tap + part : chunk * kNumbers, at.row, 0, 0);
#pragma unroll 1
  for (int i = 0; i < kSpans; i += p.together) {
    const Span span(p, at.span + i);
    const int y_row = span.row * p.base.stride_h - p.base.pad_h, y = span.pixel * p.base.stride_w;
    const uint32_t to = stage + kSpanWeights + i * p.span_pitch;
    if constexpr (PIXELS) {
      copy_box(to, &source, full, part, y - p.base.pad_w + tap_w * p.dilation_w,
               y_row + tap_h * p.dilation_h, span.image);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        copy_box(to + half * p.half_pitch, &source, full,
                 y + half * (kSpan / 2) * p.base.stride_w - p.before, chunk * p.planes, y_row,
                 span.image);
    }
  }
}

// sum += of a chunk; the places are this lane's in a stage. Of NCHW a lane fetches words t and t + 4 of each step; of fp32 four
// positions lie in all banks, so lanes of the other four fetch the latter first: those that are `late`.
template <class M, bool PIXELS>
__device__ __forceinline__ void multiply_spans(const SpanParams& p, SpanSums& sum, uint32_t stage,
                                               uint32_t weight, uint32_t position, bool late) {
  constexpr bool kWords = sizeof(typename M::Element) == 4;
  constexpr int kHalf = kStep / 2;
  const auto further = [&](int bytes) {  // along K, in dY
    return (bytes >> p.row_bits) * p.row_pitch + (bytes & ((1 << p.row_bits) - 1));
  };
#pragma unroll
  for (int step = 0; step < kSpanSteps; ++step) {
    uint32_t column[kSpanEights][2];
#pragma unroll
    for (int j = 0; j < kSpanEights; ++j) {
      if constexpr (PIXELS) {
        if (j % 2) continue;
        uint32_t four[4];
        ldmatrix_x4(four, stage + (position ^ step * kStep) + j * 8 * kSpanChunk);
        column[j][0] = four[0], column[j][1] = four[1];
        column[j + 1][0] = four[2], column[j + 1][1] = four[3];
      } else {
        const uint32_t from = stage + position + j / 2 * p.half_pitch +
                              j % 2 * 8 * p.base.stride_w * int(sizeof(typename M::Element));
        const int place = further(step * kStep);
        const int second_place =
            kWords ? place + (late ? -kHalf : kHalf) : further(step * kStep + kHalf);
        const uint32_t first = load_shared_4(from + place);
        const uint32_t second = load_shared_4(from + second_place);
        column[j][0] = late ? second : first;
        column[j][1] = late ? first : second;
      }
    }
#pragma unroll
    for (int i = 0; i < kSpanSixteens; ++i) {
      uint32_t row[4];
      ldmatrix_x4(row, stage + (weight ^ step * kStep) + i * 16 * kSpanChunk);
#pragma unroll
      for (int j = 0; j < kSpanEights; ++j) M::mma(sum[i][j], row, column[j][0], column[j][1]);
    }
  }
}

// The sums of ranks, in a fixed order, each of which adds and stores some. All threads of all blocks come here. Lines are of
// neighbours in dX: positions in NCHW, channels of channels last.
template <class M, bool PIXELS>
__device__ __forceinline__ void add_and_store_spans(const SpanParams& p, const SpanScope& at,
                                                    uint32_t sums) {
  using T = typename M::Element;
  constexpr int kItems = kSpanRows * kSpanColumns / kTogether, kOfLine = kSpanColumns / kTogether;
  constexpr int kAtOnce = 8;
  if (p.ranks > 1) {
    cluster_arrive();
    cluster_wait();
  }
  const int rank = blockIdx.y, end = kItems * (rank + 1) / p.ranks;
#pragma unroll 1
  for (int i = kItems * rank / p.ranks + threadIdx.x; i < end; i += kSpanThreads) {
    const uint32_t place = sums + i / kOfLine * kSpanSums + i % kOfLine * 16;
    float value[kTogether] = {};
    if (p.ranks > 1) {
      float4 some[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r)
        if (r < p.ranks) some[r] = load_of_rank(place_of_rank(place, r));
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r)
        if (r < p.ranks)
          value[0] += some[r].x, value[1] += some[r].y, value[2] += some[r].z,
              value[3] += some[r].w;
    } else {
      uint32_t word[kTogether];
      load_shared_16(place, word);
#pragma unroll
      for (int n = 0; n < kTogether; ++n) value[n] = __uint_as_float(word[n]);
    }
    const int line = i / kOfLine, number = i % kOfLine * kTogether;
    const int row = at.row + (PIXELS ? number : line), column = PIXELS ? line : number;
    const Span span(p, at.span + column / kSpan);
    const int pixel = span.pixel + column % kSpan;
    if (row >= p.base.rows || pixel >= p.x_w || span.image >= 1 << 24) continue;
    const int there = PIXELS ? p.base.rows - row : p.x_w - pixel;
    const int in_image = span.row * p.x_w + pixel;
    const int position = span.image * int(p.by_image.divisor) * p.x_w + in_image;
#pragma unroll
    for (int n = 0; n < kTogether; ++n)
      if (value[n] != value[n] && n < there)
        value[n] =
            sum_with_care<M>(p.base, Scope{}, row + (PIXELS ? n : 0), position + (PIXELS ? 0 : n));
    T* const to = static_cast<T*>(p.base.destination) + int64_t{span.image} * p.base.x_image +
                  in_image * p.base.x_pixel + row * p.base.x_channel;
    if (there >= kTogether && p.whole) {
      store_run(to, value);
    } else {
#pragma unroll
      for (int n = 0; n < kTogether; ++n)
        if (n < there) store(to + n, value[n]);
    }
  }
  if (p.ranks > 1) {  // this block has read; it leaves when all have
    cluster_arrive_as_reader();
    cluster_wait();
  }
}

template <class M, bool PIXELS>
__global__ void __launch_bounds__(kSpanThreads, 1)
    convt2d_strand_spans_kernel(const __grid_constant__ SpanParams p,
                                const __grid_constant__ CUtensorMap source,
                                const __grid_constant__ CUtensorMap weights) {
#ifdef CONVT2D_HAS_WGMMA
  using T = typename M::Element;
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t barriers = shared_address(smem), stages = barriers + 1024;
  const auto full = [&](int stage) { return barriers + stage * 16; };
  SpanScope at;
  {
    const int column_tile = blockIdx.x / p.row_tiles, rank = blockIdx.y;
    at.row = (blockIdx.x - column_tile * p.row_tiles) * kSpanRows;
    at.span = column_tile * kSpans;
    at.begin = p.chunks * rank / p.ranks, at.end = p.chunks * (rank + 1) / p.ranks;
  }
  const auto ask = [&](int chunk, int stage) {
    ask_for_spans<T, PIXELS>(p, at, chunk, source, weights, stages + stage * p.stage_bytes,
                             full(stage));
  };
  constexpr int kAsker = kSpanThreads - 32;
  if (threadIdx.x == kAsker) {
    prefetch_map(&weights);
    prefetch_map(&source);
#pragma unroll 1
    for (int i = 0; i < p.stages; ++i) {
      barrier_init(full(i), 1);
      barrier_init(full(i) + 8, kSpanWarps);
    }
    fence_for_wgmma();  // for the copy engine
    if (at.begin < at.end) ask(at.begin, 0);
  }
  __syncthreads();
  if (threadIdx.x >= kAsker) {
    if (threadIdx.x == kAsker) {
#pragma unroll 1
      for (int i = 1; i < p.stages && at.begin + i < at.end; ++i) ask(at.begin + i, i);
      Ring ring;
#pragma unroll 1
      for (int chunk = at.begin + p.stages; chunk < at.end; ++chunk) {
        barrier_wait(full(ring.stage) + 8, ring.parity);
        ask(chunk, ring.stage);
        ring.advance(p.stages);
      }
    }
    __syncwarp();
    __syncthreads();  // sums may be written where chunks were
  } else {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int first = warp % 2 * (kSpanRows / 2), span = warp / 2;
    const uint32_t weight = (first + lane % 16) * kSpanChunk + (lane / 16 ^ lane % 8) * 16;
    const bool late = !PIXELS && sizeof(T) == 4 && lane >= 16;
    uint32_t position = kSpanWeights + span * p.span_pitch;
    if constexpr (PIXELS) {
      position += (lane / 16 * 8 + lane % 8) * kSpanChunk + (lane / 8 % 2 ^ lane % 8) * 16;
    } else {
      position += (g * p.base.stride_w + p.early) * int(sizeof(T)) + t * 4 + (late ? kStep / 2 : 0);
    }
    SpanSums sum = {};
    Ring ring;
#pragma unroll 1
    for (int chunk = at.begin; chunk < at.end; ++chunk) {
      barrier_wait(full(ring.stage), ring.parity);
      multiply_spans<M, PIXELS>(p, sum, stages + ring.stage * p.stage_bytes, weight, position,
                                late);
      __syncwarp();
      if (lane == 0) barrier_arrive(full(ring.stage) + 8);
      ring.advance(p.stages);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSpanSixteens; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first + i * 16 + half * 8 + g;
#pragma unroll
        for (int j = 0; j < kSpanEights; ++j) {
          const int column = span * kSpan + j * 8 + t * 2;
          const float* const two = sum[i][j] + half * 2;
          if constexpr (PIXELS) {
            store_shared_sum(stages + column * kSpanSums + row * 4, two[0]);
            store_shared_sum(stages + (column + 1) * kSpanSums + row * 4, two[1]);
          } else {
            store_shared_sums(stages + row * kSpanSums + column * 4, two[0], two[1]);
          }
        }
      }
  }
  __syncthreads();
  add_and_store_spans<M, PIXELS>(p, at, stages);
#endif
}

}  // namespace convt2d::cuda::strand
