// mite on a CPU, all directions: indices, shuffles, barriers, the NaN rule.
//
//   emulate_mite CASES TYPE LAYOUT DIRECTION SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32; DIRECTION: fwd, ...
//
// PLANS plans of each case at random, of those with few blocks, on integers, every other time with infinities and a NaN among the operands; results
// and partial sums hold NaN before.
#include <vector_types.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

namespace convt2d::cuda::mite {
alignas(1024) float4 shared[(232 << 10) / 16];  // the kernels declare it extern
}

#include "cuda/cuda_families.h"
#include "cuda/mite/mite_gather.cuh"
#include "cuda/mite/mite_plan.h"
#include "cuda/mite/mite_weight.cuh"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "problems.h"
#include "weight_trial.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T>
class Trial {
 public:
  explicit Trial(const Problem& problem)
      : p_(problem),
        forward_(problem.direction == Direction::fwd),
        x_(integers<T>(p_.batch * p_.in_channels * p_.h.in * p_.w.in)),
        y_(integers<T>(p_.batch * p_.out_channels * p_.h.out * p_.w.out)),
        w_(integers<T>(p_.in_channels * p_.group_out() * p_.h.kernel * p_.w.kernel)),
        bias_(integers<T>(p_.out_channels)) {
    special_ = emulate::random() % 2;
    if (special_)
      for (std::vector<T>* operand : {forward_ ? &x_ : &y_, &w_}) spoil(*operand);
    if (special_ && emulate::random() % 2)  // padding times this is NaN
      std::fill(w_.begin(), w_.end() - 64,
                Numeric<T>::narrow(std::numeric_limits<float>::infinity()));
    args.x = tensor(x_.data(), p_.in_channels, p_.h.in, p_.w.in, p_.x_layout);
    args.w = tensor(w_.data(), p_.group_out(), p_.h.kernel, p_.w.kernel, p_.w_layout);
    args.y = tensor(y_.data(), p_.out_channels, p_.h.out, p_.w.out, p_.y_layout);
    args.bias = p_.has_bias ? bias_.data() : nullptr;
    std::vector<T>& result = this->result();
    expected_.resize(result.size() - 64);
    products(p_, args, [&](int64_t i, int64_t j, int64_t k) {
      expected_[forward_ ? k : i] += value(forward_ ? x_ : y_, forward_ ? i : k) * value(w_, j);
    });
    const int64_t image = p_.h.out * p_.w.out;
    for (int64_t i = 0; p_.has_bias && i < int64_t(expected_.size()); ++i)
      expected_[i] += value(
          bias_, p_.y_layout == Layout::nhwc ? i % p_.out_channels : i / image % p_.out_channels);
    std::memset(result.data(), 0xff, result.size() * sizeof(T));
  }

  int64_t wrong() {
    int64_t count = 0;
    const std::vector<T>& result = this->result();
    for (size_t i = 0; i < result.size(); ++i) {
      if (i >= expected_.size()) {
        T ones;
        std::memset(&ones, 0xff, sizeof ones);
        count += std::memcmp(&ones, &result[i], sizeof ones) != 0;
      } else {
        const float a = value(result, i), b = Numeric<T>::widen(Numeric<T>::narrow(expected_[i]));
        count += !(a == b || (a != a && b != b));
      }
    }
    return count;
  }
  bool special() const { return special_; }
  size_t numbers() const { return expected_.size(); }

  Args args;

 private:
  std::vector<T>& result() { return forward_ ? y_ : x_; }
  static float value(const std::vector<T>& from, int64_t i) { return Numeric<T>::widen(from[i]); }
  static void spoil(std::vector<T>& values) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float odd[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
    for (int i = 0; i < 2; ++i)
      values[emulate::random() % (values.size() - 64)] =
          Numeric<T>::narrow(odd[emulate::random() % 3]);
  }

  const Problem p_;
  const bool forward_;
  bool special_;
  std::vector<T> x_, y_, w_, bias_;
  std::vector<float> expected_;
};

// At most `most` plans at random, of those with few blocks, if there are any.
std::vector<Plan> some_small(std::vector<Plan> plans, int most) {
  const auto blocks = [](const Plan& plan) {
    const char* comma = std::strstr(plan.note.c_str(), " blocks of");
    while (comma && comma[-1] != ' ') --comma;
    return comma ? std::atoi(comma) : 0;
  };
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const Plan& a, const Plan& b) { return blocks(a) < blocks(b); });
  size_t few = 0;
  while (few < plans.size() && (few < 3 || blocks(plans[few]) <= 12)) ++few;
  plans.resize(few);
  return some_of(plans, most);
}

template <class T>
bool check_gather(const Case& one, Direction direction, Precision precision, int most) {
  Problem p = one.problem;
  p.direction = direction, p.dtype = dtype_of<T>, p.precision = precision;
  p.has_bias &= direction == Direction::fwd;
  std::string reason;
  std::vector<Plan> all = mite::plans(p, invented_device("h200"), reason);
  const size_t count = all.size();
  if (all.empty()) return std::printf("%s declined: %s\n", one.name.c_str(), reason.c_str()), true;
  int bad = 0;
  all = some_small(all, most);
  for (const Plan& plan : all) {
    if (std::getenv("SHOW")) std::printf("%s\n", plan.note.c_str());
    Trial<T> trial(p);
    const mite::GatherParams params = mite::gather_params_of(p, plan, trial.args);
    visit_row<mite::kFormCount>(plan.row, [&](auto row) {
      constexpr mite::Form form = mite::kForms[decltype(row)::value];
      emulate::run_grid(params.blocks, mite::kThreads, params.shared_bytes,
                        [&] { mite::convt2d_mite_gather_kernel<T, form.runs, form.run>(params); });
    });
    const int64_t wrong = trial.wrong();
    bad += wrong != 0;
    if (wrong)
      std::printf("WRONG %s%s, %lld of %zu: %s\n", one.name.c_str(),
                  trial.special() ? ", not finite" : "", static_cast<long long>(wrong),
                  trial.numbers(), plan.note.c_str());
  }
  std::printf("%s: %zu of %zu plans, %d wrong\n", one.name.c_str(), all.size(), count, bad);
  return bad == 0;
}

template <class T>
bool check_weight(const Case& one, Precision precision, int most) {
  WeightTrial<T> trial(one, precision);
  const Problem& p = trial.problem;
  std::string reason;
  const std::vector<Plan> all = mite::plans(p, invented_device("h200"), reason);
  return trial.passes(some_small(all, most), all.size(), reason, [&](const Plan& plan) {
    trial.begin(plan.split);
    trial.args.workspace = trial.partials.data();
    const mite::WeightParams params = mite::weight_params_of(p, plan, trial.args);
    visit_row<mite::kSumsCount>(plan.row, [&](auto row) {
      constexpr mite::Sums sums = mite::kSums[decltype(row)::value];
      emulate::run_grid(params.blocks, mite::kWeightThreads, params.shared_bytes, [&] {
        mite::convt2d_mite_grad_weight_kernel<T, sums.channels, sums.taps>(params);
      });
    });
    return params.partials ? plan.split : 0;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 7) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = reinterpret_cast<unsigned char*>(mite::shared);
  const std::string type = arguments[2], way = arguments[4];
  const Layout layout = std::string(arguments[3]) == "nhwc" ? Layout::nhwc : Layout::nchw;
  emulate::random.seed(std::atoi(arguments[5]));
  const int plans = std::atoi(arguments[6]);
  const Precision precision = type == "fp32" ? Precision::ieee : Precision::tf32;
  const auto check = [&](auto element, const Case& one) {
    using T = decltype(element);
    return way == "grad_weight"
               ? check_weight<T>(one, precision, plans)
               : check_gather<T>(one, way == "fwd" ? Direction::fwd : Direction::grad_input,
                                 precision, plans);
  };
  return check_cases(arguments[1], layout, count > 7 ? arguments[7] : "", [&](Case one) {
    if (emulate::random() % 4 == 0)
      one.problem.w_layout = layout == Layout::nhwc ? Layout::nchw : Layout::nhwc;
    return type == "fp16"   ? check(__half{}, one)
           : type == "bf16" ? check(__nv_bfloat16{}, one)
                            : check(float{}, one);
  });
}
