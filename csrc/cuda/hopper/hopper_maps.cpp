#include "cuda/hopper/hopper_maps.h"

#include "cuda/tensor_map.h"

namespace convt2d::cuda::hopper {
namespace {

// A box is one plane of a patch, one chunk of its channels.
TensorBox source_box(const GatherParams& p) {
  TensorBox box{p.source, p.element_bytes, 4};
  const int64_t extent[] = {static_cast<int64_t>(p.groups) * p.reduce, p.w.source_extent,
                            p.h.source_extent, p.batch};
  const int32_t count[] = {chunk_bytes(p) / p.element_bytes, p.plane_w, p.plane_h, p.tile_n};
  const int32_t step[] = {1, p.w.source_step, p.h.source_step, 1};
  const int axis[] = {1, 3, 2, 0};  // of the strides
  for (int i = 0; i < box.axes; ++i) {
    box.extent[i] = extent[i];
    box.stride[i] = static_cast<int64_t>(p.source_stride[axis[i]]) * p.element_bytes;
    box.count[i] = count[i];
    box.step[i] = step[i];
  }
  return box;
}

// A box is the rows of a patch, one chunk of its channels; as many pixels of each as fill 16 bytes.
TensorBox rows_box(const GatherParams& p) {
  TensorBox box{p.source, p.element_bytes, 4};
  box.swizzled = false;
  const int64_t extent[] = {p.w.source_extent, static_cast<int64_t>(p.groups) * p.reduce,
                            p.h.source_extent, p.batch};
  const int32_t count[] = {p.copied_w, chunk_bytes(p) / p.element_bytes, p.load_h, p.tile_n};
  const int axis[] = {3, 1, 2, 0};  // of the strides
  for (int i = 0; i < box.axes; ++i) {
    box.extent[i] = extent[i];
    box.stride[i] = static_cast<int64_t>(p.source_stride[axis[i]]) * p.element_bytes;
    box.count[i] = count[i];
    box.step[i] = 1;
  }
  return box;
}

// A box is the rows of a tile, one chunk of one tap. They come in the order that channel_and_phase() asks for
// (hopper_scope.cuh): the channel of row [a][b][thread][i] is [a][thread][b][i].
TensorBox weight_box(const GatherParams& p, TileRow tile) {
  TensorBox box{p.weight, p.element_bytes, 5};
  const int run = 8 / p.element_bytes;  // of [b]
  const int64_t channels = static_cast<int64_t>(p.groups) * p.columns;
  const int64_t extent[] = {p.weight_column, 2, 4, run, channels / (8 * run)};
  const int64_t stride[] = {1, 1, 2 * run, 2, 8 * run};  // channels
  const int32_t count[] = {chunk_bytes(p) / p.element_bytes, 2, 4, run,
                           weight_rows(tile) / (8 * run)};
  for (int i = 0; i < box.axes; ++i) {
    box.extent[i] = extent[i];
    box.stride[i] = stride[i] * p.weight_column * p.element_bytes;
    box.count[i] = count[i];
    box.step[i] = 1;
  }
  return box;
}

// A box is a block of neighbouring columns of one tap, one chunk.
TensorBox column_box(const GatherParams& p) {
  TensorBox box{p.weight, p.element_bytes, 4};
  const int64_t channels = static_cast<int64_t>(p.groups) * p.reduce;
  const int64_t extent[] = {p.columns, p.weight_reduce / p.weight_w, channels, 1};
  const int64_t stride[] = {1, p.weight_w, p.weight_reduce, channels * p.weight_reduce};
  const int32_t count[] = {column_row(p) / p.element_bytes, 1, chunk_bytes(p) / p.element_bytes, 1};
  for (int i = 0; i < box.axes; ++i) {
    box.extent[i] = extent[i];
    box.stride[i] = stride[i] * p.element_bytes;
    box.count[i] = count[i];
    box.step[i] = 1;
  }
  return box;
}

}  // namespace

TensorMaps maps_of(const GatherParams& params, TileRow tile) {
  TensorMaps maps{};
  if (tile.copied) maps.source = encode(tile.turned ? rows_box(params) : source_box(params));
  if (params.weight_mode == kWeightCopied) maps.weight = encode(weight_box(params, tile));
  if (params.weight_mode == kColumnsCopied) maps.weight = encode(column_box(params));
  return maps;
}

}  // namespace convt2d::cuda::hopper
