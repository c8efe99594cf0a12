// narrow: forward to a few output channels on Hopper's tensor cores; kernel rows add up in them, columns afterwards. Their
// grad_weight as well.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family narrow_family;

}  // namespace convt2d::cuda
