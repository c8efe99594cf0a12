// cuda/device/mma.cuh on a CPU, as far as it is used.
#pragma once

#include "cuda/device/numeric.cuh"

namespace convt2d::cuda {

inline uint32_t shared_address(const void* pointer) { return emulate::shared_address(pointer); }

template <class T>
uint32_t pack(float low, float high) {
  T pair[2];
  if constexpr (sizeof(T) == 2 && std::is_same_v<T, __half>) {
    pair[0] = __float2half_rn(low), pair[1] = __float2half_rn(high);
  } else {
    pair[0] = __float2bfloat16_rn(low), pair[1] = __float2bfloat16_rn(high);
  }
  uint32_t word;
  std::memcpy(&word, pair, 4);
  return word;
}

template <class T>
uint32_t add_zero_times_pair(uint32_t value, uint32_t sum) {
  T numbers[2], sums[2];
  std::memcpy(numbers, &value, 4);
  std::memcpy(sums, &sum, 4);
  return pack<T>(std::fma(float(numbers[0]), 0.f, float(sums[0])),
                 std::fma(float(numbers[1]), 0.f, float(sums[1])));
}
template <class T>
float add_pair(uint32_t pair) {
  T numbers[2];
  std::memcpy(numbers, &pair, 4);
  return float(numbers[0]) + float(numbers[1]);
}

inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  if (address % 16 != 0) std::abort();
  const auto all = emulate::show(&address, 1);
  const unsigned lane = threadIdx.x % 32;
  for (int matrix = 0; matrix < 4; ++matrix)
    std::memcpy(&r[matrix], emulate::shared(all[matrix * 8 + lane / 4][0] + lane % 4 * 4, 4), 4);
}

inline void ldmatrix_x2(uint32_t& r0, uint32_t& r1, uint32_t address) {
  if (address % 16 != 0) std::abort();
  const auto all = emulate::show(&address, 1);
  const unsigned lane = threadIdx.x % 32;
  std::memcpy(&r0, emulate::shared(all[lane / 4][0] + lane % 4 * 4, 4), 4);
  std::memcpy(&r1, emulate::shared(all[8 + lane / 4][0] + lane % 4 * 4, 4), 4);
}

template <int MATRICES>
void ldmatrix_turned(uint32_t* r, uint32_t address) {
  if (address % 16 != 0) std::abort();
  const auto all = emulate::show(&address, 1);
  const unsigned lane = threadIdx.x % 32;
  for (int matrix = 0; matrix < MATRICES; ++matrix) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i)
      std::memcpy(&pair[i],
                  emulate::shared(all[matrix * 8 + lane % 4 * 2 + i][0] + lane / 4 * 2, 2), 2);
    std::memcpy(&r[matrix], pair, 4);
  }
}
inline void ldmatrix_x4_turned(uint32_t (&r)[4], uint32_t address) {
  ldmatrix_turned<4>(r, address);
}
inline void ldmatrix_x2_turned(uint32_t& r0, uint32_t& r1, uint32_t address) {
  uint32_t r[2];
  ldmatrix_turned<2>(r, address);
  r0 = r[0], r1 = r[1];
}

inline uint32_t turn_tile(uint32_t pair) {
  const auto all = emulate::show(&pair, 1);
  const unsigned row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  uint32_t turned = 0;
  for (unsigned i = 0; i < 2; ++i)
    turned |= (all[(column + i) * 4 + row / 2][0] >> row % 2 * 16 & 0xffff) << i * 16;
  return turned;
}

template <class T>
float number(uint32_t word, int half) {
  if constexpr (sizeof(T) == 4) {
    return __uint_as_float(word & 0xffffe000u);  // the tensor core sees the upper 19 bits
  } else {
    T value;
    const uint16_t bits = uint16_t(word >> 16 * half);
    std::memcpy(&value, &bits, 2);
    return Numeric<T>::widen(value);
  }
}

// mma.sync m16n8: lane 4 g + t holds row g and g + 8 of a, column g of b, columns 2 t and 2 t + 1 of d.
template <class T>
void multiply_fragments(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const auto all = emulate::show(mine, 6);
  const unsigned lane = threadIdx.x % 32;
  for (int row = 0; row < 2; ++row)
    for (int column = 0; column < 2; ++column)
      for (int k_half = 0; k_half < 2; ++k_half)
        for (int t = 0; t < 4; ++t)
          for (int i = 0; i < int(4 / sizeof(T)); ++i)
            d[2 * row + column] += number<T>(all[lane / 4 * 4 + t][2 * k_half + row], i) *
                                   number<T>(all[(lane % 4 * 2 + column) * 4 + t][4 + k_half], i);
}

struct MmaF16 {
  using Element = __half;
  static constexpr int kRow = 16;
  static constexpr bool kSplit = false, kRounds = false;
  static uint32_t round(uint32_t bits) { return bits; }
  static void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply_fragments<Element>(d, a, b0, b1);
  }
};
struct MmaBF16 : MmaF16 {
  using Element = __nv_bfloat16;
  static void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply_fragments<Element>(d, a, b0, b1);
  }
};
struct MmaTF32 {
  using Element = float;
  static constexpr int kRow = 8;
  static constexpr bool kSplit = false, kRounds = true;
  static uint32_t round(uint32_t bits) {
    const float value = __uint_as_float(bits);
    return value == value ? bits + 0x1000 : bits;
  }
  static void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply_fragments<Element>(d, a, b0, b1);
  }
};
struct MmaF32x3 : MmaTF32 {
  static constexpr int kFoldSteps = 4;
  static constexpr bool kSplit = true, kRounds = false;
  static uint32_t round(uint32_t bits) { return bits; }
  static void split(uint32_t bits, uint32_t& high, uint32_t& low) {
    const float value = __uint_as_float(bits);
    high = (bits + 0x1000u) & 0xffffe000u;
    low = MmaTF32::round(__float_as_uint(value - __uint_as_float(high)));
  }
};

}  // namespace convt2d::cuda
