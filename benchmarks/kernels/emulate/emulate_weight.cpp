// igemm's grad_weight on a CPU: indices, fragments, the order of barriers, the NaN rule.
//
//   emulate_weight CASES TYPE LAYOUTS SEED PLANS [NAME]     TYPE: fp16, bf16, tf32
//
// LAYOUTS: of x and dY, as nchw-nhwc. Of each case the best plan of every tile and PLANS at random run on
// integers, and again with an infinity or a NaN in places; outputs and shared memory hold NaN before.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <set>
#include <string>

namespace convt2d::cuda::igemm {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/direct/direct_config.h"
#include "cuda/igemm/igemm_grad_weight.cuh"
#include "cuda/igemm/igemm_weight_plan.h"
#include "cuda/weight_sum.h"
#include "fibers.h"
#include "problems.h"

namespace convt2d::cuda::direct {  // the planner's file names them
void launch_gather(const Problem&, const Plan&, const Args&) {}
void launch_grad_weight(const Problem&, const Plan&, const Args&) {}
}  // namespace convt2d::cuda::direct

namespace {

using igemm::WeightParams;

template <class M, int... ROWS>
void run(int row, const WeightParams& params, std::integer_sequence<int, ROWS...>) {
  const std::function<void()> kernels[] = {
      [&] { igemm::convt2d_igemm_grad_weight_kernel<M, ROWS>(params); }...};
  emulate::kernel = kernels[row];
  emulate::shared_bytes = igemm::weight_map(params, sizeof(typename M::Element)).total;
  emulate::block_dim.x = 32 * (params.warps_m * params.warps_n + params.producers);
  const int64_t blocks = igemm::weight_combinations(params) * params.split;
  for (int64_t block = 0; block < blocks; ++block) emulate::run_block(uint32_t(block));
}

// Equal to the bit, or both NaN.
bool same(float a, float b) { return std::memcmp(&a, &b, 4) == 0 || a == b || (a != a && b != b); }

template <class M>
bool check(const Case& one, int random_plans) {
  using T = typename M::Element;
  Problem p = one.problem;
  p.direction = Direction::grad_weight;
  p.dtype = dtype_of<T>;
  const int64_t weights = p.in_channels * p.group_out() * p.h.kernel * p.w.kernel;
  std::vector<T> x = integers<T>(p.batch * p.in_channels * p.h.in * p.w.in),
                 y = integers<T>(p.batch * p.out_channels * p.h.out * p.w.out), w(weights + 64);
  std::string reason;
  auto candidates = igemm::weight_candidates(p, invented_device("h200"), reason);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.predicted_us < b.predicted_us; });
  std::vector<size_t> tried;
  std::set<int> rows;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (rows.insert(candidates[i].choice.row).second) tried.push_back(i);
  for (int i = 0; i < random_plans && !candidates.empty(); ++i)
    tried.push_back(emulate::random() % candidates.size());
  int wrong = 0;
  for (size_t i : tried) {
    auto& choice = candidates[i].choice;
    choice.stages = 2 + int(emulate::random() % 3);
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
    igemm::weight_shape(p, choice, params);
    if (emulate::random() % 2) params.turn_tiles = 2;
    const int64_t piece_floats = weight_bytes(p) / 4;
    std::vector<float> partials(params.split * piece_floats, NAN);
    std::memset(w.data(), 0xff, w.size() * sizeof(T));
    params.x = x_here.data(), params.y = y_here.data(), params.weight = w.data();
    params.partials = igemm::writes_partials(params) ? partials.data() : nullptr;
    for (int d = 0; d < 4; ++d) {
      params.x_stride[d] = int32_t(a.x.stride[d]);
      params.y_stride[d] = int32_t(a.y.stride[d]);
      params.weight_stride[d] = int32_t(a.w.stride[d]);
    }
    run<M>(choice.row, params,
           std::make_integer_sequence<int, igemm::weight_tile_count(sizeof(T))>());
    int64_t differ = 0, taps = p.h.kernel * p.w.kernel;
    for (int64_t tap = 0; tap < taps; ++tap)
      for (int64_t ci = 0; ci < p.in_channels; ++ci)
        for (int64_t co = 0; co < p.group_out(); ++co) {
          const int64_t at = ci * a.w.stride[0] + co * a.w.stride[1] +
                             tap / p.w.kernel * a.w.stride[2] + tap % p.w.kernel * a.w.stride[3];
          float got = Numeric<T>::widen(w[at]);
          if (params.partials) {
            got = 0;
            for (int64_t piece = 0; piece < params.split; ++piece)
              got +=
                  partials[piece * piece_floats + (tap * p.in_channels + ci) * p.group_out() + co];
            got = Numeric<T>::widen(Numeric<T>::narrow(got));
          }
          differ += !same(got, Numeric<T>::widen(Numeric<T>::narrow(expected[at])));
        }
    if (differ == 0) continue;
    ++wrong;
    p.has_bias = 0;
    std::printf("WRONG %s%s, %lld of %lld: row %d, %s\n", one.name.c_str(),
                special ? " not finite" : "", static_cast<long long>(differ),
                static_cast<long long>(weights), choice.row,
                igemm::weight_plan_of(p, invented_device("h200"), candidates[i]).note.c_str());
  }
  std::printf("%s %s %s-%s: %zu of %zu plans, %d wrong%s%s\n", one.name.c_str(), name(p.dtype),
              name(p.x_layout), name(p.y_layout), tried.size(), candidates.size(), wrong,
              candidates.empty() ? ", " : "", candidates.empty() ? reason.c_str() : "");
  return wrong == 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return std::printf("see the head of %s\n", __FILE__), 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  emulate::smem = igemm::smem;
  const std::string type = arguments[2], layouts = arguments[3];
  const Layout x_layout = layouts.substr(0, 4) == "nhwc" ? Layout::nhwc : Layout::nchw;
  const Layout y_layout = layouts.substr(5) == "nhwc" ? Layout::nhwc : Layout::nchw;
  emulate::random.seed(std::atoi(arguments[4]));
  const int plans = std::atoi(arguments[5]);
  std::ifstream in(arguments[1]);
  bool good = true;
  for (std::string line; std::getline(in, line);) {
    Case one;
    if (!read(line, x_layout, one) ||
        (count > 6 && one.name.find(arguments[6]) == std::string::npos))
      continue;
    one.problem.y_layout = y_layout;
    good &= type == "fp16"   ? check<MmaF16>(one, plans)
            : type == "bf16" ? check<MmaBF16>(one, plans)
                             : check<MmaTF32>(one, plans);
  }
  return good ? 0 : 1;
}
