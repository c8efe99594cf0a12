#include "cuda/treadle/treadle_launch.cuh"

namespace convt2d::cuda::treadle {

void launch_f16(int row, bool, const Params& params, const CUtensorMap& map, void* stream) {
  launch_rows<MmaF16, kFirstHalves, kTileCount, false>(row, params, map, stream);
}
void launch_bf16(int row, bool, const Params& params, const CUtensorMap& map, void* stream) {
  launch_rows<MmaBF16, kFirstHalves, kTileCount, false>(row, params, map, stream);
}

}  // namespace convt2d::cuda::treadle
