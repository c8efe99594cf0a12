// What the launchers of this family share.
#pragma once

#include <type_traits>

#include "core/args.h"
#include "core/plan.h"
#include "cuda/cuda_check.h"
#include "cuda/depthwise/depthwise_pixels.h"
#include "cuda/depthwise/depthwise_planes.h"
#include "cuda/depthwise/depthwise_walks.h"

namespace convt2d::cuda::depthwise {

void launch_gather(const Problem& problem, const Args& args);  // forward and grad_input
void launch_grad_weight(const Problem& problem, const Args& args);

// What keeps y, or dY, in registers: lanes (NCHW) and walks (NHWC). False where the alignment of pointers, or
// the problem, does not allow it. `early`: on a GPU where the second pass of grad_weight may start before the
// first has ended.
bool launch_lanes_forward(const Problem& problem, const Args& args);
bool launch_lanes_grad_input(const Problem& problem, const Args& args);
bool launch_lanes_grad_weight(const Problem& problem, const Args& args, bool early);
bool launch_mma_grad_input(const Problem& problem, const Args& args);
bool launch_walks_forward(const Problem& problem, const Args& args);
bool launch_walks_grad_input(const Problem& problem, const Args& args);
bool launch_walks_grad_weight(const Problem& problem, const Args& args, bool early);

// The bias gradient from `pieces` partial sums, [piece][C_out].
void launch_bias_sum(const Problem& problem, const Args& args, const float* parts, int pieces);

// Args and Problem become what the kernels see. `result` is what the direction writes.
Geometry geometry_of(const Problem& problem, const Args& args, void* result);

// With stride 1 and one output a channel, grad_input is the forward of the kernel turned by 180 degrees;
// the forward kernels do it with less work.
inline bool is_flipped_forward(const Problem& problem) {
  return problem.direction == Direction::grad_input && problem.h.stride == 1 &&
         problem.w.stride == 1 && problem.group_out() == 1;
}

Problem flipped_forward(const Problem& problem);
Args flipped_args(const Problem& problem, const Args& args);

// Whether the tensor starts at a multiple of `elements`.
inline bool aligned(const TensorRef& tensor, int64_t elements, DType dtype) {
  return reinterpret_cast<uintptr_t>(tensor.data) % (elements * element_size(dtype)) == 0;
}

// Whether every row of a contiguous tensor allows access to kPair elements at once.
inline bool paired(const TensorRef& tensor, int64_t row, DType dtype) {
  return row % kPair == 0 && aligned(tensor, kPair, dtype);
}

// Whether both x and y do, or their gradients.
inline bool both_aligned(const Problem& problem, const Args& args, int64_t elements) {
  return aligned(args.x, elements, problem.dtype) && aligned(args.y, elements, problem.dtype);
}

// Channels a thread owns, given the pointers of this call.
inline int pixel_vector(const Problem& problem, const Args& args) {
  const int vector = pixel_vector(problem);
  return both_aligned(problem, args, vector) ? vector : 1;
}

// Whether walks serve this call.
inline bool walks_serve(const Problem& problem, const Args& args) {
  return walks_serve(problem) &&
         both_aligned(problem, args, walk_vector(int(element_size(problem.dtype))));
}

// Calls visit(integral constant) with the compile-time value of a number in [1, widest].
template <int widest, typename Visitor>
void visit_number(int value, Visitor&& visit) {
  if constexpr (widest > 1) {
    if (value < widest) return visit_number<widest - 1>(value, visit);
  }
  visit(std::integral_constant<int, widest>{});
}

}  // namespace convt2d::cuda::depthwise
