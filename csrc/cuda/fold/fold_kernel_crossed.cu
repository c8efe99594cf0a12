#include "cuda/fold/fold_launch.cuh"

namespace convt2d::cuda::fold {

void launch_crossed(DType, int row, const Params& params, const Maps& maps, int64_t blocks,
                    void* stream) {
  launch_rows<float, kFirstCrossed, kTileCount>(row, params, maps, blocks, stream);
}

}  // namespace convt2d::cuda::fold
