// grad_bias: for each channel the sum of dY over batch and pixels, in an order fixed by the shape.
//
// A block adds up one piece of the pixels, for one channel or, where channels are contiguous, for 32
// neighbouring ones. Threads stride through the piece, in runs of kRun; a tree in shared memory
// joins them.
#include "cuda/cuda_check.h"
#include "cuda/direct/direct.h"
#include "cuda/direct/direct_config.h"
#include "cuda/direct/direct_reduce.cuh"

namespace convt2d::cuda {
namespace direct {
namespace {

constexpr int kThreads = 256;
constexpr int kRun = 32;  // terms summed from zero before they join the sum of a thread

struct BiasParams {
  const void* y;
  void* bias;      // written when there is one piece
  void* partials;  // else [pieces][channels] in accumulator precision
  int64_t pixels, piece_pixels, blocks;
  int64_t stride_n, stride_c, stride_h, stride_w;
  int32_t channels, channel_lanes;
  FastDivide divide_h, divide_w, divide_channel_tiles;
};

template <typename T>
__global__ __launch_bounds__(kThreads) void convt2d_direct_grad_bias_kernel(
    const __grid_constant__ BiasParams params) {
  using A = Accumulator<T>;
  __shared__ A sums[kThreads];
  const int step = kThreads / params.channel_lanes;
  for (int64_t block = blockIdx.x; block < params.blocks; block += gridDim.x) {
    int64_t piece = block;
    const int channel = params.divide_channel_tiles.split(piece) * params.channel_lanes +
                        threadIdx.x % params.channel_lanes;
    const int64_t begin = piece * params.piece_pixels;
    const int64_t end = min(begin + params.piece_pixels, params.pixels);
    A sum(0);
    if (channel < params.channels) {
      const T* plane = static_cast<const T*>(params.y) + channel * params.stride_c;
      int64_t pixel = begin + threadIdx.x / params.channel_lanes;
      while (pixel < end) {
        const int64_t stop = min(pixel + kRun * step, end);
        A run(0);
#pragma unroll 8
        for (; pixel < stop; pixel += step) {
          int64_t n = pixel;
          const int64_t x = params.divide_w.split(n);
          const int64_t y = params.divide_h.split(n);
          run += load(plane + n * params.stride_n + y * params.stride_h + x * params.stride_w);
        }
        sum += run;
      }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = kThreads / 2; half >= params.channel_lanes; half /= 2) {
      if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x < params.channel_lanes && channel < params.channels) {
      const A total = sums[threadIdx.x];
      if (params.partials) {
        static_cast<A*>(params.partials)[piece * params.channels + channel] = total;
      } else {
        store(static_cast<T*>(params.bias) + channel, total);
      }
    }
    __syncthreads();
  }
}

BiasParams bias_params(const Problem& problem, const Args& args) {
  const TensorRef& y = args.y;
  const int64_t pieces = bias_split(problem);
  BiasParams params{};
  params.y = y.data;
  params.bias = args.bias;
  params.partials = pieces > 1 ? args.workspace : nullptr;
  params.pixels = problem.batch * problem.h.out * problem.w.out;
  params.piece_pixels = (params.pixels + pieces - 1) / pieces;
  params.channels = static_cast<int32_t>(problem.out_channels);
  params.channel_lanes = y.stride[1] < y.stride[3] && problem.out_channels > 1 ? 32 : 1;
  params.stride_n = y.stride[0];
  params.stride_c = y.stride[1];
  params.stride_h = y.stride[2];
  params.stride_w = y.stride[3];
  // A plane without gaps is one long row: one division a pixel less.
  int64_t height = problem.h.out, width = problem.w.out;
  if (params.stride_h == width * params.stride_w && height * width < INT32_MAX) {
    width *= height;
    height = 1;
  }
  params.divide_h = FastDivide(height);
  params.divide_w = FastDivide(width);
  const int64_t channel_tiles =
      (problem.out_channels + params.channel_lanes - 1) / params.channel_lanes;
  params.divide_channel_tiles = FastDivide(channel_tiles);
  params.blocks = channel_tiles * pieces;
  return params;
}

}  // namespace
}  // namespace direct

void launch_grad_bias(const Problem& problem, const Args& args) {
  const direct::BiasParams params = direct::bias_params(problem, args);
  const cudaStream_t stream = static_cast<cudaStream_t>(args.stream);
  constexpr int64_t most_blocks = INT32_MAX;
  const int64_t blocks = params.blocks < most_blocks ? params.blocks : most_blocks;
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    direct::convt2d_direct_grad_bias_kernel<T>
        <<<static_cast<unsigned>(blocks), direct::kThreads, 0, stream>>>(params);
    check_launch("convt2d_direct_grad_bias_kernel");
    if (!params.partials) return;
    direct::ReduceParams sum{params.partials,      params.bias,
                             problem.out_channels, direct::bias_split(problem),
                             {0, 0, 0, 1},         {}};
    sum.divide[2] = FastDivide(problem.out_channels);
    direct::launch_reduce<T>(sum, stream);
  });
}

}  // namespace convt2d::cuda
