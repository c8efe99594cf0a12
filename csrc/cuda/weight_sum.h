// Where families cut the reduction of grad_weight: partial sums of dW in the workspace, and their sum.
#pragma once

#include "core/args.h"
#include "core/phases.h"
#include "core/problem.h"

namespace convt2d::cuda {

// Bytes of all pieces together, at most.
constexpr int64_t kWorkspaceLimit = int64_t{32} << 20;

// Bytes of one piece's partial sums, [kh][kw][ci][co] in fp32 and whole vectors.
inline int64_t weight_bytes(const Problem& problem) {
  const int64_t elements =
      problem.in_channels * problem.group_out() * problem.h.kernel * problem.w.kernel;
  return ceil_div(elements, 4) * 16;
}

// Adds up `pieces` partial sums of dW in a fixed order. Reads args.workspace, writes args.w. `early`: the kernel before
// it in the stream wrote the partial sums and may let it start (device/successor.cuh).
void launch_weight_sum(const Problem& problem, int pieces, const Args& args, bool early = false);

}  // namespace convt2d::cuda
