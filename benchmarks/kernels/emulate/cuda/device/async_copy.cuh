// cuda/device/async_copy.cuh on a CPU, as far as it is used.
#pragma once

namespace convt2d::cuda {

inline void store_shared_16(uint32_t address, const uint32_t (&word)[4]) {
  if (address % 16 != 0) emulate::fail("misaligned");
  std::memcpy(emulate::shared(address, 16), word, 16);
}

template <class T>
T load_shared(uint32_t address) {
  T value;
  std::memcpy(&value, emulate::shared(address, sizeof(T)), sizeof(T));
  return value;
}
template <int WORDS>
void store_shared(uint32_t address, const uint32_t (&word)[WORDS]) {
  if (address % std::min(16, 4 * WORDS) != 0) emulate::fail("misaligned");
  std::memcpy(emulate::shared(address, 4 * WORDS), word, 4 * WORDS);
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
