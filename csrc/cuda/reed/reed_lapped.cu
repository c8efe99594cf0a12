// Lapped tiles of all types.
#include "cuda/cuda_check.h"
#include "cuda/reed/reed_lapped.cuh"
#include "cuda/reed/reed_launch.h"
#include "cuda/shared_memory.h"

namespace convt2d::cuda::reed {
namespace {

template <class M, bool PIXELS>
void launch(const Lapped& lapped, int64_t blocks, const CUtensorMap& source,
            const CUtensorMap& weights, void* stream) {
  constexpr auto kernel = convt2d_reed_lapped_kernel<M, PIXELS>;
  allow_shared_memory<kernel>(kLappedBytes);
  kernel<<<static_cast<unsigned>(blocks), kLappedThreads, kLappedBytes,
           static_cast<cudaStream_t>(stream)>>>(lapped, source, weights);
  check_launch("convt2d_reed_lapped_kernel");
}

}  // namespace

void launch_lapped(DType dtype, bool pixels, const Lapped& lapped, int64_t blocks,
                   const CUtensorMap& source, const CUtensorMap& weights, void* stream) {
  const auto run = dtype == DType::f16    ? pixels ? launch<MmaF16, true> : launch<MmaF16, false>
                   : dtype == DType::bf16 ? pixels ? launch<MmaBF16, true> : launch<MmaBF16, false>
                   : pixels               ? launch<MmaTF32, true>
                                          : launch<MmaTF32, false>;
  run(lapped, blocks, source, weights, stream);
}

}  // namespace convt2d::cuda::reed
