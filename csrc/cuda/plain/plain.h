// plain: 1 x 1 kernels in 16-bit NCHW on Hopper's tensor cores, all three passes: planes are rows of a matrix, multiplied as
// they lie.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family plain_family;

}  // namespace convt2d::cuda
