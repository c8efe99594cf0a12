// pleat: 4 x 4 kernels with stride 2 in 16-bit NCHW on Hopper's tensor cores, forward: a GEMM of operands as they lie, whose
// products add up to outputs in registers.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family pleat_family;

}  // namespace convt2d::cuda
