// cuda/device/async_copy.cuh on a CPU, as far as it is used: copies arrive at once.
#pragma once

namespace convt2d::cuda {

inline void store_shared_16(uint32_t address, const uint32_t (&word)[4]) {
  std::memcpy(emulate::shared(address, 16), word, 16);
}
inline void load_shared_16(uint32_t address, uint32_t (&word)[4]) {
  std::memcpy(word, emulate::shared(address, 16), 16);
}
inline uint32_t load_shared_4(uint32_t address) {
  uint32_t word;
  std::memcpy(&word, emulate::shared(address, 4), 4);
  return word;
}
inline void copy_async_16(uint32_t address, const void* from, bool valid) {
  if (address % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) std::abort();
  const uint32_t zeros[4] = {};
  std::memcpy(emulate::shared(address, 16), valid ? from : zeros, 16);
}
inline void copy_async_16_of_many(uint32_t address, const void* from, bool valid) {
  copy_async_16(address, from, valid);
}
inline void copy_async_commit() {}
inline void copy_async_wait(int) {}

}  // namespace convt2d::cuda
