// A loop whose iterations are independent, shared between threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "cpu/cpu_families.h"

namespace convt2d::cpu {

// Runs body(0) ... body(count - 1), in any order. Threads take the next index when they are free,
// so who computes what varies from run to run; what is computed does not. `work` is the number of
// multiply-adds of the whole loop: below a fraction of a millisecond the calling thread stays
// alone. Threads live as long as the loop: nothing is left behind for a fork() to break.
template <class Body>
void parallel_for(int64_t count, double work, const Body& body) {
  constexpr double kWorthAThread = 2e5;
  const double most = std::min({double(threads()), double(count), work / kWorthAThread});

  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto run = [&] {
    try {
      for (int64_t i; (i = next.fetch_add(1)) < count;) body(i);
    } catch (...) {
      next = count;
      const std::lock_guard<std::mutex> lock(failure_mutex);
      failure = std::current_exception();
    }
  };

  std::vector<std::thread> helpers;
  try {
    while (double(helpers.size()) + 1 < most) helpers.emplace_back(run);
  } catch (const std::system_error&) {
    // The system grants no more threads: those we have finish the loop.
  }
  run();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace convt2d::cpu
