// crimp: kernels of one column and two strides' rows in 16-bit and TF32 NCHW on Hopper's tensor cores, forward: pleat's GEMM of
// operands as they lie, row by row of x.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family crimp_family;

}  // namespace convt2d::cuda
