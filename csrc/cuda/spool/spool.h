// spool: 16-bit NCHW grad_weight by way of channels last, see spool_config.h.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family spool_family;

}  // namespace convt2d::cuda
