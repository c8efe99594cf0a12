// skein: grad_weight of depthwise layers, NCHW, bound by moving dY: whole planes by the copy engine, multiplied as they lie.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family skein_family;

}  // namespace convt2d::cuda
