// cuda/device/async_copy.cuh on a CPU, as far as it is used.
#pragma once

#include <map>
#include <utility>
#include <vector>

namespace convt2d::cuda {

// What one thread loads or stores at once.
inline unsigned char* shared_number(uint32_t address, uint32_t bytes) {
  if (address % bytes != 0) emulate::fail("misaligned");
  return emulate::shared(address, bytes);
}
inline void store_shared_16(uint32_t address, const uint32_t (&word)[4]) {
  std::memcpy(shared_number(address, 16), word, 16);
}
inline void load_shared_16(uint32_t address, uint32_t (&word)[4]) {
  std::memcpy(word, shared_number(address, 16), 16);
}
inline uint32_t load_shared_4(uint32_t address) {
  uint32_t word;
  std::memcpy(&word, shared_number(address, 4), 4);
  return word;
}
inline void load_shared_8(uint32_t address, uint32_t (&word)[2]) {
  std::memcpy(word, shared_number(address, 8), 8);
}
inline void store_shared_2(uint32_t address, unsigned short half) {
  std::memcpy(shared_number(address, 2), &half, 2);
}
inline void store_shared_4(uint32_t address, uint32_t word) {
  std::memcpy(shared_number(address, 4), &word, 4);
}
inline void store_shared_sum(uint32_t address, float sum) {
  std::memcpy(shared_number(address, 4), &sum, 4);
}
inline void store_shared_sums(uint32_t address, float a, float b) {
  if (address % 8 != 0) std::abort();
  store_shared_sum(address, a);
  store_shared_sum(address + 4, b);
}
// What a thread has under way arrives when it waits for it, and no earlier. The first `there` bytes are from memory, the
// others zeros.
struct AsyncCopy {
  uint32_t address, bytes, there;
  const void* from;
  long group;
};
inline std::map<unsigned, std::pair<long, std::vector<AsyncCopy>>> async_copies;  // by thread

inline void copy_async_part(uint32_t address, const void* from, uint32_t bytes, uint32_t there) {
  if (address % bytes != 0 || reinterpret_cast<uintptr_t>(from) % bytes != 0)
    emulate::fail("misaligned");
  auto& mine = async_copies[emulate::fiber()];
  mine.second.push_back({address, bytes, there, from, mine.first});
}
template <int BYTES>
void copy_async(uint32_t address, const void* from, bool valid) {
  copy_async_part(address, from, BYTES, valid ? BYTES : 0);
}
inline void copy_async_16_part(uint32_t address, const void* from, int bytes) {
  copy_async_part(address, from, 16, bytes);
}
inline void copy_async_16(uint32_t address, const void* from, bool valid) {
  copy_async<16>(address, from, valid);
}
inline void copy_async_16_of_many(uint32_t address, const void* from, bool valid) {
  copy_async<16>(address, from, valid);
}
inline void copy_async_commit() { ++async_copies[emulate::fiber()].first; }
inline void copy_async_wait(int open) {
  auto& mine = async_copies[emulate::fiber()];
  std::vector<AsyncCopy> left;
  for (const AsyncCopy& copy : mine.second) {
    if (copy.group >= mine.first - open) {
      left.push_back(copy);
    } else {
      unsigned char* const to = emulate::shared(copy.address, copy.bytes);
      std::memset(to, 0, copy.bytes);
      std::memcpy(to, copy.from, copy.there);
    }
  }
  mine.second = left;
}
template <int OPEN>
void copy_async_wait_for() {
  copy_async_wait(OPEN);
}

inline void copy_async_arrive(uint32_t barrier) {
  copy_async_commit();
  copy_async_wait(0);
  emulate::barrier_arrive(barrier);
}

template <class T>
T load_shared(uint32_t address) {
  T value;
  std::memcpy(&value, shared_number(address, sizeof(T)), sizeof(T));
  return value;
}
template <int WORDS>
void store_shared(uint32_t address, const uint32_t (&word)[WORDS]) {
  if (address % std::min(16, 4 * WORDS) != 0) emulate::fail("misaligned");
  std::memcpy(emulate::shared(address, 4 * WORDS), word, 4 * WORDS);
}
inline void load_tiles(uint32_t address, uint32_t (&word)[4]) {
  const int lane = threadIdx.x & 31;
  if (address % 16 != 0) emulate::fail("misaligned");
  for (int tile = 0; tile < 4; ++tile) {
    const uint32_t row = emulate::of_lane(address, 8 * tile + lane / 4);
    std::memcpy(&word[tile], emulate::shared(row + lane % 4 * 4, 4), 4);
  }
}
inline void store_tiles(uint32_t address, const uint32_t (&word)[4]) {
  const int lane = threadIdx.x & 31;
  if (address % 16 != 0) emulate::fail("misaligned");
  for (int tile = 0; tile < 4; ++tile) {
    const uint32_t row = emulate::of_lane(address, 8 * tile + lane / 4);
    std::memcpy(emulate::shared(row + lane % 4 * 4, 4), &word[tile], 4);
  }
}
inline void store_turned(uint32_t address, const uint32_t (&word)[4]) {
  const int lane = threadIdx.x & 31;
  if (address % 16 != 0) emulate::fail("misaligned");
  for (int tile = 0; tile < 4; ++tile)
    for (int i = 0; i < 2; ++i) {
      const uint32_t row = emulate::of_lane(address, 8 * tile + lane % 4 * 2 + i);
      const unsigned short number = word[tile] >> 16 * i;
      std::memcpy(emulate::shared(row + lane / 4 * 2, 2), &number, 2);
    }
}

}  // namespace convt2d::cuda
