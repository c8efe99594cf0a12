// reed: forward of kernels with many taps or long strides, on tensor cores: weights as they lie are rows of the GEMM, all
// phases of the stride at once.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family reed_family;

}  // namespace convt2d::cuda
