// The CUDA families, in order of preference on equal predicted time. The last one never declines.
#pragma once

#include "core/choose.h"

namespace convt2d::cuda {

FamilyList families();

// Capabilities and calibrated rates of a device of this process; cached. Throws without a driver.
const Device& device(int index);

// A Device by name ("h200", "a100", "rtx4090", ...), for planning without a GPU.
Device invented_device(const char* name);

}  // namespace convt2d::cuda
