#include "cuda/comb/comb_launch.cuh"

namespace convt2d::cuda::comb {

void launch_tf32(int row, const Params& params, void* stream) {
  launch_rows<MmaTF32, kWordTiles>(row, params, stream);
}

void launch_lines_tf32(int tile, const LineParams& params, void* stream) {
  launch_line_tiles<MmaTF32>(tile, params, stream);
}

}  // namespace convt2d::cuda::comb
