// tuft: NCHW forward of kernels that are their stride on Hopper's tensor cores: x and w as they lie, whatever planes of x are.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family tuft_family;

}  // namespace convt2d::cuda
