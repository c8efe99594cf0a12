#include "cuda/strand/strand_launch.cuh"

namespace convt2d::cuda::strand {

void launch_f16(int row, const Params& params, void* stream) {
  launch_rows<MmaF16, kTileCount>(row, params, stream);
}

void launch_windows_f16(int row, const WindowParams& params, const CUtensorMap& source,
                        const CUtensorMap& weights, void* stream) {
  launch_window_rows<MmaF16>(row, params, source, weights, stream);
}

}  // namespace convt2d::cuda::strand
