// The floor: the time below which no implementation can go, and the yardstick of every benchmark.
//
//   memory  = bytes of x, w and y, each moved once / rate of a device-to-device copy
//   compute = multiply-adds that touch real data, each done once / rate of a large matmul
//   floor   = the larger of the two
//
// What is *not* in it: bias (C_out numbers), partial sums of a split reduction, launch latency.
// Strict f32 counts a third of the tf32 rate where that is faster than the CUDA cores, since three
// tf32 products recover f32 accuracy.
#pragma once

#include "core/plan.h"
#include "core/problem.h"

namespace convt2d {

struct Floor {
  double memory_us, compute_us;

  double us() const { return memory_us > compute_us ? memory_us : compute_us; }
  const char* limit() const { return memory_us > compute_us ? "memory" : "compute"; }
};

// Multiply-adds per microsecond of a large matmul in the problem's arithmetic.
double matmul_rate(DType dtype, Precision precision, const Device& device);

Floor floor_of(const Problem& problem, const Device& device);

}  // namespace convt2d
