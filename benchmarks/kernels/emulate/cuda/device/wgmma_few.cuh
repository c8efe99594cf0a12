// Widths are no matter on a CPU.
#pragma once

#include "cuda/device/wgmma.cuh"
