// What the kernels of grad_weight are tried on: integers, and an infinity or a NaN among them every other time.
#pragma once

#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cuda/weight_sum.h"
#include "problems.h"

namespace {

template <class T>
class WeightTrial {
 public:
  // Strict fp32: one of the factors has more digits than the tensor core takes.
  explicit WeightTrial(const Case& one, Precision precision = Precision::tf32)
      : problem(problem_of(one, precision)),
        label_(one.name + " " + name(problem.dtype) + " " + name(problem.x_layout) + "-" +
               name(problem.y_layout)),
        weights_(problem.in_channels * problem.group_out() * problem.h.kernel * problem.w.kernel),
        strict_(sizeof(T) == 4 && precision == Precision::ieee),
        x_(integers<T>(problem.batch * problem.in_channels * problem.h.in * problem.w.in)),
        y_(integers<T>(problem.batch * problem.out_channels * problem.h.out * problem.w.out)),
        w_(weights_ + 64),
        expected_(weights_) {}

  // Runs plans, some of `all`, by run(plan): it begins, and says how many pieces came out. Tells what is wrong, and whether
  // nothing is; or why there are no plans.
  template <class Run>
  bool passes(const std::vector<Plan>& plans, size_t all, const std::string& reason, Run&& run) {
    if (plans.empty()) {
      std::printf("%s declined: %s\n", label_.c_str(), reason.c_str());
      return true;
    }
    int bad = 0;
    for (const Plan& plan : plans) {
      if (std::getenv("SHOW")) std::printf("%s\n", plan.note.c_str());
      const int64_t differ = wrong(run(plan));
      if (differ == 0) continue;
      ++bad;
      std::printf("WRONG %s%s, %lld of %lld: %s\n", label_.c_str(), special_ ? " not finite" : "",
                  static_cast<long long>(differ), static_cast<long long>(weights_),
                  plan.note.c_str());
    }
    std::printf("%s: %zu of %zu plans, %d wrong\n", label_.c_str(), plans.size(), all, bad);
    return bad == 0;
  }

  // Operands for the next plan, whose results are NaN before.
  void begin(int pieces) {
    x_here_ = x_, y_here_ = y_;
    if constexpr (sizeof(T) == 4)
      if (strict_)
        for (T& value : emulate::random() % 2 ? x_here_ : y_here_) value *= 2049;
    special_ = emulate::random() % 2;
    if (special_) {
      spoil(x_here_);
      spoil(y_here_);
    }
    const Problem& p = problem;
    args.x = tensor(x_here_.data(), p.in_channels, p.h.in, p.w.in, p.x_layout);
    args.w = tensor(w_.data(), p.group_out(), p.h.kernel, p.w.kernel, p.w_layout);
    args.y = tensor(y_here_.data(), p.out_channels, p.h.out, p.w.out, p.y_layout);
    std::fill(expected_.begin(), expected_.end(), 0.f);
    products(p, args, [&](int64_t i, int64_t j, int64_t k) {
      expected_[j] += Numeric<T>::widen(x_here_[i]) * Numeric<T>::widen(y_here_[k]);
    });
    partials.assign(pieces * piece_floats(), NAN);
    std::memset(w_.data(), 0xff, w_.size() * sizeof(T));
  }

  // Partial sums that lie as a dW without gaps does, as they are looked at, [tap][ci][co].
  void order_by_tap(int pieces) {
    const Problem& p = problem;
    const std::vector<float> dense = partials;
    const int64_t taps = p.h.kernel * p.w.kernel, columns = p.group_out();
    for (int64_t i = 0, piece = 0; i < pieces; ++i, piece += piece_floats())
      for (int64_t ci = 0; ci < p.in_channels; ++ci)
        for (int64_t co = 0; co < columns; ++co)
          for (int64_t tap = 0; tap < taps; ++tap)
            partials[piece + (tap * p.in_channels + ci) * columns + co] =
                dense[piece + (p.w_layout == Layout::nhwc ? (ci * taps + tap) * columns + co
                                                          : (ci * columns + co) * taps + tap)];
  }

  const Problem problem;
  Args args;
  std::vector<float> partials;

 private:
  static Problem problem_of(const Case& one, Precision precision) {
    Problem p = one.problem;
    p.direction = Direction::grad_weight;
    p.dtype = dtype_of<T>;
    p.precision = precision;
    p.has_bias = 0;
    return p;
  }
  // How many weights are wrong, in `args.w` or as the sums of `pieces` partial ones.
  int64_t wrong(int pieces) const {
    const Problem& p = problem;
    int64_t differ = 0;
    for (int64_t tap = 0; tap < p.h.kernel * p.w.kernel; ++tap)
      for (int64_t ci = 0; ci < p.in_channels; ++ci)
        for (int64_t co = 0; co < p.group_out(); ++co) {
          const int64_t at = ci * args.w.stride[0] + co * args.w.stride[1] +
                             tap / p.w.kernel * args.w.stride[2] +
                             tap % p.w.kernel * args.w.stride[3];
          float got = pieces ? 0 : Numeric<T>::widen(w_[at]);
          for (int64_t piece = 0; piece < pieces; ++piece)
            got +=
                partials[piece * piece_floats() + (tap * p.in_channels + ci) * p.group_out() + co];
          differ += !same(rounded(got), rounded(expected_[at]));
        }
    return differ;
  }

  static void spoil(std::vector<T>& values) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float odd[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
    const size_t at = emulate::random() % (values.size() - 64);
    values[at] = Numeric<T>::narrow(odd[emulate::random() % 3]);
  }
  static float rounded(float value) { return Numeric<T>::widen(Numeric<T>::narrow(value)); }
  // Equal, or both NaN.
  static bool same(float a, float b) { return a == b || (a != a && b != b); }
  int64_t piece_floats() const { return weight_bytes(problem) / 4; }

  const std::string label_;
  const int64_t weights_;
  const bool strict_;
  bool special_ = false;  // whether something is not finite
  const std::vector<T> x_, y_;
  std::vector<T> x_here_, y_here_, w_;
  std::vector<float> expected_;
};

}  // namespace
