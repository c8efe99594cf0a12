// strand: grad_input of few outputs and long sums, on tensor cores: both operands are copied as they lie along the
// reduction, which teams of warps and the blocks of a cluster share.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family strand_family;

}  // namespace convt2d::cuda
