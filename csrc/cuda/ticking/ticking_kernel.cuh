// The kernel of ticking; ticking_config.h says what a block computes.
//
// What lies beside a row of dY is other numbers, so columns that do not exist are made zeros, by warps that have such pixels. An
// output that came out NaN is summed again, of products that exist.
#pragma once

#include <type_traits>

#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/gather_device.cuh"
#include "cuda/ticking/ticking_stage.cuh"
#include "cuda/ticking/ticking_with_care.cuh"

namespace convt2d::cuda::ticking {

template <class T>
constexpr int kNumbers = 4 / int(sizeof(T));  // of a word

// Of weights, a step and pair of halves.
template <class M>
constexpr int kPairBytes = M::kSplit ? 2 * kOperandBytes : kOperandBytes;
template <class M>
constexpr int kStepBytes = kPairs * kPairBytes<M>;

// A word of weights: of half `half` and an output channel, the taps of a step of K.
template <class M>
__device__ __forceinline__ uint32_t weight_word(const Params& p, int group, int input, int half,
                                                int output, int line, int step) {
  using T = typename M::Element;
  const int live = half / p.eights, channel = input + (half - live * p.eights) * 8;
  const int kernel_h = p.step.kernel_row[line][live];
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < kNumbers<T>; ++i) {
    const int kernel_w = step * kNumbers<T> + i;
    if (kernel_h < 0 || channel >= p.rows || output >= p.columns || kernel_w >= p.kernel_w)
      continue;
    const T* const from =
        static_cast<const T*>(p.weight) + (int64_t{group} * p.rows + channel) * p.weight_stride[0] +
        output * p.weight_stride[1] + kernel_h * p.weight_stride[2] + kernel_w * p.weight_stride[3];
    if constexpr (sizeof(T) == 4) {
      word = __float_as_uint(*from);
    } else {
      word |= uint32_t{__ldg(reinterpret_cast<const unsigned short*>(from))} << i * 16;
    }
  }
  return word;
}

// All weights of a block, as operands.
template <class M>
__device__ __forceinline__ void bring_weights(const Params& p, const Scope& at, uint32_t weights) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int count = p.input_warps * p.step.lines * p.units * p.steps * kPairs;
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < count; i += consumers(p)) {
    Digits number{i};
    const int pair = number.next(kPairs), step = number.next(p.steps), unit = number.next(p.units);
    const int line = number.next(p.step.lines);
    const int input = at.input + number.rest * p.eights * 8 + g;
    uint32_t word[4], low[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      word[w] = weight_word<M>(p, at.group, input, pair * 2 + w % 2, unit * kUnit + w / 2 * 4 + t,
                               line, step);
      if constexpr (M::kSplit) {
        M::split(word[w], word[w], low[w]);
      } else {
        word[w] = M::round(word[w]);
      }
    }
    const uint32_t to = weights + i * kPairBytes<M> + lane * 16;
    store_shared_16(to, word);
    if constexpr (M::kSplit) store_shared_16(to + kOperandBytes, low);
  }
}

// Of a lane's sums of a channel, from the first on: those of a vector are neighbours.
template <class T>
__device__ __forceinline__ int lane_pixel(int i) {
  constexpr int kVector = 16 / int(sizeof(T));
  return i < kVector ? i : i - kVector + 16;
}

// What a warp multiplies.
struct Warp {
  int input, pixel;  // the first channel, of the group's, and pixel, of a strip's
  uint32_t weights;
};

using Sums = float[kPairs][kOctets][4];
// A lane's sums of a half: columns 2 t and 2 t + 1 of all octets.
constexpr int kHalfSums = 2 * kOctets;
__device__ __forceinline__ float& sum_of(Sums& sum, int half, int i) {
  return sum[half / 2][i / 2][half % 2 * 2 + i % 2];
}
// All of them, by visit(half, i).
template <class Visit>
__device__ __forceinline__ void visit_sums(Visit&& visit) {
#pragma unroll
  for (int half = 0; half < kHalves; ++half)
#pragma unroll
    for (int i = 0; i < kHalfSums; ++i) visit(half, i);
}
__device__ __forceinline__ void clear(Sums& sum) {
  visit_sums([&](int half, int i) { sum_of(sum, half, i) = 0; });
}

// Which taps of a kernel row there are, as bits, of a pixel whose first one would be at this column.
__device__ __forceinline__ uint32_t taps_of(const Params& p, int column) {
  const int step = p.dilation_w - 1;
  const int begin = p.by_dilation.quotient(max(step - column, 0));
  const int end = min(int(p.by_dilation.quotient(max(p.y_w + step - column, 0))), p.kernel_w);
  return end > begin ? 0xffffffffu >> (32 - (end - begin)) << begin : 0;
}

// The taps of a step of K that exist, others as zeros.
template <class T>
__device__ __forceinline__ void select(uint32_t (&b)[2], uint32_t exists) {
  if constexpr (sizeof(T) == 4) {
    if (!(exists & 1)) b[0] = b[1] = 0;
  } else {
    const uint32_t mask = (exists & 1) * 0xffffu + (exists & 2) * 0x7fff8000u;
    b[0] &= mask;
    b[1] &= mask;
  }
}

// Pixels of a unit, step by step: TAPS neighbours in memory, 16 bits, as words, each of which comes once; or any, number by number.
template <class T, int TAPS>
struct Pixels {
  uint32_t from[2];
  uint32_t selector[2], word[2][kOctets];  // of TAPS

  __device__ __forceinline__ Pixels(const Params& p, uint32_t first, uint32_t second)
      : from{first, second} {
    if constexpr (TAPS > 0) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        selector[c] = from[c] & 2 ? 0x5432 : 0x3210;
        from[c] &= ~3u;
#pragma unroll
        for (int o = 0; o < kOctets; ++o) word[c][o] = load_shared_4(from[c] + p.way[o]);
      }
    }
  }

  // A last tap may be alone.
  __device__ __forceinline__ void fetch(const Params& p, int step, uint32_t (&b)[kOctets][2]) {
    constexpr int kSize = int(sizeof(T));
    const bool alone = kSize == 2 && 2 * step + 1 == (TAPS ? TAPS : p.kernel_w);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if constexpr (TAPS > 0) {
        const uint32_t select = alone ? (selector[c] & 0xff) * 0x101 : selector[c];
#pragma unroll
        for (int o = 0; o < kOctets; ++o) {
          const uint32_t here = word[c][o];
          if (!alone) word[c][o] = load_shared_4(from[c] + p.way[o] + (step + 1) * 4);
          b[o][c] = __byte_perm(here, word[c][o], select);
        }
      } else if constexpr (kSize == 2) {
        const uint32_t second = from[c] + (alone ? 0 : p.dilation_w * kSize);
#pragma unroll
        for (int o = 0; o < kOctets; ++o)
          b[o][c] = __byte_perm(load_shared<unsigned short>(from[c] + p.way[o]),
                                load_shared<unsigned short>(second + p.way[o]), 0x5410);
        from[c] += 2 * p.dilation_w * kSize;
      } else {
#pragma unroll
        for (int o = 0; o < kOctets; ++o) b[o][c] = load_shared_4(from[c] + p.way[o]);
        from[c] += p.dilation_w * kSize;
      }
    }
  }
};

// A step of K.
template <class M>
__device__ __forceinline__ void multiply_step(uint32_t weights, int pairs,
                                              uint32_t (&b)[kOctets][2], Sums& sum) {
  uint32_t low[kOctets][2];
#pragma unroll
  for (int i = 0; i < 2 * kOctets; ++i) {
    if constexpr (M::kSplit) {
      M::split(b[i / 2][i % 2], b[i / 2][i % 2], low[i / 2][i % 2]);
    } else {
      b[i / 2][i % 2] = M::round(b[i / 2][i % 2]);
    }
  }
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
    if (!(pairs >> pair & 1)) continue;
    uint32_t a[4];
    load_shared_16(weights + pair * kPairBytes<M>, a);
    if constexpr (M::kSplit) {
      uint32_t low_a[4];
      load_shared_16(weights + pair * kPairBytes<M> + kOperandBytes, low_a);
#pragma unroll
      for (int o = 0; o < kOctets; ++o) M::mma(sum[pair][o], low_a, b[o][0], b[o][1]);
#pragma unroll
      for (int o = 0; o < kOctets; ++o) M::mma(sum[pair][o], a, low[o][0], low[o][1]);
    }
#pragma unroll
    for (int o = 0; o < kOctets; ++o) M::mma(sum[pair][o], a, b[o][0], b[o][1]);
  }
}

// A part of a line, for all live rows that read it. EDGE: the warp has pixels without some taps.
template <class M, int TAPS, bool EDGE>
__device__ __forceinline__ void multiply_part(const Params& p, const Warp& at, int column,
                                              int first, int channels, int pairs, uint32_t stage,
                                              uint32_t weights, Sums& sum) {
  using T = typename M::Element;
  constexpr int kSize = int(sizeof(T));
  // The lane's first pixel, in numbers of a row of dY.
  const int begin = (at.pixel + pixel_of(kSize, threadIdx.x % 32 / 4)) * p.stride_w;
  uint32_t exists[kOctets];  // taps of the lane's pixels
  bool cut[kOctets];         // where a lane lacks one
  if constexpr (EDGE) {
#pragma unroll
    for (int o = 0; o < kOctets; ++o) {
      exists[o] = taps_of(p, column + begin + octet_pixel(kSize, o) * p.stride_w);
      cut[o] = __any_sync(0xffffffff, exists[o] != 0xffffffffu >> (32 - p.kernel_w));
    }
  }
  weights += threadIdx.x % 32 * 16;
  const int t = threadIdx.x % 4;
  const auto place = [&](int output) {  // one that is there, also for weights of zero
    const int channel = min(output, channels - 1);
    return stage + channel * p.pitch + (begin + lead_of<T>(first + channel * p.y_plane)) * kSize;
  };
  // Strict fp32 adds up a few products at a time, since the tensor core cuts digits off where it adds.
  Sums part;
  int apart = 0;
  if constexpr (M::kSplit) clear(part);
  const auto fold = [&] {
    visit_sums([&](int half, int i) { sum_of(sum, half, i) += sum_of(part, half, i); });
    clear(part);
    apart = 0;
  };
#pragma unroll 1
  for (int unit = 0; unit * kUnit < channels; ++unit) {
    Pixels<T, TAPS> pixels(p, place(unit * kUnit + t), place(unit * kUnit + 4 + t));
    const auto add = [&](int step) {
      uint32_t b[kOctets][2];
      pixels.fetch(p, step, b);
      if constexpr (EDGE) {
#pragma unroll
        for (int o = 0; o < kOctets; ++o)
          if (cut[o]) select<T>(b[o], exists[o] >> step * kNumbers<T>);
      }
      if constexpr (M::kSplit) {
        multiply_step<M>(weights, pairs, b, part);
        if (++apart == kStrictSteps) fold();
      } else {
        multiply_step<M>(weights, pairs, b, sum);
      }
      weights += kStepBytes<M>;
    };
    if constexpr (TAPS > 0) {
#pragma unroll
      for (int step = 0; step < (TAPS + 1) / 2; ++step) add(step);
    } else {
#pragma unroll 1
      for (int step = 0; step < p.steps; ++step) add(step);
    }
  }
  if constexpr (M::kSplit) fold();
}

// If `key` is not negative, without a branch, which would be a lane's own.
template <class T>
__device__ __forceinline__ void store_number_if(int key, T* to, float value) {
  if constexpr (sizeof(T) == 4) {
    store_words_if<1>(key, to, __float_as_uint(value), 0, 0, 0);
  } else {
    const T number = Numeric<T>::narrow(value);
    store_half_if(key, to, *reinterpret_cast<const unsigned short*>(&number));
  }
}

// What a lane stored of a row, of all eights' channels from its first one on, where that is NaN.
template <class M>
__device__ __noinline__ void repair(const Params& p, int n, int group, int channel, int h, int w) {
  using T = typename M::Element;
#pragma unroll 1
  for (int eight = 0; eight < p.eights; ++eight, channel += 8) {
    if (channel >= p.rows) break;
    T* const row =
        static_cast<T*>(p.x) + (((n * p.groups + group) * p.rows + channel) * p.x_h + h) * p.x_w;
#pragma unroll 1
    for (int i = 0; i < kHalfSums; ++i) {
      const int pixel = w + lane_pixel<T>(i);
      if (pixel >= p.x_w) break;
      const float stored = Numeric<T>::widen(row[pixel]);
      if (stored != stored)
        row[pixel] = Numeric<T>::narrow(sum_with_care<M>(p, n, group, channel, h, pixel));
    }
  }
}

// The eldest row, which is whole.
template <class M>
__device__ __forceinline__ void store_row(const Params& p, const Scope& scope, const Warp& at,
                                          const Run& run, int h, Sums& sum) {
  using T = typename M::Element;
  constexpr int kVector = 16 / int(sizeof(T));
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int first = run.pixel + at.pixel + t * kVector, plane = p.x_h * p.x_w;
  int to = ((run.n * p.groups + scope.group) * p.rows + at.input + g) * plane + h * p.x_w + first;
  float all = 0;  // NaN where one is
#pragma unroll
  for (int half = 0; half < kHalves; ++half, to += 8 * plane) {
    if (half >= p.eights) continue;
    float value[kHalfSums];
#pragma unroll
    for (int i = 0; i < kHalfSums; ++i) {
      value[i] = sum_of(sum, half, i);
      all += value[i];
    }
    const bool there = at.input + half * 8 + g < p.rows;
#pragma unroll
    for (int i = 0; i < kHalfSums; i += kVector) {
      const int left = there ? p.x_w - first - lane_pixel<T>(i) : 0;
      T* const pixels = static_cast<T*>(p.x) + to + lane_pixel<T>(i);
      if (p.whole) {
        uint32_t word[4];
        pack_run<T>(*reinterpret_cast<const float (*)[kVector]>(value + i), word);
        store_words_if<4>(left - 1, pixels, word[0], word[1], word[2], word[3]);
      } else {
#pragma unroll
        for (int k = 0; k < kVector; ++k) store_number_if(left - 1 - k, pixels + k, value[i + k]);
      }
    }
  }
  if (__any_sync(0xffffffff, all != all)) repair<M>(p, run.n, scope.group, at.input + g, h, first);
}

// The others move up, by so many halves.
template <int HALVES>
__device__ __forceinline__ void move_up(Sums& sum) {
  visit_sums([&](int half, int i) {
    sum_of(sum, half, i) = half + HALVES < kHalves ? sum_of(sum, half + HALVES, i) : 0;
  });
}

template <class M, int TAPS>
__device__ __forceinline__ void multiply_run(const Params& p, const Scope& scope, const Run& run,
                                             const Warp& at, StageRing& ring) {
  using T = typename M::Element;
  const int column = run.pixel * p.stride_w - p.pad_w, first = column + at.pixel * p.stride_w;
  const int reach = (kWarpPixels - 1) * p.stride_w + (p.kernel_w - 1) * p.dilation_w;
  const bool inside = first >= 0 && first + reach < p.y_w;
  Sums sum;
  clear(sum);
#pragma unroll 1
  for (int h = run.begin; h < run.end + p.step.live - 1; ++h) {
#pragma unroll 1
    for (int line = 0; line < p.step.lines; ++line) {
      const Line from = line_of(p, scope, run, h, line);
      if (!from.there) continue;
      const uint32_t weights = at.weights + line * p.units * p.steps * kStepBytes<M>;
#pragma unroll 1
      for (int unit = 0; unit < p.units; unit += p.part_units) {
        barrier_wait(ring.full(), ring.parity);
        const auto multiply = [&](auto edge) {
          multiply_part<M, TAPS, decltype(edge)::value>(
              p, at, column, from.first + unit * kUnit * p.y_plane,
              min(p.part_units * kUnit, p.columns - unit * kUnit), p.pairs[line], ring.stage(),
              weights + unit * p.steps * kStepBytes<M>, sum);
        };
        if (inside) {
          multiply(std::false_type());
        } else {
          multiply(std::true_type());
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
        ring.advance();
      }
    }
    const int whole = h - p.step.live + 1;
    if (whole >= run.begin) store_row<M>(p, scope, at, run, whole, sum);
    if (p.eights == 1) {
      move_up<1>(sum);
    } else if (p.eights == 2) {
      move_up<2>(sum);
    } else {
      move_up<kHalves>(sum);
    }
  }
}

template <class M, int TAPS>
__global__ void __launch_bounds__(kMostThreads, kBlocks)
    convt2d_ticking_kernel(const __grid_constant__ Params p) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  using T = typename M::Element;
  extern __shared__ __align__(128) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const int warp = warp_of_block();
  const Scope scope = scope_of(p);
  StageRing ring{shared + p.barriers_at, shared + p.stages_at, p.stages, p.stage_bytes};
  start_stages(ring.barriers, p.stages, 32, consumers(p));
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp == consumers(p)) return bring_lines<T>(p, scope, ring);
  bring_weights<M>(p, scope, shared);
  barrier_among(1, consumers(p) * 32);
  const int input_warp = uniform(warp / p.pixel_warps);
  Warp at;
  at.input = scope.input + input_warp * p.eights * 8;
  at.pixel = (warp - input_warp * p.pixel_warps) * kWarpPixels;
  at.weights = shared + input_warp * p.step.lines * p.units * p.steps * kStepBytes<M>;
  visit_runs(p, scope, [&](const Run& run) { multiply_run<M, TAPS>(p, scope, run, at, ring); });
#endif
}

}  // namespace convt2d::cuda::ticking
