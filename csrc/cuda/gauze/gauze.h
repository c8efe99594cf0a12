// gauze: kernels of 3 x 3 and 4 x 4 with stride 2 and few input channels in NCHW on Hopper's tensor cores, forward: pixels from
// registers, a shift of them is an address, lanes end up with neighbours of rows of y.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family gauze_family;

}  // namespace convt2d::cuda
