// direct: implicit GEMM on the ordinary multiply-add units. Every dtype, geometry, stride and size,
// on every GPU: the family that never declines.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family direct_family;

// The bias gradient alone: bias[co] = sum over n, h, w of y[n, co, h, w]. Reads args.y, writes
// args.bias. The size of args.workspace follows from the shape, so a captured graph can replay it.
int64_t grad_bias_workspace_bytes(const Problem& problem);
void launch_grad_bias(const Problem& problem, const Args& args);

// What it adds to a plan of grad_weight, if wanted: workspace, which the launches share, and time, two launches of
// `launch_us` and one reading of dY.
void add_grad_bias(const Problem& problem, const Device& device, double launch_us, Plan& plan);

}  // namespace convt2d::cuda
