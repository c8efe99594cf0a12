// hopper's grad_weight on a CPU: indices, the ring of stages, the NaN rule, in random schedules.
//
//   emulate_hopper_weight CASES TYPE SEED PLANS [NAME]     TYPE: fp16, bf16
//
// Of each case the best plan of every tile and PLANS at random run on integers, and again with an infinity or a NaN
// in places; outputs and shared memory hold NaN before. The two passes that add up pieces and the bias gradient
// are not in it.
#include <cstdio>
#include <functional>
#include <limits>
#include <set>
#include <string>

namespace convt2d::cuda::hopper {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/direct/direct.h"
#include "cuda/hopper/hopper_weight.cuh"
#include "cuda/hopper/hopper_weight_plan.h"
#include "cuda/weight_sum.h"
#include "fibers.h"
#include "problems.h"

namespace convt2d::cuda {  // the planner's file names it
int64_t grad_bias_workspace_bytes(const Problem&) { return 0; }
}  // namespace convt2d::cuda

namespace {

using hopper::WeightParams;

template <class T, int... ROWS>
void run(int row, const WeightParams& params, const hopper::WeightMaps& maps,
         std::integer_sequence<int, ROWS...>) {
  const std::function<void()> kernels[] = {
      [&] { hopper::convt2d_hopper_grad_weight_kernel<T, ROWS>(params, maps); }...};
  emulate::kernel = kernels[row];
  emulate::shared_bytes = hopper::weight_shared_bytes(params, hopper::kWeightTiles[row]);
  emulate::block_dim.x = hopper::weight_threads(hopper::kWeightTiles[row]);
  const int64_t blocks = hopper::weight_combinations(params) * params.split;
  for (int64_t block = 0; block < blocks; ++block) emulate::run_block(uint32_t(block));
}

// Equal, or both NaN.
bool same(float a, float b) { return a == b || (a != a && b != b); }

template <class T>
bool check(const Case& one, int random_plans) {
  Problem p = one.problem;
  p.direction = Direction::grad_weight;
  p.dtype = dtype_of<T>;
  p.has_bias = 0;
  const Device device = invented_device("h200");
  const Decision decision = hopper::weight_plan(p, device);
  if (!decision.accepted) {
    std::printf("%s declined: %s\n", one.name.c_str(), decision.reason.c_str());
    return true;
  }
  const int64_t weights = p.in_channels * p.group_out() * p.h.kernel * p.w.kernel;
  std::vector<T> x = integers<T>(p.batch * p.in_channels * p.h.in * p.w.in),
                 y = integers<T>(p.batch * p.out_channels * p.h.out * p.w.out), w(weights + 64);
  std::string reason;
  auto candidates = hopper::weight_candidates(p, device, reason);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.predicted_us < b.predicted_us; });
  std::vector<size_t> tried;
  std::set<std::pair<int, bool>> kinds;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (kinds.insert({candidates[i].choice.row, candidates[i].choice.shared}).second)
      tried.push_back(i);
  for (int i = 0; i < random_plans; ++i) tried.push_back(emulate::random() % candidates.size());
  int wrong = 0;
  for (size_t i : tried) {
    auto& choice = candidates[i].choice;
    choice.split = std::min(choice.split, 1 + int(emulate::random() % 3));
    choice.stages = std::min(choice.stages, 2 + int(emulate::random() % 3));
    const bool special = emulate::random() % 2;
    std::vector<T> x_here = x, y_here = y;
    if (special) {
      const float odd[] = {std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
      x_here[emulate::random() % (x.size() - 64)] = Numeric<T>::narrow(odd[emulate::random() % 3]);
      y_here[emulate::random() % (y.size() - 64)] = Numeric<T>::narrow(odd[emulate::random() % 3]);
    }
    Args a;
    a.x = tensor(x_here.data(), p.in_channels, p.h.in, p.w.in, p.x_layout);
    a.w = tensor(w.data(), p.group_out(), p.h.kernel, p.w.kernel, p.w_layout);
    a.y = tensor(y_here.data(), p.out_channels, p.h.out, p.w.out, p.y_layout);
    std::vector<float> expected(weights);
    products(p, a, [&](int64_t i, int64_t j, int64_t k) {
      expected[j] += Numeric<T>::widen(x_here[i]) * Numeric<T>::widen(y_here[k]);
    });
    WeightParams params;
    hopper::weight_shape(p, choice, params);
    std::vector<float> partials(params.split * params.piece_floats, NAN);
    std::memset(w.data(), 0xff, w.size() * sizeof(T));
    params.weight = w.data();
    params.partials = params.split > 1 ? partials.data() : nullptr;
    for (int d = 0; d < 4; ++d) params.weight_stride[d] = int32_t(a.w.stride[d]);
    params.weight_quads = p.w_layout == Layout::nhwc;
    tensor_boxes.clear();
    run<T>(choice.row, params, hopper::weight_maps(params, x_here.data(), y_here.data()),
           std::make_integer_sequence<int, hopper::kWeightTileCount>());
    int64_t differ = 0;
    const int64_t taps = p.h.kernel * p.w.kernel;
    for (int64_t tap = 0; tap < taps; ++tap)
      for (int64_t ci = 0; ci < p.in_channels; ++ci)
        for (int64_t co = 0; co < p.group_out(); ++co) {
          const int64_t at = ci * a.w.stride[0] + co * a.w.stride[1] +
                             tap / p.w.kernel * a.w.stride[2] + tap % p.w.kernel * a.w.stride[3];
          float got = Numeric<T>::widen(w[at]);
          if (params.partials) {
            got = 0;
            for (int64_t piece = 0; piece < params.split; ++piece)
              got += partials[piece * params.piece_floats +
                              (tap * p.in_channels + ci) * p.group_out() + co];
            got = Numeric<T>::widen(Numeric<T>::narrow(got));
          }
          differ += !same(got, Numeric<T>::widen(Numeric<T>::narrow(expected[at])));
        }
    if (differ == 0) continue;
    ++wrong;
    std::printf("WRONG %s%s, %lld of %lld: %s\n", one.name.c_str(), special ? " not finite" : "",
                static_cast<long long>(differ), static_cast<long long>(weights),
                hopper::weight_plan_of(p, device, candidates[i]).note.c_str());
  }
  std::printf("%s %s: %zu of %zu plans, %d wrong\n", one.name.c_str(), name(p.dtype), tried.size(),
              candidates.size(), wrong);
  return wrong == 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  emulate::smem = hopper::smem;
  emulate::random.seed(std::atoi(arguments[3]));
  std::ifstream in(arguments[1]);
  bool good = true;
  for (std::string line; std::getline(in, line);) {
    Case one;
    if (!read(line, Layout::nhwc, one) ||
        (count > 5 && one.name.find(arguments[5]) == std::string::npos))
      continue;
    if (emulate::random() % 4 == 0) one.problem.w_layout = Layout::nchw;
    good &= std::string(arguments[2]) == "bf16" ? check<__nv_bfloat16>(one, std::atoi(arguments[4]))
                                                : check<__half>(one, std::atoi(arguments[4]));
  }
  return good ? 0 : 1;
}
