// Branch and bound, as far as planners need it: what cannot be better than what is known is not looked at.
#pragma once

#include <algorithm>
#include <cassert>
#include <limits>

namespace convt2d {

// The least predicted time so far, of all families that were asked. What is left out for it must be above it, since on a tie the
// earlier candidate stays, which may be the one that is looked at later.
class Best {
 public:
  // Of what takes at least so long: whether it is of no use.
  bool beats(double least_us) const { return least_us > us_; }
  // The bound that it might have been left out for is checked where asserts are (benchmarks/kernels/choices.sh).
  void found(double us, double least_us) {
    assert(least_us <= us * (1 + 1e-9));
    us_ = std::min(us_, us);
  }

 private:
  double us_ = std::numeric_limits<double>::infinity();
};

}  // namespace convt2d
