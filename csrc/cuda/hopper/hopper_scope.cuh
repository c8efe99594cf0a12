// What a block of the gather kernel knows about its work, and the tables it keeps in shared memory.
#pragma once

#include "cuda/gather_device.cuh"
#include "cuda/hopper/hopper_config.h"

namespace convt2d::cuda::hopper {

// The combination of (group, column tile, phases) a block works on. Plain values, so that all of it
// stays in registers.
struct Scope {
  int group, column_tile, walker;
  int group_h, group_w;    // indices of AxisTable::group
  int phases_h, phases_w;  // of them
  int low_h, low_w;        // source offset of the patch's first pixel from its first position's
  int products, parts;     // of a chunk; parts of the weights, each with a product at least
};

__device__ __forceinline__ Scope scope_of(const GatherParams& p, TileRow tile) {
  Scope at;
  read_combination(p, at);
  const AxisGroup &gh = p.h.group[at.group_h], &gw = p.w.group[at.group_w];
  at.low_h = gh.offset_low;
  // Pairs of pixels start on even columns; tiles do too, so the first offset decides.
  at.low_w = gw.offset_low - (p.source_mode == kPixelPairs ? gw.offset_low & 1 : 0);
  at.products = 0;
  if (tile.channel_rows) {
    for (int i = 0; i < gh.phases; ++i)
      for (int j = 0; j < gw.phases; ++j) at.products += gh.taps[i] * gw.taps[j];
  } else {
    at.products = gh.count * gw.count;
  }
  at.parts = (at.products + p.part_products - 1) / p.part_products;
  return at;
}

// Channel rows: products of slot s, a column phase; they come after those of the slots before it.
__device__ __forceinline__ int products_of(const GatherParams& p, const Scope& at, int s) {
  return s < at.phases_w ? p.h.group[at.group_h].taps[0] * p.w.group[at.group_w].taps[s] : 0;
}

// The pixel of a plane that position 0 of an operand reads, shifts aside.
__device__ __forceinline__ int operand_pixel(const GatherParams& p, TileRow tile, int operand) {
  if (!p.operand_columns) return operand * operand_positions(tile);
  const int row = operand / p.operand_columns, column = operand - row * p.operand_columns;
  return row * (operand_positions(tile) / kGroup) * p.plane_w + column * kGroup;
}

// Image, row and column of a position; n is negative where the tile has no such position.
__device__ __forceinline__ TileOrigin position_of(const GatherParams& p, TileRow tile,
                                                  TileOrigin origin, int position) {
  const int operand = position / operand_positions(tile), i = position % operand_positions(tile);
  const int pixel = operand_pixel(p, tile, operand) + i / kGroup * group_pixels(p) + i % kGroup;
  const int row = divide(pixel, p.plane_w_magic), image = divide(row, p.plane_h_magic);
  const int h = row - image * p.plane_h, w = pixel - row * p.plane_w;
  const bool inside = image < p.tile_n && h < p.tile_h && w < p.tile_w;
  return {inside ? origin.n + image : -1, origin.h + h, origin.w + w};
}

// Where a position goes: element offset of phase (0, 0), or -1; and how many more rows and columns the
// destination has from there, which tells the phases that exist.
__device__ __forceinline__ int2 destination_of(const GatherParams& p, const Scope& at,
                                               TileOrigin position) {
  const int h = position.h * p.h.destination_step + p.h.group[at.group_h].first_phase;
  const int w = position.w * p.w.destination_step + p.w.group[at.group_w].first_phase;
  const int left_h = min(p.h.destination_extent - h, 32767);
  const int left_w = min(p.w.destination_extent - w, 32767);
  const bool inside = position.n >= 0 && position.n < p.batch && left_h > 0 && left_w > 0;
  return inside ? make_int2(position.n * p.destination_stride[0] + h * p.destination_stride[2] +
                                w * p.destination_stride[3],
                            left_h << 16 | left_w)
                : make_int2(-1, 0);
}

__device__ __forceinline__ bool exists(int2 destination, int phase_h, int phase_w) {
  return destination.x >= 0 && phase_h < destination.y >> 16 && phase_w < (destination.y & 0xffff);
}

// For each product, how far it shifts the patch (bytes) and where in global memory its tap's weights
// start; for stacked phases a tap each, -1 where a phase has none at that offset.
__device__ __forceinline__ void build_products(const GatherParams& p, const Scope& at, TileRow tile,
                                               int* shifts, int* taps) {
  const AxisGroup &gh = p.h.group[at.group_h], &gw = p.w.group[at.group_w];
  const int stack = stacked(p, tile);
  for (int i = threadIdx.x; i < gh.count * gw.count; i += kThreads) {
    const AxisStep& h = p.h.step[gh.first + i / gw.count];
    const AxisStep& w = p.w.step[gw.first + i % gw.count];
    const int away_h = h.offset - at.low_h, away_w = w.offset - at.low_w;
    const int shift_h = away_h / p.h.source_step, shift_w = away_w / p.w.source_step;
    const int plane =
        (away_h - shift_h * p.h.source_step) * p.planes_w + away_w - shift_w * p.w.source_step;
    const int shift = (plane * plane_pixels(p) + shift_h * p.plane_w + shift_w) * kHalfBytes;
    if (!tile.channel_rows) shifts[i] = shift;
    int base = 0;  // a slot's products are its row taps x its column taps
    for (int sh = 0; sh < p.h.slots; ++sh)
      for (int sw = 0; sw < p.w.slots; ++sw) {
        const bool there = sh < at.phases_h && sw < at.phases_w;
        const bool tapped = there && h.rank[sh] >= 0 && w.rank[sw] >= 0;
        const int tap = tapped ? (gh.first_tap[sh] + h.rank[sh] * p.h.tap_step) * p.weight_h +
                                     (gw.first_tap[sw] + w.rank[sw] * p.w.tap_step) * p.weight_w
                               : -1;
        if (!tile.channel_rows) {
          taps[i * stack + sh * p.w.slots + sw] = tap;
        } else if (tapped) {
          const int product = base + h.rank[sh] * gw.taps[sw] + w.rank[sw];
          shifts[product] = shift;
          taps[product] = tap;
        }
        if (there) base += gh.taps[sh] * gw.taps[sw];
      }
  }
}

// Which channel of the tile, and which phase, a row of the weights stands for. Stacked phases of a row are
// neighbours, as their outputs are; with NHWC stores phases are apart, and channels are dealt out
// so that a thread holds 16 bytes of neighbours.
template <class T>
__device__ __forceinline__ int2 channel_and_phase(const GatherParams& p, TileRow tile, int row) {
  if (tile.channel_rows) return make_int2(row, 0);
  const int stack = stacked(p, tile);
  if (!p.vector_stores) return make_int2(row / stack, row % stack);
  const int phase = row / p.tile_channels;
  constexpr int kTiles = 8 / int(sizeof(T));  // of eight columns in a run
  const int inner = row - phase * p.tile_channels, eight = inner >> 3, thread = (inner & 7) >> 1;
  return make_int2((eight / kTiles * 4 + thread) * (2 * kTiles) + eight % kTiles * 2 + (inner & 1),
                   phase);
}

template <class T>
__device__ __forceinline__ void build_columns(const GatherParams& p, const Scope& at, TileRow tile,
                                              ColumnInfo* columns) {
  for (int row = threadIdx.x; row < weight_rows(tile); row += kThreads) {
    const int2 is = channel_and_phase<T>(p, tile, row);
    const int channel = at.column_tile * p.tile_channels + is.x;
    const int sh = is.y / p.w.slots, sw = is.y - sh * p.w.slots;
    const bool there =
        is.x < p.tile_channels && channel < p.columns && sh < at.phases_h && sw < at.phases_w;
    ColumnInfo info;
    info.channel = channel;
    info.phase_h = static_cast<int16_t>(sh);
    info.phase_w = static_cast<int16_t>(sw);
    info.offset = there ? (at.group * p.columns + channel) * p.destination_stride[1] +
                              sh * p.destination_stride[2] + sw * p.destination_stride[3]
                        : -1;
    info.bias = there && p.bias
                    ? load(static_cast<const T*>(p.bias) + at.group * p.columns + channel)
                    : 0.f;
    columns[row] = info;
  }
}

// Where the pixels of a tile come from (element offset of channel 0, or -1 outside) and go to (bytes in
// a half). In the order of the source, so that lanes load neighbours.
__device__ __forceinline__ void build_sources(const GatherParams& p, const Scope& at, int tile,
                                              int2* sources, int thread, int threads) {
  const TileOrigin o = tile_origin(p, tile);
  const int h0 = o.h * p.h.source_step + at.low_h, w0 = o.w * p.w.source_step + at.low_w;
  const bool pairs = p.source_mode == kPixelPairs;
  const int units = p.tile_n * p.load_h * p.load_w;
  for (int i = thread; i < units; i += threads) {
    const int load_row = divide(i, p.load_w_magic);
    const int image = divide(load_row, p.load_h_magic);
    const int row = load_row - image * p.load_h;
    const int column = (i - load_row * p.load_w) << pairs;
    const int x = divide(column, p.planes_w_magic), plane_x = column - x * p.planes_w;
    const int y = divide(row, p.planes_h_magic), plane_y = row - y * p.planes_h;
    const int n = o.n + image, h = h0 + y * p.h.source_step + plane_y,
              w = w0 + x * p.w.source_step + plane_x;
    const bool inside =
        n < p.batch && h >= 0 && h < p.h.source_extent && w >= 0 && w < p.w.source_extent;
    const int pixel = ((plane_y * p.planes_w + plane_x) * p.tile_n + image) * p.plane_h + y;
    sources[i] = make_int2(
        inside ? n * p.source_stride[0] + h * p.source_stride[2] + w * p.source_stride[3] : -1,
        (pixel * p.plane_w + x) * kHalfBytes);
  }
}

}  // namespace convt2d::cuda::hopper
