// The transposed convolution as plain loops over any strides; never declines.
#pragma once

#include "core/plan.h"

namespace convt2d::cpu {

extern const Family direct_family;

}  // namespace convt2d::cpu
