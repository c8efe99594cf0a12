// The families' kernels beside each other, without torch: right to the bit on integers, and how fast.
//
//   kernel_bench check LAYERS MODES DIRECTIONS FAMILY [NAMES]   every tile's best plan, for every way to share its
//                                                               reduction out, and some at random
//   kernel_bench time  LAYERS MODES DIRECTIONS FAMILY [NAMES]   the chosen plan, predicted and measured
//   kernel_bench sweep LAYERS MODES DIRECTIONS FAMILY [NAMES]   20 plans that promise most, 20 others that promise
//                                                               a third of that or more, best first
//   kernel_bench regret LAYERS MODES DIRECTIONS all [NAMES]     of all families' plans those predicted within 1.7 times
//                                                               the chosen one, 10 a family: what the choice costs
//   kernel_bench plans LAYERS MODES DIRECTIONS FAMILY [NAMES]   what is predicted, the ten plans that promise most, for
//                                                               an H200; needs no GPU
//
// LAYERS and MODES as layers.h reads them; DIRECTIONS of fwd,grad_input,grad_weight (without bias); FAMILY by name, or
// `chosen`: whichever serves the problem; NAMES keeps the layers that contain one of them.
// `check` compares with `direct` on outputs that were filled with NaN before, also with an infinity and a NaN among
// the operands. Times are medians of cold
// calls: 256 MiB are written before each. benchmarks/kernels/build.sh builds it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/choose.h"
#include "core/floor.h"
#include "core/forms.h"
#include "cuda/braid/braid_plan.h"
#include "cuda/comb/comb_plan.h"
#include "cuda/crimp/crimp_plan.h"
#include "cuda/cuda_check.h"
#include "cuda/cuda_families.h"
#include "cuda/depthwise/depthwise_plan.h"
#include "cuda/device/numeric.cuh"
#include "cuda/dimity/dimity_plan.h"
#include "cuda/direct/direct.h"
#include "cuda/fan/fan_plan.h"
#include "cuda/fold/fold_plan.h"
#include "cuda/fringe/fringe_plan.h"
#include "cuda/gauze/gauze_plan.h"
#include "cuda/grad_bias/grad_bias.h"
#include "cuda/hank/hank_plan.h"
#include "cuda/hopper/hopper_fetched_weight.h"
#include "cuda/hopper/hopper_packed_weight.h"
#include "cuda/hopper/hopper_plan.h"
#include "cuda/hopper/hopper_weight_plan.h"
#include "cuda/igemm/igemm.h"
#include "cuda/igemm/igemm_plan.h"
#include "cuda/igemm/igemm_weight_plan.h"
#include "cuda/loom/loom_plan.h"
#include "cuda/mite/mite_plan.h"
#include "cuda/narrow/narrow_plan.h"
#include "cuda/narrow/narrow_weight.h"
#include "cuda/plain/plain_plan.h"
#include "cuda/plait/plait_plan.h"
#include "cuda/pleat/pleat_plan.h"
#include "cuda/purl/purl_plan.h"
#include "cuda/quilt/quilt_plan.h"
#include "cuda/reed/reed_plan.h"
#include "cuda/rows/rows_plan.h"
#include "cuda/scroll/scroll_plan.h"
#include "cuda/shuttle/shuttle_plan.h"
#include "cuda/skein/skein_plan.h"
#include "cuda/slide/slide_plan.h"
#include "cuda/spool/spool_plan.h"
#include "cuda/spread/spread_plan.h"
#include "cuda/strand/strand_plan.h"
#include "cuda/ticking/ticking_plan.h"
#include "cuda/treadle/treadle_plan.h"
#include "cuda/tuft/tuft_plan.h"
#include "cuda/twill/twill_plan.h"
#include "cuda/weight_sum.h"
#include "layers.h"

namespace {

using namespace convt2d;

// A reproducible integer of [-range, range], or a fraction of [-1, 1] where the range is 0.
template <class T>
__global__ void fill_kernel(T* data, size_t count, uint32_t seed, int range) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step) {
    uint32_t h = uint32_t(i) * 2654435761u ^ seed;
    h = (h ^ h >> 15) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    h ^= h >> 16;
    data[i] = T(range ? float(int(h % (2 * range + 1)) - range) : (h & 0xffff) / 32768.f - 1.f);
  }
}

// Neither equal to the bit nor both NaN.
template <class T>
__global__ void count_differences(const T* a, const T* b, size_t count,
                                  unsigned long long* differences) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step) {
    const float one = float(a[i]), other = float(b[i]);
    if (one != other && (one == one || other == other)) atomicAdd(differences, 1ull);
  }
}

struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;

  Buffer(int64_t elements, DType dtype, uint32_t seed, int range)
      : bytes(elements * element_size(dtype)) {
    CONVT2D_CUDA_CHECK(cudaMalloc(&data, bytes + 64));
    if (dtype == DType::f16) {
      fill_kernel<<<1024, 256>>>(static_cast<__half*>(data), elements, seed, range);
    } else if (dtype == DType::bf16) {
      fill_kernel<<<1024, 256>>>(static_cast<__nv_bfloat16*>(data), elements, seed, range);
    } else {
      fill_kernel<<<1024, 256>>>(static_cast<float*>(data), elements, seed, range);
    }
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(data); }
};

// A problem with its tensors on the GPU.
struct Setting {
  Problem problem;
  int range;
  Buffer x, w, y, bias, workspace;
  Args args;

  // Of strict fp32, where these are integers, x, or y, has more digits than the tensor core takes. A million products stay
  // below 2^24.
  Setting(const Problem& p, int small)
      : problem(p),
        range(small && p.dtype == DType::f32 && p.precision == Precision::ieee ? 4000 : small),
        x(p.batch * p.in_channels * p.h.in * p.w.in, p.dtype, 1, range),
        w(p.in_channels * p.group_out() * p.h.kernel * p.w.kernel, p.dtype, 2, small),
        y(p.batch * p.out_channels * p.h.out * p.w.out, p.dtype, 3,
          p.direction == Direction::grad_weight ? small : range),
        bias(p.out_channels, p.dtype, 4, small),
        workspace(cuda::kWorkspaceLimit / 4, DType::f32, 5, 1) {
    args.x = tensor(x.data, p.in_channels, p.h.in, p.w.in, p.x_layout);
    args.w = tensor(w.data, p.group_out(), p.h.kernel, p.w.kernel, p.w_layout);
    args.y = tensor(y.data, p.out_channels, p.h.out, p.w.out, p.y_layout);
    args.bias = p.has_bias ? bias.data : nullptr;
    args.workspace = workspace.data;
  }
  const Buffer& result() const {
    return problem.direction == Direction::fwd          ? y
           : problem.direction == Direction::grad_input ? x
                                                        : w;
  }
};

// The plans of a family, the most promising first, each with the tile it uses.
std::vector<Plan> plans_of(const Family& family, const Problem& problem, const Device& device) {
  std::vector<Plan> plans;
  std::string reason;
  const std::string name = family.name;
  if (name == "hopper" && problem.direction == Direction::grad_weight) {
    if (family.plan(problem, device).accepted && cuda::hopper::is_fetched_weight(problem))
      plans = cuda::hopper::fetched_weight_plans(problem, device, reason);
    else if (family.plan(problem, device).accepted) {
      if (cuda::hopper::may_be_turned(problem)) {
        plans = cuda::hopper::fetched_weight_plans(problem, device, reason);
        for (const Plan& plan : cuda::hopper::packed_weight_plans(problem, device, reason))
          plans.push_back(plan);
      }
      if (cuda::hopper::weight_plan(problem, device).accepted)
        for (const auto& candidate : cuda::hopper::weight_candidates(problem, device, reason))
          plans.push_back(cuda::hopper::weight_plan_of(problem, device, candidate));
    }
  } else if (name == "hopper" && family.plan(problem, device).accepted) {
    for (const auto& candidate : cuda::hopper::gather_candidates(problem, device, reason))
      plans.push_back(cuda::hopper::plan_of(candidate));
  } else if (name == "igemm" && problem.direction == Direction::grad_weight) {
    if (family.plan(problem, device).accepted)
      for (const auto& candidate : cuda::igemm::weight_candidates(problem, device, reason))
        plans.push_back(cuda::igemm::weight_plan_of(problem, device, candidate));
  } else if (name == "igemm" && family.plan(problem, device).accepted) {
    for (const auto& candidate : cuda::igemm::gather_candidates(problem, device, reason))
      plans.push_back(cuda::igemm::plan_of(candidate));
  } else if (name == "fold") {
    plans = cuda::fold::plans(problem, device, reason);
  } else if (name == "slide") {
    plans = cuda::slide::plans(problem, device, reason);
  } else if (name == "narrow") {
    plans = problem.direction == Direction::grad_weight
                ? cuda::narrow::weight_plans(problem, device, reason)
                : cuda::narrow::plans(problem, device, reason);
  } else if (name == "spread") {
    plans = cuda::spread::plans(problem, device, reason);
  } else if (name == "spool") {
    plans = cuda::spool::plans(problem, device, reason);
  } else if (name == "comb") {
    plans = cuda::comb::plans(problem, device, reason);
  } else if (name == "strand") {
    plans = cuda::strand::plans(problem, device, reason);
  } else if (name == "twill") {
    plans = cuda::twill::plans(problem, device, reason);
  } else if (name == "crimp") {
    plans = cuda::crimp::plans(problem, device, reason);
  } else if (name == "pleat") {
    plans = cuda::pleat::plans(problem, device, reason);
  } else if (name == "plain") {
    plans = cuda::plain::plans(problem, device, reason);
  } else if (name == "fringe") {
    plans = cuda::fringe::plans(problem, device, reason);
  } else if (name == "gauze") {
    plans = cuda::gauze::plans(problem, device, reason);
  } else if (name == "purl") {
    plans = cuda::purl::plans(problem, device, reason);
  } else if (name == "tuft") {
    plans = cuda::tuft::plans(problem, device, reason);
  } else if (name == "quilt") {
    plans = cuda::quilt::plans(problem, device, reason);
  } else if (name == "braid") {
    plans = cuda::braid::plans(problem, device, reason);
  } else if (name == "mite") {
    plans = cuda::mite::plans(problem, device, reason);
  } else if (name == "ticking") {
    plans = cuda::ticking::plans(problem, device, reason);
  } else if (name == "skein") {
    plans = cuda::skein::plans(problem, device, reason);
  } else if (name == "dimity") {
    plans = cuda::dimity::plans(problem, device, reason);
  } else if (name == "hank") {
    plans = cuda::hank::plans(problem, device, reason);
  } else if (name == "shuttle") {
    plans = cuda::shuttle::plans(problem, device, reason);
  } else if (name == "treadle") {
    plans = cuda::treadle::plans(problem, device, reason);
  } else if (name == "reed") {
    plans = cuda::reed::plans(problem, device, reason);
  } else if (name == "fan") {
    plans = cuda::fan::plans(problem, device, reason);
  } else if (name == "loom") {
    plans = cuda::loom::plans(problem, device, reason);
  } else if (name == "plait") {
    plans = cuda::plait::plans(problem, device, reason);
  } else if (name == "scroll") {
    plans = cuda::scroll::plans(problem, device, reason);
  } else if (name == "depthwise") {
    plans = cuda::depthwise::plans(problem, device, reason);
  } else if (name == "rows") {
    plans = cuda::rows::plans(problem, device, reason);
  } else if (const Decision decision = family.plan(problem, device); decision.accepted) {
    plans.push_back(decision.plan);
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [](const Plan& a, const Plan& b) { return a.predicted_us < b.predicted_us; });
  return plans;
}

double measure(const Family& family, const Setting& at, const Plan& plan, int calls) {
  static Buffer flush((256 << 20) / 4, DType::f32, 5, 1);
  cudaEvent_t start, stop;
  CONVT2D_CUDA_CHECK(cudaEventCreate(&start));
  CONVT2D_CUDA_CHECK(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i <= calls; ++i) {
    CONVT2D_CUDA_CHECK(cudaMemsetAsync(flush.data, i, flush.bytes));
    CONVT2D_CUDA_CHECK(cudaEventRecord(start));
    family.launch(at.problem, plan, at.args);
    CONVT2D_CUDA_CHECK(cudaEventRecord(stop));
    CONVT2D_CUDA_CHECK(cudaDeviceSynchronize());
    float ms = 0;
    CONVT2D_CUDA_CHECK(cudaEventElapsedTime(&ms, start, stop));
    if (i > 0) times.push_back(ms * 1e3f);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Results that differ from the expected ones.
unsigned long long differences(const Buffer& result, const Buffer& expected, DType dtype) {
  unsigned long long* count;
  CONVT2D_CUDA_CHECK(cudaMallocManaged(&count, sizeof *count));
  *count = 0;
  cuda::visit_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    count_differences<<<512, 256>>>(static_cast<const T*>(result.data),
                                    static_cast<const T*>(expected.data), result.bytes / sizeof(T),
                                    count);
  });
  CONVT2D_CUDA_CHECK(cudaDeviceSynchronize());
  const unsigned long long found = *count;
  CONVT2D_CUDA_CHECK(cudaFree(count));
  return found;
}

// Element `at` of a tensor becomes `bits`, as wide as the tensor's elements.
void poke(const Buffer& tensor, DType dtype, size_t at, uint32_t half, uint32_t full) {
  const size_t size = element_size(dtype), place = at % (tensor.bytes / size) * size;
  CONVT2D_CUDA_CHECK(cudaMemcpy(static_cast<char*>(tensor.data) + place, size == 2 ? &half : &full,
                                size, cudaMemcpyDefault));
}

bool check(const Family& family, const std::string& label, const Problem& problem,
           const Device& device, bool finite = true) {
  Setting at(problem, 3);
  if (!finite) {  // in both formats of 16 bits this is not finite
    poke(at.x, problem.dtype, 12345, 0xff80, 0xff800000);
    poke(at.y, problem.dtype, 54321, 0x7f80, 0x7f800000);
  }
  const Buffer& result = at.result();
  cuda::direct_family.launch(problem, cuda::direct_family.plan(problem, device).plan, at.args);
  Buffer expected(result.bytes / element_size(problem.dtype), problem.dtype, 6, 1);
  CONVT2D_CUDA_CHECK(cudaMemcpy(expected.data, result.data, result.bytes, cudaMemcpyDefault));

  const std::vector<Plan> plans = plans_of(family, problem, device);
  std::vector<const Plan*> tried;
  // Of other plans `split` and detail tell numbers, not ways.
  const bool gathers = problem.direction != Direction::grad_weight,
             igemm_gathers = gathers && std::string(family.name) == "igemm",
             hopper_gathers = gathers && std::string(family.name) == "hopper";
  std::set<std::vector<int>> ways;
  for (const Plan& plan : plans) {
    std::vector<int> shared(std::begin(plan.detail) + 8, std::end(plan.detail));
    shared.push_back(plan.row);
    const bool other_split = ways.insert({plan.row, gathers ? plan.split : 0}).second;
    const bool other_way = igemm_gathers && ways.insert(shared).second;
    // Of hopper's, also how far half of the consumers are ahead, and their teams.
    const bool other_lead =
        hopper_gathers && ways.insert({plan.row, -1, cuda::hopper::choice_of(plan).lead,
                                       cuda::hopper::choice_of(plan).teams})
                              .second;
    const bool other_slices =
        std::string(family.name) == "spool" &&
        ways.insert({plan.row, -2, cuda::spool::slices_of(problem, plan)}).second;
    if (other_split || other_way || other_lead || other_slices) tried.push_back(&plan);
  }
  std::mt19937 random(7);
  for (int i = 0; i < 4 && !plans.empty(); ++i) tried.push_back(&plans[random() % plans.size()]);
  // Sums that are not finite are done again one by one, which takes its time.
  if (gathers && !finite) {
    std::shuffle(tried.begin(), tried.end(), random);
    tried.resize(std::min<size_t>(tried.size(), 6));
  }
  int wrong = 0;
  for (const Plan* plan : tried) {
    CONVT2D_CUDA_CHECK(cudaMemset(result.data, 0xff, result.bytes));
    CONVT2D_CUDA_CHECK(cudaMemset(at.workspace.data, 0xff, at.workspace.bytes));
    family.launch(problem, *plan, at.args);
    CONVT2D_CUDA_CHECK(cudaDeviceSynchronize());
    const unsigned long long found = differences(result, expected, problem.dtype);
    if (found == 0) continue;
    ++wrong;
    std::printf("WRONG %s%s: %llu of %zu bytes' numbers, %s\n", label.c_str(),
                finite ? "" : ", not finite", found, result.bytes, plan->note.c_str());
  }
  std::printf("%-40s %zu of %zu plans run, %d wrong%s\n", label.c_str(), tried.size(), plans.size(),
              wrong, finite ? "" : ", not finite");
  return wrong == 0;
}

void time(const Family& family, const std::string& label, const Problem& problem,
          const Device& device, size_t most) {
  Setting at(problem, 0);
  const double floor = floor_of(problem, device).us();
  std::vector<Plan> plans = plans_of(family, problem, device);
  if (most >
      1) {  // half of them those that promise most, the others spread over what is not hopeless
    while (plans.size() > most && plans.back().predicted_us > 3 * plans.front().predicted_us)
      plans.pop_back();
    std::vector<Plan> some;
    for (size_t i = 0; i < plans.size() && some.size() < most;
         i += i < most / 2 ? 1 : std::max<size_t>(1, (plans.size() - most / 2) / (most / 2)))
      some.push_back(plans[i]);
    plans = some;
  } else if (!plans.empty()) {
    plans.resize(1);
  }
  std::vector<std::pair<double, const Plan*>> times;
  for (const Plan& plan : plans) {
    if (most > 1 && times.empty()) measure(family, at, plan, 5);  // as in regret()
    times.push_back({measure(family, at, plan, most > 1 ? 2 : 7), &plan});
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [us, plan] : times) {
    std::printf("%-40s %9.1f us, floor %8.1f x%6.2f, predicted %8.1f  %s; row %d", label.c_str(),
                us, floor, us / floor, plan->predicted_us, plan->note.c_str(), plan->row);
    for (int number : plan->detail) std::printf(" %d", number);
    std::printf("\n");
  }
  if (times.empty()) std::printf("%-40s declined\n", label.c_str());
}

// What all families promise, measured beside what is chosen, which comes first.
void regret(const FamilyList& list, const std::string& label, const Problem& problem,
            const Device& device) {
  const double limit = 1.7 * choose(list, problem, device, -1).plan.predicted_us;
  struct Candidate {
    const Family* family;
    Plan plan;
    double us;
  };
  Setting at(problem, 0);
  std::vector<Candidate> candidates;
  for (const Family* family = list.first; family != list.first + list.count; ++family) {
    const std::vector<Plan> plans = plans_of(*family, problem, device);
    for (size_t i = 0; i < plans.size() && i < 10 && plans[i].predicted_us <= limit; ++i) {
      // What comes first takes some 5 % longer: once more, then.
      if (candidates.empty()) measure(*family, at, plans[i], 5);
      candidates.push_back({family, plans[i], measure(*family, at, plans[i], 5)});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.plan.predicted_us < b.plan.predicted_us;
  });
  const double floor = floor_of(problem, device).us();
  for (const auto& [family, plan, us] : candidates) {
    std::printf("%s %s %9.1f us, floor %8.1f x%6.2f, predicted %8.1f  %s; row %d", label.c_str(),
                family->name, us, floor, us / floor, plan.predicted_us, plan.note.c_str(),
                plan.row);
    for (int number : plan.detail) std::printf(" %d", number);
    std::printf("\n");
  }
}

void print_plans(const Family& family, const std::string& label, const Problem& problem,
                 const Device& device) {
  std::vector<Plan> plans = plans_of(family, problem, device);
  if (plans.size() > 10) plans.resize(10);
  for (const Plan& plan : plans) {
    std::printf("%-40s floor %8.1f, predicted %8.1f  %s; row %d", label.c_str(),
                floor_of(problem, device).us(), plan.predicted_us, plan.note.c_str(), plan.row);
    for (int number : plan.detail) std::printf(" %d", number);
    std::printf("\n");
  }
  if (plans.empty())
    std::printf("%-40s declined: %s\n", label.c_str(), family.plan(problem, device).reason.c_str());
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return std::printf("see the head of %s\n", __FILE__), 2;
  const std::string command = arguments[1], wanted = arguments[5];
  const Device device = command == "plans" ? cuda::invented_device("h200") : cuda::device(0);
  const FamilyList list = cuda::families();
  const auto named = std::find_if(list.first, list.first + list.count,
                                  [&](const Family& family) { return wanted == family.name; });
  const bool any = wanted == "chosen" || command == "regret";
  if (!any && named == list.first + list.count)
    return std::printf("no family %s\n", wanted.c_str()), 2;

  bool good = true;
  const auto layers = read_layers(arguments[2], count > 6 ? words(arguments[6]) : words(""));
  for (const std::string& mode : words(arguments[3]))
    for (const std::string& direction : words(arguments[4]))
      for (const Layer& layer : layers) {
        const Problem given = problem_of(layer, mode, direction);
        const auto predicted = [&](const Problem& p) {
          return least_predicted(list, p, device, -1);
        };
        const auto bias_us = [&](const Problem& p) { return cuda::grad_bias_us(p, device); };
        const Problem problem =
            any ? in_form(better_form(given, predicted, bias_us), given) : given;
        const Family& family = any ? *choose(list, problem, device, -1).family : *named;
        const std::string label = layer.name + " " + mode + " " + direction +
                                  (wanted == "chosen" ? std::string(" ") + family.name : "");
        if (command == "regret") {
          regret(list, layer.name + " " + mode + " " + direction, problem, device);
        } else if (command == "check") {
          for (const bool finite : {true, false})
            good &= check(family, label, problem, device, finite);
        } else if (command == "plans") {
          print_plans(family, label, problem, device);
        } else {
          time(family, label, problem, device, command == "sweep" ? 40 : 1);
        }
        std::fflush(stdout);
      }
  return good ? 0 : 1;
}
