// twill: 3 x 3 kernels with stride 2 in 16-bit NCHW on Hopper's tensor cores, forward: pixels as they lie, tap columns of a row
// of y summed apart and added up in registers.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family twill_family;

}  // namespace convt2d::cuda
