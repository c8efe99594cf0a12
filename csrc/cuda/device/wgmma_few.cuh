// wgmma of a few columns: 16 bits, the first operand in registers, the second in rows along K (device/wgmma.cuh, where words
// of these widths are).
#pragma once

#include "cuda/device/wgmma.cuh"

namespace convt2d::cuda {

#ifdef CONVT2D_HAS_WGMMA
#define CONVT2D_WGMMA_FEW(TYPE, NAME, WIDTH, COUNT, OPERANDS)                                 \
  template <>                                                                                 \
  struct WgmmaFetched<TYPE, WIDTH> {                                                          \
    static __device__ __forceinline__ void add(float (&d)[COUNT], const uint32_t (&a)[4],     \
                                               uint64_t b) {                                  \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #WIDTH "k16" NAME                      \
                   " {" CONVT2D_NAMES_##COUNT "}, " OPERANDS ", 1, 1, 1, 0;"                  \
                   : CONVT2D_SUMS_##COUNT(0)                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                     \
    }                                                                                         \
  };
#define CONVT2D_WGMMA_FEW_WIDTHS(TYPE, NAME)                               \
  CONVT2D_WGMMA_FEW(TYPE, NAME, 16, 8, "{%8, %9, %10, %11}, %12")          \
  CONVT2D_WGMMA_FEW(TYPE, NAME, 24, 12, "{%12, %13, %14, %15}, %16")       \
  CONVT2D_WGMMA_FEW(TYPE, NAME, 32, 16, "{%16, %17, %18, %19}, %20")

CONVT2D_WGMMA_FEW_WIDTHS(__half, ".f32.f16.f16")
CONVT2D_WGMMA_FEW_WIDTHS(__nv_bfloat16, ".f32.bf16.bf16")

#undef CONVT2D_WGMMA_FEW_WIDTHS
#undef CONVT2D_WGMMA_FEW
#endif

}  // namespace convt2d::cuda
