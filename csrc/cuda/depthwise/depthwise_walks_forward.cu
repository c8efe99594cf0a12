// Forward, NHWC along rows of y.
#include "cuda/depthwise/depthwise_launch.h"
#include "cuda/depthwise/depthwise_walks.cuh"

namespace convt2d::cuda::depthwise {

bool launch_walks_forward(const Problem& problem, const Args& args) {
  if (!walks_serve(problem, args)) return false;
  const walks::SquareParams p =
      walks::square_params(problem, geometry_of(problem, args, args.y.data), nullptr);
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) <= 4) {
      visit_number<2>(p.t.taps, [&](auto taps) {
        walks::convt2d_depthwise_fwd_walk_kernel<T, decltype(taps)::value>
            <<<p.t.blocks, p.t.threads, 0, static_cast<cudaStream_t>(args.stream)>>>(p);
      });
    }
  });
  check_launch("depthwise walks, forward");
  return true;
}

}  // namespace convt2d::cuda::depthwise
