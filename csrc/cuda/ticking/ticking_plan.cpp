#include "cuda/ticking/ticking_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/remembered.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::ticking {
namespace {

// By 15 layers' plans on an H200 (2026-11-30) in three types: within 13 % of the times, and what is chosen takes 1.01 times the best of
// all families.
constexpr double kClock = 1700;  // cycles a microsecond
constexpr double kLaunch = 6.2;  // us,
constexpr double kBlock = 8670;  // and cycles of a block before its first line
// Instructions of a warp: a step of K, as it comes, and what each pair of halves adds; a unit; a stage; a row of x, and one that
// is stored number by number.
constexpr double kStepNeighbours = 15, kStepApart = 30, kStepWords = 60, kSplit = 58, kPair = 4;
constexpr double kUnitIssue = 20, kStage = 50, kRow = 100, kOddRow = 393;
constexpr double kBanks = 1.1;       // turns of shared memory, of a load of pixels
constexpr double kTensor = 8;        // cycles of an instruction, of a quarter of a multiprocessor
constexpr double kIssued = 0.61;     // of the instructions that a multiprocessor could start
constexpr double kShared = 0.8;      // of what shared memory could do,
constexpr double kMultiplied = 0.9;  // and the tensor cores
// Cycles for an instruction of a warp alone, and what it waits for the loads of a step, and for a stage.
constexpr double kAlone = 1.9, kStepLatency = 171, kStageLatency = 521;
constexpr double kCopyLatency = 1010;  // cycles from asking for a stage to having it
constexpr double kMemoryRate = 0.93;   // of the copy rate
constexpr double kAsked = 50000;  // bytes that a multiprocessor has to ask for at a time, for that
constexpr double kBeside = 0.13;  // of the lesser of work and bytes
constexpr int kReserved = 1024;   // bytes of shared memory that a block takes beside its own

struct Choice {
  int pixel_warps, input_warps, part_units, stages, resident;
};

// Returns why lines or rows are too many, or an empty string.
std::string set_live_rows(const Params& p, LiveRows& step) {
  const int line_step = std::gcd(p.stride_h, p.dilation_h);
  const int row_lines = p.stride_h / line_step, tap_lines = p.dilation_h / line_step;
  step.live = (p.kernel_h - 1) * tap_lines / row_lines + 1;
  if (step.live > kLiveRows) return std::to_string(step.live) + " rows of x share a line of dY";
  step.lines = 0;
  for (int line = 0; line < row_lines; ++line) {
    int8_t kernel_row[kLiveRows];
    bool read = false;
    for (int e = 0; e < kLiveRows; ++e) {
      const int away = line + (step.live - 1 - e) * row_lines, kh = away / tap_lines;
      const bool here = e < step.live && away % tap_lines == 0 && kh < p.kernel_h;
      kernel_row[e] = static_cast<int8_t>(here ? kh : -1);
      read |= here;
    }
    if (!read) continue;
    if (step.lines == kStepLines) return "a row of x adds more than 8 lines of dY";
    if (line * line_step > INT16_MAX) return "lines of dY lie too far apart";
    step.line_row[step.lines] = static_cast<int16_t>(line * line_step);
    std::copy(kernel_row, kernel_row + kLiveRows, step.kernel_row[step.lines++]);
  }
  return {};
}

int size_of(const Problem& problem) { return static_cast<int>(element_size(problem.dtype)); }

// Rows of channels lie so far apart that few lanes of a load meet a bank twice: the best for a unit's first four channels.
int best_pitch(int size, int least, int stride, int plane) {
  const int vector = 16 / size;
  int best = 0, least_turns = INT32_MAX;
  for (int pitch = static_cast<int>(round_up(least, 16)); pitch < least + 128; pitch += 16) {
    int turns = 0;
    for (int lead = 0; lead < vector; ++lead) {
      int words[32][32], seen[32] = {}, most = 0;  // of a bank
      for (int lane = 0; lane < 32; ++lane) {
        const int c = lane % 4, g = lane / 4;
        const int begin = (lead + c * (plane % vector)) % vector;
        const int word = (c * pitch + (begin + pixel_of(size, g) * stride) * size) / 4,
                  bank = word % 32;
        bool again = false;  // a word that another lane wants
        for (int i = 0; i < seen[bank]; ++i) again |= words[bank][i] == word;
        if (again) continue;
        words[bank][seen[bank]] = word;
        most = std::max(most, ++seen[bank]);
      }
      turns += most;
    }
    if (turns < least_turns) least_turns = turns, best = pitch;
  }
  return best;
}
int pitch_of(int size, int least, int stride, int plane) {
  thread_local Remembered<int, 4, 16> known;
  return known.answer({size, least, stride, plane % (16 / size)},
                      [&](int& pitch) { pitch = best_pitch(size, least, stride, plane); });
}

// Pairs of halves, and rows of x, that a line is for.
void set_readers(Params& p) {
  for (int line = 0; line < p.step.lines; ++line) {
    p.first_live[line] = kLiveRows;
    p.pairs[line] = 0;
    for (int live = 0; live < p.step.live; ++live) {
      if (p.step.kernel_row[line][live] < 0) continue;
      p.first_live[line] = static_cast<int8_t>(std::min<int>(p.first_live[line], live));
      p.last_live[line] = static_cast<int8_t>(live);
      for (int eight = 0; eight < p.eights; ++eight)
        p.pairs[line] |= static_cast<int8_t>(1 << (live * p.eights + eight) / 2);
    }
  }
}

// As many eights as there are halves for all live rows, a power of two.
int eights_of(const Problem& problem, const LiveRows& step) {
  int eights = 1;
  while (2 * eights * step.live <= kHalves && eights * 8 < problem.group_in()) eights *= 2;
  return eights;
}

// The tile for a problem's taps.
int row_of(const Problem& problem, const Params& p) {
  for (int row = 1; row < tiles_of(size_of(problem)) && p.dilation_w == 1; ++row)
    if (kTiles[row] == p.kernel_w) return row;
  return 0;
}

// Stages that fit into a block's share.
int most_stages(const Device& device, const Params& p, int resident) {
  const int share = std::min(device.smem_optin, device.smem_per_sm / resident - kReserved);
  return std::clamp((share - p.stages_at) / p.stage_bytes, 0, kMostStages);
}

// Everything but `pieces`.
void shape(const Problem& problem, const Choice& choice, Params& p) {
  const Axis &h = problem.h, &w = problem.w;
  const int size = size_of(problem), vector = 16 / size;
  p = {};
  p.batch = static_cast<int32_t>(problem.batch);
  p.groups = static_cast<int32_t>(problem.groups);
  p.rows = static_cast<int32_t>(problem.group_in());
  p.columns = static_cast<int32_t>(problem.group_out());
  p.x_h = static_cast<int32_t>(h.in), p.x_w = static_cast<int32_t>(w.in);
  p.y_plane = static_cast<int32_t>(h.out * w.out);
  p.y_numbers = static_cast<int32_t>(problem.batch * problem.out_channels * p.y_plane);
  set_geometry(problem, p);
  p.dilation_w = static_cast<int32_t>(w.dilation);
  set_live_rows(p, p.step);
  p.eights = eights_of(problem, p.step);
  set_readers(p);
  p.steps = static_cast<int32_t>(ceil_div(p.kernel_w * size, 4));
  p.units = static_cast<int32_t>(ceil_div(p.columns, kUnit));
  p.part_units = choice.part_units;
  p.pixel_warps = choice.pixel_warps;
  p.input_warps = choice.input_warps;
  p.width = p.pixel_warps * kWarpPixels;
  p.reach = (p.width - 1) * p.stride_w + (p.kernel_w - 1) * p.dilation_w + 1;
  for (int o = 0; o < kOctets; ++o) p.way[o] = octet_pixel(size, o) * p.stride_w * size;
  // A row's first number may be the last of 16 bytes; a word may be half behind the last number.
  p.pitch = pitch_of(size, (p.reach + vector) * size, p.stride_w, p.y_plane);
  const int channels = std::min(p.part_units * kUnit, p.columns);
  p.stage_bytes = static_cast<int32_t>(
      std::min<int64_t>(round_up(int64_t{channels} * p.pitch, 128), INT32_MAX / 32));
  p.whole = p.x_w % vector == 0;
  p.in_blocks = static_cast<int32_t>(ceil_div(p.rows, p.input_warps * p.eights * 8));
  const int row_tiles = static_cast<int>(ceil_div(p.x_w, p.width));
  p.strip_rows = p.batch * row_tiles * p.x_h;
  p.by_rows = FastDivide(p.x_h);
  p.by_tiles = FastDivide(row_tiles);
  p.by_dilation = FastDivide(p.dilation_w);
  const int64_t weights = int64_t{p.input_warps} * p.step.lines * p.units * p.steps * kPairs *
                          kOperandBytes * (is_strict(problem) ? 2 : 1);
  SharedPlaces place{weights};
  p.barriers_at = place.take(kMostStages * 16, 16);
  p.stages_at = place.take(0, 128);
  p.stages = choice.stages;
  place.take(int64_t{p.stages} * p.stage_bytes, 128);
  p.shared_bytes = static_cast<int32_t>(place.end);
}

int64_t combinations(const Params& p) { return int64_t{p.groups} * p.in_blocks; }

double predict(const Problem& problem, const Device& device, const Choice& choice,
               const Params& p) {
  const bool half = size_of(problem) == 2, strict = is_strict(problem);
  const double warps = consumers(p);
  const double steps = double(p.units) * p.steps;                               // of a line
  const double parts = double(ceil_div(p.units, p.part_units)) * p.step.lines;  // of a row
  double pairs = 0;  // of all lines of a row
  for (int line = 0; line < p.step.lines; ++line)
    pairs += (p.pairs[line] & 1) + (p.pairs[line] >> 1);
  const double products = strict ? 3 : 1;
  const double step =
      half ? row_of(problem, p) ? kStepNeighbours : kStepApart : kStepWords + (strict ? kSplit : 0);
  // What a warp starts for a row of x, what it reads of shared memory, and the tensor core's time.
  const double of_warp = p.step.lines * (steps * step + p.units * kUnitIssue) +
                         steps * pairs * (kPair * products) + parts * kStage +
                         p.eights * (kRow + (p.whole ? 0 : kOddRow));
  const double loads = half ? row_of(problem, p) ? (p.kernel_w / 2 + 1.0) / p.steps : 2 : 1;
  const double wavefronts =
      p.step.lines * steps * 2 * kOctets * loads * kBanks + steps * pairs * 4 * (strict ? 2 : 1);
  const double tensor = steps * pairs * kOctets * products * kTensor;
  const double there = choice.resident;
  const double blocks = double(combinations(p)) * p.pieces / device.sm_count;
  const double at_once = std::min(there, std::ceil(blocks));
  const double busy = std::max({warps * of_warp / 4 / kIssued, warps * wavefronts / kShared,
                                warps * tensor / 4 / kMultiplied});
  // A block alone waits for its own loads and products, one after the other, and for stages that come one behind another.
  const double alone =
      kAlone * of_warp + tensor + p.step.lines * steps * kStepLatency + parts * kStageLatency;
  const double chain = std::max(alone, kCopyLatency * parts / std::max(1, p.stages - 1));
  const double rows = std::ceil(double(p.strip_rows) / p.pieces);
  const double runs = std::ceil(rows / p.x_h);
  const double lines = rows + runs * (p.step.live - 1);  // of a block, in rows of x
  const double weights = double(p.barriers_at) / 4 / (warps * 32) * 60;
  const double busy_us = std::ceil(blocks / there) *
                         (kBlock + weights + lines * std::max(busy * at_once, chain)) / kClock;
  const double strip = std::min<double>(p.reach, p.y_w) * size_of(problem) + 16;  // of a channel
  const double read = combinations(p) * p.pieces * lines * p.step.lines * p.columns * strip;
  const double written =
      double(problem.batch) * problem.in_channels * p.x_h * p.x_w * size_of(problem);
  // All stages but the one that is multiplied are on their way.
  const double asked = at_once * (p.stages - 1) * p.stage_bytes;
  const double memory_us =
      (read + written) / (kMemoryRate * device.copy_bytes_per_us) * std::max(1.0, kAsked / asked);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

// Blocks share out rows: as many as are there at once.
int pieces_of(const Device& device, const Choice& choice, const Params& p) {
  const int64_t most = int64_t{device.sm_count} * choice.resident;
  return static_cast<int>(std::clamp<int64_t>(most / combinations(p), 1, p.strip_rows));
}
void share_out(int pieces, Params& p) {
  p.pieces = pieces;
  p.piece_rows = p.strip_rows / pieces;
  p.longer_pieces = p.strip_rows % pieces;
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int pixel_warps = 1; pixel_warps <= kMostWarps; pixel_warps *= 2) {
    if (pixel_warps > 1 && pixel_warps * kWarpPixels >= 2 * problem.w.in) continue;
    for (int input_warps = 1; pixel_warps * input_warps <= kMostWarps; input_warps *= 2)
      for (int part_units = 1; part_units <= kMostPartUnits; part_units *= 2) {
        if (part_units > 1 && (part_units / 2) * kUnit >= problem.group_out()) continue;
        const int warps = pixel_warps * input_warps + 1;
        const int most = kBlocks * (kMostWarps + 1) / warps;
        for (int resident = 1; resident <= most; ++resident) {
          Choice choice{pixel_warps, input_warps, part_units, kMostStages, resident};
          Params p;
          shape(problem, choice, p);
          if (input_warps > 1 && input_warps * p.eights * 8 >= 2 * p.rows) continue;
          choice.stages = most_stages(device, p, resident);
          if (choice.stages < 2) {
            reason = "two stages of " + std::to_string(p.stage_bytes) + " bytes and " +
                     std::to_string(p.barriers_at) + " of weights are too many";
            continue;
          }
          shape(problem, choice, p);
          share_out(pieces_of(device, choice, p), p);
          found.push_back({choice, predict(problem, device, choice, p)});
        }
      }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Candidate<Choice>& candidate) {
  const Choice& choice = candidate.choice;
  Params p;
  shape(problem, choice, p);
  share_out(pieces_of(device, choice, p), p);
  Plan plan;
  plan.row = row_of(problem, p);
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {choice.pixel_warps, choice.input_warps, choice.part_units,
                        choice.stages,      choice.resident,    p.pieces};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  const auto number = [](int64_t value) { return std::to_string(value); };
  plan.note = number(p.width) + " pixels, " + number(p.input_warps * p.eights * 8) + " channels, " +
              number(p.step.live) + " live rows, " + number(p.stages) + " stages of " +
              number(std::min(p.part_units * kUnit, p.columns)) + " channels of a line, " +
              number(blocks_of(p)) + " blocks of " + number(p.shared_bytes) + " bytes, " +
              number(choice.resident) + " at once";
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "ticking is for sm_90a";
  if (problem.direction != Direction::grad_input) return "ticking is for grad_input";
  if (problem.dtype == DType::f64) return "ticking is for fp16, bf16 and fp32";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw)
    return "ticking is for NCHW";
  if (problem.group_in() > 64) return number(problem.group_in()) + " input channels of a group";
  if (problem.group_out() > 256) return number(problem.group_out()) + " output channels of a group";
  if (w.kernel > kMostKernelColumns) return number(w.kernel) + " kernel columns, more than 32";
  if (w.in < kWarpPixels / 2) return "rows of " + number(w.in) + " pixels";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  // From a row of x to its lines, outside of dY as well: 32 bits hold it.
  if ((std::abs(h.near_pad) + (h.in + 4) * h.stride + h.kernel * h.dilation) * w.out +
          std::abs(w.near_pad) + (w.in + 256) * w.stride + w.kernel * w.dilation >
      INT32_MAX / 2)
    return "taps lie too far apart";
  if (problem.batch * h.in * ceil_div(w.in, kWarpPixels) > INT32_MAX / 2)
    return "x has too many rows";
  Params p;
  set_geometry(problem, p);
  if (const std::string lines = set_live_rows(p, p.step); !lines.empty()) return lines;
  return sums_too_short(problem, kLeastSplitTerms);
}

}  // namespace

int64_t blocks_of(const Params& p) { return combinations(p) * p.pieces; }

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, described_on(device, plan_of));
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, described_on(device, plan_of));
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p;
  const int32_t* d = plan.detail;
  shape(problem, {d[0], d[1], d[2], d[3], d[4]}, p);
  share_out(d[5], p);
  p.x = args.x.data;
  p.y = args.y.data;
  p.weight = args.w.data;
  for (int i = 0; i < 4; ++i) p.weight_stride[i] = static_cast<int32_t>(args.w.stride[i]);
  return p;
}

}  // namespace convt2d::cuda::ticking
