// igemm: implicit GEMM on tensor cores through mma.sync (sm_80 and up).
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family igemm_family;

}  // namespace convt2d::cuda
