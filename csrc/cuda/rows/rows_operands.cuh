// What both kernels of rows do: weights to shared memory in the order of steps, runs of outputs from there to memory, and
// sums in ordinary arithmetic.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/shared_number.cuh"
#include "cuda/device/strict_product.cuh"
#include "cuda/rows/rows_config.h"

namespace convt2d::cuda::rows {

template <class T>
constexpr int kVector = kUnit / int(sizeof(T));
template <class T>
constexpr int kLine = line_bytes(int(sizeof(T))) / int(sizeof(T));

template <class T>
__device__ __forceinline__ uint32_t bits_of(const T* from) {
  if constexpr (sizeof(T) == 2) {
    return __ldg(reinterpret_cast<const unsigned short*>(from));
  } else {
    return __ldg(reinterpret_cast<const uint32_t*>(from));
  }
}

// NaN from then on if a number is not finite.
template <class T>
__device__ __forceinline__ uint32_t watch(uint32_t word, uint32_t nan) {
  if constexpr (sizeof(T) == 2) {
    return add_zero_times_pair<T>(word, nan);
  } else {
    return __float_as_uint(fmaf(__uint_as_float(word), 0.f, __uint_as_float(nan)));
  }
}
template <class T>
__device__ __forceinline__ bool saw_nan(uint32_t nan) {
  const float value = sizeof(T) == 2 ? add_pair<T>(nan) : __uint_as_float(nan);
  return value != value;
}

// NaN from then on if a number of a unit is not finite, or its higher part, which of a large one is infinite.
template <class M>
__device__ __forceinline__ void watch_unit(const uint32_t (&word)[4], uint32_t& nan) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t high = word[i], low;
    if constexpr (M::kSplit) split_in_two(word[i], high, low);
    nan = watch<typename M::Element>(high, nan);
  }
}

// A unit of neighbouring channels to shared memory.
template <class M>
__device__ __forceinline__ void store_unit(const uint32_t* bits, uint32_t to, uint32_t& nan) {
  using T = typename M::Element;
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    word[i] = sizeof(T) == 2 ? bits[2 * i] | bits[2 * i + 1] << 16 : M::round(bits[i]);
  watch_unit<M>(word, nan);
  store_shared_16(to, word);
}

// The first phases of a block.
struct Part {
  int h, w;
};

// Weights of a block, from this channel of this group on, in the order of steps, and where the pixels of a step are. Tells
// whether one is not finite.
template <class M>
__device__ __forceinline__ bool fill_steps(const Params& p, int first_group, int first_column,
                                           const Part& part, uint32_t shared) {
  using T = typename M::Element;
  constexpr int kVec = kVector<T>;
  const T* const weight = static_cast<const T*>(p.weight);
  const int first_h = p.h.begin[part.h], first_w = p.w.begin[part.w], rows = p.panels * kPanel;
  const int taps_w = p.w.begin[part.w + p.part_w] - first_w;
  const int taps = (p.h.begin[part.h + p.part_h] - first_h) * taps_w;
  uint32_t nan = 0;
#pragma unroll 1
  for (int i = threadIdx.x; i < taps * p.units * rows; i += kThreads) {
    const int of_tap = p.divide_panels.quotient(i / kPanel), row = i - of_tap * rows;
    const int tap = p.divide_units.quotient(of_tap), unit = of_tap - tap * p.units;
    const int of_h = tap / taps_w, tap_h = p.h.order[first_h + of_h];
    const int tap_w = p.w.order[first_w + tap - of_h * taps_w];
    const int phase_h = p.h.phase[tap_h], phase_w = p.w.phase[tap_w];
    const int step = p.first_step[(phase_h - part.h) * p.part_w + phase_w - part.w] +
                     (p.h.rank[tap_h] * p.w.taps[phase_w] + p.w.rank[tap_w]) * p.units + unit;
    const int group = p.divide_group_panels.quotient(row / kPanel);
    const int column = first_column + row - group * p.group_panels * kPanel;
    const int first = unit * kVec, left = column < p.columns ? p.reduce - first : 0;
    const T* const from =
        weight + (int64_t{first_group + group} * p.reduce + first) * p.weight_stride[0] +
        column * p.weight_stride[1] + tap_h * p.weight_stride[2] + tap_w * p.weight_stride[3];
    uint32_t bits[kVec];
#pragma unroll
    for (int c = 0; c < kVec; ++c) bits[c] = c < left ? bits_of(from + c * p.weight_stride[0]) : 0;
    store_unit<M>(bits, shared + p.weights_at + (step * rows + row) * kUnit, nan);
    if (row == 0)
      store_shared_4(
          shared + p.steps_at + step * 4,
          ((p.h.offset[tap_h] * p.row_units + unit) * p.patch_width + p.w.offset[tap_w]) * kUnit);
  }
  // Tensor cores take steps two by two: where a pair of phases has fewer than that, zeros.
  for (int pair = 0; pair < p.part_h * p.part_w; ++pair) {
    const int taps_here = p.h.taps[part.h + pair / p.part_w] * p.w.taps[part.w + pair % p.part_w];
    for (int step = p.first_step[pair] + taps_here * p.units; step < p.first_step[pair + 1];
         ++step) {
#pragma unroll 1
      for (int row = threadIdx.x; row < rows; row += kThreads)
        store_shared_16(shared + p.weights_at + (step * rows + row) * kUnit, {0, 0, 0, 0});
      if (threadIdx.x == 0) store_shared_4(shared + p.steps_at + step * 4, 0);
    }
  }
  return saw_nan<T>(nan);
}

// An output in ordinary arithmetic, from global memory. Slow, and rare.
template <class T>
__device__ __noinline__ float plain_output(const Params& p, int n, int group, int column, int row,
                                           int output) {
  const T* const x = static_cast<const T*>(p.source) +
                     int64_t{n} * p.groups * p.reduce * p.h.in * p.w.in +
                     int64_t{group} * p.reduce * p.x_channel;
  const T* const w = static_cast<const T*>(p.weight) +
                     int64_t{group} * p.reduce * p.weight_stride[0] + column * p.weight_stride[1];
  float sum = 0;
#pragma unroll 1
  for (int tap_h = 0; tap_h < p.h.kernel; ++tap_h) {
    const int y_h = row + p.h.near_pad - tap_h * p.h.dilation;
    if (y_h < 0 || y_h % p.h.stride || y_h / p.h.stride >= p.h.in) continue;
    for (int tap_w = 0; tap_w < p.w.kernel; ++tap_w) {
      const int y_w = output + p.w.near_pad - tap_w * p.w.dilation;
      if (y_w < 0 || y_w % p.w.stride || y_w / p.w.stride >= p.w.in) continue;
      const T* const pixel =
          x + (int64_t{y_h / p.h.stride} * p.w.in + y_w / p.w.stride) * p.x_pixel;
#pragma unroll 1
      for (int c = 0; c < p.reduce; ++c)
        sum = fmaf(load(pixel + c * p.x_channel),
                   load(w + c * p.weight_stride[0] + tap_h * p.weight_stride[2] +
                        tap_w * p.weight_stride[3]),
                   sum);
    }
  }
  return sum + (p.bias ? load(static_cast<const T*>(p.bias) + group * p.columns + column) : 0.f);
}

// Zeros beside x were multiplied too, and 0 * inf is NaN: what came out NaN is summed again.
template <class T>
__device__ __forceinline__ void repair_output(const Params& p, uint32_t place, int n, int group,
                                              int column, int row, int output) {
  float value;
  if constexpr (sizeof(T) == 2) {
    const unsigned short bits = load_shared<unsigned short>(place);
    value = Numeric<T>::widen(*reinterpret_cast<const T*>(&bits));
  } else {
    value = load_shared<float>(place);
  }
  if (value == value) return;
  const T again = Numeric<T>::narrow(plain_output<T>(p, n, group, column, row, output));
  store_shared_number(place, again);
}

}  // namespace convt2d::cuda::rows
