#include "cuda/strand/strand_launch.cuh"

namespace convt2d::cuda::strand {

void launch_bf16(int row, const Params& params, void* stream) {
  launch_rows<MmaBF16, kTileCount>(row, params, stream);
}

void launch_windows_bf16(int row, const WindowParams& params, const CUtensorMap& source,
                         const CUtensorMap& weights, void* stream) {
  launch_window_rows<MmaBF16>(row, params, source, weights, stream);
}

}  // namespace convt2d::cuda::strand
