#include "cuda/hopper/hopper_maps.h"

#include "cuda/tensor_map.h"

namespace convt2d::cuda::hopper {
namespace {

// Axes are dense, the contiguous one first: a layout promises that, while the stride of an axis of one element
// may be anything.
struct Axis {
  int64_t extent;
  int64_t stride;  // elements
  int32_t count, step;
};
template <int AXES>
TensorBox box_of(const void* base, int element_bytes, const Axis (&axis)[AXES]) {
  TensorBox box{base, element_bytes, AXES};
  for (int i = 0; i < AXES; ++i) {
    box.extent[i] = axis[i].extent;
    box.stride[i] = axis[i].stride * element_bytes;
    box.count[i] = axis[i].count;
    box.step[i] = axis[i].step;
  }
  return box;
}

int64_t source_channels(const GatherParams& p) { return static_cast<int64_t>(p.groups) * p.reduce; }
int32_t chunk_depth(const GatherParams& p) { return chunk_bytes(p) / p.element_bytes; }

// A box is one plane of a patch, one chunk of its channels.
TensorBox source_box(const GatherParams& p) {
  const int64_t channels = source_channels(p), row = channels * p.w.source_extent;
  return box_of(p.source, p.element_bytes,
                {Axis{channels, 1, chunk_depth(p), 1},
                 {p.w.source_extent, channels, p.plane_w, p.w.source_step},
                 {p.h.source_extent, row, p.plane_h, p.h.source_step},
                 {p.batch, row * p.h.source_extent, p.tile_n, 1}});
}

// A box is the rows of a patch, one chunk of its channels; as many pixels of each as fill 16 bytes.
TensorBox rows_box(const GatherParams& p, int32_t channels_of_chunk) {
  const int64_t channels = p.source_planes, row = p.row_elements, image = row * p.h.source_extent;
  const Axis planes{channels, image, channels_of_chunk, 1},
      rows{p.h.source_extent, row, p.copied_h, 1};
  TensorBox box = box_of(p.source, p.element_bytes,
                         {Axis{row, 1, p.copied_w, 1},
                          p.rows_inside ? rows : planes,
                          p.rows_inside ? planes : rows,
                          {p.batch, image * channels, p.tile_n, 1}});
  box.swizzled = false;
  return box;
}

// A box is a run of whole rows of a plane, as words, of one chunk of the channels.
TensorBox runs_box(const GatherParams& p) {
  const int64_t plane = int64_t{p.h.source_extent} * p.row_elements / 2;
  TensorBox box = box_of(p.source, 4,
                         {Axis{plane, 1, p.spread_words, 1},
                          {p.source_planes, plane, p.window, 1},
                          {p.batch, plane * p.source_planes, p.tile_n, 1},
                          {1, plane * p.source_planes * p.batch, 1, 1}});
  box.swizzled = false;
  return box;
}

// A box is the rows of a tile, one chunk of one tap. They come in the order that channel_and_phase() asks for
// (hopper_scope.cuh): the channel of row [a][b][thread][i] is [a][thread][b][i].
TensorBox weight_box(const GatherParams& p, TileRow tile) {
  const int32_t run = 8 / p.element_bytes;  // of [b]
  const int64_t channels = static_cast<int64_t>(p.groups) * p.columns;
  const int64_t channel = static_cast<int64_t>(p.taps) * p.reduce;
  if (one_by_one(tile, p.store_mode))  // in their own order
    return box_of(p.weight, p.element_bytes,
                  {Axis{channel, 1, chunk_depth(p), 1},
                   {1, channel, 1, 1},
                   {1, channel, 1, 1},
                   {1, channel, 1, 1},
                   {channels, channel, weight_rows(tile), 1}});
  return box_of(p.weight, p.element_bytes,
                {Axis{channel, 1, chunk_depth(p), 1},
                 {2, channel, 2, 1},
                 {4, 2 * run * channel, 4, 1},
                 {run, 2 * channel, run, 1},
                 {channels / (8 * run), 8 * run * channel, weight_rows(tile) / (8 * run), 1}});
}

// The same where all taps are K and the rows have their own order.
TensorBox run_weight_box(const GatherParams& p, TileRow tile) {
  const int64_t channels = static_cast<int64_t>(p.groups) * p.columns;
  return box_of(p.weight, p.element_bytes,
                {Axis{p.depth, 1, chunk_depth(p), 1},
                 {channels, p.depth, weight_rows(tile), 1},
                 {1, channels * p.depth, 1, 1},
                 {1, channels * p.depth, 1, 1}});
}

// A box is a block of neighbouring columns of one tap, one chunk; or all blocks of a tile.
TensorBox column_box(const GatherParams& p) {
  const int64_t channels = source_channels(p), channel = static_cast<int64_t>(p.taps) * p.columns;
  const int32_t block = column_row(p) / p.element_bytes;
  if (p.blocks_at_once)
    return box_of(p.weight, p.element_bytes,
                  {Axis{block, 1, block, 1},
                   {channels, channel, chunk_depth(p), 1},
                   {p.columns / block, block, p.blocks_at_once, 1},
                   {p.taps, p.columns, 1, 1}});
  return box_of(p.weight, p.element_bytes,
                {Axis{p.columns, 1, block, 1},
                 {channels, channel, chunk_depth(p), 1},
                 {1, channel * channels, 1, 1},
                 {p.taps, p.columns, 1, 1}});
}

}  // namespace

TensorMaps maps_of(const GatherParams& params, TileRow tile) {
  TensorMaps maps{};
  const auto encode = [&](TensorBox box) {
    box.rounded = !tile.strict && params.element_bytes == 4;
    return cuda::encode(box);
  };
  if (tile.copied && !params.brought_pieces)
    maps.source = encode(tile.turned     ? rows_box(params, chunk_depth(params))
                         : params.spread ? runs_box(params)
                         : tile.fetched  ? rows_box(params, params.window)
                                         : source_box(params));
  if (params.weight_mode == kWeightCopied)
    maps.weight = encode(tile.fetched ? run_weight_box(params, tile) : weight_box(params, tile));
  if (params.weight_mode == kColumnsCopied) maps.weight = encode(column_box(params));
  return maps;
}

}  // namespace convt2d::cuda::hopper
