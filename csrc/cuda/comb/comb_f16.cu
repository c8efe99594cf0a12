#include "cuda/comb/comb_launch.cuh"

namespace convt2d::cuda::comb {

void launch_f16(int row, const Params& params, void* stream) {
  launch_rows<MmaF16, kTileCount>(row, params, stream);
}

void launch_lines_f16(int tile, const LineParams& params, void* stream) {
  launch_line_tiles<MmaF16>(tile, params, stream);
}

}  // namespace convt2d::cuda::comb
