// Cases from a file, tensors of integers, and the definition of the operator.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "../layers.h"
#include "core/args.h"
#include "core/plan.h"
#include "core/problem.h"
#include "cuda/device/numeric.cuh"

namespace {

using namespace convt2d::cuda;

struct Case {
  std::string name;
  Problem problem;
};

// Whether `check` finds good every case of a file whose name has `part` in it; as an exit status.
template <class Check>
int check_cases(const char* file, Layout layout, const std::string& part, Check&& check) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string mode = layout == Layout::nhwc ? "tf32:nhwc" : "tf32:nchw";
  bool good = true;
  for (const Layer& layer : read_layers(file, {part}))
    good &= check(Case{layer.name, problem_of(layer, mode, "fwd")});
  return good ? 0 : 1;
}

// main() of an emulator of NCHW whose arguments are CASES TYPE SEED PLANS [NAME]: check(TYPE, case, PLANS).
template <class Check>
int check_typed(int count, char** arguments, const char* file, Check&& check) {
  if (count < 5) return std::printf("see the head of %s\n", file), 2;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "",
                     [&](const Case& one) { return check(type, one, plans); });
}
// The same of 16 bits: check(a number of TYPE, case, PLANS).
template <class Check>
int check_halves(int count, char** arguments, const char* file, Check&& check) {
  return check_typed(
      count, arguments, file, [&](const std::string& type, const Case& one, int plans) {
        return type == "fp16" ? check(__half(), one, plans) : check(__nv_bfloat16(), one, plans);
      });
}
// And of TF32, whose numbers are floats.
template <class Check>
int check_numbers(int count, char** arguments, const char* file, Check&& check) {
  return check_typed(count, arguments, file,
                     [&](const std::string& type, const Case& one, int plans) {
                       return type == "fp16"   ? check(__half(), one, plans)
                              : type == "bf16" ? check(__nv_bfloat16(), one, plans)
                                               : check(float(), one, plans);
                     });
}

// Integers of [-3, 3].
template <class T>
std::vector<T> integers(int64_t count) {
  std::vector<T> values(count + 64);
  for (T& value : values) value = Numeric<T>::narrow(float(int(emulate::random() % 7) - 3));
  return values;
}

// Whether nothing was stored there: results are filled with ones, which no kernel computes.
template <class T>
bool is_filling(const T& value) {
  T filling;
  std::memset(&filling, 0xff, sizeof filling);
  return std::memcmp(&filling, &value, sizeof value) == 0;
}

// How many numbers are not the expected ones, to the bit (one NaN is as good as another); what lies past their end is to be as filled, with ones.
template <class T>
int64_t differences(const std::vector<T>& result, const std::vector<float>& expected) {
  int64_t count = 0;
  for (size_t k = 0; k < result.size(); ++k) {
    T want = Numeric<T>::narrow(k < expected.size() ? expected[k] : 0.f);
    if (k >= expected.size()) std::memset(&want, 0xff, sizeof want);
    const float a = Numeric<T>::widen(want), b = Numeric<T>::widen(result[k]);
    if (k < expected.size() && a != a && b != b && !is_filling(result[k])) continue;
    count += std::memcmp(&want, &result[k], sizeof want) != 0;
  }
  return count;
}

// The definition: visits every product, as elements of x, w and y.
template <class Visit>
void products(const Problem& p, const Args& a, Visit&& visit) {
  const auto at = [](const TensorRef& t, int64_t i, int64_t j, int64_t k, int64_t l) {
    return i * t.stride[0] + j * t.stride[1] + k * t.stride[2] + l * t.stride[3];
  };
  for (int64_t n = 0; n < p.batch; ++n)
    for (int64_t ci = 0; ci < p.in_channels; ++ci)
      for (int64_t co = 0; co < p.group_out(); ++co)
        for (int64_t i = 0; i < p.h.in; ++i)
          for (int64_t r = 0; r < p.h.kernel; ++r) {
            const int64_t oh = i * p.h.stride - p.h.near_pad + r * p.h.dilation;
            if (oh < 0 || oh >= p.h.out) continue;
            for (int64_t j = 0; j < p.w.in; ++j)
              for (int64_t t = 0; t < p.w.kernel; ++t) {
                const int64_t ow = j * p.w.stride - p.w.near_pad + t * p.w.dilation;
                if (ow < 0 || ow >= p.w.out) continue;
                const int64_t channel = ci / p.group_in() * p.group_out() + co;
                visit(at(a.x, n, ci, i, j), at(a.w, ci, co, r, t), at(a.y, n, channel, oh, ow));
              }
          }
}

// Of `candidates`, which end up in the order of their predictions, the best of every kind and some at random.
template <class Candidate, class Kind>
std::vector<size_t> worth_running(std::vector<Candidate>& candidates, int at_random, Kind&& kind) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.predicted_us < b.predicted_us; });
  std::vector<size_t> chosen;
  std::set<decltype(kind(candidates[0].choice))> met;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (met.insert(kind(candidates[i].choice)).second) chosen.push_back(i);
  for (int i = 0; i < at_random && !candidates.empty(); ++i)
    chosen.push_back(emulate::random() % candidates.size());
  return chosen;
}

// At most `most` of `plans`, at random.
std::vector<Plan> some_of(std::vector<Plan> plans, size_t most) {
  std::shuffle(plans.begin(), plans.end(), emulate::random);
  plans.resize(std::min(plans.size(), most));
  return plans;
}

}  // namespace
