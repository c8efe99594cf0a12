#include "cuda/igemm/igemm_weight_shape.h"

#include <algorithm>
#include <array>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/remembered.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::igemm {
namespace {

constexpr int64_t kFarthest = 32000;    // offsets are stored in 16 bits
constexpr int64_t kMostPieces = 65000;  // of a tile, see divide()
constexpr int kTurnPixels = 32768;      // summed in registers before they join a sum in memory

// The rows of the patch that a part's taps need, and the loads that bring a row of it in.
struct Patch {
  int rows = 0, loads = 0;
};

std::string build_axis(const Axis& axis, int part, int tile, int load, WeightAxis& table,
                       Patch& patch) {
  if (axis.kernel >= kMaxTaps) return "kernel extent " + std::to_string(axis.kernel) + " > 127";
  const int64_t farthest = std::max(std::abs(axis.near_pad), axis.kernel * axis.dilation);
  if (farthest > kFarthest || axis.stride > kFarthest)
    return "taps reach " + std::to_string(std::max(farthest, axis.stride)) + " pixels";
  const auto offset = [&](int64_t tap) { return tap * axis.dilation - axis.near_pad; };
  struct Taps {
    std::array<int, kMaxTaps> order;
    std::array<int64_t, kMaxTaps> quotient, residue;
  };
  thread_local Remembered<Taps, 4, 8> known;
  const Taps& taps =
      known.answer({axis.kernel, axis.dilation, axis.near_pad, axis.stride}, [&](Taps& found) {
        for (int tap = 0; tap < axis.kernel; ++tap) {
          found.order[tap] = tap;
          found.quotient[tap] = floor_div(offset(tap), axis.stride);
          found.residue[tap] = offset(tap) - found.quotient[tap] * axis.stride;
        }
        std::stable_sort(found.order.begin(), found.order.begin() + axis.kernel,
                         [&](int a, int b) { return found.residue[a] < found.residue[b]; });
      });
  const auto& [order, quotient, residue] = taps;
  table.taps = static_cast<int32_t>(axis.kernel);
  table.part = std::min(part, table.taps);
  table.parts = static_cast<int32_t>(ceil_div(table.taps, table.part));
  table.stride = static_cast<int32_t>(axis.stride);
  table.x_extent = static_cast<int32_t>(axis.in);
  table.y_extent = static_cast<int32_t>(axis.out);
  int64_t low = 0, high = 0;  // of the part's patch
  for (int i = 0; i < table.taps; ++i) {
    const int tap = order[i];
    int64_t shift = 0;
    if (i % table.part != 0) {
      const int before = order[i - 1];
      const int64_t step =
          residue[before] == residue[tap] ? quotient[tap] - quotient[before] : tile;
      shift = table.shift[i - 1] + std::min<int64_t>(step, tile);
    } else {
      low = high = offset(tap);
    }
    if (shift > kFarthest || offset(tap) + tile * axis.stride > kFarthest)
      return "taps lie too far apart";
    table.tap[i] = static_cast<int16_t>(tap);
    table.offset[i] = static_cast<int16_t>(offset(tap));
    table.shift[i] = static_cast<int16_t>(shift);
    low = std::min(low, offset(tap));
    high = std::max(high, offset(tap) + (tile - 1) * axis.stride);
    const int rows = static_cast<int>(shift + tile);
    patch.rows = std::max(patch.rows, rows);
    patch.loads = std::max(
        patch.loads,
        load == 1 ? rows : static_cast<int>(floor_div(high, load) - floor_div(low, load) + 1));
  }
  return {};
}

}  // namespace

double carrying_cost(int mode, int run, int element_bytes) {
  const bool half = element_bytes == 2;
  const double round = half ? 0 : 3.5;  // words are rounded where they lie
  switch (mode) {
    case kByVectors:
      return (half ? 1.0 : 2.0) + round;
    case kByPlanes:
      return 6.0 / run + round;
    case kByWords:
      return 6 + round;
    default:
      return (40 + 15.0 * run) / (8 * run);
  }
}

int x_producers(const WeightParams& p, int element_bytes) {
  const double x =
      double(p.row_octets) * p.pixels * carrying_cost(p.x_mode, p.x_run, element_bytes);
  const double y =
      double(p.octets) * p.patch_pixels * carrying_cost(p.y_mode, p.y_run, element_bytes);
  const int share = static_cast<int>(p.producers * x / (x + y) + 0.5);
  return std::max(1, std::min(p.producers - 1, share));
}

bool writes_partials(const WeightParams& p) { return p.split > 1 || tiles_of(p) > p.turn_tiles; }

int64_t weight_combinations(const WeightParams& p) {
  return static_cast<int64_t>(p.groups) * p.row_blocks * p.octet_blocks * p.h.parts * p.w.parts;
}

std::string weight_shape(const Problem& problem, const WeightChoice& choice, WeightParams& params) {
  const bool half = element_size(problem.dtype) == 2;
  const int vector = half ? 8 : 4;
  const WeightTile tile = weight_tile(choice.row, half ? 2 : 4);
  params = {};
  params.batch = static_cast<int32_t>(problem.batch);
  params.groups = static_cast<int32_t>(problem.groups);
  params.rows = static_cast<int32_t>(problem.group_in());
  params.columns = static_cast<int32_t>(problem.group_out());
  set_tiles(problem, problem.h.in, problem.w.in, choice, params);
  params.tile_h_magic = magic_of(choice.tile_h);
  params.tile_w_magic = magic_of(choice.tile_w);

  const bool x_vectors = problem.x_layout == Layout::nhwc && params.rows % vector == 0;
  const bool y_vectors = problem.y_layout == Layout::nhwc && params.columns % vector == 0;
  const auto runs = [&](Layout layout, int64_t width, int run) {
    return layout == Layout::nchw && width % run == 0 && choice.tile_w % run == 0;
  };
  // Fragments of 16 bits are eight neighbours. Planes of dY hold columns that no tap needs, too.
  const int other = half ? kByParcels : kByWords;
  const bool x_planes = runs(problem.x_layout, problem.w.in, 2) &&
                        (!half || (choice.tile_w % 8 == 0 && tile.x_in_registers));
  const bool y_planes = !half && runs(problem.y_layout, problem.w.out, 2) &&
                        problem.w.stride <= 2 * std::min<int64_t>(choice.taps_w, problem.w.kernel);
  params.x_mode = x_vectors ? kByVectors : x_planes ? kByPlanes : other;
  params.y_mode = y_vectors ? kByVectors : y_planes ? kByPlanes : other;
  const auto longest = [&](int mode, Layout layout, int64_t width, int run) {
    if (mode == kByVectors || mode == kByWords) return 1;
    while (run > 1 && !runs(layout, width, run)) run /= 2;
    return run;
  };
  params.x_run = longest(params.x_mode, problem.x_layout, problem.w.in, x_planes ? vector : 4);
  params.y_run = longest(params.y_mode, problem.y_layout, problem.w.out, 4);
  if (params.x_mode == kByParcels && params.y_mode == kByParcels)
    params.x_run = params.y_run = std::min(params.x_run, params.y_run);
  Patch h, w;
  if (std::string reason = build_axis(problem.h, choice.taps_h, choice.tile_h, 1, params.h, h);
      !reason.empty())
    return reason;
  if (std::string reason =
          build_axis(problem.w, choice.taps_w, choice.tile_w, params.y_run, params.w, w);
      !reason.empty())
    return reason;
  params.patch_h = h.rows;
  params.row_loads =
      std::max(w.loads, w.rows);  // a tensor that is not aligned is loaded pixel by pixel
  const int64_t patch = static_cast<int64_t>(choice.tile_n) * h.rows *
                        (params.y_mode == kByPlanes ? params.y_run * w.loads : w.rows);
  const int64_t entries = static_cast<int64_t>(choice.tile_n) * h.rows * params.row_loads;
  params.patch_pixels = static_cast<int32_t>(patch);
  params.y_loads = static_cast<int32_t>(entries);
  params.pixels =
      static_cast<int32_t>(ceil_div(choice.tile_n * choice.tile_h * choice.tile_w, 32) * 32);

  const int units = params.h.part * params.w.part * choice.octets;
  params.warps_m = choice.warps_m;
  params.warps_n = static_cast<int32_t>(ceil_div(units, tile.units));
  params.units = params.warps_n * tile.units;
  params.octets = choice.octets;
  params.row_octets = choice.warps_m * tile.row_tiles * 2;
  params.row_blocks = static_cast<int32_t>(ceil_div(params.rows, params.row_octets * 8));
  params.octet_blocks = static_cast<int32_t>(ceil_div(ceil_div(params.columns, 8), choice.octets));
  params.producers = choice.producers;
  params.stages = choice.stages;
  params.x_producers = x_producers(params, half ? 2 : 4);
  params.split = choice.split;
  if (tile.width &&
      (choice.warps_m % 4 != 0 || choice.tile_w % 8 != 0 || choice.octets % tile.width != 0))
    return "warps that multiply together take rows of eight pixels";
  const int64_t pieces =
      std::max(params.row_octets * int64_t{params.pixels}, choice.octets * entries) * 2;
  if (pieces > kMostPieces) return "a tile has too many pieces (" + std::to_string(pieces) + ")";
  params.piece_floats = static_cast<int32_t>(weight_bytes(problem) / 4);
  // Sums of a dW that has no room beside itself stay in registers to the end.
  params.turn_tiles = choice.split == 1 && weight_bytes(problem) > kWorkspaceLimit
                          ? INT32_MAX
                          : std::max(1, kTurnPixels / params.pixels);
  return {};
}

}  // namespace convt2d::cuda::igemm
