// comb: grad_weight in NCHW of kernel rows and strides that are multiples of four, on tensor cores: taps that lie side
// by side in dY are columns of the GEMM.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family comb_family;

}  // namespace convt2d::cuda
