// heddle: grad_weight in NCHW of few channels, on tensor cores: operands are registers that a thread fetches once for all
// taps of a kernel row.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family heddle_family;

}  // namespace convt2d::cuda
