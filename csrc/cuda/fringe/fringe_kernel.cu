#include "cuda/cuda_check.h"
#include "cuda/fringe/fringe_kernel.cuh"
#include "cuda/fringe/fringe_launch.h"
#include "cuda/fringe/fringe_plan.h"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::fringe {
namespace {

template <class M>
void launch(int row, const Params& params, const Maps& maps, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRowIndex = decltype(index)::value;
    if constexpr (exists<typename M::Element>(kTiles[kRowIndex])) {
      constexpr auto kernel = convt2d_fringe_grad_weight_kernel<M, kRowIndex>;
      allow_shared_memory<kernel>(params.shared_bytes);
      kernel<<<static_cast<unsigned>(blocks_of(params)), kThreads, params.shared_bytes,
               static_cast<cudaStream_t>(stream)>>>(params, maps);
      check_launch("convt2d_fringe_grad_weight_kernel");
    }
  });
}

}  // namespace

void launch_f16(int row, const Params& params, const Maps& maps, void* stream) {
  launch<MmaF16>(row, params, maps, stream);
}
void launch_bf16(int row, const Params& params, const Maps& maps, void* stream) {
  launch<MmaBF16>(row, params, maps, stream);
}
void launch_tf32(int row, const Params& params, const Maps& maps, void* stream) {
  launch<MmaTF32>(row, params, maps, stream);
}

}  // namespace convt2d::cuda::fringe
