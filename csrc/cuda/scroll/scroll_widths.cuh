// Instructions as wide as scroll's columns, beside those of device/wgmma.cuh.
#pragma once

#include "cuda/device/wgmma.cuh"

#ifndef CONVT2D_EMULATED  // there they have any width
namespace convt2d::cuda {

#define CONVT2D_SCROLL_NAMES_56 \
  CONVT2D_NAMES_48              \
  ", %48, %49, %50, %51, %52, %53, %54, %55"
#define CONVT2D_SCROLL_NAMES_48 CONVT2D_NAMES_48
#define CONVT2D_SCROLL_NAMES_80                                  \
  CONVT2D_NAMES_64                                               \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75" \
  ", %76, %77, %78, %79"
#define CONVT2D_SCROLL_NAMES_120                                   \
  CONVT2D_NAMES_96                                                 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106" \
  ", %107, %108, %109, %110, %111, %112, %113, %114, %115, %116"   \
  ", %117, %118, %119"
#define CONVT2D_SCROLL_SUMS_48 CONVT2D_SUMS_48(0)
#define CONVT2D_SCROLL_SUMS_56 CONVT2D_SUMS_48(0), CONVT2D_SUMS_8(48)
#define CONVT2D_SCROLL_SUMS_80 CONVT2D_SUMS_64(0), CONVT2D_SUMS_16(64)
#define CONVT2D_SCROLL_SUMS_120 CONVT2D_SUMS_96(0), CONVT2D_SUMS_24(96)

#ifdef CONVT2D_HAS_WGMMA
#define CONVT2D_SCROLL_WGMMA(TYPE, NAME, TAIL, WIDTH, COUNT, A, B)                          \
  template <>                                                                               \
  struct Wgmma<TYPE, WIDTH, false> {                                                        \
    static __device__ __forceinline__ void add(float (&d)[COUNT], uint64_t a, uint64_t b) { \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #WIDTH NAME                          \
                   " {" CONVT2D_SCROLL_NAMES_##COUNT "}, %" A ", %" B ", 1, 1, 1" TAIL ";"  \
                   : CONVT2D_SCROLL_SUMS_##COUNT                                            \
                   : "l"(a), "l"(b));                                                       \
    }                                                                                       \
  };
#else
#define CONVT2D_SCROLL_WGMMA(TYPE, NAME, TAIL, WIDTH, COUNT, A, B)                      \
  template <>                                                                           \
  struct Wgmma<TYPE, WIDTH, false> {                                                    \
    static __device__ __forceinline__ void add(float (&)[COUNT], uint64_t, uint64_t) {} \
  };
#endif
#define CONVT2D_SCROLL_WIDTHS(TYPE, NAME, TAIL)               \
  CONVT2D_SCROLL_WGMMA(TYPE, NAME, TAIL, 96, 48, "48", "49")  \
  CONVT2D_SCROLL_WGMMA(TYPE, NAME, TAIL, 112, 56, "56", "57") \
  CONVT2D_SCROLL_WGMMA(TYPE, NAME, TAIL, 160, 80, "80", "81") \
  CONVT2D_SCROLL_WGMMA(TYPE, NAME, TAIL, 240, 120, "120", "121")
CONVT2D_SCROLL_WIDTHS(__half, "k16.f32.f16.f16", ", 0, 0")
CONVT2D_SCROLL_WIDTHS(__nv_bfloat16, "k16.f32.bf16.bf16", ", 0, 0")
CONVT2D_SCROLL_WIDTHS(float, "k8.f32.tf32.tf32", "")
#undef CONVT2D_SCROLL_WIDTHS
#undef CONVT2D_SCROLL_WGMMA

}  // namespace convt2d::cuda
#endif
