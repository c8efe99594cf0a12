// fan: TF32 NCHW forward on Hopper's tensor cores; a pixel is fetched once for all phases of the result that read it.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family fan_family;

}  // namespace convt2d::cuda
