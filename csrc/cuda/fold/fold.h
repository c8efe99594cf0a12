// fold: 16-bit NCHW forward on Hopper's tensor cores, operands as they lie in memory; shared memory adds the taps up.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family fold_family;

}  // namespace convt2d::cuda
