// How fp32 may be multiplied at this moment: torch.backends.cudnn.conv.fp32_precision, which only Python can read.
#pragma once

#include "core/types.h"

namespace convt2d {

// ieee where there is no Python (an AOTInductor package in a C++ program).
Precision ambient_precision();

}  // namespace convt2d
