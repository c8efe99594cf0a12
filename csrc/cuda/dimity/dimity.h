// dimity: grad_weight of few channels of a group, bound by moving dY: whole rows of it by the copy engine, of which a warp has
// all taps in registers.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family dimity_family;

}  // namespace convt2d::cuda
