// Branch and bound, as far as planners need it: what cannot be better than what is known is not looked at.
#pragma once

#include <algorithm>
#include <cstdio>
#include <limits>

#include "core/plan.h"

namespace convt2d {

// For tests of the bounds: everything is looked at, and what takes less than its bound is told.
#ifdef CONVT2D_CHECK_BOUNDS
constexpr bool kCheckBounds = true;
#else
constexpr bool kCheckBounds = false;
#endif

// The least predicted time so far, of all families that were asked. What is left out for it must be above it, since on a tie the
// earlier candidate stays, which may be the one that is looked at later.
class Best {
 public:
  // Whether what takes at least so long is of no use.
  bool beats(double least_us) const { return !kCheckBounds && least_us > us_; }
  void found(double us) { us_ = std::min(us_, us); }
  // The same of a part of what is searched, which has so much beside it, and counts so much.
  Best of_part(double beside_us, double factor) const {
    Best part;
    part.us_ = (us_ - beside_us) / factor;
    return part;
  }
  // And what it might have been left out for.
  void found(double us, double least_us) {
    if (kCheckBounds && least_us > us * (1 + 1e-12))
      std::printf("a bound of %.3f us is above %.3f\n", least_us, us);
    found(us);
  }

 private:
  double us_ = std::numeric_limits<double>::infinity();
};

// What plan() of a family answers, as long as that is better than the best so far; otherwise anything that is not better, or nothing.
// A search goes on from a copy, since its own times may be without what the answer's has: a bias gradient, or what it is compared by.
using Search = Decision (*)(const Problem&, const Device&, Best);

}  // namespace convt2d
