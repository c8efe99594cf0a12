// spread: channels-last forward on Hopper's tensor cores, whatever the channels; kernel rows add up in them, columns afterwards.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family spread_family;

}  // namespace convt2d::cuda
