// fringe: grad_weight in NCHW of few output channels and taps together, sm_90a: x goes from memory to the tensor core as it
// lies, and what little dY there is is written out for it, tap by tap.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family fringe_family;

}  // namespace convt2d::cuda
