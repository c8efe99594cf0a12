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

using SpanSums = float[1][kSpanColumns / 2];

// What a block works on: the first of the tile, and its chunks.
struct SpanScope {
  int channel, span;
  int begin, end;
};
__device__ __forceinline__ SpanScope span_scope(const SpanParams& p) {
  const int span_tile = blockIdx.x / p.channel_tiles, rank = blockIdx.y;
  return {int(blockIdx.x - span_tile * p.channel_tiles) * p.channels, span_tile * p.groups * 2,
          p.chunks * rank / p.ranks, p.chunks * (rank + 1) / p.ranks};
}

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
  barrier_expect(full, p.asked_bytes);
  const int tap = p.by_parts.quotient(chunk),
            part = (chunk - tap * int(p.by_parts.divisor)) * kNumbers;
  const int tap_h = p.by_kernel.quotient(tap), tap_w = tap - tap_h * int(p.by_kernel.divisor);
  copy_box(stage, &weights, full, PIXELS ? tap * p.of_tap + part : chunk * kNumbers, at.channel, 0,
           0);
#pragma unroll 1
  for (int i = 0; i < p.groups * 2; i += p.together) {
    const Span span(p, at.span + i);
    const int y_row = span.row * p.base.stride_h - p.base.pad_h, y = span.pixel * p.base.stride_w;
    const uint32_t to = stage + p.source_at + i * p.span_pitch;
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

// Both operands as they lie: sum += of a chunk, once the copy engine's stage is left alone until that is finished. Of weights that
// are fewer than kSpanColumns channels, what lies behind them is multiplied too, for sums that nobody has.
template <class T>
__device__ __forceinline__ void multiply_pixels(SpanSums& sum, uint32_t source, uint32_t weights) {
  const uint64_t layout = swizzled_layout(kSpanChunk, 8 * kSpanChunk);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kSpanSteps; ++step)
    Wgmma<T, kSpanColumns>::add(sum[0], operand(layout, source + step * kStep),
                                operand(layout, weights + step * kStep));
  wgmma_commit();
}

// NCHW: a lane fetches words t and t + 4 of each step, of positions g and g + 8 of its warp. Of fp32 four positions may lie in all
// banks, so lanes of the other four fetch the latter first: those that are `late`. `position` is this lane's place in a stage.
template <class T>
__device__ __forceinline__ void multiply_rows(const SpanParams& p, SpanSums& sum, uint32_t position,
                                              uint32_t weights, bool late) {
  constexpr bool kWords = sizeof(T) == 4;
  constexpr int kHalf = kStep / 2;
  const auto further = [&](int bytes) {  // along K, in dY
    return (bytes >> p.row_bits) * p.row_pitch + (bytes & ((1 << p.row_bits) - 1));
  };
  uint32_t word[kSpanSteps][4];
#pragma unroll
  for (int step = 0; step < kSpanSteps; ++step) {
    const int place = further(step * kStep);
    const int second_place =
        kWords ? place + (late ? -kHalf : kHalf) : further(step * kStep + kHalf);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const uint32_t from = position + e * 8 * p.base.stride_w * int(sizeof(T));
      const uint32_t first = load_shared_4(from + place);
      const uint32_t second = load_shared_4(from + second_place);
      word[step][e] = late ? second : first;
      word[step][2 + e] = late ? first : second;
    }
  }
  const uint64_t layout = swizzled_layout(kSpanChunk, 8 * kSpanChunk);
#pragma unroll
  for (int step = 0; step < kSpanSteps; ++step) computed(word[step]);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kSpanSteps; ++step)
    WgmmaFetched<T, kSpanColumns>::add(sum[0], word[step], operand(layout, weights + step * kStep));
  wgmma_commit();
}

// A thread's sums to where lines of them are.
template <bool PIXELS>
__device__ __forceinline__ void put_span_sums(const SpanParams& p, const SpanSums& sum,
                                              uint32_t sums) {
  const int lane = threadIdx.x % 32, position = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < kSpanColumns / 8; ++i) {
    const int channel = i * 8 + lane % 4 * 2;
    if (i * 8 >= p.channels) break;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float* const two = sum[0] + i * 4 + e * 2;
      const int row = position + e * 8;
      if constexpr (PIXELS) {
        store_shared_sums(sums + row * p.sum_pitch + channel * 4, two[0], two[1]);
      } else {
        store_shared_sum(sums + channel * p.sum_pitch + row * 4, two[0]);
        store_shared_sum(sums + (channel + 1) * p.sum_pitch + row * 4, two[1]);
      }
    }
  }
}

// Four neighbours in dX, of which the first is number `i` of the tile's fours.
template <class M, bool PIXELS>
__device__ __forceinline__ void store_span_sums(const SpanParams& p, const SpanScope& at, int i,
                                                float (&value)[kTogether]) {
  using T = typename M::Element;
  const int fours = p.by_fours.divisor, line = p.by_fours.quotient(i);
  const int number = (i - line * fours) * kTogether;
  const int row = at.channel + (PIXELS ? number : line), column = PIXELS ? line : number;
  const Span span(p, at.span + column / kSpan);
  const int pixel = span.pixel + column % kSpan;
  if (row >= p.base.rows || pixel >= p.x_w || span.image >= 1 << 24) return;
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

// The sums of ranks, in a fixed order: each sends each other one what that adds and stores. All threads come here.
template <class M, bool PIXELS>
__device__ __forceinline__ void add_and_store_spans(const SpanParams& p, const SpanScope& at,
                                                    uint32_t sums, uint32_t barrier) {
  const int fours = p.by_fours.divisor, items = p.lines * fours;
  const int rank = blockIdx.y, share = p.by_share.divisor;
  const auto received = [&](int of, int i) { return sums + p.received_at + (of * share + i) * 16; };
#pragma unroll 2
  for (int i = threadIdx.x; i < items; i += blockDim.x) {
    const int line = p.by_fours.quotient(i);
    uint32_t word[kTogether];
    load_shared_16(sums + line * p.sum_pitch + (i - line * fours) * 16, word);
    if (p.ranks > 1) {
      const int to = p.by_share.quotient(i);
      send_to_rank(place_of_rank(received(rank, i - to * share), to), word,
                   place_of_rank(barrier, to));
    } else {
      float value[kTogether];
#pragma unroll
      for (int n = 0; n < kTogether; ++n) value[n] = __uint_as_float(word[n]);
      store_span_sums<M, PIXELS>(p, at, i, value);
    }
  }
  if (p.ranks == 1) return;
  barrier_wait(barrier, 0);
  const int first = rank * share;
#pragma unroll 1
  for (int i = threadIdx.x; i < min(share, items - first); i += blockDim.x) {
    float value[kTogether] = {};
#pragma unroll 8
    for (int r = 0; r < p.ranks; ++r) {
      uint32_t word[kTogether];
      load_shared_16(received(r, i), word);
#pragma unroll
      for (int n = 0; n < kTogether; ++n) value[n] += __uint_as_float(word[n]);
    }
    store_span_sums<M, PIXELS>(p, at, first + i, value);
  }
}

template <class M, bool PIXELS>
__global__ void __launch_bounds__(kMostSpanThreads, 1)
    convt2d_strand_spans_kernel(const __grid_constant__ SpanParams p,
                                const __grid_constant__ CUtensorMap source,
                                const __grid_constant__ CUtensorMap weights) {
#ifdef CONVT2D_HAS_WGMMA
  using T = typename M::Element;
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t barriers = shared_address(smem), stages = barriers + kSpanBarriers;
  const auto full = [&](int stage) { return barriers + stage * 16; };
  const uint32_t received = full(kMostSpanStages);
  const SpanScope at = span_scope(p);
  const auto ask = [&](int chunk, int stage) {
    ask_for_spans<T, PIXELS>(p, at, chunk, source, weights, stages + stage * p.stage_bytes,
                             full(stage));
  };
  const int asker = p.groups * 128;
  if (threadIdx.x == asker) {
    prefetch_map(&weights);
    prefetch_map(&source);
#pragma unroll 1
    for (int i = 0; i < p.stages; ++i) {
      barrier_init(full(i), 1);
      barrier_init(full(i) + 8, p.groups * 4);
    }
    fence_for_wgmma();  // for the copy engine
    if (p.ranks > 1) {
      const int share = p.by_share.divisor,
                mine = p.lines * int(p.by_fours.divisor) - int(blockIdx.y) * share;
      barrier_init(received, 1);
      show_barriers_to_cluster();
      barrier_expect(received, max(0, min(share, mine)) * p.ranks * 16);
    }
    if (at.begin < at.end) ask(at.begin, 0);
  }
  __syncthreads();
  if (threadIdx.x >= asker) {
    if (threadIdx.x == asker) {
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
    __syncthreads();                              // sums may be written where chunks were
    if (p.ranks > 1) cluster_arrive_as_reader();  // those of others too, once all are here
  } else {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool late = !PIXELS && sizeof(T) == 4 && lane >= 16;
    uint32_t position = p.source_at;
    if constexpr (PIXELS) {
      position += warp / 4 * 2 * p.span_pitch;
    } else {  // half a span
      position += warp % 2 * p.half_pitch + warp / 2 * p.span_pitch +
                  (lane / 4 * p.base.stride_w + p.early) * int(sizeof(T)) + lane % 4 * 4 +
                  (late ? kStep / 2 : 0);
    }
    const auto leave = [&](int stage) {
      __syncwarp();
      if (lane == 0) barrier_arrive(full(stage) + 8);
    };
    SpanSums sum;
    clear(sum);
    Ring ring;
    int before = -1;  // the stage whose products may be unfinished
#pragma unroll 1
    for (int chunk = at.begin; chunk < at.end; ++chunk) {
      barrier_wait(full(ring.stage), ring.parity);
      const uint32_t stage = stages + ring.stage * p.stage_bytes;
      if constexpr (PIXELS) {
        multiply_pixels<T>(sum, stage + position, stage);
        wgmma_wait<1>();
        if (before >= 0) leave(before);
        before = ring.stage;
      } else {
        multiply_rows<T>(p, sum, stage + position, stage, late);
        wgmma_wait<0>();
        leave(ring.stage);
      }
      ring.advance(p.stages);
    }
    wgmma_wait<0>();
    finished(sum[0]);
    __syncthreads();
    if (p.ranks > 1) cluster_arrive_as_reader();
    put_span_sums<PIXELS>(p, sum, stages);
  }
  __syncthreads();
  if (p.ranks > 1) cluster_wait();
  add_and_store_spans<M, PIXELS>(p, at, stages, received);
#endif
}

}  // namespace convt2d::cuda::strand
