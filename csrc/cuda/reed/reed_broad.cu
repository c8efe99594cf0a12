// Broad tiles.
#include "cuda/cuda_check.h"
#include "cuda/reed/reed_broad.cuh"
#include "cuda/reed/reed_launch.h"
#include "cuda/shared_memory.h"

namespace convt2d::cuda::reed {
namespace {

template <class M>
void launch(int groups, const Held& held, int64_t blocks, int bytes, const CUtensorMap& weights,
            void* stream) {
  constexpr auto kernel = convt2d_reed_broad_kernel<M>;
  allow_shared_memory<kernel>(bytes);
  kernel<<<static_cast<unsigned>(blocks), broad_threads(groups), bytes,
           static_cast<cudaStream_t>(stream)>>>(held, weights);
  check_launch("convt2d_reed_broad_kernel");
}

}  // namespace

void launch_broad(DType dtype, int groups, const Held& held, int64_t blocks, int bytes,
                  const CUtensorMap& weights, void* stream) {
  const auto run = dtype == DType::f16 ? launch<MmaF16> : launch<MmaBF16>;
  run(groups, held, blocks, bytes, weights, stream);
}

}  // namespace convt2d::cuda::reed
