// Forward and grad_input: tile, dtype, tap block, launch, check.
#include "core/phases.h"
#include "cuda/depthwise/depthwise_launch.h"
#include "cuda/depthwise/depthwise_pixels_gather.cuh"
#include "cuda/depthwise/depthwise_planes_gather.cuh"
#include "cuda/depthwise/depthwise_strips.cuh"

namespace convt2d::cuda::depthwise {
namespace {

template <typename T, int kTaps, bool kPaired>
void launch_planes(const Problem& problem, const Args& args, const Geometry& g) {
  const auto stream = static_cast<cudaStream_t>(args.stream);
  if (problem.direction == Direction::fwd) {
    // Never asked for fewer taps: plane_taps().
    constexpr int kForward = std::max(kTaps, sizeof(T) == 4 ? 3 : 2);
    const planes::ForwardParams p{g, plane_forward_tile(problem, g.h, g.v),
                                  paired(args.x, problem.w.in, problem.dtype)};
    planes::convt2d_depthwise_fwd_kernel<T, kForward, kPaired>
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

template <typename T, int index>
void launch_strip(const Problem& problem, const Args& args, const Geometry& g) {
  constexpr StripKernel kernel = strip_kernels<sizeof(T)>()[index];
  const int x_unit = aligned(args.x, 8, problem.dtype)   ? 8
                     : aligned(args.x, 4, problem.dtype) ? 4
                                                         : 1;
  const auto lacks_taps = [&](const ClassAxis& a) {
    return std::any_of(a.phases, a.phases + a.stride,
                       [&](const Phase& phase) { return phase.taps < kernel.taps; });
  };
  const bool padded = lacks_taps(g.h) || lacks_taps(g.v);
  const bool centred = strip_centred(g.h, g.v, kernel, x_unit) && (kernel.span > 1 || !padded);
  const StripTile t = strip_tile(problem, g.h, g.v, kernel, centred);
  const int64_t bytes = sizeof(T);
  const strips::ForwardParams p{g,
                                t,
                                g.h.period,
                                centred,
                                padded,
                                g.x_stride[0] * bytes,
                                g.x_stride[1] * bytes,
                                g.v.in * g.h.reach * bytes,
                                g.y_stride[0] * bytes,
                                g.y_stride[1] * bytes,
                                g.v.out * g.h.period * bytes};
  strips::convt2d_depthwise_fwd_strip_kernel<T, kernel.run, kernel.span, kernel.taps>
      <<<t.blocks, t.threads, t.shared_bytes, static_cast<cudaStream_t>(args.stream)>>>(p);
  check_launch("depthwise strips, NCHW");
}

template <typename T>
bool launch_strips(const Problem& problem, const Args& args, const Geometry& g) {
  constexpr int kernels = int(strip_kernels<sizeof(T)>().size());
  int run = 16 / sizeof(T);
  while (run > 1 && !aligned(args.y, run, problem.dtype)) run /= 2;
  const int index = strip_kernel(problem, g.h, g.v, run);
  if (index < 0) return false;
  visit_number<kernels>(index + 1, [&](auto number) {
    launch_strip<T, decltype(number)::value - 1>(problem, args, g);
  });
  return true;
}

template <typename T>
void launch(const Problem& problem, const Args& args) {
  void* result = problem.direction == Direction::fwd ? args.y.data : args.x.data;
  const Geometry g = geometry_of(problem, args, result);
  if (launch_strips<T>(problem, args, g)) return;
  if (problem.y_layout == Layout::nchw) {
    visit_number<kPlaneTaps>(plane_taps(problem, g.h, g.v), [&](auto taps) {
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
