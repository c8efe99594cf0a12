// What emulate_fold.cpp and emulate_slide.cpp do with a case: plans at random, on integers, to the bit.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/plan.h"
#include "cuda/cuda_families.h"
#include "fibers.h"
#include "problems.h"

namespace {

using namespace convt2d;

// Tries `most` of the plans that `plans_of` a problem and a device gives, each by run(problem, plan, args).
template <class T, class PlansOf, class Run>
bool try_plans(const Case& one, Direction direction, Precision precision, int most,
               PlansOf&& plans_of, Run&& run) {
  const bool forward = direction == Direction::fwd;
  Problem p = one.problem;
  p.direction = direction;
  p.dtype = dtype_of<T>;
  p.precision = precision;
  if (!forward) p.has_bias = false;
  std::string reason;
  std::vector<Plan> plans = plans_of(p, invented_device("h200"), reason);
  const std::string label = one.name + " " + name(p.dtype) + " " + name(direction);
  if (plans.empty()) {
    std::printf("%s declined: %s\n", label.c_str(), reason.c_str());
    return true;
  }
  const int64_t image = p.h.out * p.w.out, pixels = p.h.in * p.w.in;
  std::vector<T> x = integers<T>(p.batch * p.in_channels * pixels),
                 w = integers<T>(p.in_channels * p.group_out() * p.h.kernel * p.w.kernel),
                 y = integers<T>(p.batch * p.out_channels * image),
                 bias = integers<T>(p.out_channels);
  Args a;
  a.x = tensor(x.data(), p.in_channels, p.h.in, p.w.in, p.x_layout);
  a.w = tensor(w.data(), p.group_out(), p.h.kernel, p.w.kernel, p.w_layout);
  a.y = tensor(y.data(), p.out_channels, p.h.out, p.w.out, p.y_layout);
  a.bias = p.has_bias ? bias.data() : nullptr;
  std::vector<float> expected(forward ? p.batch * p.out_channels * image
                                      : p.batch * p.in_channels * pixels);
  products(p, a, [&](int64_t i, int64_t j, int64_t k) {
    (forward ? expected[k] : expected[i]) +=
        Numeric<T>::widen(forward ? x[i] : y[k]) * Numeric<T>::widen(w[j]);
  });
  for (size_t i = 0; p.has_bias && i < expected.size(); ++i)
    expected[i] += Numeric<T>::widen(bias[i / image % p.out_channels]);

  std::vector<T>& result = forward ? y : x;
  std::shuffle(plans.begin(), plans.end(), emulate::random);
  plans.resize(std::min<size_t>(plans.size(), most));
  int wrong = 0;
  for (const Plan& plan : plans) {
    if (std::getenv("SHOW")) std::printf("%s\n", plan.note.c_str());
    std::memset(result.data(), 0xff, result.size() * sizeof(T));
    tensor_boxes.clear();
    run(p, plan, a);
    const int64_t differ = differences(result, expected);
    if (differ == 0) continue;
    ++wrong;
    std::printf("WRONG %s, %lld of %zu: %s\n", label.c_str(), static_cast<long long>(differ),
                expected.size(), plan.note.c_str());
  }
  std::printf("%s: %zu plans, %d wrong\n", label.c_str(), plans.size(), wrong);
  return wrong == 0;
}

}  // namespace
