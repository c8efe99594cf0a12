// ticking: NCHW grad_input of few channels of a group, bound by reading dY: whole rows come by bulk copies, and sums of the rows
// of x that share a line stay in registers.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family ticking_family;

}  // namespace convt2d::cuda
