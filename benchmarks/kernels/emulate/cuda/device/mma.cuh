// cuda/device/mma.cuh on a CPU: the ways of multiplying, without the mma.sync that wgmma replaces.
#pragma once

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

struct MmaF16 {
  using Element = __half;
  static constexpr int kRow = 16;
  static uint32_t round(uint32_t bits) { return bits; }
};
struct MmaBF16 : MmaF16 {
  using Element = __nv_bfloat16;
};
struct MmaTF32 {
  using Element = float;
  static constexpr int kRow = 8;
  static uint32_t round(uint32_t bits) {
    const float value = __uint_as_float(bits);
    return value == value ? bits + 0x1000 : bits;
  }
};

}  // namespace convt2d::cuda
