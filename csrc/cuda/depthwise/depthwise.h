// depthwise: group_in == 1, every input channel meets only its own output channels. A vectorised
// gather on the ordinary multiply-add units, bound by memory; fp32 accumulation throughout.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family depthwise_family;

}  // namespace convt2d::cuda
