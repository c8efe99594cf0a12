// The hopper kernel on a CPU, to the bit, in random schedules: what a machine without a GPU can know of it.
//
//   emulate CASES TYPE LAYOUT SEED [NAME]     TYPE: fp16, bf16, tf32, fp32; LAYOUT: nchw, nhwc
//
// With SHOW=1 in the environment, every plan is named before it runs, and barriers are shown when one fails.
// CASES has lines as kernel_bench.cu reads them. Of each case, forward and grad_input, the best plan of every
// tile and two at random run on integers, with outputs and shared memory filled with NaN before.
// A thread is a fiber; warps run in a random order and at uneven speeds. What is found: wrong indices,
// unwritten or misaligned outputs, reads beyond shared memory, protocols that overwrite or never end.
// What is not: ordinary stores that the tensor cores would see too late, registers, speed.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <type_traits>

namespace convt2d::cuda::hopper {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_gather.cuh"
#include "cuda/hopper/hopper_maps.h"
#include "cuda/hopper/hopper_plan.h"
#include "fibers.h"
#include "problems.h"

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class M, int FIRST, int... ROWS>
void run(int row, const hopper::GatherParams& params, const hopper::TensorMaps& maps,
         std::integer_sequence<int, ROWS...>) {
  const std::function<void()> kernels[] = {
      [&] { hopper::convt2d_hopper_gather_kernel<M, FIRST + ROWS>(params, maps); }...};
  emulate::kernel = kernels[row - FIRST];
  emulate::block_dim.x = hopper::threads(hopper::kTiles[row]);
  emulate::shared_bytes = hopper::shared_map(params, hopper::kTiles[row]).total;
  for (int64_t block = 0; block < hopper::blocks_of(params); ++block)
    emulate::run_block(uint32_t(block));
}

template <class M>
bool check(const Case& one, Direction direction) {
  using T = typename M::Element;
  Problem p = one.problem;
  p.direction = direction;
  p.dtype = dtype_of<T>;
  p.precision = M::kSplit ? Precision::ieee : Precision::tf32;
  const bool forward = direction == Direction::fwd;
  p.has_bias &= forward;
  const int64_t image = p.h.out * p.w.out, results = p.batch * p.out_channels * image,
                inputs = p.batch * p.in_channels * p.h.in * p.w.in;
  std::vector<T> x = integers<T>(inputs), y = integers<T>(results),
                 w = integers<T>(p.in_channels * p.group_out() * p.h.kernel * p.w.kernel),
                 bias = integers<T>(p.out_channels);
  Args a;
  a.x = tensor(x.data(), p.in_channels, p.h.in, p.w.in, p.x_layout);
  a.w = tensor(w.data(), p.group_out(), p.h.kernel, p.w.kernel, p.w_layout);
  a.y = tensor(y.data(), p.out_channels, p.h.out, p.w.out, p.y_layout);
  a.bias = p.has_bias ? bias.data() : nullptr;
  std::vector<T>& result = forward ? y : x;
  // Strict fp32: numbers that the tensor core does not take whole, in one of the factors.
  if constexpr (M::kSplit)
    for (T& value : emulate::random() % 2 ? w : forward ? x : y) value *= 2049;
  std::vector<float> expected(forward ? results : inputs);
  const auto value = [](const std::vector<T>& from, int64_t i) {
    return Numeric<T>::widen(from[i]);
  };
  products(p, a, [&](int64_t i, int64_t j, int64_t k) {
    expected[forward ? k : i] += value(forward ? x : y, forward ? i : k) * value(w, j);
  });
  for (int64_t i = 0; p.has_bias && i < results; ++i)
    expected[i] +=
        value(bias, p.y_layout == Layout::nhwc ? i % p.out_channels : i / image % p.out_channels);

  std::string reason;
  auto candidates = hopper::gather_candidates(p, invented_device("h200"), reason);
  // Of each tile the best with weights that stay, and that stream.
  const std::vector<size_t> tried =
      worth_running(candidates, 2, [](const hopper::GatherChoice& choice) {
        return std::pair{choice.row, choice.weight_stages > 0};
      });
  // The first rows are for strict fp32, the last ones for 16-bit numbers.
  constexpr int kFirst = M::kSplit ? 0 : hopper::kStrictTiles,
                kEnd = M::kSplit        ? hopper::kStrictTiles
                       : sizeof(T) == 4 ? hopper::kTileCount - hopper::kColumnTiles
                                        : hopper::kTileCount;
  int wrong = 0;
  for (size_t i : tried) {
    const Plan plan = hopper::plan_of(candidates[i]);
    if (std::getenv("SHOW")) std::printf("%s\n", plan.note.c_str());
    std::memset(result.data(), 0xff, result.size() * sizeof(T));
    hopper::GatherParams params;
    hopper::gather_shape(p, candidates[i].choice, params);
    hopper::set_walkers(plan, params);
    for (int32_t& walkers : params.walkers)
      walkers = std::min(walkers, 3);  // so that blocks have several tiles
    set_operands(p, a, params);
    run<M, kFirst>(plan.row, params, hopper::maps_of(params, hopper::kTiles[plan.row]),
                   std::make_integer_sequence<int, kEnd - kFirst>());
    const int64_t differ = differences(result, expected);
    if (differ == 0) continue;
    ++wrong;
    std::printf("WRONG %s, %lld of %zu: %s\n", one.name.c_str(), static_cast<long long>(differ),
                expected.size(), plan.note.c_str());
  }
  std::printf("%s %s %s %s: %zu plans, %d wrong\n", one.name.c_str(), name(p.dtype),
              name(p.x_layout), name(direction), tried.size(), wrong);
  return wrong == 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  const std::string type = arguments[2];
  const Layout layout = std::string(arguments[3]) == "nhwc" ? Layout::nhwc : Layout::nchw;
  emulate::smem = hopper::smem;
  emulate::random.seed(std::atoi(arguments[4]));
  return check_cases(arguments[1], layout, count > 5 ? arguments[5] : "", [&](const Case& one) {
    bool good = true;
    for (Direction direction : {Direction::fwd, Direction::grad_input})
      good &= type == "fp16"   ? check<MmaF16>(one, direction)
              : type == "bf16" ? check<MmaBF16>(one, direction)
              : type == "fp32" ? check<MmaF32x3>(one, direction)
                               : check<MmaTF32>(one, direction);
    return good;
  });
}
