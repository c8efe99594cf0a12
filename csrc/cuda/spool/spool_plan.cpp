#include "cuda/spool/spool_plan.h"

#include <algorithm>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_weight_plan.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::spool {
namespace {

// Fitted to 40 layers on an H200, 2026-11-26.
constexpr double kTurn = 3.2;         // us, of the first kernel beside its bytes,
constexpr double kTurnRate = 0.78;    // of the copy rate,
constexpr double kCache = 50 << 20;   // and what is written and stays in L2
constexpr double kCachedWrite = 0.5;  // counts less
constexpr double kReturn = 1;         // us, the third one, of a piece that is rounded
constexpr double kReturnRate = 1.1;   // of the copy rate

// Where the copies and the sums are in the workspace.
struct Places {
  int64_t y, sums, end;
};
int64_t copy_bytes(int64_t images, int64_t channels, const Axis& h, const Axis& w, bool of_x) {
  const int64_t pixels = of_x ? h.in * w.in : h.out * w.out;
  return round_up(images * pixels * round_up(channels, kOctet) * 2, 256);
}
int64_t weight_elements(const Problem& problem) {
  return problem.in_channels * problem.group_out() * problem.h.kernel * problem.w.kernel;
}
Places places_of(const Problem& p, int split) {
  const int64_t x = copy_bytes(p.batch, p.in_channels, p.h, p.w, true);
  const int64_t y = copy_bytes(p.batch, p.out_channels, p.h, p.w, false);
  const int64_t sums = split > 1 ? partial_bytes(p, split) : weight_elements(p) * 2;
  return {x, x + y, x + y + sums};
}

using Candidate = hopper::WeightCandidate;

double predict(const Problem& problem, const Device& device, const hopper::WeightChoice& choice) {
  const Problem turned = turned_problem(problem);
  const Places places = places_of(problem, choice.split);
  const double rate = device.copy_bytes_per_us;
  const double dense = double(weight_elements(problem)) * 2;
  const double bytes = double(places.sums);
  const double written = (bytes > kCache ? 1 : kCachedWrite) * bytes;
  return kTurn + (bytes + written) / (kTurnRate * rate) +
         hopper::weight_time(turned, device, choice, true) +
         (choice.split > 1 ? 0 : kReturn + 3 * dense / (kReturnRate * rate));
}

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate> candidates(const Problem& problem, const Device& device,
                                  std::string& reason) {
  std::vector<Candidate> found;
  for (const Candidate& of :
       hopper::weight_candidates(turned_problem(problem), device, reason, true)) {
    if (of.choice.split == 1 && problem.in_channels * problem.group_out() % kOctet != 0) {
      reason = "a tap's weights are no whole 16 bytes";
      continue;
    }
    const int64_t bytes = places_of(problem, of.choice.split).end;
    if (bytes > kWorkspaceMost) {
      reason = "copies of the tensors and sums take " + std::to_string(bytes) + " bytes";
      continue;
    }
    found.push_back({of.choice, predict(problem, device, of.choice)});
  }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const hopper::WeightChoice& choice) {
  Plan plan = hopper::weight_plan_of(turned_problem(problem), device,
                                     {choice, predict(problem, device, choice)}, true);
  plan.workspace_bytes = places_of(problem, choice.split).end;
  plan.note = "turned, " + plan.note;
  add_grad_bias(problem, device, kTurn, plan);
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (!device.has_wgmma) return "spool is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "spool is for grad_weight";
  if (element_size(problem.dtype) != 2) return "spool is for 16 bits";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "spool is for NCHW";
  if (problem.group_out() % 4 != 0)
    return number(problem.group_out()) + " output channels are no whole fours";
  // The copy engine starts at whole 16 bytes.
  if (problem.groups > 1 && (problem.group_in() % kOctet != 0 || problem.group_out() % kOctet != 0))
    return "groups of " + number(problem.group_in()) + " and " + number(problem.group_out()) +
           " channels are no whole 16 bytes";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  const int64_t bytes = places_of(problem, 1).sums;
  if (bytes > kWorkspaceMost) return "copies of the tensors take " + number(bytes) + " bytes";
  return {};
}

Turned turned_of(const void* from, void* to, int64_t images, int64_t channels, int64_t pixels) {
  Turned t{};
  t.from = from, t.to = to;
  t.channels = static_cast<int32_t>(channels), t.pixels = static_cast<int32_t>(pixels);
  t.pitch = static_cast<int32_t>(round_up(channels, kOctet));
  t.channel_blocks = static_cast<int32_t>(ceil_div(channels, kTurnChannels));
  // As few blocks as there must be, of pixels alike.
  const int64_t most = pixels % kOctet == 0 ? kTurnPixels : kTurnPixels - kOctet;
  const int64_t fewest = ceil_div(pixels, most);
  t.block_pixels = static_cast<int32_t>(round_up(ceil_div(pixels, fewest), kOctet));
  t.pixel_blocks = static_cast<int32_t>(ceil_div(pixels, t.block_pixels));
  t.elements = images * channels * pixels;
  return t;
}

}  // namespace

Problem turned_problem(const Problem& problem) {
  Problem turned = problem;
  turned.x_layout = turned.y_layout = Layout::nhwc;
  turned.has_bias = 0;
  return turned;
}

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p{};
  const Places places = places_of(problem, plan.split);
  char* const workspace = static_cast<char*>(args.workspace);
  p.x = workspace, p.y = workspace + places.y;
  p.turn.tensor[0] = turned_of(args.x.data, workspace, problem.batch, problem.in_channels,
                               problem.h.in * problem.w.in);
  p.turn.tensor[1] = turned_of(args.y.data, workspace + places.y, problem.batch,
                               problem.out_channels, problem.h.out * problem.w.out);
  const auto blocks = [&](const Turned& t) {
    return problem.batch * t.channel_blocks * t.pixel_blocks;
  };
  p.turn.first_blocks = static_cast<int32_t>(blocks(p.turn.tensor[0]));
  p.turn_blocks = p.turn.first_blocks + blocks(p.turn.tensor[1]);

  p.rounded = plan.split == 1;
  p.weight = *static_cast<const hopper::WeightParams*>(plan.prepared.get());
  p.weight.x = p.x;
  char* const sums = workspace + places.sums;
  p.weight.weight = sums;
  p.weight.partials = p.rounded ? nullptr : reinterpret_cast<float*>(sums);
  const auto columns = static_cast<int32_t>(problem.group_out()),
             matrix = static_cast<int32_t>(problem.in_channels) * columns;
  const int32_t stride[] = {columns, 1, static_cast<int32_t>(problem.w.kernel) * matrix, matrix};
  std::copy(std::begin(stride), std::end(stride), p.weight.weight_stride);
  p.weight.weight_quads = 1;
  p.weight_blocks = hopper::weight_combinations(p.weight) * p.weight.split;

  SumParams& sum = p.sum;
  sum.pieces = sums, sum.weight = args.w.data;
  sum.elements = matrix;
  sum.taps = p.weight.taps, sum.count = plan.split;
  sum.piece_quads = static_cast<int32_t>(weight_bytes(problem) / 16);
  sum.parts = 1;
  while (sum.parts * 2 * sum.taps <= kSumSlots && sum.parts * 4 <= plan.split) sum.parts *= 2;
  int slots = sum.parts;
  while (slots < kSumSlots && slots < sum.parts * sum.taps) slots *= 2;
  sum.block_elements = kSumThreads / slots * 4;
  sum.by_taps = FastDivide(sum.taps);
  p.sum_blocks = ceil_div(matrix, p.rounded ? kReturnElements : sum.block_elements);
  return p;
}

}  // namespace convt2d::cuda::spool
