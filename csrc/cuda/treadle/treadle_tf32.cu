#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/treadle/treadle_kernel.cuh"
#include "cuda/treadle/treadle_launch.h"
#include "cuda/treadle/treadle_plan.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::treadle {
namespace {

template <bool CHANNELS_LAST>
void launch(int row, const Params& params, const CUtensorMap& map, void* stream) {
  visit_row<kTileCount>(row, [&](auto index) {
    constexpr int kRow = decltype(index)::value;
    constexpr auto kernel = convt2d_treadle_grad_weight_kernel<MmaTF32, kRow, CHANNELS_LAST>;
    constexpr int kBytes = shared_bytes(kTiles[kRow], CHANNELS_LAST);
    allow_shared_memory<kernel>(kBytes);
    kernel<<<static_cast<unsigned>(blocks_of(params)), kThreads, kBytes,
             static_cast<cudaStream_t>(stream)>>>(params, map);
    check_launch("convt2d_treadle_grad_weight_kernel");
  });
}

}  // namespace

void launch_tf32(int row, bool channels_last, const Params& params, const CUtensorMap& map,
                 void* stream) {
  (channels_last ? launch<true> : launch<false>)(row, params, map, stream);
}

}  // namespace convt2d::cuda::treadle
