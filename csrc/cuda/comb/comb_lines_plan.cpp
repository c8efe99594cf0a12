// Which tiles of lines fit a problem, and their predicted times (comb_lines.h).
#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/comb/comb_plan.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::comb {
namespace {

// Fitted to 150 plans, 2026-11-25, an H100.
constexpr double kClock = 1700;      // cycles a microsecond
constexpr double kLaunch = 7;        // us, with the first loads and the way out
constexpr double kChunkTime = 780;   // cycles of a chunk, beside what follows
constexpr double kTensorTime = 1.0;  // of what the rates of Device say
constexpr double kIssued = 0.35;     // of the instructions counted:
constexpr double kFetch = 30;        // a step of a warp,
constexpr double kRound = 2;         // a word rounded, or split,
constexpr double kSplit = 6;
constexpr double kCopy = 8;          // 32 copies of x,
constexpr double kCopyRun = 40;      // 32 of dY (counted),
constexpr double kPair = 14;         // 32 words of x that are put together of numbers (counted),
constexpr double kRoundX = 3;        // 32 words of x rounded
constexpr double kL2Bytes = 18.6;    // a cycle
constexpr double kRest = 0.28;       // of what is less busy that is not hidden
constexpr double kAlone = 1.3;       // a block that has a multiprocessor to itself
constexpr double kMemoryRate = 0.8;  // of the copy rate
constexpr double kBeside = 0.5;      // of the lesser of work and bytes

constexpr int kFewestChunks = 4;  // with fewer, what comes in is waited for

struct Choice {
  int tile, chunk_rows;
};

// Columns of a line whose pixels have runs of their own: the largest part of a kernel row that divides it, is whole vectors and
// that a block has room for; or 0.
int64_t columns_of_line(int64_t kernel, int64_t size) {
  const int64_t vector = 16 / size;
  int64_t columns = std::min<int64_t>(kernel, kMostColumns) / vector * vector;
  while (columns > 0 && kernel % columns != 0) columns -= vector;
  return columns;
}

// Everything but stages and pointers. Returns why it cannot be done, or an empty string.
std::string shape(const Problem& given, const Choice& choice, LineParams& p) {
  const Problem problem = as_one_channel(given);
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype)), pixels = 4 / size;
  const int rows = line_sixteens(choice.tile) * 16;
  p = {};
  shape_whole(given, p.whole);
  p.apart = given.y_layout == Layout::nhwc;
  p.runs = static_cast<int32_t>(p.apart ? w.in : 1);
  p.line_columns = static_cast<int32_t>(p.apart ? columns_of_line(w.kernel, size) : w.kernel);
  const int64_t segments = w.kernel / p.line_columns;
  p.pixel_rows = static_cast<int32_t>(problem.batch * h.in);
  p.lines = static_cast<int32_t>(segments > 1 ? 1 : kMostColumns / p.line_columns);
  p.all_lines = static_cast<int32_t>(problem.group_out() * h.kernel * segments);
  p.channels = static_cast<int32_t>(problem.group_out());
  p.columns = p.lines * p.line_columns;
  p.quads = p.columns / kTogether;
  p.line_bytes = static_cast<int32_t>((p.apart ? p.line_columns : w.out) * size);
  const int64_t last = (w.in - 1) * w.stride - w.near_pad + w.kernel;
  p.left = static_cast<int32_t>(round_up(std::max<int64_t>(w.near_pad, 0) * size, 16));
  p.line_room = static_cast<int32_t>(p.left + p.line_bytes +
                                     round_up(std::max<int64_t>(last - w.out, 0) * size, 16));
  // Lanes of a load have neighbouring words of pixels, some bytes from each other, and quads of neighbouring lines: they meet no
  // bank twice.
  const int64_t words_apart = 4 * w.stride;
  p.across = !p.apart && words_apart > 32 && choice.chunk_rows > 1;
  p.turned = !p.apart && size == 2 && words_apart == 16;
  const auto pitch = [](int64_t bytes, int64_t residue, int64_t of = 128) {
    return static_cast<int32_t>(round_up(bytes - residue, of) + residue);
  };
  if (p.apart) {
    p.line_pitch = p.line_bytes;
    p.pixel_step = pitch(int64_t{p.lines} * p.line_bytes, 8 * size, 32 * size);
    p.row_pitch = p.runs * p.pixel_step;
  } else {
    p.first_tap = static_cast<int32_t>(p.left - w.near_pad * size);
    p.pixel_step = static_cast<int32_t>(w.stride * size);
    p.line_pitch = p.across ? p.line_room : pitch(p.line_room, words_apart == 16 ? 64 : 16);
    p.row_pitch = pitch(int64_t{p.lines} * p.line_pitch, p.across ? 32 : 0);
  }
  p.chunk_rows = choice.chunk_rows;
  p.row_words = static_cast<int32_t>(ceil_div(w.in, pixels));
  p.steps = static_cast<int32_t>(ceil_div(int64_t{p.row_words} * p.chunk_rows, kStepWords));
  p.laid_pitch = p.steps * kStepBytes + 16;
  p.x_piece = p.whole.x_pixel > 0 && size == 2 ? 0 : !p.across && w.in * size % 16 == 0 ? 16 : 4;
  p.x_at = p.chunk_rows * p.row_pitch;
  p.stage_bytes = p.x_at + rows * p.laid_pitch;
  p.stages_at = static_cast<int32_t>(round_up(kLineTableAt + p.steps * kStepBytes, 128));
  p.whole.row_blocks = static_cast<int32_t>(ceil_div(p.whole.rows, rows));
  p.whole.column_blocks = static_cast<int32_t>(ceil_div(p.all_lines, p.lines));
  p.by_height = FastDivide(h.in);
  p.by_runs = FastDivide(p.runs);
  p.by_lines = FastDivide(p.lines);
  p.by_segments = FastDivide(segments);
  p.by_kernel_h = FastDivide(h.kernel);
  p.by_words = FastDivide(p.across ? p.chunk_rows : p.row_words);
  return {};
}

int64_t chunks_of(const LineParams& p) { return ceil_div(p.pixel_rows, p.chunk_rows); }

int blocks_side_by_side(const Problem& problem, int tile) {
  return line_blocks(static_cast<int>(element_size(problem.dtype)), is_strict(problem), tile);
}

// Stages, for as many blocks side by side as a multiprocessor has to do; none if there is no room.
void set_stages(const Problem& problem, const Device& device, int tile, LineParams& p) {
  const int most = static_cast<int>(std::min<int64_t>(
      blocks_side_by_side(problem, tile), ceil_div(line_blocks_of(p), device.sm_count)));
  for (int together = most; together > 0 && p.stages < 2; --together) {
    const int room =
        std::min(device.smem_optin, device.smem_per_sm / together - 1024) - p.stages_at;
    p.stages =
        static_cast<int>(std::min<int64_t>({chunks_of(p), kMostLineStages, room / p.stage_bytes}));
  }
  p.shared_bytes = p.stages_at + p.stages * p.stage_bytes;
}

double predict(const Problem& problem, const Device& device, const LineParams& p, int tile) {
  const double size = static_cast<double>(element_size(problem.dtype));
  const bool half = size == 2, strict = is_strict(problem);
  const double products = strict ? 3 : 1, m = line_sixteens(tile);
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count /
                      kClock / kTensorTime;
  // Of a chunk: steps of all warps, bytes.
  const double steps = double(p.steps) * kWarps;
  const double mma = steps * m * kTogether * 16 * 8 * (kStepBytes / size) * products / rate;
  const double words = half     ? 0
                       : strict ? (kTogether * 2 + 4 * m) * kSplit
                                : kTogether * 2 * kRound;
  const double copies = double(p.chunk_rows) * p.lines * p.runs, y = copies * p.line_bytes;
  const double x = std::min<double>(16 * m, p.whole.rows) * p.steps * kStepBytes;
  const double issue = (steps * (kFetch + words + m * (1 + kTogether * products)) +
                        x / std::max(p.x_piece, 4) / 32 * (p.x_piece ? kCopy : kPair) +
                        copies / 32 * kCopyRun + (half || strict ? 0 : x / 128 * kRoundX)) /
                       4 * kIssued;
  const double shared = steps * (8 + 4 * m);
  const double l2 = (x + y) / kL2Bytes;
  const double busiest = std::max({mma, issue, shared, l2});
  const int together =
      std::min(blocks_side_by_side(problem, tile), device.smem_per_sm / (p.shared_bytes + 1024));
  const double blocks = static_cast<double>(line_blocks_of(p));
  const double turns = std::floor(blocks / (device.sm_count * together));
  const double left = blocks - turns * device.sm_count * together;
  const double rounds =
      turns * together + std::min<double>(together, std::ceil(left / device.sm_count));
  // Blocks side by side hide what a chunk takes beside its work.
  const double beside = std::min<double>(together, rounds);
  const double cycles =
      kChunkTime / beside + busiest + kRest * (mma + issue + shared + l2 - busiest);
  const double alone = beside < 2 ? kAlone : 1;
  const double busy_us = rounds * static_cast<double>(chunks_of(p)) * cycles * alone / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

// The same for all devices.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  reason = "rows of pixels are too few, or too long";
  for (int tile = 0; tile < kLineTileCount; ++tile)
    for (const int chunk_rows : {1, 2, 4, 8}) {
      const Choice choice{tile, chunk_rows};
      LineParams p;
      shape(problem, choice, p);
      if (chunks_of(p) < kFewestChunks) break;
      set_stages(problem, device, tile, p);
      if (p.stages >= 2) found.push_back({choice, predict(problem, device, p, tile)});
    }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  LineParams p;
  shape(problem, choice, p);
  set_stages(problem, device, choice.tile, p);
  Plan plan = weight_sum_plan(problem, device, kTileCount + choice.tile, 1,
                              predict(problem, device, p, choice.tile), kLaunch);
  plan.detail[0] = choice.chunk_rows;
  plan.detail[1] = p.stages;
  plan.note = std::to_string(line_sixteens(choice.tile) * 16) + " channels x " +
              std::to_string(p.columns) + " columns of lines, " + std::to_string(p.chunk_rows) +
              " rows in " + std::to_string(p.steps) + " steps, " + std::to_string(p.stages) +
              " stages of " + std::to_string(p.stage_bytes) + " bytes, " +
              std::to_string(line_blocks_of(p)) + " blocks";
  return plan;
}

std::string refusal(const Problem& given, const Device& device) {
  const Problem problem = as_one_channel(given);
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = static_cast<int64_t>(element_size(problem.dtype));
  if (!device.has_wgmma) return "lines are for sm_90a";
  // Of words they took 51 us, fcn32s, where chunks take 40.
  if (problem.x_layout == Layout::nhwc && size != 2) return "lines of words are for NCHW";
  const bool apart = given.y_layout == Layout::nhwc;
  // The kernel has a branch for it, which no GPU has run in this form.
  if (is_strict(problem)) return "lines are for fp16, bf16 and TF32";
  if (w.out * size % 16 != 0) return "lines of dY are no whole vectors";
  if (apart) {
    if (columns_of_line(w.kernel, size) == 0 || w.stride * size % 16 != 0 ||
        w.near_pad * size % 16 != 0)
      return "runs of dY are no whole vectors";
    if (w.near_pad > 0 || (w.in - 1) * w.stride - w.near_pad + w.kernel > w.out)
      return "some taps are of columns that dY does not have";
  } else {
    if (w.kernel > kMostColumns) return "a kernel row has more columns than a block";
    if (problem.x_layout == Layout::nchw && w.in * size % 4 != 0)
      return "rows of x start between words";
    // What a stage may be, and its places, are less than that.
    if ((w.in + w.out) * size > 1 << 16) return "rows are too long";
  }
  if (h.near_pad > 0 || (h.in - 1) * h.stride - h.near_pad + (h.kernel - 1) * h.dilation >= h.out)
    return "some taps are of rows that dY does not have";
  return {};
}

}  // namespace

int64_t line_blocks_of(const LineParams& params) {
  return int64_t{params.whole.groups} * params.whole.row_blocks * params.whole.column_blocks;
}

std::vector<Plan> line_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(candidates),
                   at_hand(device, plan_of));
}

Decision line_plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, on_reference(candidates), at_hand(device, plan_of));
}

LineParams line_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  LineParams p;
  shape(problem, {plan.row - kTileCount, plan.detail[0]}, p);
  p.stages = plan.detail[1];
  p.shared_bytes = p.stages_at + p.stages * p.stage_bytes;
  p.whole.x = args.x.data;
  p.whole.y = args.y.data;
  p.whole.weight = args.w.data;
  return p;
}

}  // namespace convt2d::cuda::comb
