#include "cuda/weft/weft_shape.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <tuple>
#include <vector>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::weft {
namespace {

constexpr int64_t kFarthest = 16000;  // offsets are stored in 16 bits
constexpr int64_t kMostRow = 255, kMostColumn = 4095,
                  kMostRows = (1 << kEntryRow) - 1;  // of entries

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

std::vector<Tap> sorted_taps(const Problem& problem, Order order) {
  std::vector<Tap> taps;
  for (int64_t h = 0; h < problem.h.kernel; ++h)
    for (int64_t w = 0; w < problem.w.kernel; ++w)
      taps.push_back({h, w, place(problem.h, h), place(problem.w, w)});
  const auto key = [&](const Tap& tap) {
    const Place &h = tap.h, &w = tap.w;
    return order == Order::planes    ? std::tuple{h.residue, w.residue, h.quotient, w.quotient}
           : order == Order::columns ? std::tuple{h.residue, w.residue, w.quotient, h.quotient}
                                     : std::tuple{tap.kernel_h, w.residue, w.quotient, int64_t{0}};
  };
  std::stable_sort(taps.begin(), taps.end(),
                   [&](const Tap& a, const Tap& b) { return key(a) < key(b); });
  return taps;
}

// Gives the taps of every block their planes, of which those that differ by whole pixels have one.
void set_planes(const Problem& problem, const std::vector<Tap>& taps, const Choice& choice,
                hopper::WeightParams& p) {
  struct Plane {
    Place h, w;  // of its first pixel
  };
  std::vector<std::vector<Plane>> planes(ceil_div(taps.size(), p.unit_taps));
  std::vector<size_t> plane_of(taps.size());
  for (size_t i = 0; i < taps.size(); ++i) {
    std::vector<Plane>& here = planes[i / p.unit_taps];
    const Tap& tap = taps[i];
    const auto found = std::find_if(here.begin(), here.end(), [&](const Plane& plane) {
      return plane.h.residue == tap.h.residue && plane.w.residue == tap.w.residue;
    });
    plane_of[i] = static_cast<size_t>(found - here.begin());
    if (found == here.end()) {
      here.push_back({tap.h, tap.w});
    } else {
      found->h.quotient = std::min(found->h.quotient, tap.h.quotient);
      found->w.quotient = std::min(found->w.quotient, tap.w.quotient);
    }
    p.planes = std::max(p.planes, static_cast<int32_t>(here.size()));
  }
  int64_t span_h = 0, span_w = 0;
  for (size_t i = 0; i < taps.size(); ++i) {
    const Plane& plane = planes[i / p.unit_taps][plane_of[i]];
    span_h = std::max(span_h, taps[i].h.quotient - plane.h.quotient);
    span_w = std::max(span_w, taps[i].w.quotient - plane.w.quotient);
  }
  if (choice.padded) p.tile_w = static_cast<int32_t>(problem.w.in + span_w);
  p.patch_h = static_cast<int32_t>(p.tile_h + span_h);
  p.patch_w = static_cast<int32_t>(choice.padded ? p.tile_w : p.tile_w + span_w);
  for (size_t i = 0; i < taps.size(); ++i) {
    const Plane& plane = planes[i / p.unit_taps][plane_of[i]];
    const Tap& tap = taps[i];
    const auto start = [](const Axis& axis, const Place& first) {
      return static_cast<int16_t>(first.residue + first.quotient * axis.stride);
    };
    const int64_t shift =
        (tap.h.quotient - plane.h.quotient) * p.patch_w + tap.w.quotient - plane.w.quotient;
    p.tap[i] = {static_cast<int16_t>(tap.kernel_h), static_cast<int16_t>(tap.kernel_w),
                start(problem.h, plane.h),          start(problem.w, plane.w),
                static_cast<int16_t>(plane_of[i]),  static_cast<int16_t>(shift)};
  }
}

// Whether the cells of every instruction of every block lie at equal distances.
bool cells_lie_well(const hopper::WeightParams& p, WeightTile tile) {
  const int cells = tile.width / kCellChannels, most = tile.instructions * tile.groups;
  for (int first = 0; first < p.taps; first += p.unit_taps)
    for (int i = 0; i < most; ++i) {
      const hopper::WeightCells at = hopper::cells_of(p, tile, first, i);
      if (at.apart < 0) return false;
      for (int c = 1; c < cells; ++c) {
        const int cell = at.tap * p.y_blocks + at.y_block + c;
        if (first + cell / p.y_blocks < p.taps &&
            hopper::cell_address(p, first, cell) != at.at + c * at.apart)
          return false;
      }
    }
  return true;
}

// How many planes of so many pixels are whole vectors.
int residues_of(int64_t pixels) {
  int residues = 1;
  while (pixels * residues % kEight != 0) residues *= 2;
  return residues;
}

// Segments of `pixels` pixels of an operand, from `first` on in its first tile; `fixed`: all start at the same place of 16
// bytes.
std::string set_side(int64_t channels, int64_t group, int64_t groups, int64_t height, int64_t width,
                     int64_t segments, int64_t step, int64_t pixels, int64_t first, bool fixed,
                     int blocks, Side& side) {
  side.plane = static_cast<int32_t>(height * width);
  side.width = static_cast<int32_t>(width);
  side.height = static_cast<int32_t>(height);
  side.residues = residues_of(height * width);
  if (channels % side.residues != 0 || (groups > 1 && group % side.residues != 0))
    return std::to_string(side.residues) + " planes, which are whole vectors, do not share out " +
           std::to_string(group) + " channels";
  side.blocks = blocks;
  side.segments = static_cast<int32_t>(segments);
  side.step = static_cast<int32_t>(step);
  const int64_t lead =
      fixed && side.residues == 1 ? (first % kEight + kEight) % kEight : kEight - 1;
  const int64_t octets = ceil_div(pixels + lead, kEight) | 1;
  if (octets > kMostOctets || segments > kMostSegments)
    return std::to_string(segments) + " segments of " + std::to_string(pixels) +
           " pixels are too much for the copy engine";
  side.octets = static_cast<int32_t>(octets);
  side.copies = side.residues == 1 ? 1 : blocks * side.residues;
  side.copy_bytes = segment_bytes(side) / side.copies;
  return {};
}

}  // namespace

std::string shape(const Problem& problem, const Choice& choice, Params& params) {
  const WeightTile tile = tile_of(choice.row);
  const Axis &h = problem.h, &w = problem.w;
  params = {};
  hopper::WeightParams& p = params.weight;
  for (const Axis& axis : {h, w})
    if (axis.kernel * axis.dilation + std::abs(axis.near_pad) + axis.stride > kFarthest)
      return "taps reach too far";
  if (h.kernel * w.kernel > hopper::kMostTaps) return std::to_string(h.kernel * w.kernel) + " taps";
  p.piece_floats = static_cast<int32_t>(weight_bytes(problem) / 4);
  p.batch = static_cast<int32_t>(problem.batch);
  p.groups = static_cast<int32_t>(problem.groups);
  p.rows = static_cast<int32_t>(problem.group_in());
  p.columns = static_cast<int32_t>(problem.group_out());
  p.x_h = static_cast<int32_t>(h.in);
  p.x_w = static_cast<int32_t>(w.in);
  p.y_h = static_cast<int32_t>(h.out);
  p.y_w = static_cast<int32_t>(w.out);
  p.stride_h = static_cast<int32_t>(h.stride);
  p.stride_w = static_cast<int32_t>(w.stride);
  p.kernel_w = static_cast<int32_t>(w.kernel);
  p.taps = static_cast<int32_t>(h.kernel * w.kernel);
  p.x_blocks = choice.x_blocks;
  p.y_blocks = choice.y_blocks;
  p.unit_taps = choice.unit_taps;
  p.row_blocks = static_cast<int32_t>(ceil_div(p.rows, choice.x_blocks * kCellChannels));
  p.column_blocks = static_cast<int32_t>(ceil_div(p.columns, choice.y_blocks * kCellChannels));
  p.units = static_cast<int32_t>(ceil_div(p.taps, choice.unit_taps));
  // A warpgroup fetches one block of x.
  if (tile.groups % choice.x_blocks != 0) return "warpgroups do not share out x";
  p.tile_n = 1, p.tile_h = choice.tile_h, p.tile_w = choice.tile_w;
  set_planes(problem, sorted_taps(problem, choice.order), choice, p);
  p.tiles_n = p.batch;
  p.tiles_h = static_cast<int32_t>(ceil_div(h.in, choice.tile_h));
  p.tiles_w = static_cast<int32_t>(choice.padded ? 1 : ceil_div(w.in, choice.tile_w));
  p.split = choice.split;
  params.quads = p.columns % 4 == 0;
  if (hopper::tile_pixels(p) > kTilePixels) return "the tile has too many pixels";
  if (!choice.padded &&
      (hopper::tile_pixels(p) != kTilePixels || choice.tile_w % hopper::kStepPixels != 0))
    return "a tile is not rows of 16 pixels";

  // Rows of a plane, as far as taps read.
  int64_t last = int64_t{p.patch_h} * p.patch_w, shift = 0;
  for (int i = 0; i < p.taps; ++i) shift = std::max<int64_t>(shift, p.tap[i].shift);
  for (int i = 0; i < kTileSteps; ++i) {
    const int pixel = i * hopper::kStepPixels;
    const int row = choice.padded ? pixel : pixel / p.tile_w * p.patch_w + pixel % p.tile_w;
    p.step[i] = kRowBytes / 16 * row;
    last = std::max(last, row + hopper::kStepPixels + shift);
  }
  // Neighbours among dY's pixels go to planes that lie side by side: in other banks, if the planes start there.
  const int64_t between = std::max<int64_t>(1, hopper::kRowGroup / (w.stride * p.y_blocks));
  int64_t rows = round_up(last, hopper::kRowGroup);
  if (w.stride > 1 && between < hopper::kRowGroup) rows += between;
  p.plane_bytes = static_cast<int32_t>(rows * kRowBytes);
  if (!cells_lie_well(p, tile)) return "the taps of a block do not lie at equal distances";
  const int64_t used = p.x_blocks * kTilePixels + int64_t{p.planes} * p.y_blocks * rows;
  if (used + hopper::kRowGroup > kMostRows) return "a K tile is too long for shared memory";
  params.dump_row = static_cast<int32_t>(used);
  params.stage_bytes =
      static_cast<int32_t>(round_up((used + hopper::kRowGroup) * kRowBytes, int64_t{1024}));

  // What the copy engine brings.
  const bool whole = p.tiles_w == 1;
  params.direct = !choice.padded && w.in % kEight == 0;
  params.side[kX].residues = params.side[kX].copies = 1;
  if (!params.direct)
    if (std::string why = set_side(problem.in_channels, p.rows, p.groups, h.in, w.in,
                                   whole ? 1 : p.tile_h, 1, whole ? p.tile_h * w.in : p.tile_w, 0,
                                   whole ? p.tile_h * w.in % kEight == 0 : w.in % kEight == 0,
                                   p.x_blocks, params.side[kX]);
        !why.empty())
      return why;
  int64_t segments = 1, step = h.stride, pixels = 0, first = 0;
  bool same_first = true;
  for (int begin = 0; begin < p.taps; begin += p.unit_taps)
    for (int i = begin; i < std::min(p.taps, begin + p.unit_taps); ++i)
      for (int j = begin; j < i; ++j) step = std::gcd(step, int64_t{p.tap[i].h} - p.tap[j].h);
  for (int begin = 0; begin < p.taps; begin += p.unit_taps) {
    int64_t top = kFarthest, left = kFarthest, bottom = -kFarthest, right = -kFarthest;
    for (int i = begin; i < std::min(p.taps, begin + p.unit_taps); ++i) {
      top = std::min<int64_t>(top, p.tap[i].h), bottom = std::max<int64_t>(bottom, p.tap[i].h);
      left = std::min<int64_t>(left, p.tap[i].w), right = std::max<int64_t>(right, p.tap[i].w);
    }
    bottom += (p.patch_h - 1) * h.stride;
    right += (p.patch_w - 1) * w.stride;
    if (bottom - top > kMostRow || right - left > kMostColumn) return "a patch is too long";
    if (choice.runs) {
      const int64_t from = std::max<int64_t>(left, 0), to = std::min<int64_t>(right, w.out - 1);
      if (to < from) return "a block's taps read nothing";
      pixels = std::max(pixels, (bottom - top) * w.out + to - from + 1);
      left = from;
    } else {
      segments = std::max(segments, (bottom - top) / step + 1);
      pixels = std::max(pixels, right - left + 1);
    }
    const int64_t start = choice.runs ? top * w.out + left : left;
    same_first &= begin == 0 || (start - first) % kEight == 0;
    first = start;
  }
  if (choice.runs && !whole) return "tiles are no whole rows";
  const bool fixed = same_first && (choice.runs ? p.tile_h * h.stride * w.out % kEight == 0
                                                : w.out % kEight == 0 &&
                                                      (whole || p.tile_w * w.stride % kEight == 0));
  if (std::string why =
          set_side(problem.out_channels, p.columns, p.groups, h.out, w.out, segments,
                   choice.runs ? 1 : step, pixels, first, fixed, p.y_blocks, params.side[kY]);
      !why.empty())
    return why;
  params.runs = choice.runs;
  params.side[kX].block_rows = kTilePixels;
  params.side[kY].block_rows = static_cast<int32_t>(rows);
  params.side[kY].at = side_bytes(params.side[kX]);
  params.raw_bytes = side_bytes(params.side[kX]) + side_bytes(params.side[kY]);
  p.stages = choice.stages;
  params.raw_stages = choice.raw_stages;
  params.raw_at = hopper::kStagesAt + p.stages * params.stage_bytes;
  params.side[kX].table_at = params.raw_at + params.raw_stages * params.raw_bytes;
  params.side[kY].table_at = params.side[kX].table_at + table_entries(params.side[kX]) * 4;
  return {};
}

}  // namespace convt2d::cuda::weft
