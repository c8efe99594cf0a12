#include "cuda/hopper/hopper_shape.h"

#include <algorithm>

#include "core/phases.h"

namespace convt2d::cuda::hopper {
namespace {

constexpr int64_t kMostParcels = 60000;  // of a chunk: divide() takes 16-bit numbers

// Planes of an axis and the extent of one: `span` is the farthest source offset from the nearest.
struct Planes {
  int count, extent;
};
Planes planes_of(const AxisTable& axis, int tile, int span) {
  return {std::min(axis.source_step, span + 1), tile + span / axis.source_step};
}

}  // namespace

void set_buffers(const GatherChoice& choice, GatherParams& params) {
  params.slice_shift = choice.slice_shift;
  params.source_stages = choice.source_stages;
  params.weight_stages = choice.weight_stages;
  params.part_products =
      std::max(1, choice.weight_stages ? choice.part_products : params.max_products);
  params.parts =
      std::max<int>(1, static_cast<int>(ceil_div(params.max_products, params.part_products)));
}

std::string gather_shape(const Problem& problem, const GatherChoice& choice, GatherParams& params) {
  const TileRow tile = kTiles[choice.row];
  const bool forward = problem.direction == Direction::fwd;
  const bool half = element_size(problem.dtype) == 2;
  const int slice = half ? 16 : 8;  // channels
  const int vector = half ? 8 : 4;  // elements of 16 bytes
  params = {};
  params.batch = static_cast<int32_t>(problem.batch);
  params.groups = static_cast<int32_t>(problem.groups);
  params.reduce = static_cast<int32_t>(forward ? problem.group_in() : problem.group_out());
  params.columns = static_cast<int32_t>(forward ? problem.group_out() : problem.group_in());

  const auto slots = [&](const Axis& axis, int most) {
    return static_cast<int>(std::min<int64_t>(most, phases_of(problem, axis)));
  };
  const int slots_h = tile.channel_rows ? 1 : slots(problem.h, choice.stack_h);
  const int slots_w = slots(problem.w, tile.channel_rows ? tile.slots : choice.stack_w);
  if (std::string reason = build_axis(problem, problem.h, slots_h, params.h); !reason.empty())
    return reason;
  if (std::string reason = build_axis(problem, problem.w, slots_w, params.w); !reason.empty())
    return reason;

  params.tile_n = choice.tile_n;
  params.tile_h = choice.tile_h;
  params.tile_w = choice.tile_w;
  params.tiles_n = static_cast<int32_t>(ceil_div(problem.batch, choice.tile_n));
  params.tiles_h = static_cast<int32_t>(ceil_div(position_extent(params.h), choice.tile_h));
  params.tiles_w = static_cast<int32_t>(ceil_div(position_extent(params.w), choice.tile_w));

  const int room = tile.width / (slots_h * slots_w);
  const Layout destination = forward ? problem.y_layout : problem.x_layout;
  params.vector_stores = !tile.channel_rows && destination == Layout::nhwc &&
                         params.columns % vector == 0 && room % (4 * vector) == 0;
  params.tile_channels = tile.channel_rows      ? kChannelRows
                         : params.vector_stores ? room
                                                : std::min<int>(room, params.columns);
  if (params.tile_channels == 0)
    return std::to_string(slots_h * slots_w) + " phases do not fit " + std::to_string(tile.width) +
           " columns";
  params.column_tiles = static_cast<int32_t>(ceil_div(params.columns, params.tile_channels));

  const Layout source = forward ? problem.x_layout : problem.y_layout;
  const int step = params.w.source_step;
  const bool pairs = half && source == Layout::nchw && params.w.source_extent % 2 == 0 &&
                     step <= 2 && (choice.tile_w * step % 2 == 0 || params.tiles_w == 1);
  params.source_mode = source == Layout::nhwc && params.reduce % vector == 0 ? kVectors
                       : pairs                                               ? kPixelPairs
                                                                             : kPixels;
  const bool in_pairs = params.source_mode == kPixelPairs;
  const Planes h = planes_of(params.h, choice.tile_h, span_of(params.h));
  Planes w = planes_of(params.w, choice.tile_w, span_of(params.w) + in_pairs);
  if (in_pairs) w = {step, step == 1 ? (w.extent + 1) / 2 * 2 : w.extent};
  params.plane_h = h.extent;
  params.plane_w = w.extent;
  params.planes_h = h.count;
  params.planes_w = w.count;
  params.load_h = h.extent * h.count;
  params.load_w = w.extent * w.count / (in_pairs ? 2 : 1);
  params.plane_h_magic = magic_of(params.plane_h);
  params.plane_w_magic = magic_of(params.plane_w);
  params.load_h_magic = magic_of(params.load_h);
  params.load_w_magic = magic_of(params.load_w);
  params.planes_h_magic = magic_of(params.planes_h);
  params.planes_w_magic = magic_of(params.planes_w);

  params.operand_columns = choice.operand_columns;
  const int positions = operand_positions(tile);
  const int operands = block_positions(tile) / positions;
  if (choice.operand_columns == 0) {
    const int last =
        ((choice.tile_n - 1) * h.extent + choice.tile_h - 1) * w.extent + choice.tile_w;
    if (last > operands * positions) return "the tile is larger than a block";
  } else if (choice.tile_n > 1 || choice.tile_w > choice.operand_columns * kGroup ||
             choice.tile_h > operands / choice.operand_columns * (positions / kGroup)) {
    return "the tile is larger than a block";
  }
  // The farthest pixel an operand reads, used or not.
  const int rows = choice.operand_columns ? operands / choice.operand_columns : 0;
  const int last = choice.operand_columns ? (rows * (positions / kGroup) - 1) * w.extent +
                                                choice.operand_columns * kGroup
                                          : operands * positions;
  const int farthest = last + (patch_pixels(params) - plane_pixels(params)) +
                       span_of(params.h) / params.h.source_step * w.extent +
                       (span_of(params.w) + in_pairs) / step;
  params.overrun = std::max(0, farthest - patch_pixels(params));

  for (int i = 0; i < params.h.groups; ++i)
    for (int j = 0; j < params.w.groups; ++j) {
      const AxisGroup &gh = params.h.group[i], &gw = params.w.group[j];
      int products = 0;
      for (int a = 0; a < gh.phases; ++a)
        for (int b = 0; b < gw.phases; ++b) products += gh.taps[a] * gw.taps[b];
      if (!tile.channel_rows) products = gh.count * gw.count;
      params.max_products = std::max(params.max_products, products);
    }
  params.chunks = static_cast<int32_t>(
      ceil_div(params.reduce, static_cast<int64_t>(slice) << choice.slice_shift));
  set_buffers(choice, params);
  const int64_t units = static_cast<int64_t>(params.tile_n) * params.load_h * params.load_w;
  const int64_t parcels = std::max<int64_t>(units, params.part_products * weight_rows(tile))
                          << (choice.slice_shift + 1);
  if (parcels > kMostParcels)
    return "a chunk has too many pieces (" + std::to_string(parcels) + ")";
  if (source_half(params) >= 1 << 18 || patch_pixels(params) > kMostParcels)
    return "the source patch is too large";
  return {};
}

}  // namespace convt2d::cuda::hopper
