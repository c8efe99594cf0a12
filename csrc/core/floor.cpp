#include "core/floor.h"

#include <algorithm>

namespace convt2d {

double matmul_rate(DType dtype, Precision precision, const Device& device) {
  switch (dtype) {
    case DType::f64:
      return device.fma_f64_per_us;
    case DType::f32:
      return precision == Precision::tf32
                 ? std::max(device.matmul_tf32_per_us, device.fma_f32_per_us)
                 : std::max(device.matmul_tf32_per_us / 3, device.fma_f32_per_us);
    case DType::f16:
    case DType::bf16:
      break;
  }
  return std::max(device.matmul_f16_per_us, device.fma_f32_per_us);
}

Floor floor_of(const Problem& problem, const Device& device) {
  return {tensor_bytes(problem) / device.copy_bytes_per_us,
          valid_macs(problem) / matmul_rate(problem.dtype, problem.precision, device)};
}

}  // namespace convt2d
