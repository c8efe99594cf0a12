// narrow's grad_weight: what a choice amounts to, and how long it should take.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/narrow/narrow_weight.h"
#include "cuda/strict_sums.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::narrow {
namespace {

// Counted, and then fitted to a sweep of an H200 (2026-11-24), on the scale of hopper's predictions, with which they vie.
constexpr double kClock = 1700;     // cycles a microsecond
constexpr double kLaunch = 5;       // us, the way in and out
constexpr double kStart = 2600;     // cycles of a block: until the first bytes are there,
constexpr double kEnd = 1200;       // from the last product to sums that are stored,
constexpr double kStored = 12;      // and for each sum of a thread
constexpr double kBand = 300;       // of a band: two barriers, and warps that wait for the slowest
constexpr double kNextBand = 1700;  // dY of a band is asked for one band ahead: what that waits for
constexpr double kMma = 1.9;        // an instruction of the tensor core,
constexpr double kIssued = 1.25;    // of a scheduler, one of a warp
constexpr double kWarp = 2.2;       // cycles of a warp for an instruction, if it is alone,
constexpr double kWarpStep = 250;   // and for a step beside
constexpr double kCopied = 22;      // instructions for a piece of dY of each lane
constexpr double kL2Bytes = 30;     // a cycle
constexpr double kRest = 0.15;      // of what is less busy that is not hidden
constexpr double kMemoryRate = 0.88;  // of the copy rate
constexpr double kBeside = 0.1;       // of the lesser of work and bytes
constexpr double kSum = 2.3;          // us, the second pass,
constexpr double kPartialRate = 1.5;  // and times the copy rate's time

// Times what is counted: NCHW and NHWC, of 32 bits and of 16; strict fp32.
constexpr double kMore[2][2] = {{1.42, 1.35}, {1.35, 1.7}}, kStrict = 1.15;

constexpr int64_t kMostBand = 8192;  // pixels

struct Choice {
  int row;  // of kWeightTiles
  int band_rows, channel_warps, split;
  int more;  // pieces between lines
};

int64_t combinations(const WeightParams& p) { return int64_t{p.groups} * p.channel_blocks; }

int columns_of_weight(const Problem& problem) {
  return static_cast<int>(
      std::min<int64_t>(problem.h.kernel * problem.w.kernel, kMostWeightColumns + 1) *
      std::min<int64_t>(problem.group_out(), kMostWeightColumns + 1));
}

// How often a load of dY goes to shared memory, on average over the columns.
double conflicts(const WeightParams& p, int number_bytes) {
  const int columns = p.kernel_h * p.kernel_w * p.columns, tiles = (columns + 7) / 8;
  int trips = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    int words[32], count = 0, met[32] = {}, most = 0;  // different ones, of a bank
    for (int lane = 0; lane < 32; ++lane) {
      const int word =
          (p.column_at[tile * 8 + lane / 4] + lane % 4 * lane_pixels(number_bytes) * p.pixel_step) /
          4;
      if (std::find(words, words + count, word) != words + count) continue;
      words[count++] = word;
      most = std::max(most, ++met[word % 32]);
    }
    trips += most;
  }
  return double(trips) / tiles;
}

// visit(number, kh, co, kw) of all columns, in their order.
template <class Visit>
void for_columns(const WeightParams& p, Visit&& visit) {
  int number = 0;
  for (int kh = 0; kh < p.kernel_h; ++kh)
    for (int outer = 0; outer < (p.channels_last ? p.kernel_w : p.columns); ++outer)
      for (int inner = 0; inner < (p.channels_last ? p.columns : p.kernel_w); ++inner)
        visit(number++, kh, p.channels_last ? inner : outer, p.channels_last ? outer : inner);
}

// Lines of dY so far apart, and each column's place in them; those beyond read what the first one does.
void set_lines(int size, int line_bytes, WeightParams& p) {
  const int numbers = p.channels_last ? p.columns : 1;  // of a pixel in a line
  p.line_bytes = line_bytes;
  p.row_step = p.stride_h * p.row_lines * line_bytes;
  p.pixel_step = p.stride_w * numbers * size;
  p.y_bytes = static_cast<int32_t>(round_up(int64_t{p.y_lines} * line_bytes, 16));
  const int first = (p.lead - p.pad_w * numbers) * size;
  std::fill(std::begin(p.column_at), std::end(p.column_at), first);
  for_columns(p, [&](int number, int kh, int co, int kw) {
    p.column_at[number] = first + kh * p.dilation_h * p.row_lines * line_bytes +
                          co * (p.channels_last ? size : line_bytes) +
                          kw * p.dilation_w * numbers * size;
  });
}

// Everything that follows from the problem and the choice, pointers aside. The refusal has seen to limits.
void shape(const Problem& problem, const Choice& choice, WeightParams& p) {
  const Axis &h = problem.h, &w = problem.w;
  const int size = static_cast<int>(element_size(problem.dtype));
  const bool channels_last = problem.x_layout == Layout::nhwc;
  const WeightTile tile = kWeightTiles[choice.row];
  p = {};
  set_weight_extents(problem, p);
  p.channels_last = channels_last;
  p.x_plane = p.x_h * p.x_w;
  set_geometry(problem, p);
  p.dilation_w = static_cast<int32_t>(w.dilation);
  p.band_rows = choice.band_rows;
  p.bands = static_cast<int32_t>(ceil_div(h.in, choice.band_rows));
  p.items = p.batch * p.bands;
  p.split = choice.split;
  p.same_bytes = 0x3210;
  p.channel_warps = choice.channel_warps;
  p.pixel_warps = kWeightWarps / choice.channel_warps;
  p.channel_blocks =
      static_cast<int32_t>(ceil_div(p.rows, int64_t{choice.channel_warps} * warp_inputs(tile)));

  const int inner = channels_last ? p.columns : 1;
  p.row_lines = channels_last ? 1 : p.columns;
  p.y_lines =
      ((choice.band_rows - 1) * p.stride_h + (p.kernel_h - 1) * p.dilation_h + 1) * p.row_lines;
  p.y_piece = p.y_w * inner * size % 16 == 0 ? 16 : 4;
  const int numbers = p.y_piece / size;
  p.lead = static_cast<int32_t>(round_up(int64_t{p.pad_w} * inner, numbers));
  const int span = (p.x_w - 1) * p.stride_w + (p.kernel_w - 1) * p.dilation_w + 1;
  p.line_pieces =
      static_cast<int32_t>(ceil_div(int64_t{span} * inner + p.lead - p.pad_w * inner, numbers));
  p.y_row_numbers = p.y_w * inner;
  const int y_plane = p.y_h * p.y_w;
  p.y_channel = channels_last ? 1 : y_plane;
  p.y_row = p.y_row_numbers;
  p.y_image = y_plane * p.columns * p.groups;
  set_lines(size, (p.line_pieces + choice.more) * p.y_piece, p);
  const int64_t sums = int64_t{kWeightWarps} * weight_sums(tile) * 128;
  p.shared_bytes = static_cast<int32_t>(
      kWeightHeader + std::max<int64_t>(ring_bytes(tile) + int64_t{2} * p.y_bytes, sums));
  p.by_w = FastDivide(p.x_w);
  p.by_bands = FastDivide(p.bands);
  p.by_pieces = FastDivide(p.line_pieces);
  p.by_row_lines = FastDivide(p.row_lines);
  p.by_split = FastDivide(p.split);
  p.by_channel_blocks = FastDivide(p.channel_blocks);
  p.by_channel_warps = FastDivide(p.channel_warps);
}

// Pieces between lines that let lanes meet in as few banks as there are: the same for all bands.
int spare_pieces(const Problem& problem, int row) {
  const int size = static_cast<int>(element_size(problem.dtype));
  WeightParams p;
  shape(problem, {row, 1, 1, 1, 0}, p);
  double least = 0;
  int best = 0;
  for (int more = 0; more < (p.y_piece == 4 ? 8 : 4); ++more) {
    set_lines(size, (p.line_pieces + more) * p.y_piece, p);
    const double trips = conflicts(p, size);
    if (more == 0 || trips < least - 1e-9) least = trips, best = more;
  }
  return best;
}

// `trips`: see conflicts().
double predict(const Problem& problem, const Device& device, const WeightParams& p, int row,
               double trips) {
  const int size = static_cast<int>(element_size(problem.dtype));
  const bool strict = is_strict(problem), halves = size == 2;
  const WeightTile tile = kWeightTiles[row];
  const double tiles = tile.columns;
  // Of a step of a warp.
  const double mmas = tiles * 2 * tile.inputs * (strict ? 3 : 1);
  const double loads = tiles * 4 * (halves ? 2 : 1);
  const double instructions = mmas +
                              tiles * (halves   ? 20
                                       : strict ? 44
                                                : 16) +
                              (strict ? 200 : 150);
  const double shared = tile.inputs * 20 + loads * trips;
  const double band_pixels = double(p.band_rows) * p.x_w;
  const double steps =
      std::ceil(std::ceil(band_pixels / step_pixels(size)) / p.pixel_warps);  // of a warp
  const double warps = double(p.channel_warps) * p.pixel_warps;
  // Of a band.
  const double pieces = double(p.y_lines) * p.line_pieces, words = pieces * p.y_piece / 4;
  const double channels = std::min<double>(p.rows, double(p.channel_warps) * warp_inputs(tile));
  const double of_mma = steps * warps * mmas * kMma;
  const double of_shared = steps * warps * shared + words / 32 * 1.5;
  const double of_issue = kIssued * (steps * warps * instructions + pieces / 32 * kCopied) / 4;
  const double of_l2 = (band_pixels * channels * size + words * 4) / kL2Bytes;
  const double of_warp = steps * (kWarpStep + kWarp * instructions);
  const double busiest = std::max({of_mma, of_shared, of_issue, of_l2, of_warp});
  const double band =
      kBand + busiest + kRest * (of_mma + of_shared + of_issue + of_l2 - std::min(busiest, of_l2));
  const double blocks = double(combinations(p)) * p.split;
  const double turns = std::ceil(blocks / device.sm_count);
  const double bands = std::ceil(double(p.items) / p.split);
  const double busy_us = turns * (bands * band + (bands - 1) * kNextBand) / kClock;
  // A block's first band comes before anything is multiplied.
  const double first = words * 4 / kL2Bytes + pieces * kIssued * kCopied / 32 / 4;
  const double beside_us = turns * (kStart + first + kEnd + kStored * weight_sums(tile)) / kClock;
  const double partial = static_cast<double>(partial_bytes(problem, p.split));
  const double memory_us =
      (tensor_bytes(problem) + partial) / (kMemoryRate * device.copy_bytes_per_us);
  const double slower = strict ? kStrict : kMore[p.channels_last][halves];
  return kLaunch + beside_us +
         slower * (std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us)) +
         (p.split > 1 ? kSum + kPartialRate * partial / device.copy_bytes_per_us : 0);
}

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int row = is_strict(problem) ? kFirstStrictWeight : 0;
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  // In NCHW a band starts at whole 16 bytes.
  const int64_t vector = 16 / size,
                whole = problem.x_layout == Layout::nhwc ? 1 : vector / gcd(problem.w.in, vector);
  std::vector<int> heights;
  for (int64_t rows : {1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64}) {
    rows = std::min(round_up(rows, whole), problem.h.in);
    if (rows == 1 || rows * problem.w.in <= kMostBand) add_once(heights, rows);
  }
  reason = "a band has no room";
  const int more = spare_pieces(problem, row);
  double trips = 0;
  for (const int rows : heights)
    for (const int channel_warps : {1, 2, 3, 4, 6, 8}) {
      if ((channel_warps - 1) * warp_inputs(kWeightTiles[row]) >= problem.group_in()) continue;
      Choice choice{row, rows, channel_warps, 1, more};
      WeightParams p;
      shape(problem, choice, p);
      if (p.shared_bytes > device.smem_optin) {
        reason = "bands of " + std::to_string(rows) + " rows need " +
                 std::to_string(p.shared_bytes) + " bytes of shared memory";
        continue;
      }
      if (trips == 0) trips = conflicts(p, static_cast<int>(size));
      for (int split :
           splits_worth_trying(problem, combinations(p), p.items, int64_t{rows} * problem.w.in)) {
        p.split = choice.split = split;
        found.push_back({choice, predict(problem, device, p, row, trips)});
      }
    }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  WeightParams p;
  shape(problem, choice, p);
  const double trips = conflicts(p, static_cast<int>(element_size(problem.dtype)));
  Plan plan = weight_sum_plan(problem, device, choice.row, choice.split,
                              predict(problem, device, p, choice.row, trips), kLaunch);
  const int detail[] = {choice.band_rows, choice.channel_warps, choice.more};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  const auto number = [](int64_t value) { return std::to_string(value); };
  plan.note = number(kWeightTiles[choice.row].columns * 8) + " columns, warps of " +
              number(warp_inputs(kWeightTiles[choice.row])) + " channels, " +
              number(p.channel_warps) + " x " + number(p.pixel_warps) + ", bands of " +
              number(p.band_rows) + " rows, split " + number(p.split) + ", " +
              number(weight_blocks(p)) + " blocks of " + number(p.shared_bytes) + " bytes";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "no wgmma (sm_90a)";
  if (problem.dtype == DType::f64) return "narrow is for fp16, bf16 and fp32";
  if (problem.x_layout == Layout::strided || problem.y_layout != problem.x_layout)
    return "narrow is for NCHW and NHWC";
  const bool channels_last = problem.x_layout == Layout::nhwc;
  if (channels_last && problem.groups > 1)
    return "narrow takes one group in NHWC, not " + number(problem.groups);
  if (columns_of_weight(problem) > kMostWeightColumns)
    return number(h.kernel * w.kernel) + " taps of " + number(problem.group_out()) +
           " output channels are more than " + number(kMostWeightColumns) + " columns";
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype)), vector = 16 / size;
  if (channels_last && problem.in_channels % vector != 0)
    return number(problem.in_channels) + " input channels are no whole 16 bytes";
  if (!channels_last && h.in * w.in % vector != 0)
    return "planes of " + number(h.in * w.in) + " pixels are no whole 16 bytes";
  if (size == 2 && w.in % 2 != 0) return "rows of x, " + number(w.in) + ", are no whole words";
  const int64_t y_row = w.out * (channels_last ? problem.out_channels : 1);
  if (size == 2 && y_row % 2 != 0) return "rows of dY, " + number(y_row) + ", are no whole words";
  if (h.in < 1 || w.in < 1) return "no pixels";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  // From a row of x to its lines, outside of dY as well: 32 bits hold it, and bytes of a line.
  const int64_t reach_h = std::abs(h.near_pad) + h.in * h.stride + h.kernel * h.dilation,
                reach_w = std::abs(w.near_pad) + w.in * w.stride + w.kernel * w.dilation;
  if (reach_w * problem.out_channels > 1 << 20 ||
      reach_h * std::max(w.out, reach_w) * problem.out_channels > INT32_MAX / 16)
    return "taps lie too far apart";
  if (problem.batch * h.in > INT32_MAX / 2) return "x has too many rows";
  return sums_too_short(problem, kLeastSplitTerms);
}

}  // namespace

int64_t weight_blocks(const WeightParams& params) { return combinations(params) * params.split; }

std::vector<Plan> weight_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision weight_plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

WeightParams weight_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  WeightParams p;
  shape(problem, {plan.row, plan.detail[0], plan.detail[1], plan.split, plan.detail[2]}, p);
  set_weight_tensors(args, p);
  const auto stride = weight_steps(args, p);
  p.input_stride = stride[0];
  std::fill(std::begin(p.column_to), std::end(p.column_to), -1);
  for_columns(p, [&](int number, int kh, int co, int kw) {
    p.column_to[number] = co * stride[1] + kh * stride[2] + kw * stride[3];
  });
  return p;
}

}  // namespace convt2d::cuda::narrow
