// What the copy engine is told about a tensor: its axes, the box that one copy brings, and how the box lies in
// shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace convt2d::cuda {

// Of a TensorBox, along any axis: from one element to the next, and from end to end, what is skipped included.
constexpr int kMostStep = 8, kMostSpan = 256;

// Axis 0 is the contiguous one. In shared memory a box is rows of it, swizzled if `swizzled`: then they have 32, 64 or
// 128 bytes.
//
// The copy engine takes twice the time for a row that starts elsewhere in 32 bytes of memory than in 32 bytes of shared memory
// (benchmarks/log/grad-weight.md): of rows that lie an odd number of 16 bytes apart every second one does, of boxes that start at
// an odd number of these all may.
struct TensorBox {
  const void* base;
  int element_bytes;
  int axes;
  int64_t extent[5];
  int64_t stride[5];  // bytes
  int32_t count[5];   // elements of a box
  int32_t step[5];    // from one to the next
  bool swizzled = true;
  bool rounded = true;  // fp32, to TF32 on its way
};

// Throws if the driver refuses.
CUtensorMap encode(const TensorBox& box);

}  // namespace convt2d::cuda
