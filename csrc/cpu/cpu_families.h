// The CPU has one family: `direct`, the readable definition of the operator.
#pragma once

#include "core/choose.h"

namespace convt2d::cpu {

FamilyList families();
const Device& device();

// The bias gradient alone, args.bias[co] = sum of args.y over batch and pixels. Reads batch,
// out_channels, h.out, w.out and dtype of the problem.
void grad_bias(const Problem& problem, const Args& args);

// How many threads a loop may use: OMP_NUM_THREADS where it is set, else what the machine has.
int threads();

}  // namespace convt2d::cpu
