#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/spread/spread_input.cuh"
#include "cuda/visit_row.h"

namespace convt2d::cuda::spread {
namespace {

template <class T>
void launch_rows(int row, const InputParams& params, const CUtensorMap& map, void* stream) {
  visit_row<kInputTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_spread_input_kernel<T, kRow>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(params.walkers), kThreads, params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, map);
    check_launch("convt2d_spread_input_kernel");
  });
}

}  // namespace

void launch_input(DType dtype, int row, const InputParams& params, const CUtensorMap& map,
                  void* stream) {
  const auto run = dtype == DType::f16    ? launch_rows<__half>
                   : dtype == DType::bf16 ? launch_rows<__nv_bfloat16>
                                          : launch_rows<float>;
  run(row, params, map, stream);
}

}  // namespace convt2d::cuda::spread
