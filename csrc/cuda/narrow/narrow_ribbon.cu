#include "cuda/cuda_check.h"
#include "cuda/narrow/narrow_ribbon.cuh"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::narrow {
namespace {

template <class T>
void launch_ribbons(int ribbon, const RibbonParams& params, const CUtensorMap& map, void* stream) {
  visit_row<sizeof(T) == 4 ? kRibbonCount : kFirstStrictRibbon>(ribbon, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_narrow_ribbon_kernel<T, kRow>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(params.walkers), ribbon_threads(kRibbons[kRow]),
             params.shared_bytes, static_cast<cudaStream_t>(stream)>>>(params, map);
    check_launch("convt2d_narrow_ribbon_kernel");
  });
}

}  // namespace

void launch_ribbon(DType dtype, int ribbon, const RibbonParams& params, const CUtensorMap& map,
                   void* stream) {
  const auto run = dtype == DType::f16    ? launch_ribbons<__half>
                   : dtype == DType::bf16 ? launch_ribbons<__nv_bfloat16>
                                          : launch_ribbons<float>;
  run(ribbon, params, map, stream);
}

}  // namespace convt2d::cuda::narrow
