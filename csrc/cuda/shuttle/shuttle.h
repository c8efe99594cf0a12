// shuttle: 16-bit NCHW grad_weight, sm_90a: each row of dY is turned once in shared memory, for all taps that read it.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family shuttle_family;

}  // namespace convt2d::cuda
