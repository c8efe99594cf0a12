#include "cuda/heddle/heddle_launch.cuh"

namespace convt2d::cuda::heddle {

void launch_f16(int row, const Params& params, void* stream) {
  launch_rows<MmaF16, 0, kFirstStrict>(row, params, stream);
}

}  // namespace convt2d::cuda::heddle
