#include "cuda/cuda_check.h"
#include "cuda/heddle/heddle_input.cuh"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::heddle {
namespace {

template <class M>
void launch_rows(const InputParams& params, void* stream) {
  visit_row<kInputTileCount>(params.row, [&](auto row) {
    constexpr auto kernel = convt2d_heddle_grad_input_kernel<M, decltype(row)::value>;
    const int bytes = input_shared_bytes(params, M::kSplit);
    allow_shared_memory<kernel>(bytes);
    kernel<<<static_cast<unsigned>(input_blocks(params)), kInputThreads, bytes,
             static_cast<cudaStream_t>(stream)>>>(params);
    check_launch("convt2d_heddle_grad_input_kernel");
  });
}

}  // namespace

void launch_input(const Problem& problem, const InputParams& params, void* stream) {
  const auto run = problem.dtype == DType::f16            ? launch_rows<MmaF16>
                   : problem.dtype == DType::bf16         ? launch_rows<MmaBF16>
                   : problem.precision == Precision::tf32 ? launch_rows<MmaTF32>
                                                          : launch_rows<MmaF32x3>;
  run(params, stream);
}

}  // namespace convt2d::cuda::heddle
