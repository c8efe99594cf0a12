// weft: 16-bit grad_weight in NCHW, sm_90a: pixels are turned once for all taps, so that wgmma reads both operands as rows
// of channels and a tap is an address.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family weft_family;

}  // namespace convt2d::cuda
