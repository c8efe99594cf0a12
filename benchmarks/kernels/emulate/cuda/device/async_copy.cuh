// cuda/device/async_copy.cuh on a CPU, as far as it is used.
#pragma once

namespace convt2d::cuda {

inline void store_shared_16(uint32_t address, const uint32_t (&word)[4]) {
  std::memcpy(emulate::shared(address, 16), word, 16);
}

}  // namespace convt2d::cuda
