// loom: fp16, bf16 and fp32 NCHW forward and grad_input on Hopper's tensor cores, whose rows are channels of the result:
// weights are fetched as they lie, pixels are turned once for all taps.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family loom_family;

}  // namespace convt2d::cuda
