// cuda/device/async_copy.cuh on a CPU, as far as it is used.
#pragma once

#include <map>
#include <utility>
#include <vector>

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
// What a thread has under way arrives when it waits for it, and no earlier.
struct AsyncCopy {
  uint32_t address;
  const void* from;
  long group;
};
inline std::map<unsigned, std::pair<long, std::vector<AsyncCopy>>> async_copies;  // by thread

inline void copy_async_16(uint32_t address, const void* from, bool valid) {
  if (address % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) std::abort();
  auto& mine = async_copies[threadIdx.x];
  mine.second.push_back({address, valid ? from : nullptr, mine.first});
}
inline void copy_async_16_of_many(uint32_t address, const void* from, bool valid) {
  copy_async_16(address, from, valid);
}
inline void copy_async_commit() { ++async_copies[threadIdx.x].first; }
inline void copy_async_wait(int open) {
  auto& mine = async_copies[threadIdx.x];
  std::vector<AsyncCopy> left;
  for (const AsyncCopy& copy : mine.second) {
    if (copy.group >= mine.first - open) {
      left.push_back(copy);
    } else if (copy.from) {
      std::memcpy(emulate::shared(copy.address, 16), copy.from, 16);
    } else {
      std::memset(emulate::shared(copy.address, 16), 0, 16);
    }
  }
  mine.second = left;
}

}  // namespace convt2d::cuda
