// What the tensor-core families' GatherParams have in common, by the names of their fields: operands and
// strides, and how many blocks' worth of work there is.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "core/problem.h"

namespace convt2d::cuda {

// A block works on one combination of (group, column tile, phases) and walks tiles of positions.
template <class Params>
int64_t combinations(const Params& p) {
  return static_cast<int64_t>(p.groups) * p.column_tiles * p.h.groups * p.w.groups;
}
template <class Params>
int64_t tiles_of(const Params& p) {
  return static_cast<int64_t>(p.tiles_n) * p.tiles_h * p.tiles_w;
}

inline bool aligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Pointers and strides. Weights may have any; wide loads where theirs allow them.
template <class Params>
void set_operands(const Problem& problem, const Args& args, Params& params) {
  const bool forward = problem.direction == Direction::fwd;
  const TensorRef& source = forward ? args.x : args.y;
  const TensorRef& destination = forward ? args.y : args.x;
  params.source = source.data;
  params.destination = destination.data;
  params.weight = args.w.data;
  params.bias = forward && problem.has_bias ? args.bias : nullptr;
  for (int i = 0; i < 4; ++i) {
    params.source_stride[i] = static_cast<int32_t>(source.stride[i]);
    params.destination_stride[i] = static_cast<int32_t>(destination.stride[i]);
  }
  params.weight_group = static_cast<int32_t>(args.w.stride[0] * problem.group_in());
  params.weight_reduce = static_cast<int32_t>(args.w.stride[forward ? 0 : 1]);
  params.weight_column = static_cast<int32_t>(args.w.stride[forward ? 1 : 0]);
  params.weight_h = static_cast<int32_t>(args.w.stride[2]);
  params.weight_w = static_cast<int32_t>(args.w.stride[3]);

  const int64_t vector = 16 / element_size(problem.dtype);
  params.weight_vectors = args.w.stride[1] == 1 && !forward && params.reduce % vector == 0 &&
                          args.w.stride[0] % vector == 0 && args.w.stride[2] % vector == 0 &&
                          args.w.stride[3] % vector == 0 && aligned(args.w.data, 16);
  params.weight_columns_first = params.weight_vectors || params.weight_column <= params.weight_w;
}

}  // namespace convt2d::cuda
