#include "cuda/pleat/pleat_plan.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::pleat {
namespace {

// Counted, but for what a tile takes beside its products, which is five layers' (H200, 2026-11-29): 23.8 to 375 us, within 6 %.
constexpr double kClock = 1700;  // cycles a microsecond
constexpr double kLaunch = 6;    // us: launch, first boxes, last stores
constexpr double kTile =
    1350;  // cycles of a tile beside its products: four warpgroups hide no more
// The same of a strip's tile, whose rows of y lanes store: five layers', 144 to 249 us, within 3 %.
constexpr double kStayingTile = 2300;
// The same of a flat tile, whose outputs take twice the instructions, and three shuffles instead of one.
constexpr double kFlatTile = 2200;
// Over an instruction's least; of flat tiles as seven layers took, 15 to 109 us, within 13 %.
constexpr double kTensorTime = 1.08, kFlatTensorTime = 1.25;
constexpr double kShallow = 160;  // cycles of a chunk of one instruction, of two a quarter of that
constexpr double kArriving = 45;  // bytes a cycle that come to a multiprocessor
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kBeside = 0.1;       // of the lesser of work and bytes

struct Choice {
  int row, slices, segments, stages, walkers;
};

int width_of(int row) { return is_flat(row) ? flat_tile(row).width : tile_width(eights_of(row)); }

// Rows of x in a tile; of flat ones an image's, if there is room, or none if there is none.
int rows_of(const Problem& problem, int row) {
  if (!is_flat(row)) return tile_rows(eights_of(row));
  const int64_t height = problem.h.in, width = problem.w.in, most = width_of(row);
  return static_cast<int>(height * width <= most ? height
                                                 : flat_rows(int(width / kPair), int(most)));
}

// Images in a tile: several, where each one's place has the block below it too.
int images_of(const Problem& problem, int row) {
  if (!is_flat(row) || problem.batch == 1) return 1;
  const int64_t height = problem.h.in, width = problem.w.in, most = flat_images(row);
  const bool fit = (height + 1) * width <= kLineNumbers &&
                   (most - 1) * kLineNumbers + height * width <= width_of(row);
  return static_cast<int>(fit ? most : 1);
}

// Kernels for rows as long as x has.
std::vector<int> kernels_of(const Problem& problem) {
  const int64_t eights = problem.w.in / 8;
  if (problem.w.in % 8 == 0)
    return {static_cast<int>(std::min<int64_t>(eights, kMostEights + 1)) - 1};
  std::vector<int> found;
  for (int row = kFlat; row < kKernels; ++row)
    if (flat_tile(row).eights == eights && rows_of(problem, row) > 0) found.push_back(row);
  return found;
}

// All but pointers.
Params shape(const Problem& problem, const Choice& choice) {
  const Axis &h = problem.h, &w = problem.w;
  Params p{};
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  p.groups = number(problem.groups);
  p.reduce = number(problem.group_in()), p.columns = number(problem.group_out());
  p.x_h = number(h.in), p.x_w = number(w.in), p.y_h = number(h.out), p.y_w = number(w.out);
  p.pad_h = number(h.near_pad), p.pad_w = number(w.near_pad);
  p.row_tiles = number(ceil_div(p.columns, kBlockChannels));
  p.early_rows = is_flat(choice.row) ? whole_rows(p.x_w / kPair) : 1;
  p.segment_rows = number(ceil_div(h.in, choice.segments));
  if (is_flat(choice.row)) p.segment_rows = number(round_up(p.segment_rows, p.early_rows));
  p.segments = number(ceil_div(h.in, p.segment_rows));
  p.strips = has_strips(choice.row) ? number(ceil_div(w.in, kStrip)) : 1;
  p.batch = number(problem.batch);
  p.images = images_of(problem, choice.row);
  p.tile_rows = rows_of(problem, choice.row);
  const int64_t items = ceil_div(problem.batch, p.images) * p.segments * p.groups * p.row_tiles;
  p.items = number(std::min<int64_t>(items, INT32_MAX));
  p.walkers = choice.walkers;
  p.slices = choice.slices;
  p.chunks = number(ceil_div(p.reduce, choice.slices * kSlice));
  p.x_bytes = kPixels * p.slices * kSlice * 2;
  p.stage_bytes = p.x_bytes + kGroups * kRows * p.slices * kSlice * 2;
  p.stages = choice.stages;
  p.fresh = p.strips > 1 && p.stages % p.chunks == 0 ? p.stages : INT32_MAX;
  // Rows of a tile, and the block below; and 16 bytes, among which they start.
  const int rows = p.tile_rows;
  if (p.strips > 1) {
    p.out_bytes = (rows + 1) * kStride * kPiece;
    p.left_bytes = (number(round_up(p.segment_rows + 1, rows)) + 1) * kLeft;
  } else {
    p.out_bytes = p.images * number(round_up((rows + 1) * kStride * w.out * 2 + 32, 16));
  }
  p.out_at = kStagesAt + p.stages * p.stage_bytes;
  p.left_at = p.out_at + kConsumers / 32 * p.out_bytes;
  p.shared_bytes = p.left_at + kConsumers / 32 * p.left_bytes;
  p.by_row_tiles = FastDivide(p.row_tiles);
  p.by_groups = FastDivide(p.groups);
  p.by_segments = FastDivide(p.segments);
  return p;
}

double predict(const Problem& problem, const Device& device, const Params& p,
               const Choice& choice) {
  const double tiles = p.strips * std::ceil((p.segment_rows + (p.segments > 1) * p.early_rows) /
                                            double(p.tile_rows));
  const double shallow = p.slices == 1   ? kShallow
                         : p.slices == 2 ? kShallow / 4
                                         : 0,
               multiply =
                   p.chunks * (shallow + p.slices * kGroups * width_of(choice.row) / 2.0 *
                                             (is_flat(choice.row) ? kFlatTensorTime : kTensorTime)),
               beside = is_flat(choice.row)   ? kFlatTile
                        : p.fresh == p.stages ? kStayingTile
                                              : kTile,
               missing = p.images > 1 ? 1 - p.images * p.x_h * p.x_w / double(kPixels) : 0,
               arriving = p.chunks *
                          ((p.fresh == p.stages ? p.x_bytes : p.stage_bytes) - missing * p.x_bytes),
               each = std::max(multiply + beside, arriving / kArriving);
  const double rounds = std::ceil(double(p.items) / std::min(choice.walkers, device.sm_count));
  const double busy_us = rounds * tiles * each / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  constexpr int kLeastStages = 3;
  std::vector<Candidate<Choice>> found;
  for (const int row : kernels_of(problem)) {
    const int64_t tiles = ceil_div(problem.h.in, rows_of(problem, row)),
                  most = is_flat(row) ? tiles : problem.h.in;
    int before = 0;
    for (int segments = 1; segments <= std::min<int64_t>(16, most); ++segments)
      for (const int slices : {4, 2, 1}) {
        Choice choice{row, slices, segments, 0, 1};
        const Params p = shape(problem, choice);
        if (slices == 4 && p.segments == before) break;  // as many as before
        before = p.segments;
        choice.stages = std::min((device.smem_optin - p.shared_bytes) / p.stage_bytes, kMostStages);
        if (choice.stages < kLeastStages) {
          reason = "no room for " + std::to_string(kLeastStages) + " stages";
          continue;
        }
        // Whole turns of a tile's chunks, so that weights stay.
        const int turns = choice.stages / p.chunks * p.chunks;
        if (p.strips > 1 && turns >= kLeastStages) choice.stages = turns;
        choice.walkers = std::min(p.items, device.sm_count);
        found.push_back({choice, predict(problem, device, shape(problem, choice), choice)});
      }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  const Params p = shape(problem, c);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  plan.detail[0] = c.slices;
  plan.detail[1] = c.segments;
  plan.detail[2] = p.stages;
  plan.detail[3] = c.walkers;
  plan.note = "16 channels x " + std::to_string(p.images * p.tile_rows) + " rows of " +
              std::to_string(std::min(p.x_w, kStrip)) + " pixels, K " +
              std::to_string(c.slices * kSlice) + " x " + std::to_string(p.stages) + " stages, " +
              std::to_string(p.strips) + " strips, " + std::to_string(p.segments) + " segments, " +
              std::to_string(c.walkers) + " blocks";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (!device.has_wgmma) return "pleat is for sm_90a";
  if (problem.direction != Direction::fwd) return "pleat is for forward";
  if (element_size(problem.dtype) != 2) return "pleat is for fp16 and bf16";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "pleat is for NCHW";
  for (const Axis& axis : {problem.h, problem.w}) {
    if (axis.kernel != kKernel || axis.stride != kStride || axis.dilation != 1)
      return "pleat is for kernels of 4 x 4 with stride 2";
    // Outputs that two rows of taps reach, but for the padding.
    if (axis.near_pad < 0 || axis.near_pad > kStride ||
        axis.out + axis.near_pad > (axis.in + 1) * kStride)
      return "outputs, " + number(axis.out) + " of a pad of " + number(axis.near_pad) +
             ", are not those of " + number(axis.in) + " pixels";
  }
  if (const int64_t width = problem.w.in; width % 8 != 0) {
    if (width % kPair != 0 || width > kStrip || problem.h.in * width % 8 != 0)
      return "x has " + number(problem.h.in) + " rows of " + number(width) +
             " pixels, which are no eights";
    if (kernels_of(problem).empty())
      return "no tile has rows of " + number(width) + " pixels that are whole eights together";
  }
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  const int32_t* const d = plan.detail;
  Params p = shape(problem, {plan.row, d[0], d[1], d[2], d[3]});
  p.y = args.y.data;
  p.bias = problem.has_bias ? args.bias : nullptr;
  return p;
}

Maps maps_of(const Problem& problem, const Params& p, const Args& args) {
  const int depth = p.slices * kSlice;
  return {p.strips == 1 ? encode_channels(args.x.data, problem.h.in * problem.w.in * 2, p.reduce,
                                          p.groups, problem.batch, kLineNumbers, depth)
                        : encode_rows(args.x.data, p.x_w, p.x_h, p.reduce, problem.batch * p.groups,
                                      kLineNumbers, depth),
          encode_channels(args.w.data, int64_t{p.columns} * kTaps * 2, p.reduce, p.groups, 1,
                          kLineNumbers, depth)};
}

}  // namespace convt2d::cuda::pleat
