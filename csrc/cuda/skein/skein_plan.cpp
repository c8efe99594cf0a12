#include "cuda/skein/skein_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_cost.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::skein {
namespace {

// Counted, and by 400 times of plans for twelve layers in fp16 and TF32 on an H200 (2026-11-30).
constexpr double kClock = 1700;     // cycles a microsecond
constexpr double kLaunch = 4;       // us
constexpr double kPairs = 0.5;      // us, of clusters
constexpr double kBlock = 3000;     // cycles of a block beside its bands
constexpr double kCopied = 34;      // bytes a cycle of the copy engine
constexpr double kCopiedRow = 3.7;  // cycles of a row of a box, however short,
constexpr double kSkewed = 2;       // and of one that starts elsewhere in 32 bytes
constexpr double kStep = 90;        // cycles of a warp's two instructions' places,
constexpr double kPair = 12;        // and for each pair of rows
constexpr double kBand = 500;       // of a band: barriers
constexpr double kMemoryRate = 1;   // of the copy rate
constexpr double kBeside = 0.08;    // of the lesser of work and bytes
constexpr double kSum = 2;          // us, the second pass,
constexpr double kPartialRate = 3;  // and times the copy rate's time

constexpr int64_t kMostBack = 2;
constexpr int kMostImages = 16;    // of a stage
constexpr int kBlocks[] = {1, 2};  // of a multiprocessor

struct Choice {
  int row, band, images;
  int blocks;  // of a multiprocessor, that have room beside each other
  int split, ranks;
};

int64_t size_of(const Problem& problem) {
  return static_cast<int64_t>(element_size(problem.dtype));
}
int number(int64_t value) { return static_cast<int>(value); }
int64_t back_of(const Problem& problem) { return ceil_div(problem.h.kernel, problem.h.stride); }
int64_t first_shift(const Axis& w) { return ceil_div(w.near_pad - w.kernel + 1, w.stride); }
int64_t shifts_of(const Axis& w) {
  return floor_div(kPiece - 1 + w.near_pad, w.stride) - first_shift(w) + 1;
}
// The tile with the fewest products that has room for a problem's, -1 if none has.
int tile_of(const Problem& problem) {
  const int64_t pairs = ceil_div(problem.h.stride, 2),
                eights = ceil_div(back_of(problem) * shifts_of(problem.w), 8);
  for (int row = 0; row < kTileCount; ++row)
    if (pairs <= kTiles[row].pairs && eights <= kTiles[row].eights) return row;
  return -1;
}
int64_t pixels_of_strip(const Params& p) {
  return p.lead + int64_t{p.pixels} * (p.pieces - 1) + p.shifts;
}

// All but pointers.
Params shape(const Problem& problem, const Device& device, const Choice& choice) {
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = size_of(problem);
  Params p{};
  set_weight_extents(problem, p);
  p.y_h = number(h.out), p.y_w = number(w.out);
  p.kernel_h = number(h.kernel), p.kernel_w = number(w.kernel);
  p.stride_h = number(h.stride), p.stride_w = number(w.stride);
  p.pad_h = number(h.near_pad), p.pad_w = number(w.near_pad);
  p.back = number(back_of(problem));
  p.first_shift = number(first_shift(w)), p.shifts = number(shifts_of(w));
  p.pixels = kPiece / p.stride_w;
  p.all_q = p.x_h + p.back - 1;
  p.band = choice.band;
  p.bands = number(ceil_div(p.all_q, p.band));
  p.images = choice.images;
  // As few strips as boxes have room for. Pairs of places lie in one row, and every strip of x starts with whole 16 bytes.
  const int64_t whole = 16 / size, pieces = ceil_div(p.y_w, kPiece);
  p.lead = number(p.first_shift - floor_div(p.first_shift, whole) * whole);
  for (p.strips = 1;; ++p.strips) {
    p.pieces = number(round_up(ceil_div(pieces, p.strips),
                               p.strips > 1 ? std::max<int64_t>(2, whole / p.pixels) : 2));
    if (p.pieces * kPiece <= kMostSpan && pixels_of_strip(p) <= kMostSpan) break;
  }
  p.steps = number(ceil_div(int64_t{p.images} * p.band * p.pieces, step_places(number(size))));
  p.y_pitch = number(p.pieces * kPiece * size);
  p.x_pitch = number(round_up(pixels_of_strip(p) * size, 16));
  p.x_at = number(round_up(int64_t{p.images} * y_rows(p) * p.y_pitch, 128));
  p.stage_bytes = number(round_up(p.x_at + int64_t{p.images} * x_rows(p) * p.x_pitch, 128));
  const int room = device.smem_optin / choice.blocks - (choice.blocks > 1 ? 1024 : 0) -
                   stages_at(p, kTiles[choice.row], number(size)) -
                   spare_bytes(p, kTiles[choice.row]);
  p.stages = std::clamp(room / p.stage_bytes, 0, kMostStages);
  p.bands_of_all = number(ceil_div(problem.batch, p.images) * p.bands * p.strips);
  p.split = choice.split, p.ranks = choice.ranks;
  p.by_strips = FastDivide(p.strips), p.by_bands = FastDivide(p.bands);
  p.by_band = FastDivide(p.band), p.by_pieces = FastDivide(p.pieces);
  return p;
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile,
               int blocks_together) {
  const auto rows = [&](int count, int pitch, double skew) {
    return count * std::max(kCopiedRow * skew, pitch / kCopied);
  };
  const double engine =
      rows(p.images * y_rows(p), p.y_pitch, 1) + rows(p.images * x_rows(p), p.x_pitch, kSkewed);
  const double work = std::ceil(p.steps / (2. * kWarps)) * (kStep + kPair * tile.pairs) + kBand;
  const double blocks = double(clusters_of(p)) * p.ranks;
  const double bands = std::ceil(double(p.bands_of_all) / (double(p.split) * p.ranks));
  const double waves = std::ceil(blocks / (device.sm_count * blocks_together));
  const double together = std::min<double>(blocks_together, std::ceil(blocks / device.sm_count));
  const double cycles = kBlock + bands * std::max(engine * together, work);
  WeightCosts costs = {kLaunch, kMemoryRate, kBeside, kSum, kPartialRate};
  if (p.ranks > 1) costs.launch += kPairs;
  costs.left_behind = kLeftBehind;
  return weight_us(problem, device, p.split, waves * cycles / kClock, costs);
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int row = tile_of(problem), bytes = number(size_of(problem));
  const int64_t channels = problem.out_channels, all_q = problem.h.in + back_of(problem) - 1;
  // Of a plane's bands none has more rows than a box, of dY or of x.
  const int64_t most =
      std::min<int64_t>(kMostSpan / problem.h.stride, kMostSpan - back_of(problem) + 1);
  const int64_t least = ceil_div(all_q, most);
  std::vector<int> bands;
  for (int64_t count : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32})
    add_once(bands, ceil_div(all_q, std::max(least, count)));
  for (int64_t count = least; count > 32 && count < 4 * least; count *= 2)
    add_once(bands, ceil_div(all_q, count));
  // And of small planes a stage has some.
  std::vector<std::pair<int, int>> contents;  // of a stage: q, images
  for (const int band : bands) contents.push_back({band, 1});
  for (int images = 2; images <= kMostImages && images <= problem.batch && least == 1; images *= 2)
    contents.push_back({number(all_q), images});
  for (const auto& [band, images] : contents)
    for (const int blocks : kBlocks) {
      Choice choice{row, band, images, blocks, 1, 1};
      const Params p = shape(problem, device, choice);
      if (p.stages < 2) {
        reason = "a band takes " + std::to_string(p.stage_bytes) + " bytes";
        continue;
      }
      // What a sum has of a band.
      const int64_t summed = ceil_div(int64_t{p.steps} * step_places(bytes), kWarps);
      for (choice.ranks = 1; choice.ranks <= 2; ++choice.ranks)
        for (const int parts : splits_worth_trying(problem, channels, p.bands_of_all, summed)) {
          if (parts % choice.ranks != 0) continue;
          choice.split = parts / choice.ranks;
          found.push_back({choice, predict(problem, device, shape(problem, device, choice),
                                           kTiles[row], blocks)});
        }
    }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  const Params p = shape(problem, reference_gpu(), choice);
  Plan plan =
      weight_sum_plan(problem, device, choice.row, choice.split,
                      predict(problem, device, p, kTiles[choice.row], choice.blocks), kLaunch);
  plan.detail[0] = choice.band, plan.detail[1] = choice.blocks;
  plan.detail[2] = choice.ranks, plan.detail[3] = choice.images;
  const auto text = [](int64_t value) { return std::to_string(value); };
  plan.note = (p.images > 1 ? text(p.images) + " images, " : "") + text(p.band) + " of " +
              text(p.all_q) + " rows of x x " + text(p.pieces) + " pieces of dY's, " +
              text(p.back * p.shifts) + " columns, " + text(p.stages) + " stages of " +
              text(p.stage_bytes) + " bytes, split " + text(p.split) + ", " +
              (p.ranks > 1 ? "sums of pairs together, " : "") + text(clusters_of(p) * p.ranks) +
              " blocks, " + text(choice.blocks) + " together";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "skein is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "skein is for grad_weight";
  if (problem.dtype == DType::f64 || is_strict(problem)) return "skein is for 16 bits and TF32";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw)
    return "skein is for NCHW";
  if (problem.group_in() != 1)
    return "each output reads " + text(problem.group_in()) + " input channels, skein needs 1";
  if (h.dilation != 1 || w.dilation != 1)
    return "taps lie " + text(h.dilation) + " and " + text(w.dilation) + " apart";
  if (kPiece % w.stride != 0) return "a step of " + text(w.stride) + " columns is no part of 8";
  if (back_of(problem) > kMostBack)
    return text(h.kernel) + " kernel rows are more than two steps of " + text(h.stride);
  if (tile_of(problem) < 0)
    return text(h.kernel) + " x " + text(w.kernel) + " taps with steps of " + text(h.stride) +
           " and " + text(w.stride) + " are more than a warp has sums for";
  const int64_t size = size_of(problem);
  for (const int64_t row : {w.in * size, w.out * size})
    if (row % 16 != 0) return "rows of " + text(row) + " bytes are no whole vectors";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

}  // namespace

int64_t clusters_of(const Params& p) { return int64_t{p.groups} * p.columns * p.split; }

int shared_bytes(const Params& p, Tile tile, int bytes) {
  return stages_at(p, tile, bytes) + p.stages * p.stage_bytes + spare_bytes(p, tile);
}

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p =
      shape(problem, reference_gpu(),
            {plan.row, plan.detail[0], plan.detail[3], plan.detail[1], plan.split, plan.detail[2]});
  set_weight_tensors(args, p);
  const auto steps = weight_steps(args, p);
  std::copy(steps.begin(), steps.end(), p.stride);
  return p;
}

Maps maps_of(const Problem& problem, const Params& p) {
  const int64_t size = size_of(problem);
  const auto map = [&](const void* base, int64_t width, int64_t height, int64_t channels, int pitch,
                       int rows) {
    const int64_t row = width * size, plane = row * height;
    return encode({base,
                   number(size),
                   4,
                   {width, height, channels, problem.batch},
                   {size, row, plane, plane * channels},
                   {number(pitch / size), rows, 1, p.images},
                   {1, 1, 1, 1},
                   false});
  };
  return {map(p.x, p.x_w, p.x_h, problem.in_channels, p.x_pitch, x_rows(p)),
          map(p.y, p.y_w, p.y_h, problem.out_channels, p.y_pitch, y_rows(p))};
}

}  // namespace convt2d::cuda::skein
