// hank: grad_weight of depthwise layers, channels last, on tensor cores, of whose products the diagonals are wanted.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family hank_family;

}  // namespace convt2d::cuda
