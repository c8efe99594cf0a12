#include "cuda/igemm/igemm_shape.h"

#include <algorithm>

#include "core/phases.h"
#include "cuda/gather_params.h"

namespace convt2d::cuda::igemm {

namespace {

// All taps of all positions meet the source.
bool inside(const Axis& axis) {
  return axis.near_pad == 0 &&
         (axis.in - 1) * axis.stride + (axis.kernel - 1) * axis.dilation < axis.out;
}

}  // namespace

bool fold(const Problem& problem, Fold& folded) {
  const Axis &h = problem.h, &w = problem.w;
  const bool nhwc = problem.y_layout == Layout::nhwc;
  if (problem.direction != Direction::grad_input || problem.groups != 1 ||
      problem.y_layout == Layout::strided || problem.w_layout != problem.y_layout || !inside(w))
    return false;
  // One level of a window: a number of taps or channels, and what lies between two of them in y and in w.
  struct Level {
    int64_t count, source, weight;
  };
  const int64_t c = problem.out_channels, pixel = nhwc ? c : 1, weight = nhwc ? c : 1;
  const Level columns = {w.kernel, w.dilation * pixel, weight};
  const Level rows = {h.kernel, h.dilation * w.out * pixel, w.kernel * weight};
  const Level channels = nhwc ? Level{c, 1, 1} : Level{c, h.out * w.out, h.kernel * w.kernel};
  int64_t run = 1;
  const auto join = [&](const Level& level) {
    if (level.count > 1 && (level.source != run || level.weight != run)) return false;
    run *= level.count;
    return true;
  };
  if ((nhwc && !join(channels)) || !join(columns)) return false;
  const bool whole_rows = inside(h) && join(rows);
  const bool whole = nhwc || (whole_rows && join(channels));

  folded.problem = problem;
  folded.problem.out_channels = run;
  folded.problem.y_layout = folded.problem.w_layout = Layout::nhwc;
  folded.problem.w = {w.in, w.in, 1, 1, 0, 1};
  if (whole_rows) folded.problem.h = {h.in, h.in, 1, 1, 0, 1};
  const int64_t row = w.out * pixel;
  folded.source_stride[0] = c * h.out * w.out;
  folded.source_stride[1] = 1;
  folded.source_stride[2] = whole_rows ? h.stride * row : row;
  folded.source_stride[3] = w.stride * pixel;
  folded.weight_h = rows.weight;
  folded.outer = whole ? 1 : c;
  folded.outer_source = channels.source;
  folded.outer_weight = channels.weight;

  // Runs as long as a slice at least, and all of them from addresses for wide loads.
  const int64_t vector = 16 / element_size(problem.dtype);
  const auto wide = [&](int64_t count, int64_t stride) {
    return count == 1 || stride % vector == 0;
  };
  return run >= 2 * vector && run % vector == 0 && wide(problem.batch, folded.source_stride[0]) &&
         wide(h.in, h.stride * row) && wide(h.kernel, rows.source) &&
         wide(w.in, folded.source_stride[3]) && wide(h.kernel, rows.weight) &&
         wide(folded.outer, channels.source) && wide(folded.outer, channels.weight) &&
         wide(problem.in_channels, c * h.kernel * w.kernel);
}

std::string gather_shape(const Problem& given, const GatherChoice& choice, GatherParams& params) {
  Fold folded;
  const Problem& problem = choice.folded && fold(given, folded) ? folded.problem : given;
  const TileRow tile = kTiles[choice.row];
  const bool forward = problem.direction == Direction::fwd;
  params = {};
  set_extents(problem, params);

  // Column phases first: they make NCHW rows contiguous. Row phases take what is left.
  const int slots_w =
      static_cast<int>(std::min<int64_t>(tile.slots, phases_of(problem, problem.w)));
  const int slots_h =
      static_cast<int>(std::min<int64_t>(tile.slots / slots_w, phases_of(problem, problem.h)));
  if (std::string reason = set_axes(problem, slots_h, slots_w, params); !reason.empty())
    return reason;

  params.outer = static_cast<int32_t>(choice.folded ? folded.outer : 1);
  params.teams = choice.teams;
  params.warps = choice.warps;
  set_tiles(problem, choice, params);
  params.column_tiles = static_cast<int32_t>(ceil_div(params.columns, tile.columns));

  const bool half = element_size(problem.dtype) == 2;
  const Layout source = forward ? problem.x_layout : problem.y_layout;
  const int vector = half ? 8 : 4;
  const Layout destination = forward ? problem.y_layout : problem.x_layout;
  // A thread's run of neighbouring channels (kVectorTiles): 16 bytes, or what a narrow tile has.
  const int stored = 2 * std::min(tile.columns / 8, half ? 4 : 2);
  params.vector_stores = destination != Layout::nhwc ? 0 : params.columns % stored != 0 ? 1 : 2;
  // Blocks of tap rows are offered for one phase, and only where their patches do not overlap.
  params.row_blocks =
      choice.tap_rows == 0 ? 1 : static_cast<int32_t>(problem.h.kernel / choice.tap_rows);
  params.tap_rows = static_cast<int32_t>(problem.h.kernel / params.row_blocks);
  params.block_rows = params.tap_rows * static_cast<int32_t>(problem.h.dilation);
  const int span_h = params.row_blocks == 1
                         ? span_of(params.h)
                         : (params.tap_rows - 1) * static_cast<int>(problem.h.dilation);
  params.patch_step_h = params.row_blocks == 1 ? params.h.source_step : span_h + 1;
  params.patch_step_h_magic = magic_of(params.patch_step_h);
  const int patch_h = (choice.tile_h - 1) * params.patch_step_h + span_h + 1;
  int patch_w = (choice.tile_w - 1) * params.w.source_step + span_of(params.w) + 1;
  // Loads of several pixels start on multiples of `run` columns: the patch grows to whole runs.
  const int run = half ? 2 : 4;
  const bool runs = source == Layout::nchw && params.w.source_extent % run == 0 &&
                    (choice.tile_w * params.w.source_step % run == 0 || params.tiles_w == 1);
  if (source == Layout::nhwc && params.reduce % vector == 0) {
    params.source_mode = kVectors;
  } else if (runs) {
    params.source_mode = half ? kPixelPairs : kWidePlanes;
    patch_w = (patch_w + 2 * (run - 1)) / run * run;
  } else {
    params.source_mode = half ? kGather : kPlanes;
  }
  // Where pixels are copied one by one, their order is free.
  params.residues_w = params.source_mode == kVectors ? params.w.source_step : 1;
  params.patch_step_w = params.w.source_step / params.residues_w;
  params.residue_pixels = static_cast<int32_t>(ceil_div(patch_w, params.residues_w));
  params.residue_pixels_magic = magic_of(params.residue_pixels);
  patch_w = params.residues_w * params.residue_pixels;
  params.patch_h = patch_h;
  params.patch_w = patch_w;
  params.patch_h_magic = magic_of(patch_h);
  params.patch_w_magic = magic_of(patch_w);
  params.tile_h_magic = magic_of(choice.tile_h);
  params.tile_w_magic = magic_of(choice.tile_w);
  params.weights_along_k =
      !forward && problem.w_layout == Layout::nhwc && params.reduce % vector == 0;
  set_depth(given, choice, params);

  for (int h = 0; h < params.h.groups; ++h)
    for (int w = 0; w < params.w.groups; ++w) {
      const AxisGroup &gh = params.h.group[h], &gw = params.w.group[w];
      int entries = 0;
      for (int i = 0; i < gh.phases; ++i)
        for (int j = 0; j < gw.phases; ++j) entries += gh.taps[i] * gw.taps[j];
      params.max_entries = std::max(params.max_entries, entries / params.row_blocks);
      params.max_steps = std::max(params.max_steps, gh.count * gw.count / params.row_blocks);
    }
  const int64_t pixels = static_cast<int64_t>(params.tile_n) * patch_h * patch_w;
  const int64_t units = std::max<int64_t>(pixels, params.max_entries * tile.columns)
                        << (choice.slice_shift + 1);
  if (units > 60000) return "a chunk has too many pieces (" + std::to_string(units) + ")";
  return {};
}

void set_depth(const Problem& problem, const GatherChoice& choice, GatherParams& params) {
  const int64_t row = kRowBytes / element_size(problem.dtype);
  params.slice_shift = choice.slice_shift;
  params.chunks = static_cast<int32_t>(ceil_div(params.reduce, row << choice.slice_shift));
  params.units = params.chunks * params.row_blocks * params.outer;
  params.chunks_magic = magic_of(params.chunks);
  params.row_blocks_magic = magic_of(params.row_blocks);
  params.ranks = choice.ranks;
  params.slice_teams = std::min(params.teams, 1 << choice.slice_shift);
  params.step_teams = params.teams / params.slice_teams;
  params.stages = choice.stages;
  params.resident = choice.resident;
  params.shared = is_shared(choice);
  params.weights_copied = params.weights_along_k && params.shared;
}

}  // namespace convt2d::cuda::igemm
