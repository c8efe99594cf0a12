#include "cuda/crimp/crimp_launch.h"
#include "cuda/crimp/crimp_words.cuh"
#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::crimp {

void launch_tf32(int row, const Params& params, const Maps& maps, void* stream) {
  visit_row<kColumnWidths>(row, [&](auto index) {
    constexpr auto kernel = convt2d_crimp_words_kernel<columns_of(decltype(index)::value)>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(params.walkers), threads_of(params.teams), params.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(params, maps);
    check_launch("convt2d_crimp_words_kernel");
  });
}

}  // namespace convt2d::cuda::crimp
