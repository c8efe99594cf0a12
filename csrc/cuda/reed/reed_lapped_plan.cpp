#include "cuda/reed/reed_lapped_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/phases.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::reed {
namespace {

// By times of hifigan_u0 and one_d_k8s4 (2026-11-25).
constexpr double kClock = 1700;       // cycles a microsecond
constexpr double kLaunch = 5.2;       // us
constexpr double kBlock = 4400;       // cycles of a block beside its chunks
constexpr double kStoreBytes = 18;    // and of its outputs, a cycle
constexpr double kTensorTime = 1.2;   // of what the rates of Device say
constexpr double kL2Bytes = 34;       // a cycle
constexpr double kChunkTime = 1.1;    // a chunk over what is counted
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kBeside = 0.15;      // of the lesser of work and bytes

int64_t size_of(const Problem& problem) {
  return static_cast<int64_t>(element_size(problem.dtype));
}
bool is_pixels(const Problem& problem) { return problem.y_layout == Layout::nhwc; }

// Segments start at whole 16 bytes of a row.
int64_t lap_of(const Problem& problem) { return is_pixels(problem) ? 1 : 16 / size_of(problem); }
int64_t segments_of(const Problem& problem) {
  return 1 + ceil_div(std::max<int64_t>(0, problem.w.in - kSegment), kSegment - lap_of(problem));
}

bool serves(const Problem& problem, const Device& device) {
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma || is_strict(problem) || problem.groups != 1) return false;
  if (problem.x_layout != problem.y_layout) return false;
  if (h.kernel != 1 || h.stride != 1 || h.near_pad != 0 || h.out != h.in) return false;
  // All outputs have a pixel of x or the one before.
  if (w.dilation != 1 || w.kernel != 2 * w.stride || w.near_pad < 0 ||
      w.out + w.near_pad > (w.in + 1) * w.stride)
    return false;
  const auto whole = [&](int64_t numbers) { return numbers * size_of(problem) % 16 == 0; };
  if (is_pixels(problem)) return whole(problem.in_channels) && whole(problem.out_channels);
  const bool fits = w.stride >= 8 && w.stride <= kLappedRows / 2 && kLappedRows % w.stride == 0;
  return fits && whole(w.in) && (size_of(problem) == 4 || (w.near_pad % 2 == 0 && w.out % 2 == 0));
}

Lapped shape(const Problem& problem) {
  const Axis &h = problem.h, &w = problem.w;
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  const bool pixels = is_pixels(problem);
  const int64_t in = problem.in_channels, out = problem.out_channels;
  Lapped p = {};
  p.terms = number(in), p.outputs = number(out);
  p.chunks = number(ceil_div(in, chunk_of(number(size_of(problem)))));
  p.row_tiles = number(pixels ? ceil_div(out, kLappedRows / 2) * w.stride
                              : ceil_div(out * w.kernel, kLappedRows));
  while (1 << p.hop_bits < (pixels ? kLappedRows / 2 : w.stride)) ++p.hop_bits;
  p.lap = number(lap_of(problem));
  p.by_row = FastDivide(segments_of(problem));
  p.by_image = FastDivide(h.in);
  p.rows = number(problem.batch * h.in), p.x_w = number(w.in);
  p.column_tiles = number(ceil_div(p.rows * segments_of(problem), kSegments));
  p.stride = number(w.stride), p.pad = number(w.near_pad), p.y_w = number(w.out);
  p.y_image = number(out * h.out * w.out);
  p.y_row = number(pixels ? w.out * out : w.out);
  p.y_channel = number(pixels ? 1 : h.out * w.out);
  p.y_pixel = number(pixels ? out : 1);
  return p;
}

double predict(const Problem& problem, const Device& device, const Lapped& p) {
  const bool half = size_of(problem) == 2;
  // Of a chunk, cycles of a multiprocessor: its tensor cores and L2.
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count /
                      kClock / kTensorTime;
  const double mma = double(kLappedRows) * kLappedRows * chunk_of(half ? 2 : 4) / rate;
  const double cycles = kChunkTime * std::max(mma, kLappedStage / kL2Bytes);
  const double block = kBlock + kLappedRows / 2 * kLappedRows * size_of(problem) / kStoreBytes;
  const double rounds = std::ceil(double(blocks_of(p)) / device.sm_count);
  const double busy_us = rounds * (p.chunks * cycles + block) / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

}  // namespace

int64_t blocks_of(const Lapped& p) { return int64_t{p.row_tiles} * p.column_tiles; }

void add_lapped(const Problem& problem, const Device& device,
                std::vector<Candidate<Choice>>& found) {
  if (!serves(problem, device) || device.smem_optin < kLappedBytes) return;
  const Lapped p = shape(problem);
  if (blocks_of(p) > INT32_MAX) return;
  found.push_back({{kLappedRow, kLappedStages}, predict(problem, device, p)});
}

Plan lapped_plan(const Problem& problem, const Candidate<Choice>& candidate) {
  const Lapped p = shape(problem);
  Plan plan;
  plan.row = candidate.choice.row;
  plan.predicted_us = candidate.predicted_us;
  plan.note = "lapped, 128 rows of " + std::to_string(problem.out_channels * problem.w.kernel) +
              " x " + std::to_string(kSegments) + " segments of 32 pixels, " +
              std::to_string(p.by_row.divisor) + " of a row, " + std::to_string(p.chunks) +
              " chunks, " + std::to_string(blocks_of(p)) + " blocks";
  return plan;
}

Lapped lapped_of(const Problem& problem, const Args& args) {
  Lapped p = shape(problem);
  p.bias = problem.has_bias ? args.bias : nullptr;
  p.y = args.y.data;
  return p;
}

CUtensorMap map_of_lapped(const Problem& problem, const Args& args) {
  const int64_t size = size_of(problem), in = problem.in_channels, w = problem.w.in,
                h = problem.h.in, plane = h * w;
  const int32_t chunk = chunk_of(static_cast<int>(size));
  const bool pixels = is_pixels(problem);
  return encode(
      {args.x.data,
       static_cast<int>(size),
       4,
       {pixels ? in : w, pixels ? w : in, h, problem.batch},
       {size, (pixels ? in : plane) * size, (pixels ? w * in : w) * size, in * plane * size},
       {pixels ? chunk : kSegment, pixels ? kSegment : chunk, 1, 1},
       {1, 1, 1, 1}});
}

CUtensorMap map_of_lapped_weights(const Problem& problem, const Args& args) {
  const int64_t size = size_of(problem), taps = problem.w.kernel, out = problem.out_channels,
                row = out * taps * size;
  const bool pixels = is_pixels(problem);
  return encode({args.w.data,
                 static_cast<int>(size),
                 4,
                 {pixels ? out : out * taps, pixels ? taps : 1, problem.in_channels, 1},
                 {size, pixels ? out * size : row, row, row * problem.in_channels},
                 {static_cast<int32_t>(kChunkBytes / size), 1, chunk_of(static_cast<int>(size)), 1},
                 {1, 1, 1, 1}});
}

}  // namespace convt2d::cuda::reed
