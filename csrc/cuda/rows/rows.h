// rows: NCHW forward that is bound by writing y: a block computes all phases of a stretch of rows of y and writes it whole.
#pragma once

#include "core/plan.h"

namespace convt2d::cuda {

extern const Family rows_family;

}  // namespace convt2d::cuda
