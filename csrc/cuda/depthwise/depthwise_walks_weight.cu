// grad_weight, NHWC, along rows of dY.
#include "cuda/depthwise/depthwise_launch.h"
#include "cuda/depthwise/depthwise_walks.cuh"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::depthwise {

bool launch_walks_grad_weight(const Problem& problem, const Args& args, bool early) {
  if (!walks_serve(problem, args)) return false;
  const WalkSquareTile t = walk_square_tile(problem);
  float* bias_parts =
      problem.has_bias ? static_cast<float*>(args.workspace) + t.split * t.part_floats : nullptr;
  const walks::SquareParams p =
      walks::square_params(problem, geometry_of(problem, args, args.workspace), bias_parts);
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) <= 4) {
      visit_number<2>(t.taps, [&](auto taps) {
        walks::convt2d_depthwise_grad_weight_walk_kernel<T, decltype(taps)::value>
            <<<t.blocks, t.threads, t.shared_bytes, static_cast<cudaStream_t>(args.stream)>>>(p);
      });
    }
  });
  check_launch("depthwise walks, grad_weight");
  launch_weight_sum(problem, t.split, args, early);
  if (problem.has_bias) launch_bias_sum(problem, args, bias_parts, t.split);
  return true;
}

}  // namespace convt2d::cuda::depthwise
