#include "core/types.h"

namespace convt2d {

const char* name(DType dtype) {
  constexpr const char* kNames[] = {"f16", "bf16", "f32", "f64"};
  return kNames[int(dtype)];
}

const char* name(Direction direction) {
  constexpr const char* kNames[] = {"fwd", "grad_input", "grad_weight"};
  return kNames[int(direction)];
}

const char* name(Layout layout) {
  constexpr const char* kNames[] = {"nchw", "nhwc", "strided"};
  return kNames[int(layout)];
}

const char* name(Precision precision) {
  constexpr const char* kNames[] = {"ieee", "tf32"};
  return kNames[int(precision)];
}

}  // namespace convt2d
