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

// Of operands of 16 bits that are multiplied as they lie, in boxes of `numbers` of each of `depth` channels. Channels of `row` bytes:
// number, channel, group, image.
inline CUtensorMap encode_channels(const void* base, int64_t row, int64_t channels, int64_t groups,
                                   int64_t images, int32_t numbers, int32_t depth) {
  return encode({base,
                 2,
                 4,
                 {row / 2, channels, groups, images},
                 {2, row, row * channels, row * channels * groups},
                 {numbers, depth, 1, 1},
                 {1, 1, 1, 1}});
}
// Channels of rows of so many pixels: pixel, row, channel, plane of these. The same of words, of `size` 4.
inline CUtensorMap encode_rows(const void* base, int64_t pixels, int64_t rows, int64_t channels,
                               int64_t planes, int32_t numbers, int32_t depth, int32_t size = 2) {
  const int64_t row = pixels * size, channel = row * rows;
  return encode({base,
                 size,
                 4,
                 {pixels, rows, channels, planes},
                 {size, row, channel, channel * channels},
                 {numbers, 1, depth, 1},
                 {1, 1, 1, 1}});
}

}  // namespace convt2d::cuda
