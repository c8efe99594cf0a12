#include "cuda/hopper/hopper_weight_shape.h"

#include <algorithm>
#include <vector>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/remembered.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::hopper {
namespace {

constexpr int64_t kFarthest = 16000;  // offsets are stored in 16 bits

// A tap on one axis: which of the stride's planes, and how many of its pixels on.
struct Place {
  int64_t residue, quotient;
};
Place place(const Axis& axis, int64_t tap) {
  const int64_t offset = tap * axis.dilation - axis.near_pad;
  const int64_t quotient = floor_div(offset, axis.stride);
  return {offset - quotient * axis.stride, quotient};
}

struct Tap {
  int64_t kernel_h, kernel_w;
  Place h, w;
};

// In the order of the planes and of the pixels in them, row by row or column by column.
void sort_taps(const Problem& problem, bool by_columns, std::vector<Tap>& taps) {
  taps.clear();
  for (int64_t h = 0; h < problem.h.kernel; ++h)
    for (int64_t w = 0; w < problem.w.kernel; ++w)
      taps.push_back({h, w, place(problem.h, h), place(problem.w, w)});
  std::stable_sort(taps.begin(), taps.end(), [&](const Tap& a, const Tap& b) {
    if (a.h.residue != b.h.residue) return a.h.residue < b.h.residue;
    if (a.w.residue != b.w.residue) return a.w.residue < b.w.residue;
    if (by_columns && a.w.quotient != b.w.quotient) return a.w.quotient < b.w.quotient;
    if (a.h.quotient != b.h.quotient) return a.h.quotient < b.h.quotient;
    return a.w.quotient < b.w.quotient;
  });
}
const std::vector<Tap>& sorted_taps(const Problem& problem, bool by_columns) {
  const Axis &h = problem.h, &w = problem.w;
  thread_local Remembered<std::vector<Tap>, 9, 2> known;
  return known.answer({by_columns, h.kernel, h.stride, h.near_pad, h.dilation, w.kernel, w.stride,
                       w.near_pad, w.dilation},
                      [&](std::vector<Tap>& taps) { sort_taps(problem, by_columns, taps); });
}

// Gives the taps of every block their planes. Returns how many planes a block has at most.
int set_planes(const Problem& problem, const std::vector<Tap>& taps, bool shared,
               WeightParams& params) {
  struct Plane {
    Place h, w;  // of its first pixel
  };
  std::vector<std::vector<Plane>> planes(ceil_div(taps.size(), params.unit_taps));
  std::vector<int> plane_of(taps.size());
  size_t most = 0;
  int64_t span_h = 0, span_w = 0;
  for (size_t i = 0; i < taps.size(); ++i) {
    std::vector<Plane>& here = planes[i / params.unit_taps];
    const Tap& tap = taps[i];
    const auto same = [&](const Plane& plane) {
      return shared && plane.h.residue == tap.h.residue && plane.w.residue == tap.w.residue;
    };
    const auto found = std::find_if(here.begin(), here.end(), same);
    plane_of[i] = static_cast<int>(found - here.begin());
    if (found == here.end()) {
      here.push_back({tap.h, tap.w});
    } else {
      found->h.quotient = std::min(found->h.quotient, tap.h.quotient);
      found->w.quotient = std::min(found->w.quotient, tap.w.quotient);
    }
    most = std::max(most, here.size());
  }
  for (size_t i = 0; i < taps.size(); ++i) {
    const Plane& plane = planes[i / params.unit_taps][plane_of[i]];
    span_h = std::max(span_h, taps[i].h.quotient - plane.h.quotient);
    span_w = std::max(span_w, taps[i].w.quotient - plane.w.quotient);
  }
  params.patch_h = static_cast<int32_t>(params.tile_h + span_h);
  params.patch_w = static_cast<int32_t>(params.tile_w + span_w);
  for (size_t i = 0; i < taps.size(); ++i) {
    const Plane& plane = planes[i / params.unit_taps][plane_of[i]];
    const Tap& tap = taps[i];
    const auto start = [](const Axis& axis, const Place& first) {
      return static_cast<int16_t>(first.residue + first.quotient * axis.stride);
    };
    const int64_t shift =
        (tap.h.quotient - plane.h.quotient) * params.patch_w + tap.w.quotient - plane.w.quotient;
    params.tap[i] = {static_cast<int16_t>(tap.kernel_h), static_cast<int16_t>(tap.kernel_w),
                     start(problem.h, plane.h),          start(problem.w, plane.w),
                     static_cast<int16_t>(plane_of[i]),  static_cast<int16_t>(shift)};
  }
  return static_cast<int>(most);
}

// Whether the cells of every instruction of every block lie at equal distances, and in the stage.
bool cells_lie_well(const WeightParams& p, WeightTile tile) {
  const int cells = tile.width / kCellChannels, most = tile.instructions * tile.groups;
  const int region = p.planes * p.y_blocks * p.plane_bytes;
  for (int first = 0; first < p.taps; first += p.unit_taps)
    for (int i = 0; i < most; ++i) {
      const WeightCells at = cells_of(p, tile, first, i);
      for (int c = 1; c < cells; ++c) {
        const int cell = at.tap * p.y_blocks + at.y_block + c;
        if (first + cell / p.y_blocks < p.taps &&
            cell_address(p, first, cell) != at.at + c * at.apart)
          return false;
      }
      // The last row of a tile, from a cell's first.
      const int reach = ((p.tile_n - 1) * p.patch_h + p.tile_h - 1) * p.patch_w + p.tile_w;
      const int last = at.at + (cells - 1) * at.apart + std::max(reach, kStepPixels) * kRowBytes;
      if (at.apart < 0 || last > region) return false;
    }
  return true;
}

}  // namespace

int64_t weight_combinations(const WeightParams& p) {
  return static_cast<int64_t>(p.groups) * p.row_blocks * p.column_blocks * p.units;
}

std::string weight_shape(const Problem& problem, const WeightChoice& choice, WeightParams& params,
                         bool spooled) {
  const WeightTile tile = kWeightTiles[choice.row];
  params = {};
  for (const Axis& axis : {problem.h, problem.w}) {
    if (axis.stride > kMostStep)
      return "the copy engine cannot skip " + std::to_string(axis.stride - 1) + " pixels";
    if (axis.kernel > kMostTaps ||
        axis.kernel * axis.dilation + std::abs(axis.near_pad) > kFarthest)
      return "taps reach too far";
  }
  if (problem.h.kernel * problem.w.kernel > kMostTaps)
    return std::to_string(problem.h.kernel * problem.w.kernel) + " taps are more than " +
           std::to_string(kMostTaps);
  set_weight_extents(problem, params);
  params.y_h = static_cast<int32_t>(problem.h.out);
  params.y_w = static_cast<int32_t>(problem.w.out);
  params.stride_h = static_cast<int32_t>(problem.h.stride);
  params.stride_w = static_cast<int32_t>(problem.w.stride);
  params.kernel_w = static_cast<int32_t>(problem.w.kernel);
  params.taps = static_cast<int32_t>(problem.h.kernel * problem.w.kernel);
  params.x_blocks = choice.x_blocks;
  params.y_blocks = choice.y_blocks;
  params.unit_taps = choice.unit_taps;
  params.row_blocks = static_cast<int32_t>(ceil_div(params.rows, choice.x_blocks * kCellChannels));
  params.column_blocks =
      static_cast<int32_t>(ceil_div(params.columns, choice.y_blocks * kCellChannels));
  params.units = static_cast<int32_t>(ceil_div(params.taps, choice.unit_taps));
  set_tiles(problem, problem.h.in, problem.w.in, choice, params);
  params.stages = choice.stages;
  params.split = choice.split;
  params.x_pitch = static_cast<int32_t>(problem.in_channels);
  params.y_pitch = static_cast<int32_t>(problem.out_channels);
  params.x_piece = params.rows % 8 == 0 ? 0 : params.rows % 4 == 0 ? 8 : 4;
  if (spooled) {
    params.x_pitch = static_cast<int32_t>(round_up(params.x_pitch, 8));
    params.y_pitch = static_cast<int32_t>(round_up(params.y_pitch, 8));
    params.x_piece = 0;
  }
  if (tile_pixels(params) > kTilePixels) return "the tile has too many pixels";
  if (choice.shared && (tile_pixels(params) != kTilePixels || choice.tile_w % kStepPixels != 0))
    return "a shared plane wants rows of 16 pixels";

  const auto span = [](int count, int step) { return (count - 1) * step + 1; };
  const bool orders[] = {false, true};  // by rows, else by columns
  for (bool by_columns : orders) {
    params.planes = set_planes(problem, sorted_taps(problem, by_columns), choice.shared, params);
    if (std::max(span(params.patch_h, params.stride_h), span(params.patch_w, params.stride_w)) >
        kMostSpan)
      return "a tile is too long for the copy engine";
    // A last block may have fewer, and an instruction then reads up to three that nobody brings.
    if (!choice.shared) params.planes = std::min(choice.unit_taps, params.taps + 3);
    const int pixels = std::max(patch_pixels(params), choice.shared ? 0 : kTilePixels);
    params.plane_bytes = static_cast<int32_t>(ceil_div(pixels, kRowGroup) * kRowGroup * kRowBytes);
    if (cells_lie_well(params, tile)) break;
    if (by_columns) return "the taps of a block do not lie at equal distances";
  }
  for (int i = 0; i < kTileSteps; ++i) {
    const int pixel = i * kStepPixels;
    const int row = pixel / params.tile_w, image = row / params.tile_h;
    params.step[i] =
        kRowBytes / 16 *
        (!choice.shared ? pixel
                        : (image * params.patch_h + row % params.tile_h) * params.patch_w +
                              pixel % params.tile_w);
  }
  return {};
}

double read_bytes(const Problem& problem) {
  const auto reached = [](const Axis& axis) {  // of dY
    const int64_t residues = axis.stride / gcd(axis.stride, axis.dilation);
    return double(std::min(axis.kernel, residues)) / double(axis.stride);
  };
  const double y = double(problem.batch * problem.out_channels) *
                   double(problem.h.out * problem.w.out) * double(element_size(problem.dtype));
  // Of rows of pixels what no tap reads comes with its neighbours (k1s2 of TF32 in NCHW: 66 us, as if all of its rows came).
  const double of_row = problem.y_layout == Layout::nchw ? 1 : reached(problem.w);
  return tensor_bytes(problem) - y * (1 - reached(problem.h) * of_row);
}

WeightMaps weight_maps(const WeightParams& p, const void* x, const void* y) {
  // Axes are dense, the contiguous one first: the layout promises that.
  const auto map = [&](const void* base, int64_t channels, int64_t pitch, int64_t h, int64_t w,
                       int count_h, int count_w, int step_h, int step_w) {
    constexpr int kBytes = 2;
    const int64_t row = pitch * w;
    return encode({base,
                   kBytes,
                   4,
                   {channels, w, h, p.batch},
                   {kBytes, pitch * kBytes, row * kBytes, row * h * kBytes},
                   {kCellChannels, count_w, count_h, p.tile_n},
                   {1, step_w, step_h, 1}});
  };
  return {p.x_piece > 0 ? CUtensorMap{}
                        : map(x, int64_t{p.groups} * p.rows, p.x_pitch, p.x_h, p.x_w, p.tile_h,
                              p.tile_w, 1, 1),
          map(y, int64_t{p.groups} * p.columns, p.y_pitch, p.y_h, p.y_w, p.patch_h, p.patch_w,
              p.stride_h, p.stride_w)};
}

}  // namespace convt2d::cuda::hopper
