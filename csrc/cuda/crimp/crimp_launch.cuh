// From a Plan's row to its kernel, for one type.
#pragma once

#include "cuda/crimp/crimp_kernel.cuh"
#include "cuda/crimp/crimp_launch.h"
#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::crimp {

template <class T>
void launch_rows(int row, const Params& params, const Maps& maps, void* stream) {
  visit_row<kWidths>(row, [&](auto index) {
    constexpr auto kernel = convt2d_crimp_kernel<T, eights_of(decltype(index)::value)>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(params.walkers), threads_of(params.teams), params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch("convt2d_crimp_kernel");
  });
}

}  // namespace convt2d::cuda::crimp
