// direct: implicit GEMM on the ordinary multiply-add units. Every dtype, geometry, stride and size,
// on every GPU: the family that never declines.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family direct_family;

}  // namespace convt2d::cuda
