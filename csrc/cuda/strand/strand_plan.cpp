#include "cuda/strand/strand_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::strand {
namespace {

// Counted; what is dated was measured.
constexpr double kClock = 1700;  // cycles a microsecond
constexpr double kLaunch = 6.5;  // us: launch, cold code, places, the way out
constexpr double kTornRuns = 1.5,
                 kTornStrict = 1.3;  // by depthany_S_r0, k3s3, k2s2_odd (2026-11-24)
constexpr double kClusters = 1.5;    // us: a cluster starts, its sums are added
constexpr double kFirst = 1200;      // cycles until the first chunk is there
constexpr double kBarrier = 60;      // cycles of a chunk that nothing hides
constexpr double kTensorTime = 1.2;  // of what the rates of Device say
constexpr double kRound = 2;         // instructions of a warp: 32 words rounded
constexpr double kSplit = 5;         // or split
constexpr double kCopySource = 10;   // 32 copies of dY,
constexpr double kCopyWeights = 5;   // of weights,
constexpr double kCopies = 60;       // and what a chunk takes beside them
constexpr double kCopyTime = 4;      // cycles of 32 copies where they leave a multiprocessor
constexpr double kL2Bytes = 45;      // a cycle that reach a multiprocessor,
constexpr double kL2Rate = 1.15;     // and all of them, times the copy rate
constexpr double kRest = 0.3;        // of what is less busy that is not hidden
constexpr double kMemoryRate = 0.8;  // of the copy rate
constexpr double kStored = 60;       // cycles: four sums of each thread, added and stored

struct Choice {
  int row, ranks;
};

// The runs of dY that a position reads, in K's order.
void set_runs(const Problem& problem, Params& p) {
  const Axis &h = problem.h, &w = problem.w;
  const int64_t channels = problem.out_channels, group = problem.group_out();
  const bool last = problem.y_layout == Layout::nhwc;
  const bool rows = last && problem.groups == 1 && (w.dilation == 1 || w.kernel == 1);
  const int64_t pixel = last ? channels : 1, row = w.out * pixel, plane = h.out * w.out;
  const auto set = [](int32_t& to, int64_t value) { to = static_cast<int32_t>(value); };
  set(p.y_pixel, pixel);
  set(p.y_row, row);
  set(p.y_image, plane * channels);
  set(p.y_group, last ? group : group * plane);
  set(p.unit, rows ? channels : 1);
  set(p.limit, w.out * p.unit);
  set(p.outer, last ? h.kernel : group);
  set(p.middle, !last ? h.kernel : rows ? 1 : w.kernel);
  set(p.run, !last ? w.kernel : rows ? w.kernel * channels : group);
  set(p.outer_step, last ? h.dilation * row : plane);
  set(p.middle_step, !last ? h.dilation * row : rows ? 0 : w.dilation * pixel);
  set(p.outer_row, last ? h.dilation : 0);
  set(p.middle_row, last ? 0 : h.dilation);
  set(p.middle_column, last && !rows ? w.dilation : 0);
  set(p.run_column, !last || rows);
}

// Whether every tap of every position exists.
bool is_whole(const Axis& axis) {
  return axis.near_pad <= 0 &&
         (axis.in - 1) * axis.stride - axis.near_pad + (axis.kernel - 1) * axis.dilation < axis.out;
}

// Where all taps exist, runs that follow each other are one.
void join_runs(Params& p) {
  p.outer_row = p.middle_row = p.middle_column = p.run_column = 0;
  if (p.middle == 1 || p.middle_step == p.run) p.run *= p.middle, p.middle = 1;
  if (p.middle == 1 && (p.outer == 1 || p.outer_step == p.run)) p.run *= p.outer, p.outer = 1;
}

// Bytes that may be copied at once: every stretch of them is of one run, exists or does not, and lies at a multiple.
int source_piece(const Problem& problem, const Params& p, bool whole) {
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  int64_t together = p.run;  // numbers, at least
  const auto divides = [&](bool matters, int64_t numbers) {
    if (matters) together = gcd(together, std::abs(numbers));
  };
  divides(p.outer > 1, p.outer_step);
  divides(p.middle > 1, p.middle_step);
  divides(problem.batch > 1, p.y_image);
  divides(problem.groups > 1, p.y_group);
  divides(h.in > 1, h.stride * p.y_row);
  divides(w.in > 1, w.stride * p.y_pixel);
  divides(true, h.near_pad * p.y_row + w.near_pad * p.y_pixel);
  if (!whole && p.run_column) {
    divides(w.in > 1, w.stride * p.unit);
    divides(true, w.near_pad * p.unit);
    divides(true, p.limit);
  }
  int piece = 16;
  while (piece > 2 && together * size % piece != 0) piece /= 2;
  return piece;
}

void shape(const Problem& problem, const Choice& choice, Params& p) {
  const Tile tile = kTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype)), plane = h.in * w.in;
  const bool last = problem.x_layout == Layout::nhwc;
  p = {};
  p.groups = static_cast<int32_t>(problem.groups);
  p.rows = static_cast<int32_t>(problem.group_in());
  p.reduce = static_cast<int32_t>(problem.group_out() * h.kernel * w.kernel);
  p.positions = static_cast<int32_t>(problem.batch * plane);
  p.row_tiles = static_cast<int32_t>(ceil_div(p.rows, tile.rows));
  p.position_tiles = static_cast<int32_t>(ceil_div(p.positions, tile.positions));
  p.chunks = static_cast<int32_t>(ceil_div(p.reduce * size, tile.chunk));
  p.ranks = choice.ranks;
  set_runs(problem, p);
  const bool whole = is_whole(h) && is_whole(w);
  if (whole) join_runs(p);
  p.y_h = static_cast<int32_t>(h.out);
  p.stride_h = static_cast<int32_t>(h.stride);
  p.stride_w = static_cast<int32_t>(w.stride);
  p.pad_h = static_cast<int32_t>(h.near_pad);
  p.pad_w = static_cast<int32_t>(w.near_pad);
  p.source_piece = source_piece(problem, p, whole);
  p.weight_piece = 16;
  while (p.weight_piece > 2 && p.reduce * size % p.weight_piece != 0) p.weight_piece /= 2;
  const int64_t pieces = tile.chunk / p.source_piece, of_run = p.run * size / p.source_piece;
  while (2 << p.along <= std::min(pieces, of_run)) ++p.along;
  p.x_image = static_cast<int32_t>(problem.in_channels * plane);
  p.x_channel = static_cast<int32_t>(last ? 1 : plane);
  p.x_pixel = static_cast<int32_t>(last ? problem.in_channels : 1);
  p.vectors = last ? problem.group_in() % 4 == 0 : plane % 4 == 0;
  p.by_run = FastDivide(p.run);
  p.by_middle = FastDivide(p.middle);
  p.by_plane = FastDivide(plane);
  p.by_width = FastDivide(w.in);
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const int size = static_cast<int>(element_size(problem.dtype));
  const bool half = size == 2, strict = is_strict(problem);
  const double products = strict ? 3 : 1, chunk = tile.chunk;
  // Of a chunk, cycles of a multiprocessor: its tensor cores,
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count /
                      kClock / kTensorTime;
  const double mma = double(tile.rows) * tile.positions * (chunk / size) * products / rate;
  // its four issuers,
  const double m = kWarpRows / 16, n = tile.warp_positions / 8;
  const double words = 4 * m + 2 * n;
  const double step = m + n / 2 + m * n * products + 4 +
                      (half ? 0 : words * (strict ? kSplit : kRound)) + (strict ? m * n * 2 : 0);
  const double source = tile.positions * chunk / p.source_piece / 32,
               weights = tile.rows * chunk / p.weight_piece / 32;
  const double issue = (steps(tile) * step * kWarps + source * kCopySource +
                        weights * kCopyWeights + kCopies * kWarps) /
                       4;
  // shared memory, and what comes to it. Rows and positions that do not exist come from nowhere.
  const double rows = std::min(p.rows, tile.rows),
               positions = std::min(p.positions, tile.positions);
  const double shared = steps(tile) * kWarps * words * 4 / 4 + (source + weights) * kCopyTime;
  const double copied = (rows + positions) * chunk, l2 = copied / kL2Bytes;
  const double busiest = std::max({mma, issue, shared, l2});
  // Runs that are no whole sectors.
  const double torn = p.run * size >= 32 ? 1 : strict ? kTornStrict : kTornRuns;
  const double cycles = torn * (busiest + kRest * (mma + issue + shared + l2 - busiest));
  const double blocks = static_cast<double>(tiles_of(p)) * p.ranks;
  const double chunks = std::ceil(double(p.chunks) / p.ranks);
  const double rounds = rounds_of(device, tiles_of(p), p.ranks, side_by_side(tile));
  const double waves = std::ceil(rounds / side_by_side(tile));
  const double stored = double(tile.rows) * tile.positions / 4 / kThreads / p.ranks;
  const double busy_us = (rounds * chunks * cycles + waves * (chunks * kBarrier + kFirst) +
                          rounds * kStored * (teams(tile) + p.ranks + stored)) /
                         kClock;
  const double l2_us = blocks * chunks * copied / (kL2Rate * device.copy_bytes_per_us);
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + (p.ranks > 1 ? kClusters : 0) + std::max({busy_us, l2_us, memory_us}) +
         kRest * std::min(busy_us, std::max(l2_us, memory_us));
}

bool fits(const Device& device, Tile tile) { return shared_bytes(tile) <= device.smem_optin; }

// The tile that covers dX with the fewest.
std::string too_many(const Problem& problem, const Device& device) {
  int64_t fewest = INT64_MAX;
  for (int row = 0; row < kTileCount; ++row) {
    Params p;
    shape(problem, {row, 1}, p);
    fewest = std::min(fewest, tiles_of(p));
  }
  return fewest <= int64_t{kMostTiles} * device.sm_count
             ? std::string()
             : "dX has " + std::to_string(fewest) + " tiles, more than few";
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < (is_strict(problem) ? kStrictTiles : kTileCount); ++row) {
    const Tile tile = kTiles[row];
    if (!fits(device, tile)) {
      reason = "a tile needs " + std::to_string(shared_bytes(tile)) + " bytes of shared memory";
      continue;
    }
    Params p;
    shape(problem, {row, 1}, p);
    const int64_t tiles = tiles_of(p);
    if (tiles > INT32_MAX) {
      reason = "dX has too many tiles";
      continue;
    }
    // More ranks than fill the device are not looked at.
    for (int ranks = 1; ranks <= std::min(device.most_ranks, p.chunks); ++ranks) {
      if (ranks > 1 && tiles * ranks > 2 * int64_t{device.sm_count}) break;
      p.ranks = ranks;
      found.push_back({{row, ranks}, predict(problem, device, p, tile)});
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& choice = candidate.choice;
  const Tile tile = kTiles[choice.row];
  Params p;
  shape(problem, choice, p);
  Plan plan;
  plan.row = choice.row;
  plan.split = choice.ranks;
  plan.predicted_us = candidate.predicted_us;
  plan.note = std::to_string(tile.rows) + " channels x " + std::to_string(tile.positions) +
              " positions, runs of " + std::to_string(p.run) + " by " +
              std::to_string(p.source_piece) + " bytes, weights by " +
              std::to_string(p.weight_piece) + ", " + std::to_string(tiles_of(p)) + " tiles";
  if (p.ranks > 1) plan.note += ", K split over a cluster of " + std::to_string(p.ranks);
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  if (!device.has_mma_f16 || !device.has_cp_async || device.most_ranks < 2)
    return "strand is for GPUs with clusters";
  if (problem.direction != Direction::grad_input) return "strand is for grad_input";
  if (problem.dtype == DType::f64) return "strand is for fp16, bf16 and fp32";
  const Layout layout = problem.x_layout;
  if (layout == Layout::strided || problem.y_layout != layout || problem.w_layout != layout)
    return "strand is for NCHW and for channels last";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  if (layout == Layout::nchw && w.dilation != 1 && w.kernel > 1)
    return "taps lie " + number(w.dilation) + " apart";
  const int64_t reduce = problem.group_out() * h.kernel * w.kernel;
  if (reduce * size > INT32_MAX / 2) return "sums of " + number(reduce) + " products are too long";
  if (reduce * size % 4 != 0)
    return "sums of " + number(reduce) + " products of 16 bits are no whole words";
  if (problem.batch * h.in * w.in > INT32_MAX - 1024) return "x has too many pixels";
  // From a position to its taps, outside of dY as well: 32 bits hold it.
  const int64_t pixel = layout == Layout::nhwc ? problem.out_channels : 1;
  if (((std::abs(h.near_pad) + h.in * h.stride + h.kernel * h.dilation) * w.out +
       std::abs(w.near_pad) + w.in * w.stride + w.kernel * w.dilation) *
          pixel >
      INT32_MAX / 2)
    return "taps lie too far apart";
  if ((std::abs(h.near_pad) + h.in * h.stride + h.kernel * h.dilation) > 1 << 29)
    return "taps lie too far apart";
  Params p;
  shape(problem, {0, 1}, p);
  if (p.source_piece < 4)
    return "runs of " + number(p.run) + " numbers of dY do not start and end at whole words";
  return sums_too_short(problem, kLeastSplitTerms);
}

}  // namespace

int64_t tiles_of(const Params& params) {
  return int64_t{params.groups} * params.row_tiles * params.position_tiles;
}

// A cluster's blocks are of one group of multiprocessors, and which ones of a group are missing differs from one GPU to the next. Of
// 132, 16 clusters of six and 32 of three run at once, 16 of seven, 20 of six, 40 of three, 16 of eight and 32 of four take two
// rounds, and of eleven seven are at once (hifigan_u0, fcn32s, 2026-11-24 and 2026-11-26): as of seven groups of sixteen and two halves
// of another one, of six each. Pairs are always neighbours.
double rounds_of(const Device& device, int64_t tiles, int ranks, int together) {
  constexpr int kGroup = 18, kSure = 16, kHalf = 6;
  const auto at_once = [&](int blocks) {
    const int64_t all = int64_t{device.sm_count} * blocks;
    if (ranks <= 2) return all / ranks;
    const int64_t groups = device.sm_count / kGroup;
    return std::max<int64_t>(1, groups * (kSure * blocks / ranks) + 2 * (kHalf * blocks / ranks));
  };
  const int64_t whole = tiles / at_once(together), rest = tiles % at_once(together);
  return static_cast<double>(whole * together +
                             std::min<int64_t>(together, ceil_div(rest, at_once(1))));
}

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  std::vector<Plan> plans = all_plans(problem, device, reason, refusal, candidates, plan_of);
  if (plans.empty()) return plans;
  std::string why_not;
  for (Plan& plan : window_plans(problem, device, why_not)) plans.push_back(std::move(plan));
  for (Plan& plan : dense_plans(problem, device, why_not)) plans.push_back(std::move(plan));
  for (Plan& plan : span_plans(problem, device, why_not)) plans.push_back(std::move(plan));
  return plans;
}

Decision plan(const Problem& problem, const Device& device) {
  const auto refuse = [](const Problem& problem, const Device& device) {
    const std::string reason = refusal(problem, device);
    return reason.empty() ? too_many(problem, device) : reason;
  };
  Decision decision = best_plan(problem, device, refuse, candidates, plan_of);
  if (!decision.accepted) return decision;
  for (const auto of : {window_plan, dense_plan, span_plan}) {
    Decision other = of(problem, device);
    if (other.accepted && other.plan.predicted_us < decision.plan.predicted_us)
      decision = std::move(other);
  }
  return decision;
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p;
  shape(problem, {plan.row, plan.split}, p);
  p.weight = args.w.data;
  p.source = args.y.data;
  p.destination = args.x.data;
  return p;
}

}  // namespace convt2d::cuda::strand
