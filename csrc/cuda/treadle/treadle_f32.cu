#include "cuda/cuda_check.h"
#include "cuda/shared_memory.h"
#include "cuda/treadle/treadle_kernel.cuh"
#include "cuda/treadle/treadle_launch.h"
#include "cuda/treadle/treadle_plan.h"
#include "cuda/visit_row.h"

namespace convt2d::cuda::treadle {
namespace {

// `row` is one of FIRST to END.
template <class M, int FIRST, int END, bool CHANNELS_LAST>
void launch(int row, const Params& params, const CUtensorMap& map, void* stream) {
  visit_row<END - FIRST>(row - FIRST, [&](auto index) {
    constexpr int kRow = FIRST + decltype(index)::value;
    constexpr auto kernel = convt2d_treadle_grad_weight_kernel<M, kRow, CHANNELS_LAST>;
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
  (channels_last ? launch<MmaTF32, 0, kFirstStrict, true>
                 : launch<MmaTF32, 0, kFirstStrict, false>)(row, params, map, stream);
}
void launch_strict(int row, bool, const Params& params, const CUtensorMap& map, void* stream) {
  launch<MmaF32x3, kFirstStrict, kTileCount, false>(row, params, map, stream);
}

}  // namespace convt2d::cuda::treadle
