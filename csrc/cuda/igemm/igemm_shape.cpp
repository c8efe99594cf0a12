#include "cuda/igemm/igemm_shape.h"

#include <algorithm>

#include "core/phases.h"
#include "cuda/gather_params.h"

namespace convt2d::cuda::igemm {

std::string gather_shape(const Problem& problem, const GatherChoice& choice, GatherParams& params) {
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

  params.warps = choice.warps;
  set_tiles(problem, choice, params);
  params.column_tiles = static_cast<int32_t>(ceil_div(params.columns, tile.columns));

  const bool half = element_size(problem.dtype) == 2;
  const Layout source = forward ? problem.x_layout : problem.y_layout;
  const int row = half ? 16 : 8;
  const int vector = half ? 8 : 4;
  const Layout destination = forward ? problem.y_layout : problem.x_layout;
  params.vector_stores = destination != Layout::nhwc ? 0 : params.columns % vector != 0 ? 1 : 2;
  const int patch_h = (choice.tile_h - 1) * params.h.source_step + span_of(params.h) + 1;
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
  params.patch_h = patch_h;
  params.patch_w = patch_w;
  params.patch_h_magic = magic_of(patch_h);
  params.patch_w_magic = magic_of(patch_w);
  params.tile_h_magic = magic_of(choice.tile_h);
  params.tile_w_magic = magic_of(choice.tile_w);
  params.slice_shift = choice.slice_shift;
  params.chunks = static_cast<int32_t>(
      ceil_div(params.reduce, static_cast<int64_t>(row) << choice.slice_shift));
  params.stages = choice.stages;
  params.resident = choice.resident;

  for (int h = 0; h < params.h.groups; ++h)
    for (int w = 0; w < params.w.groups; ++w) {
      const AxisGroup &gh = params.h.group[h], &gw = params.w.group[w];
      int entries = 0;
      for (int i = 0; i < gh.phases; ++i)
        for (int j = 0; j < gw.phases; ++j) entries += gh.taps[i] * gw.taps[j];
      params.max_entries = std::max(params.max_entries, entries);
      params.max_steps = std::max(params.max_steps, gh.count * gw.count);
    }
  const int64_t pixels = static_cast<int64_t>(params.tile_n) * patch_h * patch_w;
  const int64_t units = std::max<int64_t>(pixels, params.max_entries * tile.columns)
                        << (choice.slice_shift + 1);
  if (units > 60000) return "a chunk has too many pieces (" + std::to_string(units) + ")";
  return {};
}

}  // namespace convt2d::cuda::igemm
