// Global memory with a condition and without a branch: loads that give zero, stores that do nothing.
#pragma once

#include <cstdint>

namespace convt2d::cuda {

// One 16-bit or 32-bit load if `index < left`, else zero.
template <int BYTES>
__device__ __forceinline__ uint32_t load_if(const void* from, int index, int left) {
  uint32_t word;
  if constexpr (BYTES == 4) {
    asm volatile(
        "{ .reg .pred there;\n\t"
        "setp.lt.s32 there, %2, %3;\n\t"
        "mov.b32 %0, 0;\n\t"
        "@there ld.global.nc.u32 %0, [%1]; }"
        : "=r"(word)
        : "l"(from), "r"(index), "r"(left));
  } else {
    asm volatile(
        "{ .reg .pred there;\n\t"
        "setp.lt.s32 there, %2, %3;\n\t"
        "mov.b32 %0, 0;\n\t"
        "@there ld.global.nc.u16 %0, [%1]; }"
        : "=r"(word)
        : "l"(from), "r"(index), "r"(left));
  }
  return word;
}

// 16 bytes, at a multiple of them, likewise.
__device__ __forceinline__ void load_16_if(const void* from, int index, int left,
                                           uint32_t (&word)[4]) {
  asm volatile(
      "{ .reg .pred there;\n\t"
      "setp.lt.s32 there, %5, %6;\n\t"
      "mov.b32 %0, 0;\n\t"
      "mov.b32 %1, 0;\n\t"
      "mov.b32 %2, 0;\n\t"
      "mov.b32 %3, 0;\n\t"
      "@there ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
      : "l"(from), "r"(index), "r"(left));
}

// 2, 4, 8 or 16 bytes; the 256 around them come to L2.
template <int BYTES, int WORDS>
__device__ __forceinline__ void load_words(const void* from, uint32_t (&word)[WORDS]) {
  if constexpr (BYTES == 2) {
    asm volatile("ld.global.nc.L2::256B.u16 %0, [%1];" : "=r"(word[0]) : "l"(from));
  } else if constexpr (BYTES == 4) {
    asm volatile("ld.global.nc.L2::256B.u32 %0, [%1];" : "=r"(word[0]) : "l"(from));
  } else if constexpr (BYTES == 8) {
    asm volatile("ld.global.nc.L2::256B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(word[0]), "=r"(word[1])
                 : "l"(from));
  } else {
    asm volatile("ld.global.nc.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "l"(from));
  }
}

// 8 bytes, read once; the 256 around them come to L2 where the GPU knows how.
__device__ __forceinline__ uint2 load_8_and_around(const void* from) {
  uint2 words;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("ld.global.nc.L2::256B.v2.u32 {%0, %1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "l"(from));
#else
  words = __ldg(static_cast<const uint2*>(from));
#endif
  return words;
}

// Hides where a number came from, so that it is not computed or read again.
__device__ __forceinline__ void keep_in_register(uint32_t& number) { asm("" : "+r"(number)); }
template <class T>
__device__ __forceinline__ void keep_in_register(T*& pointer) {
  asm("" : "+l"(pointer));
}

// By hand, because the compiler breaks vector stores up where a narrower store stands beside them in
// another branch (seen in the SASS of nvcc 13.0), and then a sector reaches L2 in pieces.
__device__ __forceinline__ void store_words(void* to, uint32_t a, uint32_t b) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(a), "r"(b));
}
__device__ __forceinline__ void store_words(void* to, uint32_t a, uint32_t b, uint32_t c,
                                            uint32_t d) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c),
               "r"(d));
}

// The same if `key` is not negative, without a branch.
template <int WORDS>
__device__ __forceinline__ void store_words_if(int key, void* to, uint32_t a, uint32_t b,
                                               uint32_t c, uint32_t d) {
  if constexpr (WORDS == 4) {
    asm volatile(
        "{ .reg .pred there; setp.ge.s32 there, %5, 0;\n\t"
        "@there st.global.v4.b32 [%0], {%1, %2, %3, %4}; }" ::"l"(to),
        "r"(a), "r"(b), "r"(c), "r"(d), "r"(key));
  } else if constexpr (WORDS == 2) {
    asm volatile(
        "{ .reg .pred there; setp.ge.s32 there, %3, 0;\n\t"
        "@there st.global.v2.b32 [%0], {%1, %2}; }" ::"l"(to),
        "r"(a), "r"(b), "r"(key));
  } else {
    asm volatile(
        "{ .reg .pred there; setp.ge.s32 there, %2, 0;\n\t"
        "@there st.global.b32 [%0], %1; }" ::"l"(to),
        "r"(a), "r"(key));
  }
}
__device__ __forceinline__ void store_half_if(int key, void* to, unsigned short a) {
  asm volatile(
      "{ .reg .pred there; setp.ge.s32 there, %2, 0;\n\t"
      "@there st.global.b16 [%0], %1; }" ::"l"(to),
      "h"(a), "r"(key));
}

// Stores what lies in memory as `bits` if `index < left`, and then gives sum + 0 * value: NaN from then on if the value is
// not finite.
__device__ __forceinline__ float store_and_note_if(int index, int left, void* to, uint32_t bits,
                                                   float value, float sum) {
  asm volatile(
      "{ .reg .pred there; setp.lt.s32 there, %3, %4;\n\t"
      "@there st.global.b32 [%1], %2;\n\t"
      "@there fma.rn.f32 %0, %5, 0f00000000, %0; }"
      : "+f"(sum)
      : "l"(to), "r"(bits), "r"(index), "r"(left), "f"(value));
  return sum;
}
__device__ __forceinline__ float store_and_note_if(int index, int left, void* to,
                                                   unsigned short bits, float value, float sum) {
  asm volatile(
      "{ .reg .pred there; setp.lt.s32 there, %3, %4;\n\t"
      "@there st.global.b16 [%1], %2;\n\t"
      "@there fma.rn.f32 %0, %5, 0f00000000, %0; }"
      : "+f"(sum)
      : "l"(to), "h"(bits), "r"(index), "r"(left), "f"(value));
  return sum;
}

// sum + 0 * value if `key` is not negative: NaN from then on if the value is not finite.
__device__ __forceinline__ float add_zero_times_if(int key, float value, float sum) {
  asm("{ .reg .pred there; setp.ge.s32 there, %2, 0;\n\t"
      "@there fma.rn.f32 %0, %1, 0f00000000, %0; }"
      : "+f"(sum)
      : "f"(value), "r"(key));
  return sum;
}

}  // namespace convt2d::cuda
