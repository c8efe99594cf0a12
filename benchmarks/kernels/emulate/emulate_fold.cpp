// The fold kernel on a CPU, to the bit, in random schedules.
//
//   emulate_fold CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16, tf32, fp32
//
// As emulate.cpp does for hopper: PLANS plans of each case at random, on integers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

namespace convt2d::cuda::fold {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "cuda/cuda_families.h"
#include "cuda/fold/fold_kernel.cuh"
#include "cuda/fold/fold_plan.h"
#include "fibers.h"
#include "problems.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class T, int... ROWS>
void run(int row, const fold::Params& params, const fold::Maps& maps,
         std::integer_sequence<int, ROWS...>) {
  const std::function<void()> kernels[] = {
      [&] { fold::convt2d_fold_kernel<T, ROWS>(params, maps); }...};
  emulate::kernel = kernels[row];
  emulate::shared_bytes = params.shared_bytes;
  emulate::block_dim.x = fold::kThreads;
  for (int64_t block = 0; block < fold::blocks_of(params); ++block)
    emulate::run_block(uint32_t(block));
}

template <class T>
bool check(const Case& one, Precision precision, int random_plans) {
  constexpr int kRows = sizeof(T) == 4 ? fold::kTileCount : fold::kFirstStrict;
  Problem p = one.problem;
  p.direction = Direction::fwd;
  p.dtype = dtype_of<T>;
  p.precision = precision;
  std::string reason;
  std::vector<Plan> plans = fold::plans(p, invented_device("h200"), reason);
  if (plans.empty()) {
    std::printf("%s declined: %s\n", one.name.c_str(), reason.c_str());
    return true;
  }
  const int64_t image = p.h.out * p.w.out, results = p.batch * p.out_channels * image;
  std::vector<T> x = integers<T>(p.batch * p.in_channels * p.h.in * p.w.in),
                 w = integers<T>(p.in_channels * p.group_out() * p.h.kernel * p.w.kernel),
                 y = integers<T>(results), bias = integers<T>(p.out_channels);
  Args a;
  a.x = tensor(x.data(), p.in_channels, p.h.in, p.w.in, p.x_layout);
  a.w = tensor(w.data(), p.group_out(), p.h.kernel, p.w.kernel, p.w_layout);
  a.y = tensor(y.data(), p.out_channels, p.h.out, p.w.out, p.y_layout);
  a.bias = p.has_bias ? bias.data() : nullptr;
  std::vector<float> expected(results);
  products(p, a, [&](int64_t i, int64_t j, int64_t k) {
    expected[k] += Numeric<T>::widen(x[i]) * Numeric<T>::widen(w[j]);
  });
  for (int64_t i = 0; p.has_bias && i < results; ++i)
    expected[i] += Numeric<T>::widen(bias[i / image % p.out_channels]);

  std::shuffle(plans.begin(), plans.end(), emulate::random);
  int wrong = 0, tried = 0;
  for (Plan& plan : plans) {
    if (tried == random_plans) break;
    ++tried;
    plan.detail[2] = std::min(plan.detail[2], 2 + int(emulate::random() % 3));  // stages
    plan.detail[5] = std::min(plan.detail[5], 1 + int(emulate::random() % 3));  // walkers
    if (std::getenv("SHOW")) std::printf("%s\n", plan.note.c_str());
    std::memset(y.data(), 0xff, y.size() * sizeof(T));
    tensor_boxes.clear();
    const fold::Params params = fold::params_of(p, plan, a);
    run<T>(plan.row, params, fold::maps_of(params, fold::kTiles[plan.row], a),
           std::make_integer_sequence<int, kRows>());
    const int64_t differ = differences(y, expected);
    if (differ == 0) continue;
    ++wrong;
    std::printf("WRONG %s, %lld of %lld: %s\n", one.name.c_str(), static_cast<long long>(differ),
                static_cast<long long>(results), plan.note.c_str());
  }
  std::printf("%s %s: %d of %zu plans, %d wrong\n", one.name.c_str(), name(p.dtype), tried,
              plans.size(), wrong);
  return wrong == 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  emulate::smem = fold::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  const std::string type = arguments[2];
  const int plans = std::atoi(arguments[4]);
  return check_cases(arguments[1], Layout::nchw, count > 5 ? arguments[5] : "", [&](Case one) {
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nhwc;
    if (type == "fp32") return check<float>(one, Precision::ieee, plans);
    if (type == "tf32") return check<float>(one, Precision::tf32, plans);
    return type == "fp16" ? check<__half>(one, Precision::ieee, plans)
                          : check<__nv_bfloat16>(one, Precision::ieee, plans);
  });
}
