#include "cuda/strand/strand_launch.cuh"

namespace convt2d::cuda::strand {

void launch_tf32(int row, const Params& params, void* stream) {
  launch_rows<MmaTF32, kTileCount>(row, params, stream);
}

void launch_windows_tf32(int row, const WindowParams& params, const CUtensorMap& source,
                         const CUtensorMap& weights, void* stream) {
  launch_window_rows<MmaTF32>(row, params, source, weights, stream);
}

void launch_dense_tf32(int row, const DenseParams& params, const CUtensorMap& source,
                       const CUtensorMap& weights, void* stream) {
  launch_dense_rows<MmaTF32>(row, params, source, weights, stream);
}

}  // namespace convt2d::cuda::strand
