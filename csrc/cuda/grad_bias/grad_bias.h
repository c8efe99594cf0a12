// The bias gradient: bias[co] = sum over n, h, w of y[n, co, h, w], in an order fixed by the shape. Any type and strides, any
// GPU. It reads args.y, and writes args.bias. Families of grad_weight that do not sum as they go let it follow them.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

// Of args.workspace. Follows from the shape, so a captured graph can replay it.
int64_t grad_bias_workspace_bytes(const Problem& problem);
void launch_grad_bias(const Problem& problem, const Args& args);

// Its time: two launches of `launch_us` and one reading of dY.
constexpr double kGradBiasLaunch = 5;
double grad_bias_us(const Problem& problem, const Device& device,
                    double launch_us = kGradBiasLaunch);

// What it adds to a plan of grad_weight, if wanted: workspace, which the launches share, and time.
void add_grad_bias(const Problem& problem, const Device& device, double launch_us, Plan& plan);

}  // namespace convt2d::cuda
