// purl: grad_input of short, even kernel rows in NCHW on Hopper's tensor cores: dY and w as they lie, lanes fetch words of dY that
// are neighbouring taps.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family purl_family;

}  // namespace convt2d::cuda
