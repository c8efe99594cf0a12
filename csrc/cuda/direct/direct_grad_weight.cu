// direct, grad_weight: Problem + Plan + Args -> WeightParams -> launch, then the sum of the pieces.
#include <algorithm>
#include <cmath>
#include <utility>

#include "cuda/cuda_check.h"
#include "cuda/direct/direct.h"
#include "cuda/direct/direct_grad_weight.cuh"
#include "cuda/direct/direct_reduce.cuh"
#include "cuda/grad_bias/grad_bias.h"

namespace convt2d::cuda::direct {
namespace {

int64_t ceil_ratio(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Runs of an eighth of a short sum, of 64 pixels, or of the root of a long one: the errors inside
// the runs and between them are then both small. From 512 pixels on folding is 3 % of the
// instructions.
int32_t fold_slabs(int64_t pixels, const Tile& tile) {
  const double root = std::sqrt(double(pixels));
  const double run = std::min(double(pixels) / 8, std::max(64.0, root));
  return std::max(1, static_cast<int32_t>(std::ceil(run / tile.depth)));
}

WeightAxis weight_axis(const Axis& axis, const Args& args, int dimension) {
  WeightAxis result{};
  result.x_stride = args.x.stride[dimension];
  result.y_stride = args.y.stride[dimension];
  result.w_stride = args.w.stride[dimension];
  result.y_extent = static_cast<int32_t>(axis.out);
  result.stride = static_cast<int32_t>(axis.stride);
  result.near_pad = static_cast<int32_t>(axis.near_pad);
  result.dilation = static_cast<int32_t>(axis.dilation);
  result.divide_x_extent = FastDivide(axis.in);
  result.divide_kernel = FastDivide(axis.kernel);
  return result;
}

WeightParams weight_params(const Problem& problem, const Plan& plan, const Args& args) {
  const Tile& tile = kWeightTiles[plan.row];
  WeightParams params{};
  params.x = args.x.data;
  params.y = args.y.data;
  params.w = args.w.data;
  params.partials = plan.split > 1 ? args.workspace : nullptr;
  params.height = weight_axis(problem.h, args, 2);
  params.width = weight_axis(problem.w, args, 3);
  params.x_n = args.x.stride[0];
  params.x_c = args.x.stride[1];
  params.y_n = args.y.stride[0];
  params.y_c = args.y.stride[1];
  params.w_ci = args.w.stride[0];
  params.w_co = args.w.stride[1];
  params.partial_stride = weight_elements(problem);
  params.rows = static_cast<int32_t>(problem.group_in());
  params.columns = static_cast<int32_t>(problem.group_out() * problem.h.kernel * problem.w.kernel);
  params.group_out = static_cast<int32_t>(problem.group_out());
  params.pixels = problem.batch * problem.h.in * problem.w.in;
  params.piece_pixels = piece_pixels(params.pixels, plan.split, tile);
  params.fold_slabs = fold_slabs(std::min(params.pixels, params.piece_pixels), tile);
  const int64_t column_tiles = ceil_ratio(params.columns, tile.columns);
  const int64_t row_tiles = ceil_ratio(params.rows, tile.rows);
  params.divide_column_tiles = FastDivide(column_tiles);
  params.divide_row_tiles = FastDivide(row_tiles);
  params.divide_groups = FastDivide(problem.groups);
  params.blocks = column_tiles * row_tiles * problem.groups * plan.split;
  return params;
}

template <typename T, int tile_index>
void launch_tile(const WeightParams& params, cudaStream_t stream) {
  constexpr int64_t most_blocks = INT32_MAX;
  constexpr int threads = WeightBlock<T, tile_index, true>::threads;
  const unsigned blocks = static_cast<unsigned>(std::min(params.blocks, most_blocks));
  if (params.x_c < params.width.x_stride && params.y_c < params.width.y_stride) {
    convt2d_direct_grad_weight_kernel<T, tile_index, false><<<blocks, threads, 0, stream>>>(params);
  } else {
    convt2d_direct_grad_weight_kernel<T, tile_index, true><<<blocks, threads, 0, stream>>>(params);
  }
  check_launch("convt2d_direct_grad_weight_kernel");
}

template <typename T, int... tiles>
void launch_dtype(int tile, const WeightParams& params, cudaStream_t stream,
                  std::integer_sequence<int, tiles...>) {
  using Launch = void (*)(const WeightParams&, cudaStream_t);
  static constexpr Launch table[] = {launch_tile<T, tiles>...};
  table[tile](params, stream);
}

}  // namespace

void launch_grad_weight(const Problem& problem, const Plan& plan, const Args& args) {
  const WeightParams params = weight_params(problem, plan, args);
  const cudaStream_t stream = static_cast<cudaStream_t>(args.stream);
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    launch_dtype<T>(plan.row, params, stream,
                    std::make_integer_sequence<int, weight_tiles(dtype_of<T>)>{});
    if (!params.partials) return;
    ReduceParams sum{params.partials, params.w, params.partial_stride, plan.split, {}, {}};
    for (int axis = 0; axis < 4; ++axis) sum.stride[axis] = args.w.stride[axis];
    sum.divide[0] = FastDivide(problem.group_out());
    sum.divide[1] = FastDivide(problem.h.kernel);
    sum.divide[2] = FastDivide(problem.w.kernel);
    launch_reduce<T>(sum, stream);
  });
  if (problem.has_bias) launch_grad_bias(problem, args);
}

}  // namespace convt2d::cuda::direct
