#include "cuda/cuda_check.h"
#include "cuda/heddle/heddle_input.cuh"
#include "cuda/shared_memory.h"

namespace convt2d::cuda::heddle {
namespace {

template <class M>
void launch(const InputParams& params, void* stream) {
  constexpr auto kernel = convt2d_heddle_grad_input_kernel<M>;
  const int bytes = input_shared_bytes(params);
  allow_shared_memory<kernel>(bytes);
  kernel<<<static_cast<unsigned>(input_blocks(params)), kInputThreads, bytes,
           static_cast<cudaStream_t>(stream)>>>(params);
  check_launch("convt2d_heddle_grad_input_kernel");
}

}  // namespace

void launch_input(const Problem& problem, const InputParams& params, void* stream) {
  const auto run = problem.dtype == DType::f16            ? launch<MmaF16>
                   : problem.dtype == DType::bf16         ? launch<MmaBF16>
                   : problem.precision == Precision::tf32 ? launch<MmaTF32>
                                                          : launch<MmaF32x3>;
  run(params, stream);
}

}  // namespace convt2d::cuda::heddle
