#include "cpu/cpu_families.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "cpu/direct_cpu.h"

namespace convt2d::cpu {

FamilyList families() { return {&direct_family, 1}; }

int threads() {
  static const int count = [] {
    const char* wish = std::getenv("OMP_NUM_THREADS");
    const int wished = wish ? std::atoi(wish) : 0;
    return wished > 0 ? wished : std::max(1, int(std::thread::hardware_concurrency()));
  }();
  return count;
}

// Only explain() looks at these. Rates of one ordinary server core, times the threads: 8 doubles
// multiplied and added each 0.4 ns. Memory does not get faster with more cores.
const Device& device() {
  static const Device cpu = [] {
    Device device;
    device.sm_count = threads();
    device.copy_bytes_per_us = 2e4;
    device.fma_f32_per_us = 4e4 * threads();
    device.fma_f64_per_us = 2e4 * threads();
    return device;
  }();
  return cpu;
}

}  // namespace convt2d::cpu
