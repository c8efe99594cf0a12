// grad_input, NHWC, along rows of dY.
#include "cuda/depthwise/depthwise_launch.h"
#include "cuda/depthwise/depthwise_walks.cuh"

namespace convt2d::cuda::depthwise {
namespace {

template <typename T, int kTaps, int kPhases>
void launch(const walks::InputParams& p, void* stream) {
  walks::convt2d_depthwise_grad_input_walk_kernel<T, kTaps, kPhases>
      <<<p.t.blocks, p.t.threads, p.t.shared_bytes, static_cast<cudaStream_t>(stream)>>>(p);
  check_launch("depthwise walks, grad_input");
}

template <typename T>
void launch(const walks::InputParams& p, void* stream) {
  if (p.t.phases == 1) return launch<T, 2, 1>(p, stream);
  visit_number<kMostWalkTaps>(p.t.taps,
                              [&](auto taps) { launch<T, decltype(taps)::value, 2>(p, stream); });
}

}  // namespace

bool launch_walks_grad_input(const Problem& problem, const Args& args) {
  if (!walks_serve(problem, args)) return false;
  const walks::InputParams p =
      walks::input_params(problem, geometry_of(problem, args, args.x.data));
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) <= 4) launch<T>(p, args.stream);
  });
  return true;
}

}  // namespace convt2d::cuda::depthwise
