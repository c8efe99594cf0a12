#include "cuda/treadle/treadle_launch.cuh"

namespace convt2d::cuda::treadle {

void launch_tf32(int row, bool channels_last, const Params& params, const CUtensorMap& map,
                 void* stream) {
  (channels_last ? launch_rows<MmaTF32, 0, kFirstStrict, true>
                 : launch_rows<MmaTF32, 0, kFirstStrict, false>)(row, params, map, stream);
}
void launch_strict(int row, bool, const Params& params, const CUtensorMap& map, void* stream) {
  launch_rows<MmaF32x3, kFirstStrict, kFirstHalves, false>(row, params, map, stream);
}

}  // namespace convt2d::cuda::treadle
