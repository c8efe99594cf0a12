// grad_weight, NCHW, through registers.
#include "core/phases.h"
#include "cuda/depthwise/depthwise_lanes.cuh"
#include "cuda/depthwise/depthwise_launch.h"
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
  const int index = lane_kernel(problem), unit = 16 / int(element_size(problem.dtype));
  if (index < 0 || !aligned(args.x, unit, problem.dtype) || !aligned(args.y, unit, problem.dtype)) {
    return false;
  }
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) <= 4) {
      visit_number<int(kLaneKernels.size())>(index + 1, [&](auto number) {
        launch<T, decltype(number)::value - 1>(problem, args, early);
      });
    }
  });
  return true;
}

}  // namespace convt2d::cuda::depthwise
