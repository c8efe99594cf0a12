// plait: 16-bit NCHW grad_input on Hopper's tensor cores: what each tap reads of dY is written out once, for all channels.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family plait_family;

}  // namespace convt2d::cuda
