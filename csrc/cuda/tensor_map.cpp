#include "cuda/tensor_map.h"

#include <stdexcept>
#include <string>

#include "cuda/cuda_check.h"

namespace convt2d::cuda {
namespace {

// The driver is not linked, so that the library loads on machines without one.
decltype(&cuTensorMapEncodeTiled) driver_encode() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    CONVT2D_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                        cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess)
      throw std::runtime_error("convt2d: the NVIDIA driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return found;
}

}  // namespace

CUtensorMap encode(const TensorBox& box) {
  cuuint64_t extent[5], stride[5];
  cuuint32_t span[5], step[5];
  for (int i = 0; i < box.axes; ++i) {
    extent[i] = static_cast<cuuint64_t>(box.extent[i]);
    if (i > 0) stride[i - 1] = static_cast<cuuint64_t>(box.stride[i]);
    span[i] = static_cast<cuuint32_t>((box.count[i] - 1) * box.step[i] + 1);
    step[i] = static_cast<cuuint32_t>(box.step[i]);
  }
  const int row = box.count[0] * box.element_bytes;
  CUtensorMap map;
  const auto ask = [&] {
    return driver_encode()(&map,
                           box.element_bytes != 4 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                           : box.rounded          ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                                  : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                           static_cast<cuuint32_t>(box.axes), const_cast<void*>(box.base), extent,
                           stride, span, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                           !box.swizzled ? CU_TENSOR_MAP_SWIZZLE_NONE
                           : row == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                           : row == 64   ? CU_TENSOR_MAP_SWIZZLE_64B
                                         : CU_TENSOR_MAP_SWIZZLE_32B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult status = ask();
  // The driver wants a context, which a thread has from its first call of the runtime on: this may be the first that
  // autograd's thread makes.
  if (status == CUDA_ERROR_INVALID_CONTEXT) {
    int device = 0;
    CONVT2D_CUDA_CHECK(cudaGetDevice(&device));
    CONVT2D_CUDA_CHECK(cudaSetDevice(device));
    status = ask();
  }
  if (status != CUDA_SUCCESS)
    throw std::runtime_error("convt2d: cuTensorMapEncodeTiled failed with error " +
                             std::to_string(static_cast<int>(status)) +
                             "; please report the problem with convt2d_ext.explain()");
  return map;
}

}  // namespace convt2d::cuda
