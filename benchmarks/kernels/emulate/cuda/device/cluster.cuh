// cuda/device/cluster.cuh on a CPU.
#pragma once

namespace convt2d::cuda {

inline void cluster_arrive() { emulate::cluster_arrive(); }
inline void cluster_arrive_as_reader() { emulate::cluster_arrive(); }
inline void cluster_wait() { emulate::cluster_wait(); }

constexpr int kRankShift = 20;  // above any address
inline uint32_t place_of_rank(uint32_t shared, int rank) { return shared | rank << kRankShift; }
inline float4 load_of_rank(uint32_t place) {
  const uint32_t address = place & ((1u << kRankShift) - 1);
  if (address % 16 != 0) emulate::fail("misaligned");
  float4 value;
  std::memcpy(&value, emulate::shared_of_rank(place >> kRankShift, address, 16), 16);
  return value;
}

inline void show_barriers_to_cluster() {}
inline void send_to_rank(uint32_t place, const uint32_t (&word)[4], uint32_t barrier) {
  const uint32_t address = place & ((1u << kRankShift) - 1);
  if (address % 16 != 0) emulate::fail("misaligned");
  std::memcpy(emulate::shared_of_rank(place >> kRankShift, address, 16), word, 16);
  emulate::barrier_copied_of_rank(barrier >> kRankShift, barrier & ((1u << kRankShift) - 1), 16);
}

}  // namespace convt2d::cuda
