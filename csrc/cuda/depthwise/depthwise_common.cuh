// Device code that every depthwise kernel uses: the class of an output, the exact definition of one
// element, and vector access.
#pragma once

#include <cfloat>
#include <type_traits>

#include "cuda/depthwise/depthwise_config.h"
#include "cuda/device/numeric.cuh"

namespace convt2d::cuda::depthwise {

__device__ __forceinline__ int floor_quotient(int a, int b) {  // b > 0
  const int q = a / b;
  return q * b > a ? q - 1 : q;
}

__device__ __forceinline__ int floor_remainder(int a, int b) {
  return a - floor_quotient(a, b) * b;
}

// The one class of `phase` that reads inputs of `residue` (modulo reach): outputs
// first_output + i * period, which read positions i + base - j, inputs residue + reach * position.
struct Class {
  int first_output, base;
};

__device__ __forceinline__ Class class_of(const ClassAxis& axis, int phase, int offset,
                                          int residue) {
  if (axis.reach == 1) return {phase, offset};
  const int start = floor_remainder(residue - offset, axis.reach);
  return {phase + axis.stride * start, (start + offset - residue) / axis.reach};
}

// How many outputs a class has.
__device__ __forceinline__ int class_size(const ClassAxis& axis, int first_output) {
  return first_output < axis.out ? axis.by_period.quotient(axis.out - first_output - 1) + 1 : 0;
}

// The lower of the two bases that the classes of one residue have.
__device__ __forceinline__ int lowest_base(const ClassAxis& axis, int residue) {
  return -floor_quotient(residue - axis.lowest, axis.reach);
}

// The operator by definition, one element, valid taps only. The fast paths pad with zeros instead,
// which is exact while everything is finite; where a result is not, it is computed again here, so
// that NaN and Inf reach exactly the outputs whose taps touch them.
template <typename T>
__device__ __noinline__ float exact_output(const Geometry& g, int64_t n, int co, int oy, int ox) {
  const int c = g.by_multiplier.quotient(co), j = co - c * g.multiplier;
  const T* x = static_cast<const T*>(g.x) + n * g.x_stride[0] + c * g.x_stride[1];
  const T* w = static_cast<const T*>(g.w) + c * g.w_stride[0] + j * g.w_stride[1];
  float sum = g.bias ? load(static_cast<const T*>(g.bias) + co) : 0.f;
  for (int r = 0; r < g.h.kernel; ++r) {
    const int from_y = oy + g.h.near_pad - r * g.h.dilation;
    const int iy = from_y / g.h.stride;
    if (from_y < 0 || iy * g.h.stride != from_y || iy >= g.h.in) continue;
    for (int t = 0; t < g.v.kernel; ++t) {
      const int from_x = ox + g.v.near_pad - t * g.v.dilation;
      const int ix = from_x / g.v.stride;
      if (from_x < 0 || ix * g.v.stride != from_x || ix >= g.v.in) continue;
      sum = fmaf(load(x + iy * g.x_stride[2] + ix * g.x_stride[3]),
                 load(w + r * g.w_stride[2] + t * g.w_stride[3]), sum);
    }
  }
  return sum;
}

template <typename T>
__device__ __noinline__ float exact_input(const Geometry& g, int64_t n, int c, int iy, int ix) {
  float sum = 0;
  for (int j = 0; j < g.multiplier; ++j) {
    const T* y = static_cast<const T*>(g.y) + n * g.y_stride[0] +
                 (int64_t{c} * g.multiplier + j) * g.y_stride[1];
    const T* w = static_cast<const T*>(g.w) + c * g.w_stride[0] + j * g.w_stride[1];
    for (int r = 0; r < g.h.kernel; ++r) {
      const int oy = iy * g.h.stride - g.h.near_pad + r * g.h.dilation;
      if (oy < 0 || oy >= g.h.out) continue;
      for (int t = 0; t < g.v.kernel; ++t) {
        const int ox = ix * g.v.stride - g.v.near_pad + t * g.v.dilation;
        if (ox < 0 || ox >= g.v.out) continue;
        sum = fmaf(load(y + oy * g.y_stride[2] + ox * g.y_stride[3]),
                   load(w + r * g.w_stride[2] + t * g.w_stride[3]), sum);
      }
    }
  }
  return sum;
}

__device__ __forceinline__ bool is_finite(float value) { return fabsf(value) <= FLT_MAX; }

// `n` neighbouring elements as one access.
template <typename T, int n>
struct alignas(sizeof(T) * n) Pack {
  T value[n];
};

template <int bytes>
struct Word;
template <>
struct Word<2> {
  using Type = uint16_t;
};
template <>
struct Word<4> {
  using Type = uint32_t;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};

// One predicated load of a whole pack, so that several stay in flight; zeros where not `inside`.
template <typename T, int n>
__device__ __forceinline__ Pack<T, n> load_pack(const T* from, bool inside) {
  using Bits = typename Word<sizeof(T) * n>::Type;
  Bits bits{};
  if (inside) bits = __ldg(reinterpret_cast<const Bits*>(from));
  Pack<T, n> pack;
  __builtin_memcpy(&pack, &bits, sizeof bits);
  return pack;
}

// Two neighbours as they come from memory, and as floats: whole words, so that no element is taken out
// of a register only to be widened.
template <typename T>
struct Pair {
  using Bits = typename Word<2 * sizeof(T)>::Type;
  Bits bits;

  __device__ __forceinline__ float2 widen() const {
    if constexpr (sizeof(T) == 4) {
      return make_float2(__uint_as_float(bits.x), __uint_as_float(bits.y));
    } else if constexpr (std::is_same_v<T, __half>) {
      __half2 pair;
      __builtin_memcpy(&pair, &bits, sizeof bits);
      return __half22float2(pair);
    } else {  // a bfloat16 is the upper half of a float
      return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
    }
  }

  static __device__ __forceinline__ Pair narrow(float first, float second) {
    Pair pair;
    if constexpr (sizeof(T) == 4) {
      pair.bits = make_uint2(__float_as_uint(first), __float_as_uint(second));
    } else if constexpr (std::is_same_v<T, __half>) {
      const __half2 both = __floats2half2_rn(first, second);
      __builtin_memcpy(&pair.bits, &both, sizeof both);
    } else {
      const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
      __builtin_memcpy(&pair.bits, &both, sizeof both);
    }
    return pair;
  }
};

// One predicated access where rows are paired, else one for each element.
template <typename T, bool kPaired>
__device__ __forceinline__ Pair<T> load_pair(const T* from, int second, bool has_first,
                                             bool has_second) {
  Pair<T> pair{};
  if constexpr (kPaired) {
    if (has_first) pair.bits = __ldg(reinterpret_cast<const typename Pair<T>::Bits*>(from));
  } else {
    const Pack<T, 2> both{load_pack<T, 1>(from, has_first).value[0],
                          load_pack<T, 1>(from + second, has_second).value[0]};
    __builtin_memcpy(&pair.bits, &both, sizeof both);
  }
  return pair;
}

}  // namespace convt2d::cuda::depthwise
