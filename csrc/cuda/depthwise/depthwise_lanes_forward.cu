// Forward, NCHW with y in registers.
#include "cuda/depthwise/depthwise_lanes.cuh"
#include "cuda/depthwise/depthwise_launch.h"

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
  const int index = lane_kernel(problem), unit = 16 / int(element_size(problem.dtype));
  if (index < 0 || !aligned(args.x, unit, problem.dtype) || !aligned(args.y, unit, problem.dtype)) {
    return false;
  }
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) <= 4) {
      visit_number<int(kLaneKernels.size())>(
          index + 1, [&](auto number) { launch<T, decltype(number)::value - 1>(problem, args); });
    }
  });
  return true;
}

}  // namespace convt2d::cuda::depthwise
