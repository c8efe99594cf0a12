// hopper: implicit GEMM on Hopper's warpgroup tensor cores (wgmma, sm_90a).
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family hopper_family;

}  // namespace convt2d::cuda
