// mite: layers of few channels that are over before a tile of a GEMM is set up: plain multiply-adds, little code, all
// loads at once.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family mite_family;

}  // namespace convt2d::cuda
