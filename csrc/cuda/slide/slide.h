// slide: 16-bit NCHW with short kernel rows on Hopper's tensor cores, operands as they lie; kernel columns slide together.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family slide_family;

}  // namespace convt2d::cuda
