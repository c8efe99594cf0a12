#include "cuda/cuda_check.h"
#include "cuda/narrow/narrow_tape.cuh"
#include "cuda/shared_memory.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::narrow {
namespace {

template <class T>
void launch_tapes(int tape, const TapeParams& params, const CUtensorMap& map, void* stream) {
  visit_row<kTapeCount>(tape, [&](auto index) {
    constexpr auto kernel = convt2d_narrow_tape_kernel<T, decltype(index)::value>;
    allow_shared_memory<kernel>(params.shared_bytes);
    kernel<<<static_cast<unsigned>(tape_blocks(params)), params.teams * kTeamThreads,
             params.shared_bytes, static_cast<cudaStream_t>(stream)>>>(params, map);
    check_launch("convt2d_narrow_tape_kernel");
  });
}

}  // namespace

void launch_tape(DType dtype, int tape, const TapeParams& params, const CUtensorMap& map,
                 void* stream) {
  const auto run = dtype == DType::f16    ? launch_tapes<__half>
                   : dtype == DType::bf16 ? launch_tapes<__nv_bfloat16>
                                          : launch_tapes<float>;
  run(tape, params, map, stream);
}

}  // namespace convt2d::cuda::narrow
