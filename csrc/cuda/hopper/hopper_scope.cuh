// What a block of the gather kernel knows about its work, and the tables it keeps in shared memory.
#pragma once

#include "cuda/gather_device.cuh"
#include "cuda/hopper/hopper_config.h"

namespace convt2d::cuda::hopper {

// The combination of (group, column tile, phases) a block works on. Plain values, so that all of it
// stays in registers.
struct Scope {
  int group, column_tile;
  int walker, walkers;     // which one of how many blocks with the same combination
  int group_h, group_w;    // indices of AxisTable::group
  int phases_h, phases_w;  // of them
  int low_h, low_w;        // source offset of the patch's first pixel from its first position's
  int products, parts;     // of a chunk; parts of the weights, each with a product at least
};

__device__ __forceinline__ Scope scope_of(const GatherParams& p, TileRow tile) {
  Scope at;
  int rest = blockIdx.x, share = 0;
  if (p.shares > 1) {
    const int each = p.groups * p.column_tiles;
    while (rest >= each * p.walkers[share]) rest -= each * p.walkers[share++];
    at.group_h = share / p.w.groups;
    at.group_w = share - at.group_h * p.w.groups;
  } else {
    read_phases(p, rest, at);
  }
  read_channels(p, rest, at);
  at.walkers = p.walkers[share];
  const AxisGroup &gh = p.h.group[at.group_h], &gw = p.w.group[at.group_w];
  at.low_h = gh.offset_low;
  at.low_w = gw.offset_low;
  at.products = 0;
  if (tile.channel_rows) {
    for (int i = 0; i < gh.phases; ++i)
      for (int j = 0; j < gw.phases; ++j) at.products += gh.taps[i] * gw.taps[j];
  } else {
    at.products = gh.count * gw.count;
  }
  if (tile.fetched) at.products = 1;  // its taps are K
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
  const int row = divide(operand, p.operand_columns_magic),
            column = operand - row * p.operand_columns;
  return row * (operand_positions(tile) / kGroup) * p.plane_w + column * kGroup;
}

// The same for one of its teams: the second ones of all blocks come after the first ones.
__device__ __forceinline__ Scope scope_of_team(const GatherParams& p, TileRow tile, Scope at,
                                               int team) {
  if (!may_be_teams(tile)) return at;
  at.walker += team * at.walkers;
  at.walkers *= p.teams;
  return at;
}

// The tiles of a block, one after the other, without a division for each. Walkers are few times the multiprocessors.
class TileWalk {
 public:
  __device__ __forceinline__ TileWalk(const GatherParams& p, const Scope& at)
      : first_(split(p, at.walker)), step_(split(p, at.walkers)) {}
  __device__ __forceinline__ void advance(const GatherParams& p) {
    first_.w += step_.w;
    const bool next_row = first_.w >= p.tiles_w;
    if (next_row) first_.w -= p.tiles_w;
    first_.h += step_.h + next_row;
    const bool next_image = first_.h >= p.tiles_h;
    if (next_image) first_.h -= p.tiles_h;
    first_.n += step_.n + next_image;
  }
  __device__ __forceinline__ TileOrigin origin(const GatherParams& p) const {
    return {first_.n * p.tile_n, first_.h * p.tile_h, first_.w * p.tile_w};
  }

 private:
  static __device__ __forceinline__ TileOrigin split(const GatherParams& p, int tile) {
    const int rest = divide(tile, p.tiles_w_magic), image = divide(rest, p.tiles_h_magic);
    return {image, rest - image * p.tiles_h, tile - rest * p.tiles_w};
  }
  TileOrigin first_, step_;  // in tiles
};

// Image, row and column of each position from its tile's first one, packed; -1 where the tile has no such
// position. A table, since a tile's epilogue must not divide.
__device__ __forceinline__ void build_positions(const GatherParams& p, TileRow tile, int* positions,
                                                int thread, int threads) {
#pragma unroll 1
  for (int i = thread; i < block_positions(tile); i += threads) {
    // Of both teams the same.
    const int of_block = i / operand_positions(tile), inner = i % operand_positions(tile),
              operands = block_positions(tile) / operand_positions(tile),
              operand = may_be_teams(tile) && p.teams > 1 ? of_block % (operands / 2) : of_block;
    const int pixel =
        operand_pixel(p, tile, operand) + inner / kGroup * group_pixels(p) + inner % kGroup;
    const int row = divide(pixel, p.plane_w_magic), image = divide(row, p.plane_h_magic);
    const int h = row - image * p.plane_h, w = pixel - row * p.plane_w;
    const bool inside = image < p.tile_n && h < p.tile_h && w < p.tile_w;
    positions[i] = inside ? image << 20 | h << 10 | w : -1;
  }
}

// n is negative where the tile has no such position.
__device__ __forceinline__ TileOrigin position_of(TileOrigin origin, int packed) {
  return {packed < 0 ? -1 : origin.n + (packed >> 20), origin.h + (packed >> 10 & 1023),
          origin.w + (packed & 1023)};
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

// Of the source offsets of an axis: how many have a lesser residue modulo the source step, how many the same,
// and how many of these come before the offset.
struct Tally {
  int below, same, before;
};
__device__ __forceinline__ Tally tally(const AxisTable& axis, const AxisGroup& group, int low,
                                       int residue, int offset) {
  Tally found{};
#pragma unroll 1
  for (int i = 0; i < group.count; ++i) {
    const int other = axis.step[group.first + i].offset;
    const int of_other = (other - low) % axis.source_step;
    found.below += of_other < residue;
    found.same += of_other == residue;
    found.before += of_other == residue && other < offset;
  }
  return found;
}

// Where the products of each plane start, if planes come apart; and where the last one's end.
__device__ __forceinline__ void build_firsts(const GatherParams& p, const Scope& at, TileRow tile,
                                             int* firsts, int thread, int threads) {
  const AxisGroup &gh = p.h.group[at.group_h], &gw = p.w.group[at.group_w];
#pragma unroll 1
  for (int plane = thread; plane <= p.planes_h * p.planes_w; plane += threads) {
    const Tally h = tally(p.h, gh, at.low_h, plane / p.planes_w, 0);
    const Tally w = tally(p.w, gw, at.low_w, plane % p.planes_w, 0);
    firsts[plane] = tile.channel_rows ? plane * at.products : h.below * gw.count + h.same * w.below;
  }
}

// For each product, how far it shifts the patch (bytes) and where in global memory its tap's weights
// start, or which one it is; for stacked phases a tap each, -1 where a phase has none at that offset.
__device__ __forceinline__ void build_products(const GatherParams& p, const Scope& at, TileRow tile,
                                               int* shifts, int* taps, int thread, int threads) {
  const AxisGroup &gh = p.h.group[at.group_h], &gw = p.w.group[at.group_w];
  const int stack = stacked(p, tile);
  if (tile.fetched) return;
  // Copied columns have an axis of taps.
  const int unit = tile.columns_copied ? p.columns : 1;
  const int next_h = p.weight_h / unit, next_w = p.weight_w / unit;
#pragma unroll 1
  for (int i = thread; i < gh.count * gw.count; i += threads) {
    const AxisStep& h = p.h.step[gh.first + i / gw.count];
    const AxisStep& w = p.w.step[gw.first + i % gw.count];
    const int away_h = h.offset - at.low_h, away_w = w.offset - at.low_w;
    const int shift_h = away_h / p.h.source_step, shift_w = away_w / p.w.source_step;
    const int plane =
        (away_h - shift_h * p.h.source_step) * p.planes_w + away_w - shift_w * p.w.source_step;
    const int pixels = shift_h * p.plane_w + shift_w;
    const int shift =
        (p.planes_apart > 1 ? pixels : plane * p.plane_pixels + pixels) * p.pixel_bytes;
    int product = i;
    if (p.planes_apart > 1) {
      const Tally of_h = tally(p.h, gh, at.low_h, plane / p.planes_w, h.offset);
      const Tally of_w = tally(p.w, gw, at.low_w, plane % p.planes_w, w.offset);
      product =
          of_h.below * gw.count + of_h.same * of_w.below + of_h.before * of_w.same + of_w.before;
    }
    if (!tile.channel_rows) shifts[product] = shift;
    int base = 0;  // a slot's products are its row taps x its column taps
    for (int sh = 0; sh < p.h.slots; ++sh)
      for (int sw = 0; sw < p.w.slots; ++sw) {
        const bool there = sh < at.phases_h && sw < at.phases_w;
        const bool tapped = there && h.rank[sh] >= 0 && w.rank[sw] >= 0;
        const int tap = tapped ? (gh.first_tap[sh] + h.rank[sh] * p.h.tap_step) * next_h +
                                     (gw.first_tap[sw] + w.rank[sw] * p.w.tap_step) * next_w
                               : -1;
        if (!tile.channel_rows) {
          taps[product * stack + sh * p.w.slots + sw] = tap;
        } else if (tapped) {
          product = base + h.rank[sh] * gw.taps[sw] + w.rank[sw];
          shifts[product] = shift;
          taps[product] = tap;
        }
        if (there) base += gh.taps[sh] * gw.taps[sw];
      }
  }
}

// For each product of a chunk, in units of 16 bytes, where it reads its patch and where its weights stand in their buffer
// (of a chunk, if they stay); whether it is the first one to read either; and whether its phase is the second of two that
// have sums of their own.
constexpr uint32_t kNextBuffer = 1u << 31, kSecondSlot = 1u << 30;
__device__ __forceinline__ void build_steps(const GatherParams& p, const Scope& at, TileRow tile,
                                            const int* shifts, const int* firsts, uint2* steps,
                                            int thread, int threads) {
#pragma unroll 1
  for (int i = thread; i < at.products; i += threads) {
    int plane = 0;
#pragma unroll 1
    while (firsts[plane + 1] <= i) ++plane;
    const int of_plane = i - firsts[plane], row = p.weight_stages ? of_plane % p.part_products : i;
    const bool second = tile.slots > 1 && i >= products_of(p, at, 0);
    steps[i] = make_uint2(uint32_t(shifts[i]) >> 4 | (of_plane == 0 ? kNextBuffer : 0),
                          uint32_t(row * p.product_bytes) >> 4 | (row == 0 ? kNextBuffer : 0) |
                              (second ? kSecondSlot : 0));
  }
}

// Fetched rows whose weights threads bring: behind the other tables, where in memory that of each number of K is seen
// from the first of its channel, in elements; or -1.
__device__ __forceinline__ int* weights_of_numbers(const GatherParams& p, int* offsets) {
  return offsets + p.period * (chunk_bytes(p) / p.element_bytes) * (1 + (p.brought_pieces > 0));
}

// Fetched rows: for each number of K, from the first of a chunk until they come again, where it stands in a patch,
// seen from the pixel that tap (0, 0) of a position reads. Bytes; of a slice, what a lane needs comes together. Behind
// them the rows and columns of their taps, a bit each, if threads bring rows.
__device__ __forceinline__ void build_offsets(const GatherParams& p, const Scope& at, int* offsets,
                                              int thread, int threads) {
  const AxisGroup &gh = p.h.group[at.group_h], &gw = p.w.group[at.group_w];
  const int depth = chunk_bytes(p) / p.element_bytes, numbers = 4 / p.element_bytes;
  int *const taps = offsets + p.period * depth, *const weights = weights_of_numbers(p, offsets);
  for (int i = thread; i < p.period * depth; i += threads) {
    const int k = i % (8 * numbers), word = k / numbers;  // of a slice, half of which is four words
    const int to = i - k + (word % 4 * 2 + word / 4) * numbers + k % numbers;
    // What fills up the last slice fetches what the first number does.
    const int number = p.chunks == 1 && i >= p.depth ? 0 : i;
    const int plane = number / p.plane_numbers, of_plane = number - plane * p.plane_numbers;
    const int tap_h = of_plane / p.row_numbers,
              of_row = of_plane - tap_h * p.row_numbers - p.row_lead;
    // Numbers beside the taps of a row stand beside their pixels.
    const int tap_w = min(max(of_row / p.pixel_channels, 0), gw.count - 1),
              channel = of_row - tap_w * p.pixel_channels;
    const int row = p.h.step[gh.first + tap_h].offset - at.low_h,
              pixel = p.w.step[gw.first + tap_w].offset - at.low_w;
    const int first = i / depth * depth / p.plane_numbers;  // plane of this chunk
    offsets[to] = row * p.row_pitch + (plane - first) * p.channel_pitch +
                  (pixel * p.pixel_channels + channel) * p.element_bytes;
    if (p.brought_pieces) taps[to] = 1 << tap_h | 1 << (gh.count + tap_w);
    if (!p.one_chunk) continue;
    const bool weighs = i < p.depth && channel >= 0 && channel < p.pixel_channels;
    weights[i] =
        weighs ? (plane + channel) * p.weight_reduce + tap_h * p.weight_h + tap_w * p.weight_w : -1;
  }
}

// Fetched rows: the first channel of a chunk, and in memory the first pixel of its patch.
template <class T>
__device__ __forceinline__ int first_channel(const GatherParams& p, int chunk) {
  return divide(chunk * (chunk_bytes(p) / int(sizeof(T))), p.taps_magic);
}
template <class T>
__device__ __forceinline__ int fetched_pixel(const GatherParams& p, const Scope& at, TileOrigin o,
                                             int chunk) {
  const int channel = at.group * p.reduce + first_channel<T>(p, chunk);
  const int row =
      (o.n * p.source_planes + channel) * p.h.source_extent + o.h * p.h.source_step + at.low_h;
  return row * p.row_elements + (o.w * p.w.source_step + at.low_w) * p.pixel_channels;
}

// All that a source has.
__device__ __forceinline__ int source_elements(const GatherParams& p) {
  return p.batch * p.groups * p.reduce * p.h.source_extent * p.w.source_extent;
}

// Fetched rows that threads bring: of each piece of a patch, its place in memory and in shared memory, seen from the
// patch's first pixel (elements, bytes). It starts where 16 bytes do, here or before.
__device__ __forceinline__ void build_pieces(const GatherParams& p, int2* pieces, int thread,
                                             int threads) {
  const int length = 16 / p.element_bytes;
  for (int i = thread; i < p.brought_pieces; i += threads) {
    const int line = divide(i, p.row_pieces_magic), first = (i - line * p.row_pieces) * length;
    const int line_row = divide(line, p.window_magic), channel = line - line_row * p.window;
    const int image = divide(line_row, p.load_h_magic), row = line_row - image * p.load_h;
    const int plane = (image * p.source_planes + channel) * p.h.source_extent;
    pieces[i] = make_int2((plane + row) * p.row_elements + first,
                          image * p.image_pitch + row * p.row_pitch + channel * p.channel_pitch +
                              first * p.element_bytes);
  }
}

// Fetched columns: 32 channels are a row of 128 bytes for each K, whose 16-byte pieces trade places by K. Eight rows of
// the sum are two pieces that are four apart, so that the words of four K, which a warp reads at once, lie in
// different banks; the eight rows after them are the pieces beside these.
__device__ __forceinline__ int fetched_channel(int row) {
  const int warp = row / 16, piece = warp % 2 * 2 + row / 8 % 2 + row / 4 % 2 * 4;
  return warp / 2 * 32 + piece * 4 + row % 4;
}

// Which channel of the tile, and which phase, a row of the weights stands for. Stacked phases of a row are
// neighbours, as their outputs are; with NHWC stores phases are apart, and channels are dealt out
// so that a thread holds 16 bytes of neighbours.
template <class T>
__device__ __forceinline__ int2 channel_and_phase(const GatherParams& p, TileRow tile, int row) {
  if (tile.weights_fetched) return make_int2(fetched_channel(row), 0);
  if (tile.channel_rows) return make_int2(row, 0);
  const int stack = stacked(p, tile);
  if (p.store_mode != kDealt && p.store_mode != kTraded) return make_int2(row / stack, row % stack);
  const int phase = row / p.tile_channels;
  if (p.store_mode == kTraded) return make_int2(row - phase * p.tile_channels, phase);
  constexpr int kTiles = 8 / int(sizeof(T));  // of eight columns in a run
  const int inner = row - phase * p.tile_channels, eight = inner >> 3, thread = (inner & 7) >> 1;
  return make_int2((eight / kTiles * 4 + thread) * (2 * kTiles) + eight % kTiles * 2 + (inner & 1),
                   phase);
}

// The same the other way round: the first row of a phase, and from there the row of a channel.
__device__ __forceinline__ int first_row(const GatherParams& p, TileRow tile, int phase) {
  return one_by_one(tile, p.store_mode) ? phase : phase * p.tile_channels;
}
template <class T>
__device__ __forceinline__ int row_of(const GatherParams& p, TileRow tile, int channel) {
  if (tile.channel_rows) return channel;
  if (one_by_one(tile, p.store_mode)) return channel * stacked(p, tile);
  constexpr int kRun = 16 / int(sizeof(T));
  const int run = channel / kRun, inner = channel % kRun;
  return (run / 4 * (kRun / 2) + inner / 2) * 8 + run % 4 * 2 + inner % 2;
}

template <class T>
__device__ __forceinline__ void build_columns(const GatherParams& p, const Scope& at, TileRow tile,
                                              ColumnInfo* columns, int thread, int threads) {
#pragma unroll 1
  for (int row = thread; row < weight_rows(tile); row += threads) {
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

// A vector of pixels in a list: element offset of its first pixel in channel 0; and, packed, its base in the
// patch, in pixels (+ 8), which of its words exist, and which of its pixels are of the patch.
__device__ __forceinline__ int2 turned_unit(int offset, int base, int mask, int from, int to) {
  return make_int2(offset, (base + 8) << 16 | mask << 8 | to << 4 | from);
}
__device__ __forceinline__ int turned_mask(int packed) { return packed >> 8 & 15; }
__device__ __forceinline__ bool turned_wanted(int packed, int i) {
  return i >= (packed & 15) && i < (packed >> 4 & 15);
}
__device__ __forceinline__ int turned_base(int packed) { return ((packed >> 16) - 8) * kHalfBytes; }
// From a vector's base to its `i`-th pixel, in bytes of a half. The planes of an axis take turns; `shift` is the
// plane of pixel 0.
__device__ __forceinline__ int turned_row(const GatherParams& p, int shift, int i) {
  const int x = divide(shift + i, p.planes_w_magic), plane = shift + i - x * p.planes_w;
  return (plane * p.plane_pixels + x) * kHalfBytes;
}

// How many pixels before a patch's first column its vectors start: at a multiple of their length or, where
// rows are not made of whole ones, of a word's.
__device__ __forceinline__ int turned_lead(const GatherParams& p, const Scope& at, TileOrigin o) {
  const int w0 = o.w * p.w.source_step + at.low_w;
  return w0 & (p.source_mode == kTurned ? 7 : 1);
}
__device__ __forceinline__ int turned_shift(const GatherParams& p, int lead) {
  return -lead & (p.planes_w - 1);
}

__device__ __forceinline__ void build_turned_sources(const GatherParams& p, const Scope& at,
                                                     TileOrigin o, int2* sources, int thread,
                                                     int threads) {
  constexpr int kVector = 8, kWord = 2;  // pixels
  const int h0 = o.h * p.h.source_step + at.low_h, w0 = o.w * p.w.source_step + at.low_w;
  const int lead = turned_lead(p, at, o), shift = turned_shift(p, lead);
  const int units = source_units(p), columns = p.plane_w * p.planes_w;
  for (int i = thread; i < units + 3; i += threads) {
    const int load_row = divide(i, p.load_w_magic);
    const int image = divide(load_row, p.load_h_magic);
    const int row = load_row - image * p.load_h;
    const int column = (i - load_row * p.load_w) * kVector - lead;
    const int y = divide(row, p.planes_h_magic), plane_y = row - y * p.planes_h;
    const int n = o.n + image, h = h0 + y * p.h.source_step + plane_y, w = w0 + column;
    const bool wanted = i < units && column < columns;
    int mask = 0;
    if (wanted && n < p.batch && h >= 0 && h < p.h.source_extent)
#pragma unroll
      for (int k = 0; k < 4; ++k)
        mask |= (w + k * kWord >= 0 && w + k * kWord < p.w.source_extent) << k;
    const int pixel = ((plane_y * p.planes_w * p.tile_n + image) * p.plane_h + y) * p.plane_w;
    const int x = (column - shift) / p.planes_w;  // without a remainder
    sources[i] =
        turned_unit(n * p.source_stride[0] + h * p.source_stride[2] + w, wanted ? pixel + x : 0,
                    mask, max(-column, 0), wanted ? min(columns - column, kVector) : 0);
  }
}

// Where the pixels of a tile come from (element offset of channel 0, or -1 outside) and go to (bytes in
// a half). In the order of the source, so that lanes load neighbours.
__device__ __forceinline__ void build_sources(const GatherParams& p, const Scope& at, TileOrigin o,
                                              int2* sources, int thread, int threads) {
  const int h0 = o.h * p.h.source_step + at.low_h, w0 = o.w * p.w.source_step + at.low_w;
  const int units = p.tile_n * p.load_h * p.load_w;
  for (int i = thread; i < units; i += threads) {
    const int load_row = divide(i, p.load_w_magic);
    const int image = divide(load_row, p.load_h_magic);
    const int row = load_row - image * p.load_h;
    const int column = i - load_row * p.load_w;
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
