// What a block of the gather kernel knows about its work, and the tables it keeps in shared memory.
#pragma once

#include "cuda/gather_device.cuh"
#include "cuda/igemm/igemm_config.h"

namespace convt2d::cuda::igemm {

// The combination of (group, channel tile, phases) a block works on. Plain values, so that all of it
// stays in registers.
struct Scope {
  int group, column_tile, walker;
  int group_h, group_w;    // indices of AxisTable::group
  int phases_h, phases_w;  // of them
  int patch_pixels, patch_shift, patch_slice;
  int steps, entries;
  int first_unit, units;  // this rank's share of K
};

__device__ __forceinline__ Outer outer_of(const GatherParams& p) {
  return {p.outer, p.outer_source, p.outer_weight};
}

// A unit of K: a chunk of channels, a block of rows of taps, an outer channel.
struct Unit {
  int chunk, block, outer;
};

// This rank's unit of that index. Unless the reduction is shared out, it is a chunk, of one rank.
template <bool SHARED>
__device__ __forceinline__ Unit unit_of(const GatherParams& p, const Scope& at, int index) {
  if constexpr (!SHARED) return {index, 0, 0};
  index += at.first_unit;
  const int rest = divide(index, p.chunks_magic), outer = divide(rest, p.row_blocks_magic);
  return {index - rest * p.chunks, rest - outer * p.row_blocks, outer};
}

template <bool SHARED>
__device__ __forceinline__ Scope scope_of(const GatherParams& p) {
  Scope at;
  read_combination(p, at);
  const AxisGroup &gh = p.h.group[at.group_h], &gw = p.w.group[at.group_w];
  at.patch_pixels = patch_pixels(p);
  at.patch_slice = patch_slice(p);
  // Loads of several pixels start on whole runs; tiles do too, so the first offset decides.
  const int run = p.source_mode == kPixelPairs ? 2 : p.source_mode == kWidePlanes ? 4 : 1;
  at.patch_shift = gw.offset_low & (run - 1);
  at.steps = gh.count * gw.count;
  at.entries = 0;
  for (int i = 0; i < gh.phases; ++i)
    for (int j = 0; j < gw.phases; ++j) at.entries += gh.taps[i] * gw.taps[j];
  if constexpr (SHARED) {
    at.steps /= p.row_blocks;  // which are several only where there is one phase
    at.entries /= p.row_blocks;
  }
  at.first_unit = SHARED ? first_unit(p, blockIdx.y) : 0;
  at.units = SHARED ? first_unit(p, blockIdx.y + 1) - at.first_unit : p.chunks;
  return at;
}

// Slot s holds row phase slot_h(s) and column phase slot_w(s) of the groups.
__device__ __forceinline__ int slot_h(const GatherParams& p, int s) {
  return (s >= p.w.slots) + (s >= 2 * p.w.slots) + (s >= 3 * p.w.slots);
}
__device__ __forceinline__ int slot_w(const GatherParams& p, int s) {
  return s - slot_h(p, s) * p.w.slots;
}

// Image, row and column of a position inside its tile.
__device__ __forceinline__ TileOrigin position_in_tile(const GatherParams& p, int position) {
  const int row = divide(position, p.tile_w_magic);
  const int image = divide(row, p.tile_h_magic);
  return {image, row - image * p.tile_h, position - row * p.tile_w};
}

__device__ __forceinline__ TileOrigin position_of(const GatherParams& p, int tile, int position) {
  const TileOrigin o = tile_origin(p, tile), in = position_in_tile(p, position);
  return {o.n + in.n, o.h + in.h, o.w + in.w};
}

// Bytes from one pixel of the patch to the next.
template <bool PLANES>
constexpr int kPixelBytes = PLANES ? 4 : kPixelPitch;

// A step: how far the patch is shifted, and for each slot the weights it meets (byte offset; -1: none).
template <int SLOTS>
struct Step {
  int shift;
  int entry[SLOTS];
};

// Fills the step table and the entry table (where in global memory a weight entry's tap starts), both for the
// first block of tap rows.
template <bool PLANES, int ENTRY_BYTES, int SLOTS>
__device__ __forceinline__ void build_steps(const GatherParams& p, const Scope& at,
                                            Step<SLOTS>* steps, int* entries) {
  const AxisGroup &gh = p.h.group[at.group_h], &gw = p.w.group[at.group_w];
  for (int i = threadIdx.x; i < at.steps; i += blockDim.x) {
    const AxisStep& h = p.h.step[gh.first + i / gw.count];
    const AxisStep& w = p.w.step[gw.first + i % gw.count];
    Step<SLOTS>& step = steps[i];
    const int column = w.offset - gw.offset_low + at.patch_shift;
    step.shift = ((h.offset - gh.offset_low) * p.patch_w +
                  column % p.residues_w * p.residue_pixels + column / p.residues_w) *
                 kPixelBytes<PLANES>;
    int base = 0;  // a slot's entries are its row taps x its column taps
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
      const int sh = slot_h(p, s), sw = slot_w(p, s);
      step.entry[s] = -1;
      if (sh >= at.phases_h || sw >= at.phases_w) continue;
      if (h.rank[sh] >= 0 && w.rank[sw] >= 0) {
        const int index = base + h.rank[sh] * gw.taps[sw] + w.rank[sw];
        step.entry[s] = index * ENTRY_BYTES;
        entries[index] = (gh.first_tap[sh] + h.rank[sh] * p.h.tap_step) * p.weight_h +
                         (gw.first_tap[sw] + w.rank[sw] * p.w.tap_step) * p.weight_w;
      }
      base += gh.taps[sh] * gw.taps[sw];
    }
  }
}

// Where the positions of a tile go: element offset of phase (0, 0), or -1; and how many more rows and
// columns the destination has from there, which tells the phases that exist.
__device__ __forceinline__ void build_destinations(const GatherParams& p, const Scope& at, int tile,
                                                   int2* destinations) {
  const TileOrigin o = tile_origin(p, tile);
  for (int i = threadIdx.x; i < positions(p); i += blockDim.x) {
    const TileOrigin in = position_in_tile(p, i);
    const int n = o.n + in.n;
    const int h = (o.h + in.h) * p.h.destination_step + p.h.group[at.group_h].first_phase;
    const int w = (o.w + in.w) * p.w.destination_step + p.w.group[at.group_w].first_phase;
    const int left_h = min(p.h.destination_extent - h, 32767);
    const int left_w = min(p.w.destination_extent - w, 32767);
    const bool inside = in.n < p.tile_n && n < p.batch && left_h > 0 && left_w > 0;
    destinations[i] = inside ? make_int2(n * p.destination_stride[0] + h * p.destination_stride[2] +
                                             w * p.destination_stride[3],
                                         left_h << 16 | left_w)
                             : make_int2(-1, 0);
  }
}

__device__ __forceinline__ bool exists(const Scope& at, int2 destination, int sh, int sw) {
  return destination.x >= 0 && sh < at.phases_h && sw < at.phases_w && sh < destination.y >> 16 &&
         sw < (destination.y & 0xffff);
}

// Where the patch pixels of a tile come from: element offset of channel 0, or -1 outside.
__device__ __forceinline__ void build_sources(const GatherParams& p, const Scope& at, int tile,
                                              const Unit& unit, int* sources) {
  const TileOrigin o = tile_origin(p, tile);
  const int h0 =
      o.h * p.h.source_step + p.h.group[at.group_h].offset_low + unit.block * p.block_rows;
  const int gap = p.h.source_step - p.patch_step_h;  // source rows between two positions' patches
  const int w0 = o.w * p.w.source_step + p.w.group[at.group_w].offset_low - at.patch_shift;
  for (int i = threadIdx.x; i < at.patch_pixels; i += blockDim.x) {
    const int row = divide(i, p.patch_w_magic);
    const int image = divide(row, p.patch_h_magic);
    const int row_h = row - image * p.patch_h;
    const int column = i - row * p.patch_w, residue = divide(column, p.residue_pixels_magic);
    const int n = o.n + image;
    const int w = w0 + (column - residue * p.residue_pixels) * p.residues_w + residue;
    const int h = h0 + row_h + divide(row_h, p.patch_step_h_magic) * gap;
    const bool inside =
        n < p.batch && h >= 0 && h < p.h.source_extent && w >= 0 && w < p.w.source_extent;
    sources[i] = inside ? n * p.source_stride[0] + h * p.source_stride[2] + w * p.source_stride[3] +
                              unit.outer * p.outer_source
                        : -1;
  }
}

}  // namespace convt2d::cuda::igemm
