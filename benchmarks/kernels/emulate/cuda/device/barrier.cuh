// cuda/device/barrier.cuh on a CPU.
#pragma once

namespace convt2d::cuda {

inline void barrier_init(uint32_t address, uint32_t count) {
  emulate::barrier_init(address, count);
}
inline void barrier_arrive(uint32_t address) { emulate::barrier_arrive(address); }
inline void barrier_wait(uint32_t address, uint32_t parity) {
  emulate::barrier_wait(address, parity);
}
inline void raise_number(uint32_t address, uint32_t number) {
  std::memcpy(emulate::shared(address, 4), &number, 4);
}
inline void wait_for_number(uint32_t address, uint32_t number) {
  const auto now = [&] {
    uint32_t word;
    std::memcpy(&word, emulate::shared(address, 4), 4);
    return word;
  };
  while (now() < number) emulate::give_way();
}
inline void barrier_among(int name, int threads) { emulate::meet(name, threads, true); }
inline void barrier_join(int name, int threads) { emulate::join(name, threads); }
inline bool barrier_all(int name, int threads, bool good) {
  return emulate::meet(name, threads, good);
}

}  // namespace convt2d::cuda
