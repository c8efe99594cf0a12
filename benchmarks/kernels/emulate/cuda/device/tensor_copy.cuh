// cuda/device/tensor_copy.cuh on a CPU: a box arrives at once. A map is a TensorBox of its own kind (emulate.cpp).
#pragma once

#include <vector>

#include "cuda/tensor_map.h"

namespace convt2d::cuda {

inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  emulate::barrier_expect(barrier, bytes);
}

inline void prefetch_map(const CUtensorMap*) {}

inline std::vector<TensorBox> tensor_boxes;  // by what their maps hold
CUtensorMap encode(const TensorBox& box) {
  const int row = box.count[0] * box.element_bytes;
  if (reinterpret_cast<uintptr_t>(box.base) % 16 != 0) emulate::fail("a tensor that is misaligned");
  if (row % 16 != 0) emulate::fail("rows that are not whole vectors");
  if (box.swizzled && row != 32 && row != 64 && row != 128)
    emulate::fail("rows that the copy engine cannot swizzle");
  for (int i = 0; i < box.axes; ++i) {
    if (box.extent[i] < 1 || box.extent[i] > int64_t{1} << 32 || box.count[i] < 1)
      emulate::fail("an axis the copy engine cannot take");
    if ((box.count[i] - 1) * box.step[i] + 1 > kMostSpan) emulate::fail("a box that is too long");
    if (box.step[i] > kMostStep) emulate::fail("a box that steps too far");
    if (i > 0 &&
        (box.stride[i] < 0 || box.stride[i] >= int64_t{1} << 40 || box.stride[i] % 16 != 0))
      emulate::fail("a stride the copy engine cannot take");
  }
  CUtensorMap map{};
  const size_t index = tensor_boxes.size();
  tensor_boxes.push_back(box);
  std::memcpy(&map, &index, sizeof index);
  return map;
}

inline void copy_box(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int a, int b, int c,
                     int d, int e = 0) {
  size_t index;
  std::memcpy(&index, map, sizeof index);
  const TensorBox& box = tensor_boxes.at(index);
  const int first[] = {a, b, c, d, e};
  if (a * box.element_bytes % 16 != 0) emulate::fail("a box that starts between 16 bytes");
  if (shared % 128 != 0) emulate::fail("misaligned");
  uint32_t elements = 1;
  for (int i = 0; i < box.axes; ++i) elements *= box.count[i];
  for (uint32_t k = 0; k < elements; ++k) {
    const char* from = static_cast<const char*>(box.base);
    uint32_t rest = k;
    bool inside = true;
    for (int i = 0; i < box.axes; ++i) {
      const int64_t at = first[i] + int64_t(rest % box.count[i]) * box.step[i];
      rest /= box.count[i];
      inside &= at >= 0 && at < box.extent[i];
      from += at * (i == 0 ? box.element_bytes : box.stride[i]);
    }
    uint32_t word = 0;
    if (inside) std::memcpy(&word, from, box.element_bytes);
    uint32_t to = shared + k * box.element_bytes;
    if (box.swizzled) to ^= (to >> 7 & (box.count[0] * box.element_bytes / 16 - 1)) << 4;
    std::memcpy(emulate::shared(to, box.element_bytes), &word, box.element_bytes);
  }
  emulate::barrier_copied(barrier, elements * box.element_bytes);
}

inline void copy_run(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  if (shared % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0 || bytes % 16 != 0)
    emulate::fail("misaligned");
  std::memcpy(emulate::shared(shared, bytes), global, bytes);
  emulate::barrier_copied(barrier, bytes);
}

inline void announce_box(const CUtensorMap*, int, int, int, int) {}

inline void announce(const void* global, int bytes) {
  uint32_t one;
  if (bytes > 0) std::memcpy(&one, static_cast<const char*>(global) + bytes - 1, 1);
}

}  // namespace convt2d::cuda
