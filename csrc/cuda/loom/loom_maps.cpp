#include "cuda/loom/loom_plan.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::loom {

TensorMaps maps_of(const GatherParams& p) {
  // 16 bits by two, as words, of which a box may have as many.
  const int64_t bytes = p.element_bytes, row = p.w.source_extent * bytes,
                plane = row * p.h.source_extent, channels = int64_t{p.groups} * p.reduce,
                kernels = int64_t{p.forward ? p.columns : p.reduce} * p.taps * bytes,
                inputs = int64_t{p.groups} * (p.forward ? p.reduce : p.columns);
  const int slice = slice_of(p.element_bytes);
  const bool rounded = bytes == 4 && !p.strict;
  TensorMaps maps{};
  if (p.lines && bytes == 2)
    maps.source = encode({p.source,
                          4,
                          4,
                          {p.lines * plane / 4, channels / p.lines, p.batch, 1},
                          {4, p.lines * plane, plane * channels, plane * channels * p.batch},
                          {p.copied_w / 2, slice * p.slices / p.lines, p.tile_n, 1},
                          {1, 1, 1, 1},
                          false,
                          false});
  else if (bytes == 2)
    maps.source = encode({p.source,
                          4,
                          4,
                          {row / 4, p.h.source_extent, channels, p.batch},
                          {4, row, plane, plane * channels},
                          {p.copied_w / 2, p.copied_h, slice * p.slices, p.tile_n},
                          {1, 1, 1, 1},
                          false,
                          false});
  else if (!p.brought) {
    const int planes = std::max(p.lines, 1);
    maps.source =
        encode({p.source,
                4,
                4,
                {int64_t{p.period} * p.w.source_extent,
                 int64_t{planes} * p.h.source_extent / p.period, channels / planes, p.batch},
                {4, p.period * row, planes * plane, plane * channels},
                {p.copied_w, p.copied_h, slice * p.slices / planes, p.tile_n},
                {1, p.set_step, 1, 1},
                false,
                rounded});
  }
  if (p.boxed) {
    const int64_t line = bytes * p.w.destination_extent, step = p.h.destination_step,
                  rows = p.h.destination_extent, outputs = int64_t{p.groups} * p.columns;
    maps.destination = encode({p.destination,
                               2,
                               5,
                               {p.w.destination_extent, outputs, step, rows / step, p.batch},
                               {2, line * rows, line, line * step, line * rows * outputs},
                               {kBoxRow / 2, kBoxChannels, 1, p.tile_h, 1},
                               {1, 1, 1, 1, 1},
                               false,
                               false});
  }
  if (p.laid) return maps;
  if (p.segment_bytes)
    maps.weight = encode({p.weight,
                          4,
                          4,
                          {kSegment / 4, inputs, kernels / kSegment, 1},
                          {4, kernels, kSegment, kernels * inputs},
                          {kSegment / 4, slice * p.slices, p.weight_bytes / p.segment_bytes, 1},
                          {1, 1, 1, 1},
                          true,
                          false});
  else if (p.own_rows)
    maps.weight = encode({p.weight,
                          4,
                          4,
                          {4, inputs, p.columns, p.taps / 4},
                          {4, kernels, p.taps * 4, 16},
                          {4, p.pitch, p.tile_channels, 1},
                          {1, 1, 1, 1},
                          false,
                          !p.strict});
  else if (p.woven)
    maps.weight = encode({p.weight,
                          4,
                          4,
                          {32, inputs, p.columns / 2, 1},
                          {4, kernels, 128, kernels * inputs},
                          {32, slice * p.slices, p.tile_channels / 2, 1},
                          {1, 1, 1, 1},
                          true,
                          rounded});
  else
    maps.weight = encode({p.weight,
                          4,
                          4,
                          {kernels / 4, inputs, 1, 1},
                          {4, kernels, kernels * inputs, kernels * inputs},
                          {p.pitch, p.forward ? slice * p.slices : p.tile_channels, 1, 1},
                          {1, 1, 1, 1},
                          false,
                          rounded});
  return maps;
}

}  // namespace convt2d::cuda::loom
