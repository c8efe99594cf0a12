// scroll: channels-last forward, and grad_input of stride 1, of few channels on Hopper's tensor cores: strips of pixels from
// above to below, each multiplied once for all kernel rows.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family scroll_family;

}  // namespace convt2d::cuda
