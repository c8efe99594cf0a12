// A forward or grad_input of a case on integers, and how many numbers of a result are wrong.
#pragma once

#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "problems.h"

namespace {

using namespace convt2d;

template <class T>
class GatherTrial {
 public:
  // With numbers that the tensor core does not take whole in one of the factors, if `precision` is strict and T is float;
  // with some that are no numbers, if not `finite`.
  GatherTrial(const Case& one, Direction direction, Precision precision, bool finite = true)
      : problem(problem_of(one, direction, precision)),
        label_(one.name + " " + name(problem.dtype) + " " + name(problem.x_layout) + " " +
               name(direction) + (finite ? "" : ", not finite")) {
    const Problem& p = problem;
    const bool forward = direction == Direction::fwd;
    const int64_t image = p.h.out * p.w.out, inputs = p.batch * p.in_channels * p.h.in * p.w.in,
                  outputs = p.batch * p.out_channels * image;
    x_ = integers<T>(inputs), y_ = integers<T>(outputs);
    w_ = integers<T>(p.in_channels * p.group_out() * p.h.kernel * p.w.kernel);
    bias_ = integers<T>(p.out_channels);
    // Zeros that stand in for what is not there must not be multiplied by it.
    if (std::getenv("INFINITE"))
      for (std::vector<T>* some : {&w_, forward ? &x_ : &y_})
        (*some)[emulate::random() % some->size()] = Numeric<T>::narrow(INFINITY);
    if constexpr (sizeof(T) == 4)
      if (precision == Precision::ieee)
        for (T& value : emulate::random() % 2 ? w_ : forward ? x_ : y_) value *= 2049;
    if (!finite)
      for (std::vector<T>* factor : {&w_, forward ? &x_ : &y_}) spoil(*factor);
    args.x = tensor(x_.data(), p.in_channels, p.h.in, p.w.in, p.x_layout);
    args.w = tensor(w_.data(), p.group_out(), p.h.kernel, p.w.kernel, p.w_layout);
    args.y = tensor(y_.data(), p.out_channels, p.h.out, p.w.out, p.y_layout);
    args.bias = p.has_bias ? bias_.data() : nullptr;
    expected_.resize(forward ? outputs : inputs);
    const auto value = [](const std::vector<T>& from, int64_t i) {
      return Numeric<T>::widen(from[i]);
    };
    products(p, args, [&](int64_t i, int64_t j, int64_t k) {
      expected_[forward ? k : i] += value(forward ? x_ : y_, forward ? i : k) * value(w_, j);
    });
    for (int64_t i = 0; p.has_bias && i < outputs; ++i)
      expected_[i] += value(
          bias_, p.y_layout == Layout::nhwc ? i % p.out_channels : i / image % p.out_channels);
  }

  // Runs every plan, by run(plan), on a result filled with ones; tells what is wrong, and whether nothing is.
  template <class Run>
  bool passes(const std::vector<Plan>& plans, Run&& run) {
    std::vector<T>& result = problem.direction == Direction::fwd ? y_ : x_;
    int wrong = 0;
    for (const Plan& plan : plans) {
      if (std::getenv("SHOW")) std::printf("%s\n", plan.note.c_str());
      std::memset(result.data(), 0xff, result.size() * sizeof(T));
      tensor_boxes.clear();
      run(plan);
      const int64_t differ = differences(result, expected_);
      if (differ == 0) continue;
      ++wrong;
      std::printf("WRONG %s, %lld of %zu: %s\n", label_.c_str(), static_cast<long long>(differ),
                  expected_.size(), plan.note.c_str());
    }
    std::printf("%s: %zu plans, %d wrong\n", label_.c_str(), plans.size(), wrong);
    return wrong == 0;
  }

  // At most `most` of `plans`, at random; tells why, if there are none.
  std::vector<Plan> some(const std::vector<Plan>& plans, size_t most,
                         const std::string& reason) const {
    if (plans.empty()) std::printf("%s declined: %s\n", label_.c_str(), reason.c_str());
    return some_of(plans, most);
  }

  const Problem problem;
  Args args;

 private:
  static Problem problem_of(const Case& one, Direction direction, Precision precision) {
    Problem p = one.problem;
    p.direction = direction;
    p.dtype = dtype_of<T>;
    p.precision = precision;
    p.has_bias &= direction == Direction::fwd;
    return p;
  }

  // Beyond the end lie 64 numbers more (integers()).
  static void spoil(std::vector<T>& values) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float odd[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
    for (int i = 0; i < 3; ++i)
      values[emulate::random() % (values.size() - 64)] =
          Numeric<T>::narrow(odd[emulate::random() % (i ? 2 : 3)]);
  }

  const std::string label_;
  std::vector<T> x_, w_, y_, bias_;
  std::vector<float> expected_;
};

}  // namespace
