// grad_weight: partial sums into the workspace, then a second pass in a fixed order.
#include "cuda/depthwise/depthwise_launch.h"
#include "cuda/depthwise/depthwise_pixels_grad_weight.cuh"
#include "cuda/depthwise/depthwise_planes_grad_weight.cuh"

namespace convt2d::cuda::depthwise {
namespace {

struct SumParams {
  const float* parts;       // [split][C_out * kh * kw]
  const float* bias_parts;  // [bias_split][C_out] or null
  void* w;                  // [C_in, multiplier, kh, kw]
  void* bias;               // [C_out]
  int64_t w_stride[4];
  int64_t weights;  // C_out * kh * kw
  int out_channels, split, bias_split;
  FastDivide by_kernel_v, by_kernel_h, by_multiplier;
};

// 32 weights (and then biases) a block: every row of threads adds up its own pieces, and the first row
// adds up the rows.
constexpr int kSumRows = 16;

template <typename T>
__global__ void __launch_bounds__(32 * kSumRows)
    convt2d_depthwise_grad_weight_sum_kernel(const __grid_constant__ SumParams p) {
  __shared__ float sums[kSumRows][32];
  const int64_t index = int64_t{blockIdx.x} * 32 + threadIdx.x;
  const bool is_weight = index < p.weights;
  const int64_t place = is_weight ? index : index - p.weights;
  const int64_t size = is_weight ? p.weights : p.out_channels;
  const float* parts = (is_weight ? p.parts : p.bias_parts) + place;
  const int pieces = is_weight ? p.split : place < size && p.bias ? p.bias_split : 0;
  float sum = 0;
#pragma unroll 4
  for (int piece = threadIdx.y; piece < pieces; piece += kSumRows) sum += parts[piece * size];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || pieces == 0) return;
  for (int row = 1; row < kSumRows; ++row) sum += sums[row][threadIdx.x];
  if (!is_weight) {
    store(static_cast<T*>(p.bias) + place, sum);
    return;
  }
  int64_t rest = index;
  const int column = p.by_kernel_v.split(rest);
  const int row = p.by_kernel_h.split(rest);
  const int copy = p.by_multiplier.split(rest);
  store(static_cast<T*>(p.w) + rest * p.w_stride[0] + copy * p.w_stride[1] + row * p.w_stride[2] +
            column * p.w_stride[3],
        sum);
}

template <typename T>
void launch_sum(const SumParams& sum, void* stream) {
  convt2d_depthwise_grad_weight_sum_kernel<T>
      <<<blocks_of(sum.weights + sum.out_channels, 32), dim3(32, kSumRows), 0,
         static_cast<cudaStream_t>(stream)>>>(sum);
  check_launch("depthwise grad_weight sum");
}

template <typename T>
void launch(const Problem& problem, const Args& args) {
  const auto stream = static_cast<cudaStream_t>(args.stream);
  const Geometry g = geometry_of(problem, args, args.workspace);
  SumParams sum{};
  sum.parts = static_cast<const float*>(args.workspace);
  sum.w = args.w.data;
  sum.bias = problem.has_bias ? args.bias : nullptr;
  std::copy(args.w.stride, args.w.stride + 4, sum.w_stride);
  sum.out_channels = g.out_channels;
  sum.weights = problem.out_channels * problem.h.kernel * problem.w.kernel;
  sum.by_kernel_v = FastDivide(g.v.kernel);
  sum.by_kernel_h = FastDivide(g.h.kernel);
  sum.by_multiplier = g.by_multiplier;
  const auto bias_parts = [&](int split) {
    return sum.bias ? static_cast<float*>(args.workspace) + split * sum.weights : nullptr;
  };

  if (problem.y_layout == Layout::nchw) {
    const PlaneGradWeightTile t = plane_grad_weight_tile(problem, g.h, g.v);
    const planes::GradWeightParams p{g, t, paired(args.x, problem.w.in, problem.dtype),
                                     bias_parts(t.split)};
    sum.split = t.split, sum.bias_split = t.split * t.phase_groups, sum.bias_parts = p.bias_parts;
    visit_number<kPlaneTaps>(plane_taps(problem, g.h, g.v), [&](auto taps) {
      if (paired(args.y, problem.w.out, problem.dtype)) {
        planes::convt2d_depthwise_grad_weight_kernel<T, decltype(taps)::value, true>
            <<<t.blocks, kThreads, t.shared_bytes, stream>>>(p);
      } else {
        planes::convt2d_depthwise_grad_weight_kernel<T, decltype(taps)::value, false>
            <<<t.blocks, kThreads, t.shared_bytes, stream>>>(p);
      }
    });
  } else {
    const int vector = pixel_vector(problem, args);
    const PixelGradWeightTile t = pixel_grad_weight_tile(problem, g.h, g.v, vector);
    const pixels::GradWeightParams p{g, t, bias_parts(t.split)};
    sum.split = t.split, sum.bias_split = t.split * t.class_groups, sum.bias_parts = p.bias_parts;
    if (vector == 1) {
      pixels::convt2d_depthwise_grad_weight_kernel<T, 1, kPixelTaps>
          <<<t.blocks, kThreads, t.shared_bytes, stream>>>(p);
    } else {
      visit_number<kPixelTaps>(pixel_taps(problem, g.h, g.v, vector), [&](auto taps) {
        pixels::convt2d_depthwise_grad_weight_kernel<T, wide_vector(false, sizeof(T)),
                                                     decltype(taps)::value>
            <<<t.blocks, kThreads, t.shared_bytes, stream>>>(p);
      });
    }
  }
  check_launch("depthwise grad_weight");
  launch_sum<T>(sum, args.stream);
}

}  // namespace

void launch_bias_sum(const Problem& problem, const Args& args, const float* parts, int pieces) {
  SumParams sum{};
  sum.bias_parts = parts, sum.bias_split = pieces;
  sum.bias = args.bias;
  sum.out_channels = int(problem.out_channels);
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) <= 4) launch_sum<T>(sum, args.stream);
  });
}

void launch_grad_weight(const Problem& problem, const Args& args) {
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) <= 4) launch<T>(problem, args);
  });
}

}  // namespace convt2d::cuda::depthwise
