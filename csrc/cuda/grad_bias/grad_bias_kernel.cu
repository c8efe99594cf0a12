// Problem + Args -> Params -> the kernel, the sum of its pieces.
#include "cuda/cuda_check.h"
#include "cuda/direct/direct_reduce.cuh"
#include "cuda/grad_bias/grad_bias.h"
#include "cuda/grad_bias/grad_bias_kernel.cuh"

namespace convt2d::cuda {

void launch_grad_bias(const Problem& problem, const Args& args) {
  using namespace grad_bias;
  const Params params = params_of(problem, args);
  const Tiling& t = params.t;
  const auto stream = static_cast<cudaStream_t>(args.stream);
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    const auto kernel = t.way == Way::planes    ? convt2d_bias_planes_kernel<T>
                        : t.way == Way::columns ? convt2d_bias_columns_kernel<T>
                                                : convt2d_bias_numbers_kernel<T>;
    kernel<<<static_cast<unsigned>(t.tiles * t.pieces), kThreads, shared_bytes(problem, t),
             stream>>>(params);
    check_launch("convt2d_bias_kernel");
    if (!params.partials) return;
    direct::ReduceParams sum{params.partials, params.bias,  problem.out_channels,
                             t.pieces,        {0, 0, 0, 1}, {}};
    sum.divide[2] = FastDivide(problem.out_channels);
    direct::launch_reduce<T>(sum, stream);
  });
}

}  // namespace convt2d::cuda
