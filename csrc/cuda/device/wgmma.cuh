// Hopper's warpgroup matrix multiply (sm_90a): four warps, both operands in shared memory,
// asynchronous. An operand is made of groups of eight rows, `group` bytes apart, in one of three layouts:
//
//   plain     rows of 16 bytes along K, one after the other; `half` bytes between the first 16 bytes of K and the second
//   swizzled  rows of 32, 64 or 128 bytes, as the copy engine writes them: the 16-byte pieces of a row trade
//             places by bits 7 and up of their address
//   turned    likewise, but rows of N for each K, `block` bytes between one row's worth of N and the next
//
// In the first two an operand may start at any row, so shifting a patch of pixels by a tap is adding to an address: the
// swizzle goes by the address of a piece itself, not by its place in the operand (measured, H200).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/uniform.cuh"

namespace convt2d::cuda {

// Code for sm_90a only; elsewhere the kernels that use it are empty and their planner declines.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CONVT2D_HAS_WGMMA 1
#endif

// The part of a descriptor that does not move, and one for an address.
__device__ __forceinline__ uint64_t operand_layout(uint32_t half, uint32_t group) {
  return static_cast<uint64_t>(half >> 4 & 0x3fff) << 16 |
         static_cast<uint64_t>(group >> 4 & 0x3fff) << 32;
}
__device__ __forceinline__ uint64_t swizzled_layout(uint32_t row, uint32_t group) {
  const uint64_t swizzle = row == 128 ? 1 : row == 64 ? 2 : 3;
  return swizzle << 62 | operand_layout(16, group);
}
__device__ __forceinline__ uint64_t turned_layout(uint32_t row, uint32_t block) {
  return (swizzled_layout(row, 8 * row) & ~uint64_t{0x3fff0000}) | operand_layout(block, 0);
}
__device__ __forceinline__ uint64_t operand(uint64_t layout, uint32_t address) {
  return layout | (address >> 4 & 0x3fff);
}
// An operand 16 x `by` bytes further on.
__device__ __forceinline__ uint64_t advance(uint64_t operand, uint32_t by) {
  return (operand & ~uint64_t{0xffffffff}) | (static_cast<uint32_t>(operand) + by);
}

// Around the registers of a sum: before the first multiplication that adds to them; after the last one
// of a batch; and until at most OPEN batches are unfinished.
__device__ __forceinline__ void wgmma_fence() {
#ifdef CONVT2D_HAS_WGMMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void wgmma_commit() {
#ifdef CONVT2D_HAS_WGMMA
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int OPEN>
__device__ __forceinline__ void wgmma_wait() {
#ifdef CONVT2D_HAS_WGMMA
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(OPEN) : "memory");
#endif
}

// Sums before the first multiplication.
template <int INSTRUCTIONS, int COUNT>
__device__ __forceinline__ void clear(float (&sum)[INSTRUCTIONS][COUNT]) {
#pragma unroll
  for (int i = 0; i < INSTRUCTIONS; ++i)
#pragma unroll
    for (int j = 0; j < COUNT; ++j) sum[i][j] = 0.f;
}

// Sums whose multiplications are finished: nothing that reads them moves up between these.
template <int COUNT>
__device__ __forceinline__ void finished(float (&sum)[COUNT]) {
#ifdef CONVT2D_HAS_WGMMA
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sum[i])::"memory");
#endif
}

// Words of an operand: they are computed before this, or nvcc 13.0 cuts batches of multiplications up to do it in between.
template <int COUNT>
__device__ __forceinline__ void computed(uint32_t (&word)[COUNT]) {
#ifdef CONVT2D_HAS_WGMMA
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(word[i]));
#endif
}

// Makes ordinary stores to shared memory visible to the tensor cores; before the barrier that tells.
__device__ __forceinline__ void fence_for_wgmma() {
#ifdef CONVT2D_HAS_WGMMA
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// How many registers a thread of this warpgroup may have from here on.
template <int COUNT>
__device__ __forceinline__ void more_registers() {
#ifdef CONVT2D_HAS_WGMMA
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}
template <int COUNT>
__device__ __forceinline__ void fewer_registers() {
#ifdef CONVT2D_HAS_WGMMA
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

// sum[64 x WIDTH] += a[64 x 32 bytes of K] * b[WIDTH x 32 bytes of K]^T; b may have the turned layout (16 bit only).
// Thread t of the warpgroup holds, with g = t % 32 / 4, rows 16 * (t / 32) + g (registers 4 i, 4 i + 1) and + g + 8
// (4 i + 2, 4 i + 3), columns 8 i + t % 4 * 2 and the next.
template <class T, int WIDTH, bool TURNED = false>
struct Wgmma;

// The same of two 16-bit operands that both lie turned: swizzled (turned_layout), or without swizzle (operand_layout). Then
// a row of 16 bytes holds eight of the 64 or WIDTH, a core matrix eight rows along K; `half` lies between the first
// eight of K and the second, `group` between eights of the others. `a` may be in registers, as mma.sync has it.
template <class T, int WIDTH>
struct WgmmaTurned;

// The same with a in registers, as mma.sync has it, and rows of b along K.
template <class T, int WIDTH>
struct WgmmaFetched;

// TF32, rows of both along K, where a sum may start (`keep` false) instead of being added to; a as a descriptor or in
// registers.
template <int WIDTH>
struct WgmmaPartial;

// The register lists of the instruction: names in the text, operands behind it.
#define CONVT2D_NAMES_4 "%0, %1, %2, %3"
#define CONVT2D_NAMES_8 CONVT2D_NAMES_4 ", %4, %5, %6, %7"
#define CONVT2D_NAMES_12 CONVT2D_NAMES_8 ", %8, %9, %10, %11"
#define CONVT2D_NAMES_16 CONVT2D_NAMES_12 ", %12, %13, %14, %15"
#define CONVT2D_NAMES_24 \
  CONVT2D_NAMES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23"
#define CONVT2D_NAMES_32                                         \
  CONVT2D_NAMES_16                                               \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27" \
  ", %28, %29, %30, %31"
#define CONVT2D_NAMES_36 \
  CONVT2D_NAMES_32       \
  ", %32, %33, %34, %35"
#define CONVT2D_NAMES_40 \
  CONVT2D_NAMES_36       \
  ", %36, %37, %38, %39"
#define CONVT2D_NAMES_48                                         \
  CONVT2D_NAMES_32                                               \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43" \
  ", %44, %45, %46, %47"
#define CONVT2D_NAMES_52 \
  CONVT2D_NAMES_48       \
  ", %48, %49, %50, %51"
#define CONVT2D_NAMES_56 \
  CONVT2D_NAMES_52       \
  ", %52, %53, %54, %55"
#define CONVT2D_NAMES_60 \
  CONVT2D_NAMES_52       \
  ", %52, %53, %54, %55, %56, %57, %58, %59"
#define CONVT2D_NAMES_64                                         \
  CONVT2D_NAMES_32                                               \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43" \
  ", %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55" \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define CONVT2D_NAMES_68 \
  CONVT2D_NAMES_64       \
  ", %64, %65, %66, %67"
#define CONVT2D_NAMES_96                                         \
  CONVT2D_NAMES_64                                               \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75" \
  ", %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87" \
  ", %88, %89, %90, %91, %92, %93, %94, %95"
#define CONVT2D_NAMES_128                                          \
  CONVT2D_NAMES_96                                                 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106" \
  ", %107, %108, %109, %110, %111, %112, %113, %114, %115, %116"   \
  ", %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define CONVT2D_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define CONVT2D_SUMS_8(i) CONVT2D_SUMS_4(i), CONVT2D_SUMS_4(i + 4)
#define CONVT2D_SUMS_12(i) CONVT2D_SUMS_8(i), CONVT2D_SUMS_4(i + 8)
#define CONVT2D_SUMS_16(i) CONVT2D_SUMS_8(i), CONVT2D_SUMS_8(i + 8)
#define CONVT2D_SUMS_24(i) CONVT2D_SUMS_16(i), CONVT2D_SUMS_8(i + 16)
#define CONVT2D_SUMS_32(i) CONVT2D_SUMS_16(i), CONVT2D_SUMS_16(i + 16)
#define CONVT2D_SUMS_36(i) CONVT2D_SUMS_32(i), CONVT2D_SUMS_4(i + 32)
#define CONVT2D_SUMS_40(i) CONVT2D_SUMS_36(i), CONVT2D_SUMS_4(i + 36)
#define CONVT2D_SUMS_48(i) CONVT2D_SUMS_32(i), CONVT2D_SUMS_16(i + 32)
#define CONVT2D_SUMS_52(i) CONVT2D_SUMS_48(i), CONVT2D_SUMS_4(i + 48)
#define CONVT2D_SUMS_56(i) CONVT2D_SUMS_52(i), CONVT2D_SUMS_4(i + 52)
#define CONVT2D_SUMS_60(i) CONVT2D_SUMS_52(i), CONVT2D_SUMS_8(i + 52)
#define CONVT2D_SUMS_64(i) CONVT2D_SUMS_32(i), CONVT2D_SUMS_32(i + 32)
#define CONVT2D_SUMS_68(i) CONVT2D_SUMS_64(i), CONVT2D_SUMS_4(i + 64)
#define CONVT2D_SUMS_96(i) CONVT2D_SUMS_64(i), CONVT2D_SUMS_32(i + 64)
#define CONVT2D_SUMS_128(i) CONVT2D_SUMS_64(i), CONVT2D_SUMS_64(i + 64)

#ifdef CONVT2D_HAS_WGMMA
#define CONVT2D_WGMMA(TYPE, SHAPE, NAME, WIDTH, COUNT, TAIL, TURNED, A, B)                  \
  template <>                                                                               \
  struct Wgmma<TYPE, WIDTH, TURNED> {                                                       \
    static __device__ __forceinline__ void add(float (&d)[COUNT], uint64_t a, uint64_t b) { \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #WIDTH SHAPE NAME                    \
                   " {" CONVT2D_NAMES_##COUNT "}, %" A ", %" B ", 1, 1, 1" TAIL ";"         \
                   : CONVT2D_SUMS_##COUNT(0)                                                \
                   : "l"(a), "l"(b));                                                       \
    }                                                                                       \
  };
#define CONVT2D_WGMMA_TURNED(TYPE, NAME, WIDTH, COUNT, A0, A1, A2, A3, B)                    \
  template <>                                                                                \
  struct WgmmaTurned<TYPE, WIDTH> {                                                          \
    static __device__ __forceinline__ void add(float (&d)[COUNT], uint64_t a, uint64_t b) {  \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #WIDTH "k16" NAME                     \
                   " {" CONVT2D_NAMES_##COUNT "}, %" A0 ", %" A1 ", 1, 1, 1, 1, 1;"          \
                   : CONVT2D_SUMS_##COUNT(0)                                                 \
                   : "l"(a), "l"(b));                                                        \
    }                                                                                        \
    static __device__ __forceinline__ void add(float (&d)[COUNT], const uint32_t (&a)[4],    \
                                               uint64_t b) {                                 \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #WIDTH "k16" NAME                     \
                   " {" CONVT2D_NAMES_##COUNT "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B \
                                              ", 1, 1, 1, 1;"                                \
                   : CONVT2D_SUMS_##COUNT(0)                                                 \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
    }                                                                                        \
  };
#define CONVT2D_WGMMA_FETCHED(TYPE, SHAPE, NAME, WIDTH, COUNT, TAIL, A0, A1, A2, A3, B)      \
  template <>                                                                                \
  struct WgmmaFetched<TYPE, WIDTH> {                                                         \
    static __device__ __forceinline__ void add(float (&d)[COUNT], const uint32_t (&a)[4],    \
                                               uint64_t b) {                                 \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #WIDTH SHAPE NAME                     \
                   " {" CONVT2D_NAMES_##COUNT "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B \
                                              ", 1, 1, 1" TAIL ";"                           \
                   : CONVT2D_SUMS_##COUNT(0)                                                 \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
    }                                                                                        \
  };
#define CONVT2D_WGMMA_PARTIAL(WIDTH, COUNT, A0, A1, A2, A3, B, KEEP)                         \
  template <>                                                                                \
  struct WgmmaPartial<WIDTH> {                                                               \
    static __device__ __forceinline__ void add(float (&d)[COUNT], uint64_t a, uint64_t b,    \
                                               bool keep) {                                  \
      asm volatile("{ .reg .pred keep;\n\tsetp.ne.b32 keep, %" A2                            \
                   ", 0;\n\twgmma.mma_async.sync.aligned.m64n" #WIDTH                        \
                   "k8.f32.tf32.tf32"                                                        \
                   " {" CONVT2D_NAMES_##COUNT "}, %" A0 ", %" A1 ", keep, 1, 1; }"           \
                   : CONVT2D_SUMS_##COUNT(0)                                                 \
                   : "l"(a), "l"(b), "r"(int(keep)));                                        \
    }                                                                                        \
    static __device__ __forceinline__ void add(float (&d)[COUNT], const uint32_t (&a)[4],    \
                                               uint64_t b, bool keep) {                      \
      asm volatile("{ .reg .pred keep;\n\tsetp.ne.b32 keep, %" KEEP                          \
                   ", 0;\n\twgmma.mma_async.sync.aligned.m64n" #WIDTH                        \
                   "k8.f32.tf32.tf32"                                                        \
                   " {" CONVT2D_NAMES_##COUNT "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B \
                                              ", keep, 1, 1; }"                              \
                   : CONVT2D_SUMS_##COUNT(0)                                                 \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(keep)));    \
    }                                                                                        \
  };
#else
#define CONVT2D_WGMMA_PARTIAL(WIDTH, COUNT, A0, A1, A2, A3, B, KEEP)                              \
  template <>                                                                                     \
  struct WgmmaPartial<WIDTH> {                                                                    \
    static __device__ __forceinline__ void add(float (&)[COUNT], uint64_t, uint64_t, bool) {}     \
    static __device__ __forceinline__ void add(float (&)[COUNT], const uint32_t (&)[4], uint64_t, \
                                               bool) {}                                           \
  };
#define CONVT2D_WGMMA_FETCHED(TYPE, SHAPE, NAME, WIDTH, COUNT, TAIL, A0, A1, A2, A3, B) \
  template <>                                                                           \
  struct WgmmaFetched<TYPE, WIDTH> {                                                    \
    static __device__ __forceinline__ void add(float (&)[COUNT], const uint32_t (&)[4], \
                                               uint64_t) {}                             \
  };
#define CONVT2D_WGMMA(TYPE, SHAPE, NAME, WIDTH, COUNT, TAIL, TURNED, A, B)              \
  template <>                                                                           \
  struct Wgmma<TYPE, WIDTH, TURNED> {                                                   \
    static __device__ __forceinline__ void add(float (&)[COUNT], uint64_t, uint64_t) {} \
  };
#define CONVT2D_WGMMA_TURNED(TYPE, NAME, WIDTH, COUNT, A0, A1, A2, A3, B)
#endif

#define CONVT2D_WGMMA_WIDTHS(TYPE, SHAPE, NAME, TAIL, TURNED)         \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 8, 4, TAIL, TURNED, "4", "5")      \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 16, 8, TAIL, TURNED, "8", "9")     \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 24, 12, TAIL, TURNED, "12", "13")  \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 32, 16, TAIL, TURNED, "16", "17")  \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 64, 32, TAIL, TURNED, "32", "33")  \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 128, 64, TAIL, TURNED, "64", "65") \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 256, 128, TAIL, TURNED, "128", "129")

CONVT2D_WGMMA_WIDTHS(__half, "k16", ".f32.f16.f16", ", 0, 0", false)
CONVT2D_WGMMA_WIDTHS(__half, "k16", ".f32.f16.f16", ", 0, 1", true)
CONVT2D_WGMMA_WIDTHS(__nv_bfloat16, "k16", ".f32.bf16.bf16", ", 0, 0", false)
CONVT2D_WGMMA_WIDTHS(__nv_bfloat16, "k16", ".f32.bf16.bf16", ", 0, 1", true)
CONVT2D_WGMMA_WIDTHS(float, "k8", ".f32.tf32.tf32", "", false)
CONVT2D_WGMMA(__half, "k16", ".f32.f16.f16", 136, 68, ", 0, 0", false, "68", "69")
CONVT2D_WGMMA(__nv_bfloat16, "k16", ".f32.bf16.bf16", 136, 68, ", 0, 0", false, "68", "69")

// Of braid.
CONVT2D_WGMMA(__half, "k16", ".f32.f16.f16", 192, 96, ", 0, 0", false, "96", "97")
CONVT2D_WGMMA(__nv_bfloat16, "k16", ".f32.bf16.bf16", 192, 96, ", 0, 0", false, "96", "97")
CONVT2D_WGMMA(float, "k8", ".f32.tf32.tf32", 192, 96, "", false, "96", "97")

// Of narrow's ribbons.
#define CONVT2D_WGMMA_RIBBON_WIDTHS(TYPE, SHAPE, NAME, TAIL)        \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 48, 24, TAIL, false, "24", "25") \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 120, 60, TAIL, false, "60", "61")
CONVT2D_WGMMA_RIBBON_WIDTHS(__half, "k16", ".f32.f16.f16", ", 0, 0")
CONVT2D_WGMMA_RIBBON_WIDTHS(__nv_bfloat16, "k16", ".f32.bf16.bf16", ", 0, 0")
CONVT2D_WGMMA_RIBBON_WIDTHS(float, "k8", ".f32.tf32.tf32", "")
#undef CONVT2D_WGMMA_RIBBON_WIDTHS

// A quarter of a multiple of 32 columns more than that.
#define CONVT2D_WGMMA_ODD_WIDTHS(TYPE, SHAPE, NAME, TAIL, TURNED)     \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 72, 36, TAIL, TURNED, "36", "37")  \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 104, 52, TAIL, TURNED, "52", "53") \
  CONVT2D_WGMMA(TYPE, SHAPE, NAME, 136, 68, TAIL, TURNED, "68", "69")
CONVT2D_WGMMA_ODD_WIDTHS(__half, "k16", ".f32.f16.f16", ", 0, 1", true)
CONVT2D_WGMMA_ODD_WIDTHS(__nv_bfloat16, "k16", ".f32.bf16.bf16", ", 0, 1", true)
CONVT2D_WGMMA_ODD_WIDTHS(float, "k8", ".f32.tf32.tf32", "", false)
#undef CONVT2D_WGMMA_ODD_WIDTHS

#define CONVT2D_WGMMA_TURNED_WIDTHS(TYPE, NAME)                            \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 16, 8, "8", "9", "10", "11", "12")      \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 24, 12, "12", "13", "14", "15", "16")   \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 32, 16, "16", "17", "18", "19", "20")   \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 48, 24, "24", "25", "26", "27", "28")   \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 64, 32, "32", "33", "34", "35", "36")   \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 80, 40, "40", "41", "42", "43", "44")   \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 96, 48, "48", "49", "50", "51", "52")   \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 112, 56, "56", "57", "58", "59", "60")  \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 120, 60, "60", "61", "62", "63", "64")  \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 128, 64, "64", "65", "66", "67", "68")  \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 192, 96, "96", "97", "98", "99", "100") \
  CONVT2D_WGMMA_TURNED(TYPE, NAME, 256, 128, "128", "129", "130", "131", "132")

CONVT2D_WGMMA_TURNED_WIDTHS(__half, ".f32.f16.f16")
CONVT2D_WGMMA_TURNED_WIDTHS(__nv_bfloat16, ".f32.bf16.bf16")
CONVT2D_WGMMA_TURNED(__half, ".f32.f16.f16", 136, 68, "68", "69", "70", "71", "72")
CONVT2D_WGMMA_TURNED(__nv_bfloat16, ".f32.bf16.bf16", 136, 68, "68", "69", "70", "71", "72")
CONVT2D_WGMMA_TURNED(__half, ".f32.f16.f16", 72, 36, "36", "37", "38", "39", "40")
CONVT2D_WGMMA_TURNED(__nv_bfloat16, ".f32.bf16.bf16", 72, 36, "36", "37", "38", "39", "40")

#define CONVT2D_WGMMA_FETCHED_WIDTHS(TYPE, SHAPE, NAME, TAIL)                           \
  CONVT2D_WGMMA_FETCHED(TYPE, SHAPE, NAME, 16, 8, TAIL, "8", "9", "10", "11", "12")     \
  CONVT2D_WGMMA_FETCHED(TYPE, SHAPE, NAME, 32, 16, TAIL, "16", "17", "18", "19", "20")  \
  CONVT2D_WGMMA_FETCHED(TYPE, SHAPE, NAME, 64, 32, TAIL, "32", "33", "34", "35", "36")  \
  CONVT2D_WGMMA_FETCHED(TYPE, SHAPE, NAME, 128, 64, TAIL, "64", "65", "66", "67", "68") \
  CONVT2D_WGMMA_FETCHED(TYPE, SHAPE, NAME, 256, 128, TAIL, "128", "129", "130", "131", "132")

CONVT2D_WGMMA_FETCHED_WIDTHS(__half, "k16", ".f32.f16.f16", ", 0")
CONVT2D_WGMMA_FETCHED_WIDTHS(__nv_bfloat16, "k16", ".f32.bf16.bf16", ", 0")
CONVT2D_WGMMA_FETCHED_WIDTHS(float, "k8", ".f32.tf32.tf32", "")
CONVT2D_WGMMA_FETCHED(float, "k8", ".f32.tf32.tf32", 136, 68, "", "68", "69", "70", "71", "72")
CONVT2D_WGMMA_FETCHED(__half, "k16", ".f32.f16.f16", 136, 68, ", 0", "68", "69", "70", "71", "72")
CONVT2D_WGMMA_FETCHED(__nv_bfloat16, "k16", ".f32.bf16.bf16", 136, 68, ", 0", "68", "69", "70",
                      "71", "72")
CONVT2D_WGMMA_FETCHED(float, "k8", ".f32.tf32.tf32", 48, 24, "", "24", "25", "26", "27", "28")
CONVT2D_WGMMA_FETCHED(float, "k8", ".f32.tf32.tf32", 112, 56, "", "56", "57", "58", "59", "60")
CONVT2D_WGMMA_FETCHED(float, "k8", ".f32.tf32.tf32", 120, 60, "", "60", "61", "62", "63", "64")
CONVT2D_WGMMA_FETCHED(float, "k8", ".f32.tf32.tf32", 72, 36, "", "36", "37", "38", "39", "40")
CONVT2D_WGMMA_FETCHED(float, "k8", ".f32.tf32.tf32", 24, 12, "", "12", "13", "14", "15", "16")
CONVT2D_WGMMA_FETCHED(float, "k8", ".f32.tf32.tf32", 96, 48, "", "48", "49", "50", "51", "52")
CONVT2D_WGMMA_FETCHED(__half, "k16", ".f32.f16.f16", 96, 48, ", 0", "48", "49", "50", "51", "52")
CONVT2D_WGMMA_FETCHED(__nv_bfloat16, "k16", ".f32.bf16.bf16", 96, 48, ", 0", "48", "49", "50", "51",
                      "52")
CONVT2D_WGMMA_FETCHED(float, "k8", ".f32.tf32.tf32", 192, 96, "", "96", "97", "98", "99", "100")

CONVT2D_WGMMA_PARTIAL(8, 4, "4", "5", "6", "7", "8", "9")
CONVT2D_WGMMA_PARTIAL(16, 8, "8", "9", "10", "11", "12", "13")
CONVT2D_WGMMA_PARTIAL(24, 12, "12", "13", "14", "15", "16", "17")
CONVT2D_WGMMA_PARTIAL(32, 16, "16", "17", "18", "19", "20", "21")
CONVT2D_WGMMA_PARTIAL(64, 32, "32", "33", "34", "35", "36", "37")
CONVT2D_WGMMA_PARTIAL(96, 48, "48", "49", "50", "51", "52", "53")
CONVT2D_WGMMA_PARTIAL(128, 64, "64", "65", "66", "67", "68", "69")

#undef CONVT2D_WGMMA_PARTIAL
#undef CONVT2D_WGMMA_FETCHED_WIDTHS
#undef CONVT2D_WGMMA_FETCHED
#undef CONVT2D_WGMMA_TURNED_WIDTHS
#undef CONVT2D_WGMMA_TURNED
#undef CONVT2D_WGMMA_WIDTHS
#undef CONVT2D_WGMMA
}  // namespace convt2d::cuda
