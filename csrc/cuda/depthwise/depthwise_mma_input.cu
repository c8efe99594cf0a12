// grad_input, 16-bit NCHW, on tensor cores.
#include "cuda/depthwise/depthwise_lanes_launch.cuh"
#include "cuda/depthwise/depthwise_mma.cuh"

namespace convt2d::cuda::depthwise {
namespace {

template <typename T, int index>
void launch(const Problem& problem, const Args& args) {
  constexpr LaneKernel kernel = kLaneKernels[index];
  if constexpr (on_mma(kernel, sizeof(T))) {
    const LaneTile t = mma_tile(problem);
    const lanes::LaneParams p{geometry_of(problem, args, args.x.data), t, nullptr};
    lanes::convt2d_depthwise_grad_input_mma_kernel<T, kernel.stride>
        <<<t.blocks, t.threads, 0, static_cast<cudaStream_t>(args.stream)>>>(p);
    check_launch("depthwise mma, grad_input");
  }
}

}  // namespace

bool launch_mma_grad_input(const Problem& problem, const Args& args) {
  return mma_kernel(problem) >= 0 &&
         visit_lane_kernel(problem, args, [&](auto element, auto index) {
           launch<decltype(element), decltype(index)::value>(problem, args);
         });
}

}  // namespace convt2d::cuda::depthwise
