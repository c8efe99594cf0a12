#include "cuda/fold/fold_launch.cuh"

namespace convt2d::cuda::fold {

void launch_crossed(DType, int row, const Params& params, const Maps& maps, int64_t blocks,
                    void* stream) {
  launch_rows<float, kCrossed, kCrossed + 1>(row, params, maps, blocks, stream);
}

}  // namespace convt2d::cuda::fold
