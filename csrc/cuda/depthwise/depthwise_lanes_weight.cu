// grad_weight, NCHW, through registers.
#include "core/phases.h"
#include "cuda/depthwise/depthwise_lanes_launch.cuh"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::depthwise {
namespace {

template <typename T, int index>
void launch(const Problem& problem, const Args& args, bool early) {
  constexpr LaneKernel kernel = kLaneKernels[index];
  const LaneTile t = lane_tile(problem, kernel);
  float* bias_parts = problem.has_bias
                          ? static_cast<float*>(args.workspace) + t.split * t.tiles * t.part_floats
                          : nullptr;
  const lanes::LaneParams p{geometry_of(problem, args, args.workspace), t, bias_parts};
  lanes::convt2d_depthwise_grad_weight_lanes_kernel<T, kernel.stride, kernel.taps>
      <<<t.blocks, t.threads, t.shared_bytes, static_cast<cudaStream_t>(args.stream)>>>(p);
  check_launch("depthwise lanes, grad_weight");
  launch_weight_sum(problem, t.split * t.tiles, args, early);
  if (problem.has_bias) launch_bias_sum(problem, args, bias_parts, t.split * t.tiles);
}

}  // namespace

bool launch_lanes_grad_weight(const Problem& problem, const Args& args, bool early) {
  return visit_lane_kernel(problem, args, [&](auto element, auto index) {
    launch<decltype(element), decltype(index)::value>(problem, args, early);
  });
}

}  // namespace convt2d::cuda::depthwise
