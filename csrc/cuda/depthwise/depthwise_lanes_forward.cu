// Forward, NCHW with y in registers.
#include "cuda/depthwise/depthwise_lanes_launch.cuh"

namespace convt2d::cuda::depthwise {
namespace {

template <typename T, int index>
void launch(const Problem& problem, const Args& args) {
  constexpr LaneKernel kernel = kLaneKernels[index];
  const LaneTile t = lane_tile(problem, kernel);
  const lanes::LaneParams p{geometry_of(problem, args, args.y.data), t, nullptr};
  lanes::convt2d_depthwise_fwd_lanes_kernel<T, kernel.stride, kernel.taps>
      <<<t.blocks, t.threads, 0, static_cast<cudaStream_t>(args.stream)>>>(p);
  check_launch("depthwise lanes, forward");
}

}  // namespace

bool launch_lanes_forward(const Problem& problem, const Args& args) {
  return visit_lane_kernel(problem, args, [&](auto element, auto index) {
    launch<decltype(element), decltype(index)::value>(problem, args);
  });
}

}  // namespace convt2d::cuda::depthwise
