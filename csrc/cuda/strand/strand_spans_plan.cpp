#include <algorithm>
#include <cmath>

#include "core/forms.h"
#include "cuda/gather_params.h"
#include "cuda/strand/strand_plan.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::strand {
namespace {

// By 60 times of hifigan_u0, one_d_k8s4 and others (2026-11-25), but for what wgmma takes, which is counted.
constexpr double kClock = 1700;  // cycles a microsecond
constexpr double kLaunch = 6.8;  // us: launch, cold code, the way out
constexpr double kBegin = 3500;  // cycles of a block beside its chunks and sums
constexpr double kSum = 0.25;    // and of a sum, on its way to other blocks and to memory
constexpr double kProduct = 68;  // of a warpgroup's product of 32 bytes of K
constexpr double kFetch = 120;   // of dY that a warpgroup fetches of a chunk: one hides the other's
constexpr double kChunk = 60;    // of a chunk beside them
constexpr double kL2Bytes = 38;  // a cycle that reach a multiprocessor
constexpr double kBox = 60;      // cycles of a box
constexpr double kMemoryRate = 0.8;  // of the copy rate

constexpr int kFewestSpanStages = 3;

struct SpanChoice {
  int groups, channel_tiles, ranks;
};

bool last(const Problem& problem) { return problem.y_layout == Layout::nhwc; }

// Images of one pixel under kernels of one tap lie like the pixels of a row.
Problem in_rows(Problem problem) {
  if (is_matrix(problem)) problem = in_form(Form::matrix, problem);
  const auto one_pixel = [](const Axis& axis) {
    return axis.in == 1 && axis.out == 1 && axis.kernel == 1 && axis.near_pad == 0;
  };
  if (!one_pixel(problem.h) || !one_pixel(problem.w)) return problem;
  problem.x_layout = problem.w_layout = problem.y_layout = Layout::nhwc;
  problem.w = {problem.batch, problem.batch, 1, 1, 0, 1};
  problem.batch = 1;
  return problem;
}

void shape(const Problem& problem, const SpanChoice& choice, SpanParams& p) {
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = size_of(problem), numbers = kSpanChunk / size;
  const auto set = [](int32_t& to, int64_t value) {
    to = static_cast<int32_t>(std::min<int64_t>(value, INT32_MAX / 2));
  };
  p = {};
  p.groups = choice.groups;
  p.ranks = choice.ranks;
  set(p.channel_tiles, choice.channel_tiles);
  set(p.channels, round_up(ceil_div(problem.in_channels, choice.channel_tiles), 8));
  const int64_t spans = ceil_div(w.in, kSpan), of_tile = 2 * choice.groups;
  p.by_row = FastDivide(spans), p.by_image = FastDivide(h.in);
  set(p.rows, problem.batch * h.in);
  set(p.x_w, w.in);
  set(p.span_tiles, ceil_div(problem.batch * h.in * spans, of_tile));
  p.whole = last(problem) ? problem.in_channels % kTogether == 0 : w.in % kTogether == 0;
  set(p.dilation_h, h.dilation);
  set(p.dilation_w, w.dilation);
  // A box may bring what all of a tile reads, of images of few pixels or of one row of neighbours.
  const bool images = spans == 1 && h.in == 1, row = last(problem) && p.rows == 1 && w.stride == 1;
  p.together = images || row ? choice.groups * 2 : 1;
  const int64_t taps = h.kernel * w.kernel, out = problem.out_channels;
  p.by_kernel = FastDivide(w.kernel);
  int64_t source = 0;
  if (last(problem)) {
    const int64_t parts = ceil_div(out, numbers);
    p.by_parts = FastDivide(parts);
    set(p.of_tap, out);
    set(p.chunks, taps * parts);
    p.span_pitch = kSpan * kSpanChunk;
    source = of_tile * p.span_pitch;
    set(p.asked_bytes, source);
  } else {
    const int64_t kernel_row = w.kernel * size, vector = 16 / size, half = kSpan / 2;
    set(p.planes, std::max<int64_t>(1, kSpanChunk / kernel_row));
    set(p.chunks, ceil_div(out, p.planes));
    while (int64_t{1} << p.row_bits < kernel_row) ++p.row_bits;
    set(p.before, round_up(w.near_pad, vector));
    set(p.early, p.before - w.near_pad);
    set(p.row_pitch, round_up(p.early + (half - 1) * w.stride + w.kernel, vector) * size);
    // Boxes begin at whole 128 bytes.
    set(p.span_pitch, p.together > 1 ? int64_t{p.planes} * p.row_pitch
                                     : round_up(int64_t{p.planes} * p.row_pitch, 128));
    set(p.half_pitch, round_up(of_tile * p.span_pitch, 128));
    source = 2 * int64_t{p.half_pitch};
    set(p.asked_bytes, 2 * of_tile * p.planes * p.row_pitch);
  }
  p.source_at = p.channels * kSpanChunk;  // eights of channels: whole 1024
  set(p.asked_bytes, int64_t{p.asked_bytes} + p.source_at);
  set(p.stage_bytes, p.source_at + round_up(source, 1024));
  const int positions = p.groups * 64;
  p.lines = last(problem) ? positions : p.channels;
  p.sum_pitch =
      (last(problem) ? static_cast<int32_t>(round_up(p.channels, 32)) + 8 : positions + 4) * 4;
  const int fours = (last(problem) ? p.channels : positions) / kTogether;
  p.by_fours = FastDivide(fours);
  p.by_share = FastDivide(ceil_div(p.lines * fours, p.ranks));
  p.received_at = p.lines * p.sum_pitch;
}

void set_stages(const Device& device, SpanParams& p) {
  // Weights of fewer channels are multiplied as kSpanColumns, of which the last stage's are to exist.
  const int64_t behind = std::max<int64_t>(0, kSpanColumns * kSpanChunk - p.stage_bytes);
  const int64_t room = int64_t{device.smem_optin} - kSpanBarriers - behind;
  p.stages = static_cast<int32_t>(std::min<int64_t>(kMostSpanStages, room / p.stage_bytes));
  const int64_t received = int64_t{p.groups} * 64 * p.channels * 4 + kMostSpanRanks * 16;
  p.shared_bytes = static_cast<int32_t>(
      kSpanBarriers +
      std::max<int64_t>(int64_t{p.stages} * p.stage_bytes + behind, p.received_at + received));
}

double predict(const Problem& problem, const Device& device, const SpanParams& p) {
  // Of a chunk, cycles of a multiprocessor: its tensor cores, and what comes to it.
  const double fetch = last(problem) ? 0 : kFetch / p.groups;
  const double mma = p.groups * kSpanSteps * kProduct + fetch;
  const double boxes = 1 + 2.0 * p.groups / p.together * (last(problem) ? 1 : 2);
  const double l2 = std::max(p.asked_bytes / kL2Bytes, boxes * kBox);
  const double chunks = std::ceil(double(p.chunks) / p.ranks);
  const double sums = kSum * p.groups * 64 * p.channels;
  const double busy_us = rounds_of(device, span_tiles_of(p), p.ranks, 1) *
                         (chunks * (std::max(mma, l2) + kChunk) + kBegin + sums) / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us);
}

std::vector<Candidate<SpanChoice>> candidates(const Problem& given, const Device& device,
                                              std::string& reason) {
  const Problem problem = in_rows(given);
  std::vector<Candidate<SpanChoice>> found;
  const int64_t least = ceil_div(problem.in_channels, kSpanColumns);
  for (int groups = 1; groups <= kMostSpanGroups; ++groups)
    for (int64_t tiles = least; tiles <= std::min(least + 1, ceil_div(problem.in_channels, 8));
         ++tiles) {
      SpanParams p;
      const auto of = [&](int ranks) { return SpanChoice{groups, static_cast<int>(tiles), ranks}; };
      shape(problem, of(1), p);
      set_stages(device, p);
      if (p.stages < kFewestSpanStages) {
        reason =
            "a chunk of spans needs " + std::to_string(p.stage_bytes) + " bytes of shared memory";
        continue;
      }
      for (const int ranks : {1, 2, 3, 4, 6, 8, 11, kMostSpanRanks}) {
        if (ranks > 1 &&
            (ranks > p.chunks || span_tiles_of(p) * ranks > 2 * int64_t{device.sm_count}))
          break;
        p.ranks = ranks;
        found.push_back({of(ranks), predict(problem, device, p)});
      }
    }
  return found;
}

Plan plan_of(const Problem& given, const Device& device, const Candidate<SpanChoice>& candidate) {
  SpanParams p;
  shape(in_rows(given), candidate.choice, p);
  set_stages(device, p);
  const auto number = [](int64_t value) { return std::to_string(value); };
  Plan plan;
  plan.row = kSpanRow;
  plan.split = p.ranks;
  plan.detail[0] = p.groups;
  plan.detail[1] = p.stages;
  plan.detail[2] = p.shared_bytes;
  plan.detail[3] = p.channel_tiles;
  plan.predicted_us = candidate.predicted_us;
  plan.note = number(p.channels) + " channels x " + number(2 * p.groups) +
              " spans of 32 positions, " + number(p.chunks) + " chunks, " + number(p.stages) +
              " stages, " + number(span_tiles_of(p)) + " tiles";
  if (p.ranks > 1) plan.note += ", K split over a cluster of " + number(p.ranks);
  return plan;
}

std::string refusal(const Problem& given, const Device& device) {
  const Problem problem = in_rows(given);
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = size_of(problem), row = w.kernel * size;
  if (!device.has_wgmma) return "spans are for sm_90a";
  if (is_strict(problem)) return "spans are not for strict fp32";
  if (problem.groups != 1) return number(problem.groups) + " groups";
  const int64_t line = (last(problem) ? problem.out_channels : w.out) * size;
  if (line % 16 != 0) return "lines of " + number(line) + " bytes";
  if (problem.in_channels > INT32_MAX / kSpanColumns) return "channels are too many";
  if (problem.batch >= 1 << 24) return "images are too many";
  if (last(problem)) {
    if (w.stride > kMostStep) return "steps of " + number(w.stride);
    return {};
  }
  if (h.kernel != 1 || w.dilation != 1) return "kernels of several rows, or taps apart";
  if (row < kStep / (size == 2 ? 2 : 1) || row > kSpanChunk || kSpanChunk % row != 0)
    return "kernel rows of " + number(row) + " bytes";
  if (w.near_pad < 0 || w.near_pad % 2 != 0 || w.stride % 2 != 0)
    return "steps or padding of odd numbers";
  if (problem.out_channels * row % 16 != 0) return "weights of no whole 16 bytes";
  if ((kSpan / 2 - 1) * w.stride + w.kernel + 16 / size > kMostSpan) return "spans are too long";
  return {};
}

}  // namespace

bool span_pixels(const Problem& problem) { return last(in_rows(problem)); }

int64_t span_tiles_of(const SpanParams& p) { return int64_t{p.channel_tiles} * p.span_tiles; }

std::vector<Plan> span_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, described_on(device, plan_of));
}

Decision span_plan(const Problem& problem, const Device& device) {
  const auto refuse = [](const Problem& problem, const Device& device) -> std::string {
    const std::string reason = refusal(problem, device);
    if (!reason.empty()) return reason;
    SpanParams p;
    const Problem rows = in_rows(problem);
    shape(rows, {kMostSpanGroups, static_cast<int>(ceil_div(rows.in_channels, kSpanColumns)), 1},
          p);
    if (span_tiles_of(p) > int64_t{kMostTiles} * device.sm_count)
      return "dX has " + std::to_string(span_tiles_of(p)) + " tiles of spans, more than few";
    return {};
  };
  return best_plan(problem, device, refuse, candidates, described_on(device, plan_of));
}

SpanParams span_params_of(const Problem& given, const Plan& plan, const Args& args) {
  const Problem problem = in_rows(given);
  SpanParams p;
  shape(problem, {plan.detail[0], plan.detail[3], plan.split}, p);
  p.stages = plan.detail[1];
  p.shared_bytes = plan.detail[2];
  Plan plain;  // any other tile: what is summed again knows no tiles
  p.base = params_of(problem, plain, args);
  return p;
}

CUtensorMap map_of_spans(const Problem& given, const SpanParams& p) {
  const Problem problem = in_rows(given);
  const int64_t size = size_of(problem), out = problem.out_channels, w = problem.w.out,
                h = problem.h.out;
  const int32_t numbers = static_cast<int32_t>(kSpanChunk / size);
  if (last(problem)) {
    // Pixels of both spans beside each other may be too long a way with steps.
    const bool images = problem.h.in * problem.batch > 1 || problem.w.stride > 1;
    return encode({p.base.source,
                   static_cast<int>(size),
                   4,
                   {out, w, h, problem.batch},
                   {size, out * size, w * out * size, h * w * out * size},
                   {numbers, images ? kSpan : kSpan * p.together, 1, images ? p.together : 1},
                   {1, static_cast<int32_t>(problem.w.stride), 1, 1}});
  }
  return encode({p.base.source,
                 static_cast<int>(size),
                 4,
                 {w, out, h, problem.batch},
                 {size, h * w * size, w * size, out * h * w * size},
                 {static_cast<int32_t>(p.row_pitch / size), p.planes, 1, p.together},
                 {1, 1, 1, 1},
                 false});
}

CUtensorMap map_of_span_weights(const Problem& given, const SpanParams& p) {
  const Problem problem = in_rows(given);
  const int64_t size = size_of(problem), sums = int64_t{p.base.reduce}, row = sums * size;
  return encode({p.base.weight,
                 static_cast<int>(size),
                 4,
                 {sums, problem.in_channels, 1, 1},
                 {size, row, row * problem.in_channels, row * problem.in_channels},
                 {static_cast<int32_t>(kSpanChunk / size), p.channels, 1, 1},
                 {1, 1, 1, 1}});
}

}  // namespace convt2d::cuda::strand
