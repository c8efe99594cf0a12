// cuda/device/tensor_store.cuh on a CPU.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "cuda/device/tensor_copy.cuh"

namespace convt2d::cuda {

// As late as waits allow.
inline std::vector<std::function<void()>>& stored_boxes() {
  static std::vector<std::function<void()>> of_thread[32 * 640];
  return of_thread[emulate::fiber()];
}
// What close_boxes() makes one of them.
inline std::vector<std::function<void()>>& asked_boxes() {
  static std::vector<std::function<void()>> of_thread[32 * 640];
  return of_thread[emulate::fiber()];
}
inline void ask_box(const CUtensorMap* map, uint32_t shared, int a, int b, int c, int d, int e) {
  size_t index;
  std::memcpy(&index, map, sizeof index);
  if (a * tensor_boxes.at(index).element_bytes % 16 != 0)
    emulate::fail("a box that starts between 16 bytes");
  if (shared % 128 != 0) emulate::fail("misaligned");
  if (std::min({a, b, c, d, e}) < 0) emulate::fail("a box that starts before its tensor");
  asked_boxes().push_back([=] {
    const TensorBox& box = tensor_boxes.at(index);
    const int first[] = {a, b, c, d, e};
    uint32_t elements = 1;
    for (int i = 0; i < box.axes; ++i) elements *= box.count[i];
    for (uint32_t k = 0; k < elements; ++k) {
      char* to = static_cast<char*>(const_cast<void*>(box.base));
      uint32_t rest = k;
      bool inside = true;
      for (int i = 0; i < box.axes; ++i) {
        const int64_t at = first[i] + int64_t(rest % box.count[i]) * box.step[i];
        rest /= box.count[i];
        inside &= at >= 0 && at < box.extent[i];
        to += at * (i == 0 ? box.element_bytes : box.stride[i]);
      }
      uint32_t from = shared + k * box.element_bytes;
      if (box.swizzled) from ^= (from >> 7 & (box.count[0] * box.element_bytes / 16 - 1)) << 4;
      if (inside) std::memcpy(to, emulate::shared(from, box.element_bytes), box.element_bytes);
    }
  });
}
inline void close_boxes() {
  stored_boxes().push_back([all = std::exchange(asked_boxes(), {})] {
    for (const auto& store : all) store();
  });
}
inline void store_box(const CUtensorMap* map, uint32_t shared, int a, int b, int c, int d, int e) {
  ask_box(map, shared, a, b, c, d, e);
  close_boxes();
}
inline void store_bytes(void* to, uint32_t shared, int bytes) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || shared % 16 != 0 || bytes % 16 != 0)
    emulate::fail("misaligned");
  stored_boxes().push_back([=] { std::memcpy(to, emulate::shared(shared, bytes), bytes); });
}
inline void stored_boxes_there() {
  for (const auto& store : stored_boxes()) store();
  stored_boxes().clear();
}
inline void stored_boxes_read() { stored_boxes_there(); }
template <int LAST>
void stored_boxes_there_but() {
  auto& boxes = stored_boxes();
  for (; boxes.size() > size_t(LAST); boxes.erase(boxes.begin())) boxes.front()();
}
template <int LAST>
void stored_boxes_read_but() {
  stored_boxes_there_but<LAST>();
}

}  // namespace convt2d::cuda
