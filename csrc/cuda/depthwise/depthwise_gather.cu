// Forward and grad_input: tile, dtype, tap block, launch, check.
#include "cuda/depthwise/depthwise_launch.h"
#include "cuda/depthwise/depthwise_pixels_gather.cuh"
#include "cuda/depthwise/depthwise_planes_gather.cuh"

namespace convt2d::cuda::depthwise {
namespace {

template <typename T, int kTaps, bool kPaired>
void launch_planes(const Problem& problem, const Args& args, const Geometry& g) {
  const auto stream = static_cast<cudaStream_t>(args.stream);
  if (problem.direction == Direction::fwd) {
    const planes::ForwardParams p{g, plane_forward_tile(problem, g.h, g.v),
                                  paired(args.x, problem.w.in, problem.dtype)};
    planes::convt2d_depthwise_fwd_kernel<T, kTaps, kPaired>
        <<<p.t.blocks, kThreads, p.t.shared_bytes, stream>>>(p);
  } else {
    const planes::GradInputParams p{g, plane_grad_input_tile(problem, g.h, g.v)};
    planes::convt2d_depthwise_grad_input_kernel<T, kTaps, kPaired>
        <<<p.t.blocks, p.t.threads, p.t.shared_bytes, stream>>>(p);
  }
  check_launch("depthwise gather, NCHW");
}

template <typename T, int kVector, int kTaps>
void launch_pixels(const Problem& problem, const Args& args, const Geometry& g) {
  const auto stream = static_cast<cudaStream_t>(args.stream);
  if (problem.direction == Direction::fwd) {
    const pixels::ForwardParams p{g, pixel_forward_tile(problem, g.h, g.v, kVector)};
    pixels::convt2d_depthwise_fwd_kernel<T, kVector, kTaps>
        <<<p.t.blocks, kThreads, p.t.shared_bytes, stream>>>(p);
  } else {
    const pixels::GradInputParams p{g, pixel_grad_input_tile(problem, g.h, g.v, kVector)};
    pixels::convt2d_depthwise_grad_input_kernel<T, kVector, kTaps>
        <<<p.t.blocks, kThreads, p.t.shared_bytes, stream>>>(p);
  }
  check_launch("depthwise gather, NHWC");
}

template <typename T>
void launch(const Problem& problem, const Args& args) {
  void* result = problem.direction == Direction::fwd ? args.y.data : args.x.data;
  const Geometry g = geometry_of(problem, args, result);
  if (problem.y_layout == Layout::nchw) {
    visit_number<kPlaneTaps>(plane_taps(g.h, g.v), [&](auto taps) {
      if (paired(args.y, problem.w.out, problem.dtype)) {
        launch_planes<T, decltype(taps)::value, true>(problem, args, g);
      } else {
        launch_planes<T, decltype(taps)::value, false>(problem, args, g);
      }
    });
  } else if (const int vector = pixel_vector(problem, args); vector == 1) {
    launch_pixels<T, 1, kPixelTaps>(problem, args, g);
  } else {
    visit_number<kPixelTaps>(pixel_taps(problem, g.h, g.v, vector), [&](auto taps) {
      launch_pixels<T, wide_vector(true, sizeof(T)), decltype(taps)::value>(problem, args, g);
    });
  }
}

}  // namespace

void launch_gather(const Problem& problem, const Args& args) {
  if (is_flipped_forward(problem)) {
    const Problem flipped = flipped_forward(problem);
    return launch_gather(flipped, flipped_args(problem, args));
  }
  switch (problem.dtype) {
    case DType::f16:
      return launch<__half>(problem, args);
    case DType::bf16:
      return launch<__nv_bfloat16>(problem, args);
    default:
      return launch<float>(problem, args);
  }
}

}  // namespace convt2d::cuda::depthwise
