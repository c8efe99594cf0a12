// quilt: grad_weight in NCHW of kernels that are their stride, sm_90a: dY is patches side by side, and a pixel's taps
// of a kernel row are neighbours, which a thread fetches at once.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family quilt_family;

}  // namespace convt2d::cuda
