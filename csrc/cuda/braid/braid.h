// braid: grad_weight in NCHW of kernels of one row or one column of taps, sm_90a: rows of x and of dY are rows along K.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family braid_family;

}  // namespace convt2d::cuda
