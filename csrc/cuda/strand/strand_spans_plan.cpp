#include <algorithm>
#include <cmath>

#include "cuda/gather_params.h"
#include "cuda/strand/strand_plan.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::strand {
namespace {

// By 60 times of hifigan_u0, one_d_k8s4 and others (2026-11-25).
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kLaunch = 6.8;       // us: launch, cold code, the way out
constexpr double kBlock = 7500;       // cycles of a block beside its chunks
constexpr double kTensorTime = 1.22;  // of what the rates of Device say
constexpr double kFetchedTime = 1.2;  // of it, where dY is fetched word by word
constexpr double kL2Bytes = 38;       // a cycle that reach a multiprocessor
constexpr double kBox = 60;           // cycles of a box
constexpr double kMemoryRate = 0.8;   // of the copy rate

constexpr int kFewestSpanStages = 3;

bool last(const Problem& problem) { return problem.y_layout == Layout::nhwc; }

void shape(const Problem& problem, int ranks, SpanParams& p) {
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = size_of(problem), numbers = kSpanChunk / size;
  const auto set = [](int32_t& to, int64_t value) {
    to = static_cast<int32_t>(std::min<int64_t>(value, INT32_MAX / 2));
  };
  p = {};
  p.ranks = ranks;
  const int64_t spans = ceil_div(w.in, kSpan);
  p.by_row = FastDivide(spans), p.by_image = FastDivide(h.in);
  set(p.rows, problem.batch * h.in);
  set(p.x_w, w.in);
  set(p.row_tiles, ceil_div(problem.in_channels, kSpanRows));
  set(p.column_tiles, ceil_div(problem.batch * h.in * spans, kSpans));
  p.together = spans == 1 && h.in == 1 ? kSpans : 1;
  p.whole = last(problem) ? problem.in_channels % kTogether == 0 : w.in % kTogether == 0;
  set(p.dilation_h, h.dilation);
  set(p.dilation_w, w.dilation);
  const int64_t taps = h.kernel * w.kernel, out = problem.out_channels;
  p.by_kernel = FastDivide(w.kernel);
  if (last(problem)) {
    const int64_t parts = ceil_div(out, numbers);
    p.by_parts = FastDivide(parts);
    set(p.of_tap, out);
    set(p.chunks, taps * parts);
    p.span_pitch = kSpan * kSpanChunk;
    p.source_bytes = kSpans * p.span_pitch;
    p.stage_bytes = kSpanWeights + p.source_bytes;
  } else {
    const int64_t row = w.kernel * size, vector = 16 / size, half = kSpan / 2;
    set(p.planes, std::max<int64_t>(1, kSpanChunk / row));
    set(p.chunks, ceil_div(out, p.planes));
    while (int64_t{1} << p.row_bits < row) ++p.row_bits;
    set(p.before, round_up(w.near_pad, vector));
    set(p.early, p.before - w.near_pad);
    set(p.row_pitch, round_up(p.early + (half - 1) * w.stride + w.kernel, vector) * size);
    // Boxes begin at whole 128 bytes.
    set(p.span_pitch, p.together > 1 ? int64_t{p.planes} * p.row_pitch
                                     : round_up(int64_t{p.planes} * p.row_pitch, 128));
    set(p.half_pitch, round_up(int64_t{kSpans} * p.span_pitch, 128));
    set(p.source_bytes, 2 * kSpans * int64_t{p.planes} * p.row_pitch);
    set(p.stage_bytes, kSpanWeights + round_up(2 * int64_t{p.half_pitch}, 1024));
  }
}

void set_stages(const Device& device, SpanParams& p) {
  const int64_t room = int64_t{device.smem_optin} - 1024;
  p.stages = static_cast<int32_t>(std::min<int64_t>(kMostSpanStages, room / p.stage_bytes));
  p.shared_bytes = static_cast<int32_t>(
      1024 + std::max<int64_t>(int64_t{p.stages} * p.stage_bytes, int64_t{kSpanRows} * kSpanSums));
}

double predict(const Problem& problem, const Device& device, const SpanParams& p) {
  const bool half = size_of(problem) == 2;
  // Of a chunk, cycles of a multiprocessor: its tensor cores, and what comes to it.
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count /
                      kClock / kTensorTime / (last(problem) ? 1 : kFetchedTime);
  const double mma = double(kSpanRows) * kSpanColumns * kSpanChunk / size_of(problem) / rate;
  const double boxes = 1 + double(kSpans) / p.together * (last(problem) ? 1 : 2);
  const double l2 = std::max((kSpanWeights + p.source_bytes) / kL2Bytes, boxes * kBox);
  const double chunks = std::ceil(double(p.chunks) / p.ranks);
  const double busy_us = rounds_of(device, span_tiles_of(p), p.ranks, 1) *
                         (chunks * std::max(mma, l2) + kBlock) / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us);
}

std::vector<Candidate<int>> candidates(const Problem& problem, const Device& device,
                                       std::string& reason) {
  std::vector<Candidate<int>> found;
  for (const int ranks : {1, 2, 3, 4, 6, 8}) {
    SpanParams p;
    shape(problem, ranks, p);
    set_stages(device, p);
    if (p.stages < kFewestSpanStages) {
      reason =
          "a chunk of spans needs " + std::to_string(p.stage_bytes) + " bytes of shared memory";
      break;
    }
    if (ranks > 1 && (ranks > p.chunks || span_tiles_of(p) * ranks > 2 * int64_t{device.sm_count}))
      break;
    found.push_back({ranks, predict(problem, device, p)});
  }
  return found;
}

Plan plan_of(const Problem& problem, const Device& device, const Candidate<int>& candidate) {
  SpanParams p;
  shape(problem, candidate.choice, p);
  set_stages(device, p);
  const auto number = [](int64_t value) { return std::to_string(value); };
  Plan plan;
  plan.row = kSpanRow;
  plan.split = p.ranks;
  plan.detail[1] = p.stages;
  plan.detail[2] = p.shared_bytes;
  plan.predicted_us = candidate.predicted_us;
  plan.note = "128 channels x 4 spans of 32 positions, " + number(p.chunks) + " chunks, " +
              number(p.stages) + " stages, " + number(span_tiles_of(p)) + " tiles";
  if (p.ranks > 1) plan.note += ", K split over a cluster of " + number(p.ranks);
  return plan;
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = size_of(problem), row = w.kernel * size;
  if (!device.has_wgmma) return "spans are for sm_90a";
  if (is_strict(problem)) return "spans are not for strict fp32";
  if (problem.groups != 1) return number(problem.groups) + " groups";
  const int64_t line = (last(problem) ? problem.out_channels : w.out) * size;
  if (line % 16 != 0) return "lines of " + number(line) + " bytes";
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

int64_t span_tiles_of(const SpanParams& p) { return int64_t{p.row_tiles} * p.column_tiles; }

std::vector<Plan> span_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, described_on(device, plan_of));
}

Decision span_plan(const Problem& problem, const Device& device) {
  const auto refuse = [](const Problem& problem, const Device& device) -> std::string {
    const std::string reason = refusal(problem, device);
    if (!reason.empty()) return reason;
    SpanParams p;
    shape(problem, 1, p);
    if (span_tiles_of(p) > int64_t{kMostTiles} * device.sm_count)
      return "dX has " + std::to_string(span_tiles_of(p)) + " tiles of spans, more than few";
    return {};
  };
  return best_plan(problem, device, refuse, candidates, described_on(device, plan_of));
}

SpanParams span_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  SpanParams p;
  shape(problem, plan.split, p);
  p.stages = plan.detail[1];
  p.shared_bytes = plan.detail[2];
  Plan plain;  // any other tile: what is summed again knows no tiles
  p.base = params_of(problem, plain, args);
  return p;
}

CUtensorMap map_of_spans(const Problem& problem, const SpanParams& p) {
  const int64_t size = size_of(problem), out = problem.out_channels, w = problem.w.out,
                h = problem.h.out;
  const int32_t numbers = static_cast<int32_t>(kSpanChunk / size);
  if (last(problem))
    return encode({p.base.source,
                   static_cast<int>(size),
                   4,
                   {out, w, h, problem.batch},
                   {size, out * size, w * out * size, h * w * out * size},
                   {numbers, kSpan, 1, p.together},
                   {1, static_cast<int32_t>(problem.w.stride), 1, 1}});
  return encode({p.base.source,
                 static_cast<int>(size),
                 4,
                 {w, out, h, problem.batch},
                 {size, h * w * size, w * size, out * h * w * size},
                 {static_cast<int32_t>(p.row_pitch / size), p.planes, 1, p.together},
                 {1, 1, 1, 1},
                 false});
}

CUtensorMap map_of_span_weights(const Problem& problem, const SpanParams& p) {
  const int64_t size = size_of(problem), sums = int64_t{p.base.reduce}, row = sums * size;
  return encode({p.base.weight,
                 static_cast<int>(size),
                 4,
                 {sums, problem.in_channels, 1, 1},
                 {size, row, row * problem.in_channels, row * problem.in_channels},
                 {static_cast<int32_t>(kSpanChunk / size), kSpanRows, 1, 1},
                 {1, 1, 1, 1}});
}

}  // namespace convt2d::cuda::strand
