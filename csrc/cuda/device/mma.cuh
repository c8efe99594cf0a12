// Tensor-core building blocks (sm_80 and up): ldmatrix, mma.sync and the four ways this library
// multiplies. Every operand lies in shared memory as rows of 32 bytes along the reduction: 16 numbers
// of 16 bits, or 8 of 32 bits. One `mma` step consumes exactly one such row of each operand, and
// ldmatrix hands out the right fragments for both widths.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace convt2d::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// The same of four matrices that lie transposed: rows along K.
__device__ __forceinline__ void ldmatrix_x4_turned(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

__device__ __forceinline__ void ldmatrix_x2(uint32_t& r0, uint32_t& r1, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(address));
}

// The same of two, whose addresses lanes 0 to 15 give.
__device__ __forceinline__ void ldmatrix_x2_turned(uint32_t& r0, uint32_t& r1, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(address));
}

// A tile of 8 x 8 16-bit numbers, of which lane l has two neighbours of row l / 4, turned: then it has two of column l / 4.
__device__ __forceinline__ uint32_t turn_tile(uint32_t pair) {
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(pair));
  return pair;
}

// Two numbers rounded to a 16-bit type, the first in the low half.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// sum + 0 * value, pair by pair: NaN from then on where a value is not finite; and the two added.
template <class T>
__device__ __forceinline__ uint32_t add_zero_times_pair(uint32_t value, uint32_t sum) {
  using Pair =
      std::conditional_t<sizeof(T) == 2 && std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  const uint32_t zero = 0;
  const Pair result =
      __hfma2(*reinterpret_cast<const Pair*>(&value), *reinterpret_cast<const Pair*>(&zero),
              *reinterpret_cast<const Pair*>(&sum));
  return *reinterpret_cast<const uint32_t*>(&result);
}
template <class T>
__device__ __forceinline__ float add_pair(uint32_t pair) {
  const T* const numbers = reinterpret_cast<const T*>(&pair);
  return static_cast<float>(numbers[0]) + static_cast<float>(numbers[1]);
}

// To nearest, in two ordinary instructions: the tensor core ignores the low 13 bits itself, so adding
// half of their range rounds. (cvt.rna.tf32 runs at a sixteenth of this rate.) A NaN is left alone: the
// addition could carry it over into a number.
__device__ __forceinline__ uint32_t round_to_tf32(uint32_t bits) {
  asm("{ .reg .pred number;\n\t"
      "setp.num.f32 number, %1, %1;\n\t"
      "@number add.u32 %0, %0, 0x1000; }"
      : "+r"(bits)
      : "f"(__uint_as_float(bits)));
  return bits;
}

// d[16 x 8] += a[16 x 32 bytes] * b[8 x 32 bytes]^T, fp32 accumulation.
struct MmaF16 {
  using Element = __half;
  static constexpr int kRow = 16;  // elements in a 32-byte row
  static constexpr bool kSplit = false, kRounds = false;
  static __device__ __forceinline__ uint32_t round(uint32_t bits) { return bits; }
  static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

struct MmaBF16 {
  using Element = __nv_bfloat16;
  static constexpr int kRow = 16;
  static constexpr bool kSplit = false, kRounds = false;
  static __device__ __forceinline__ uint32_t round(uint32_t bits) { return bits; }
  static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

// fp32 data rounded to nearest tf32: when they are staged.
struct MmaTF32 {
  using Element = float;
  static constexpr int kRow = 8;
  static constexpr bool kSplit = false, kRounds = true;
  static __device__ __forceinline__ uint32_t round(uint32_t bits) { return round_to_tf32(bits); }
  static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

// The same data as they are: whoever multiplies them rounds the fragments.
struct RawTF32 : MmaTF32 {
  static constexpr bool kRounds = false;
  static __device__ __forceinline__ uint32_t round(uint32_t bits) { return bits; }
};

// fp32 data, each fragment split into two tf32 numbers, so that three products carry about 22 bits. The
// tensor core truncates where it adds, so callers fold partial sums into a rounded fp32 sum every
// kFoldSteps. Infinities come out NaN (inf - inf) and are left to the caller's NaN rule.
struct MmaF32x3 {
  using Element = float;
  static constexpr int kRow = 8;
  static constexpr bool kSplit = true, kRounds = false;
  static constexpr int kFoldSteps = 4;
  static __device__ __forceinline__ uint32_t round(uint32_t bits) { return bits; }
  static __device__ __forceinline__ void split(uint32_t bits, uint32_t& high, uint32_t& low) {
    const float value = __uint_as_float(bits);
    high = (bits + 0x1000u) & 0xffffe000u;
    low = round_to_tf32(__float_as_uint(value - __uint_as_float(high)));
  }
  static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    MmaTF32::mma(d, a, b0, b1);
  }
};

}  // namespace convt2d::cuda
