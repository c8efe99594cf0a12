// direct, forward and grad_input: Problem + Plan + Args -> GatherParams -> launch.
#include <algorithm>
#include <array>
#include <utility>

#include "cuda/cuda_check.h"
#include "cuda/direct/direct_dot.cuh"
#include "cuda/direct/direct_gather.cuh"
#include "cuda/direct/direct_group.cuh"
#include "cuda/direct/direct_strip.cuh"

namespace convt2d::cuda::direct {
namespace {

int32_t narrow(int64_t value) { return static_cast<int32_t>(value); }

// What one axis of the gather is made of, whichever the direction.
GatherAxis gather_axis(const Axis& axis, bool forward, PhaseMode mode) {
  GatherAxis result{};
  const AxisWalk first = forward ? forward_walk(axis, 0) : grad_input_walk(axis);
  const int64_t phases = forward ? (axis.stride < axis.out ? axis.stride : axis.out) : 1;
  result.axis = axis;
  result.tap_step = narrow(first.tap_step);
  result.offset_step = narrow(first.offset_step);
  result.source_step = narrow(first.source_step);
  result.source_extent = narrow(first.source_extent);
  result.destination_step = narrow(first.destination_step);
  result.destination_extent = narrow(forward ? axis.out : axis.in);
  result.grid_phases = mode == PhaseMode::separate ? narrow(phases) : 1;
  result.stacked_phases = mode == PhaseMode::stacked ? narrow(phases) : 1;
  result.looped_phases = mode == PhaseMode::looped ? narrow(phases) : 1;
  result.stride = narrow(axis.stride);
  result.near_pad = narrow(axis.near_pad);
  result.kernel = narrow(axis.kernel);
  result.divide_dilation = FastDivide(axis.dilation);
  result.divide_grid_phases = FastDivide(result.grid_phases);
  if (mode == PhaseMode::stacked) {
    const OffsetRange offsets = forward_offsets(axis);
    result.stacked_offset = narrow(offsets.first);
    result.stacked_offsets = narrow(offsets.count);
    result.offset_step = 1;
    result.tap_step = 0;
  }
  for (int phase = 0; phase < kTablePhases && phase < phases; ++phase) {
    const AxisWalk walk = forward ? forward_walk(axis, phase) : first;
    result.walk[phase] = {narrow(walk.taps), narrow(walk.first_tap), narrow(walk.first_offset),
                          narrow(walk.extent), FastDivide(walk.extent > 0 ? walk.extent : 1)};
  }
  return result;
}

int64_t ceil_ratio(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct TileExtent {
  int rows, columns;
};

TileExtent tile_extent(int tile) {
  if (tile == kDotTile) return {kDotPixels, kDotChannels};
  if (tile == kGroupTile) return {32, kGroupChannels};
  if (tile < kDotTile) return {kGatherTiles[tile].rows, kGatherTiles[tile].columns};
  const Strip& strip = kStrips[tile - kFirstStrip];
  return {strip.pixels * kStripThreads, strip.columns};
}

GatherParams gather_params(const Problem& problem, const Plan& plan, const Args& args) {
  const bool forward = problem.direction == Direction::fwd;
  const GatherRow row = GatherRow::decode(plan.row);
  const auto [tile_rows, tile_columns] = tile_extent(row.tile);
  const Axis h = canonical(problem.h), w = canonical(problem.w);
  const TensorRef& source = forward ? args.x : args.y;
  const TensorRef& destination = forward ? args.y : args.x;

  GatherParams params{};
  params.source = source.data;
  params.weight = args.w.data;
  params.bias = forward ? args.bias : nullptr;
  params.destination = destination.data;
  params.h = gather_axis(h, forward, row.stack_h ? PhaseMode::stacked : PhaseMode::separate);
  params.w = gather_axis(w, forward, row.mode_w);
  params.batch = problem.batch;
  params.source_n = source.stride[0];
  params.source_c = source.stride[1];
  params.destination_n = destination.stride[0];
  params.destination_c = destination.stride[1];
  params.h.source_stride = source.stride[2];
  params.w.source_stride = source.stride[3];
  params.h.destination_stride = destination.stride[2];
  params.w.destination_stride = destination.stride[3];
  params.h.weight_stride = args.w.stride[2];
  params.w.weight_stride = args.w.stride[3];
  for (GatherAxis* axis : {&params.h, &params.w}) {
    axis->source_delta = axis->offset_step * axis->source_stride;
    axis->weight_delta = axis->tap_step * axis->weight_stride;
  }
  params.weight_depth = args.w.stride[forward ? 0 : 1];
  params.weight_column = args.w.stride[forward ? 1 : 0];
  params.weight_group = problem.group_in() * args.w.stride[0];
  params.depth = narrow(forward ? problem.group_in() : problem.group_out());
  params.columns = narrow(forward ? problem.group_out() : problem.group_in());

  const int stack = params.h.stacked_phases * params.w.stacked_phases;
  params.tile_channels = tile_columns / stack;
  params.lines = params.tile_channels * params.h.stacked_phases;
  const int64_t group_tiles = ceil_ratio(params.columns, params.tile_channels);
  const int64_t column_tiles = group_tiles * problem.groups;
  params.divide_group_tiles = FastDivide(group_tiles);
  params.divide_column_tiles = FastDivide(column_tiles);
  params.divide_stack = FastDivide(stack);
  params.divide_stack_w = FastDivide(params.w.stacked_phases);
  params.divide_stack_h = FastDivide(params.h.stacked_phases);
  params.divide_line_phases = FastDivide(params.w.stacked_phases * params.w.looped_phases);
  params.depth_lanes = stack == 1 && params.weight_depth < params.weight_column;
  params.column_lanes =
      params.w.looped_phases == 1 && params.destination_c < params.w.destination_stride;

  const auto pixels = [&](const Axis& axis, const GatherAxis& gather) {
    return ceil_ratio(gather.destination_extent, forward ? axis.stride : 1);
  };
  params.blocks = ceil_ratio(problem.batch * pixels(h, params.h) * pixels(w, params.w), tile_rows) *
                  column_tiles * params.h.grid_phases * params.w.grid_phases;
  return params;
}

unsigned grid(const GatherParams& params) {
  constexpr int64_t most_blocks = INT32_MAX;
  return static_cast<unsigned>(params.blocks < most_blocks ? params.blocks : most_blocks);
}

template <typename T, int tile_index>
void launch_tile(const GatherParams& params, cudaStream_t stream) {
  constexpr int threads = GatherBlock<T, tile_index>::threads;
  constexpr Tile tile = GatherBlock<T, tile_index>::tile;
  const auto kernel = convt2d_direct_gather_kernel<T, tile_index>;
  int dynamic = 0;
  if (params.w.looped_phases > 1) {
    dynamic = narrow(looped_bytes(tile, params.w.looped_phases, sizeof(T) == 8));
    CONVT2D_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic));
  }
  kernel<<<grid(params), threads, dynamic, stream>>>(params);
  check_launch("convt2d_direct_gather_kernel");
}

template <typename T>
void launch_dot(const GatherParams& params, cudaStream_t stream) {
  convt2d_direct_dot_kernel<T><<<grid(params), kDotThreads, 0, stream>>>(params);
  check_launch("convt2d_direct_dot_kernel");
}

template <int strip_index>
void launch_strip(const GatherParams& params, cudaStream_t stream) {
  convt2d_direct_strip_kernel<float, strip_index>
      <<<grid(params), kStripThreads, 0, stream>>>(params);
  check_launch("convt2d_direct_strip_kernel");
}

template <int... strips>
void launch_strips(int strip, const GatherParams& params, cudaStream_t stream,
                   std::integer_sequence<int, strips...>) {
  using Launch = void (*)(const GatherParams&, cudaStream_t);
  static constexpr Launch table[] = {launch_strip<strips>...};
  table[strip](params, stream);
}

// The rest of what the group kernel is told. Results do not depend on how tasks fall to blocks.
GroupParams group_params(const Problem& problem, const GatherParams& gather, int phases) {
  const Axis h = canonical(problem.h), w = canonical(problem.w);
  const int64_t phases_h = gather.h.grid_phases;
  const int64_t extent_h = ceil_ratio(h.out, h.stride), extent_w = ceil_ratio(w.out, w.stride);
  GroupParams params{};
  params.gather = gather;
  params.tiles = narrow(ceil_ratio(gather.columns, kGroupChannels));
  params.divide_tiles = FastDivide(params.tiles);
  params.divide_phases_h = FastDivide(phases_h);
  params.divide_extent_h = FastDivide(extent_h);
  params.divide_extent_w = FastDivide(extent_w);
  const OffsetRange range = forward_offsets(w);
  for (int64_t offset = range.first; offset < range.first + range.count; ++offset) {
    bool used = false;
    for (int phase = 0; phase < phases; ++phase) {
      const int64_t reach = phase + w.near_pad - offset * w.stride;
      const bool exists = reach >= 0 && reach % w.dilation == 0 && reach / w.dilation < w.kernel;
      if (exists && !used) std::fill_n(params.tap[params.offsets], kGroupPhases, -1);
      if (exists) params.tap[params.offsets][phase] = narrow(reach / w.dilation);
      used |= exists;
    }
    if (used) params.offset[params.offsets++] = narrow(offset);
  }
  constexpr int64_t enough_blocks = 2048, most_tasks = 8;
  params.tasks =
      narrow(ceil_ratio(problem.batch * extent_h * extent_w, 32 * kGroupSlots[phases - 1]) *
             phases_h * params.tiles);
  const int64_t warps = kGroupThreads / 32, rounds = params.tasks * problem.groups / warps;
  params.tasks_a_warp = narrow(std::clamp<int64_t>(rounds / enough_blocks, 1, most_tasks));
  params.group_blocks = narrow(ceil_ratio(params.tasks, warps * params.tasks_a_warp));
  params.gather.blocks = int64_t(params.group_blocks) * problem.groups;
  return params;
}

template <int phases>
void launch_group(const GroupParams& params, cudaStream_t stream) {
  const GatherParams& gather = params.gather;
  const int64_t bytes =
      group_bytes(phases, params.tiles, gather.depth, int64_t(gather.h.kernel) * gather.w.kernel);
  convt2d_direct_group_kernel<phases>
      <<<grid(gather), kGroupThreads, static_cast<size_t>(bytes), stream>>>(params);
  check_launch("convt2d_direct_group_kernel");
}

void launch_groups(const Problem& problem, const GatherParams& gather, cudaStream_t stream) {
  using Launch = void (*)(const GroupParams&, cudaStream_t);
  static constexpr Launch table[kGroupPhases] = {launch_group<1>, launch_group<2>, launch_group<3>,
                                                 launch_group<4>};
  const int phases = gather.w.grid_phases;
  table[phases - 1](group_params(problem, gather, phases), stream);
}

template <typename T, int... tiles>
void launch_dtype(int tile, const GatherParams& params, cudaStream_t stream,
                  std::integer_sequence<int, tiles...>) {
  using Launch = void (*)(const GatherParams&, cudaStream_t);
  static constexpr Launch table[] = {launch_tile<T, tiles>...};
  table[tile](params, stream);
}

}  // namespace

void launch_gather(const Problem& problem, const Plan& plan, const Args& args) {
  const GatherParams params = gather_params(problem, plan, args);
  const int tile = GatherRow::decode(plan.row).tile;
  const cudaStream_t stream = static_cast<cudaStream_t>(args.stream);
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr DType dtype = dtype_of<T>;
    if (tile == kDotTile) return launch_dot<T>(params, stream);
    if (tile == kGroupTile) return launch_groups(problem, params, stream);
    if (tile >= kFirstStrip) {
      return launch_strips(tile - kFirstStrip, params, stream,
                           std::make_integer_sequence<int, kStripCount>{});
    }
    launch_dtype<T>(tile, params, stream, std::make_integer_sequence<int, gather_tiles(dtype)>{});
  });
}

}  // namespace convt2d::cuda::direct
