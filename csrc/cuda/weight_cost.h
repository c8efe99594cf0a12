// What a grad_weight takes beside its multiplications, as families predict it alike that cut the reduction into pieces.
#pragma once

#include <algorithm>

#include "core/floor.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {

// What the cache of an H200 still holds of what others have written, bytes: as much of it goes to memory as comes from there. Layers
// that nothing but memory limits take that long, whoever reads them (2026-11-30: 24 depthwise layers within 8 %, and 64
// multiprocessors as long as 128).
constexpr double kLeftBehind = 40e6;

// Rates are shares of the copy rate, times are in us.
struct WeightCosts {
  double launch, memory_rate;
  double beside;             // of the lesser of work and bytes
  double sum, partial_rate;  // of the second pass, where there are pieces
  double most_beside = 1e9;  // us, of the lesser of work and bytes, that are not hidden in part
  double left_behind = 0;    // bytes, see kLeftBehind
};
// Of a block's work that takes `busy_us` on the busiest multiprocessor. `unread`: bytes of the tensors that it does not read.
inline double weight_us(const Problem& problem, const Device& device, int64_t split, double busy_us,
                        const WeightCosts& costs, double unread = 0) {
  const double partial = static_cast<double>(partial_bytes(problem, split));
  const double bytes = tensor_bytes(problem) - unread + partial;
  const double memory_us =
      (bytes + std::min(bytes, costs.left_behind)) / (costs.memory_rate * device.copy_bytes_per_us);
  return costs.launch + std::max(busy_us, memory_us) +
         costs.beside * std::min({busy_us, memory_us, costs.most_beside}) +
         (split > 1 ? costs.sum + costs.partial_rate * partial / device.copy_bytes_per_us : 0);
}

}  // namespace convt2d::cuda
