// treadle: grad_weight of few channels and stride 1, sm_90a: several taps, or rows, of 32 channels fill wgmma's 64 rows.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family treadle_family;

}  // namespace convt2d::cuda
