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
constexpr double kCachedWrite = 0.5;  // and what is written, which stays in L2, counts less
constexpr double kReturn = 1;         // us, the third one, of a piece that is rounded
constexpr double kReturnRate = 1.1;   // of the copy rate
// Of slices, guessed: none has been measured.
constexpr double kFollow = 4;     // us that launches of a later one take less
constexpr double kAddRate = 1.3;  // of the copy rate, sums that later ones add to

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
int64_t most_images(int64_t batch, int slices) { return ceil_div(batch, slices); }
Places places_of(const Problem& p, int split, int slices) {
  const int64_t images = most_images(p.batch, slices);
  const int64_t x = copy_bytes(images, p.in_channels, p.h, p.w, true);
  const int64_t y = copy_bytes(images, p.out_channels, p.h, p.w, false);
  const int64_t sums = split > 1 || slices > 1 ? weight_bytes(p) * split : weight_elements(p) * 2;
  return {x, x + y, x + y + sums};
}

// The fewest slices that fit, or 0.
int fewest_slices(const Problem& p) {
  if (places_of(p, 1, 1).end <= kWorkspaceLimit) return 1;
  const int64_t image = places_of(p, 1, static_cast<int>(p.batch)).sums;
  const int64_t images = (kWorkspaceLimit - weight_bytes(p)) / image;
  return images < 1 ? 0 : static_cast<int>(std::max<int64_t>(2, ceil_div(p.batch, images)));
}

// What hopper is given: the largest slice.
Problem turned_problem(const Problem& problem, int slices) {
  Problem turned = problem;
  turned.batch = most_images(problem.batch, slices);
  turned.x_layout = turned.y_layout = Layout::nhwc;
  turned.has_bias = 0;
  return turned;
}

struct Choice {
  hopper::WeightChoice slice;
  int slices;
};

double predict(const Problem& problem, const Device& device, const Choice& choice) {
  const int split = choice.slice.split, slices = choice.slices;
  const double rate = device.copy_bytes_per_us;
  const double dense = double(weight_elements(problem)) * 2;
  const double bytes = double(places_of(problem, split, slices).sums);
  const double slice =
      kTurn + (1 + kCachedWrite) * bytes / (kTurnRate * rate) +
      hopper::weight_time(turned_problem(problem, slices), device, choice.slice, true);
  if (slices == 1) return slice + (split > 1 ? 0 : kReturn + 3 * dense / (kReturnRate * rate));
  // Hopper's time has the sums of several pieces, not those of one.
  const double sums = split > 1 ? 0 : 2 * double(weight_bytes(problem)) / (kAddRate * rate);
  return slices * (slice + sums) - (slices - 1) * kFollow + kReturn;
}

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int fewest = fewest_slices(problem);
  std::vector<int> counts;  // more of them leave room for more pieces
  for (int slices : {fewest, fewest + 1, 2 * fewest})
    if (slices <= problem.batch)  // as few as have no larger one
      add_once(counts, ceil_div(problem.batch, most_images(problem.batch, slices)));
  for (int slices : counts)
    for (const hopper::WeightCandidate& of :
         hopper::weight_candidates(turned_problem(problem, slices), device, reason, true)) {
      const Choice choice = {of.choice, slices};
      const int split = of.choice.split;
      if (slices == 1 && split == 1 && problem.in_channels * problem.group_out() % kOctet != 0) {
        reason = "a tap's weights are no whole 16 bytes";
        continue;
      }
      const int64_t bytes = places_of(problem, split, slices).end;
      if (bytes > kWorkspaceLimit) {
        reason = "copies of the tensors and sums take " + std::to_string(bytes) + " bytes";
        continue;
      }
      found.push_back({choice, predict(problem, device, choice)});
    }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  Plan plan = hopper::weight_plan_of(turned_problem(problem, choice.slices), device,
                                     {choice.slice, predict(problem, device, choice)}, true);
  plan.detail[kSlicesAt] = choice.slices;
  plan.workspace_bytes = places_of(problem, choice.slice.split, choice.slices).end;
  plan.note = "turned" +
              (choice.slices > 1 ? " in " + std::to_string(choice.slices) + " slices" : "") + ", " +
              plan.note;
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
  if (fewest_slices(problem) == 0)
    return "copies of an image and sums take " +
           number(places_of(problem, 1, static_cast<int>(problem.batch)).end) + " bytes";
  return {};
}

Turned turned_of(const void* from, void* to, int64_t first, int64_t images, int64_t channels,
                 int64_t pixels) {
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
  t.first = first * channels * pixels;
  t.elements = images * channels * pixels;
  return t;
}

}  // namespace

int slices_of(const Plan& plan) { return plan.detail[kSlicesAt]; }

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args, int slice) {
  Params p{};
  const int slices = slices_of(plan);
  const Places places = places_of(problem, plan.split, slices);
  char* const workspace = static_cast<char*>(args.workspace);
  p.x = workspace, p.y = workspace + places.y;
  const int64_t first = problem.batch * slice / slices,
                images = problem.batch * (slice + 1) / slices - first;
  p.turn.tensor[0] = turned_of(args.x.data, workspace, first, problem.batch, problem.in_channels,
                               problem.h.in * problem.w.in);
  p.turn.tensor[1] = turned_of(args.y.data, workspace + places.y, first, problem.batch,
                               problem.out_channels, problem.h.out * problem.w.out);
  const auto blocks = [&](const Turned& t) { return images * t.channel_blocks * t.pixel_blocks; };
  p.turn.first_blocks = static_cast<int32_t>(blocks(p.turn.tensor[0]));
  p.turn_blocks = p.turn.first_blocks + blocks(p.turn.tensor[1]);

  p.rounded = plan.split == 1 && slices == 1;
  p.weight = *static_cast<const hopper::WeightParams*>(plan.prepared.get());
  p.weight.x = p.x;
  p.weight.batch = static_cast<int32_t>(images);
  p.weight.tiles_n = static_cast<int32_t>(ceil_div(images, p.weight.tile_n));
  p.weight.add = slice > 0;
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
