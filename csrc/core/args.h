// Args: the pointers of one call. Everything that a Plan must not depend on.
#pragma once

#include <cstdint>

namespace convt2d {

// A 4-D tensor view. Strides in elements: never negative, zero if expanded, otherwise arbitrary.
struct TensorRef {
  void* data = nullptr;
  int64_t stride[4] = {0, 0, 0, 0};
};

struct Args {
  TensorRef x;                // [N, C_in, H_in, W_in]         written by grad_input
  TensorRef w;                // [C_in, C_out / groups, kh, kw]  written by grad_weight
  TensorRef y;                // [N, C_out, H_out, W_out]      written by fwd
  void* bias = nullptr;       // [C_out] contiguous or null. fwd reads it, grad_weight writes it
  void* workspace = nullptr;  // plan.workspace_bytes, 256-byte aligned, or null
  void* stream = nullptr;     // cudaStream_t; the CPU backend ignores it
};

}  // namespace convt2d
