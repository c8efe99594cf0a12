// weft's K tiles on their way to shared memory: four warps ask the copy engine for segments, a whole ring ahead, and turn what
// has come to rows of channels.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/hopper/hopper_weight_store.cuh"
#include "cuda/weft/weft_config.h"

namespace convt2d::cuda::weft {

using hopper::TileStart;
using hopper::WeightParams;
using hopper::WeightScope;
using hopper::WeightTap;

// What a block has of an operand: its first channel of all of them, and the row and column of the first pixel of the tile
// at the origin.
struct Patch {
  int channel, row, column;
};
__device__ __forceinline__ Patch x_patch(const WeightParams& p, const WeightScope& at) {
  return {at.group * p.rows + at.row_block * p.x_blocks * kCellChannels, 0, 0};
}
__device__ __forceinline__ Patch y_patch(const WeightParams& p, const WeightScope& at) {
  Patch patch = {at.group * p.columns + at.column_block * p.y_blocks * kCellChannels,
                 p.tap[at.first_tap].h, p.tap[at.first_tap].w};
  for (int i = 1; i < at.taps; ++i) {
    patch.row = min(patch.row, int{p.tap[at.first_tap + i].h});
    patch.column = min(patch.column, int{p.tap[at.first_tap + i].w});
  }
  return patch;
}

// Where the patch of a tile starts.
struct Corner {
  int row, column;
};
__device__ __forceinline__ Corner x_corner(const TileStart& tile) { return {tile.h, tile.w}; }
__device__ __forceinline__ Corner y_corner(const WeightParams& p, const Patch& patch,
                                           const TileStart& tile) {
  return {tile.h * p.stride_h + patch.row, tile.w * p.stride_w + patch.column};
}
// The pixel of a plane that a tile's first segment starts with; runs start in the plane's first column.
__device__ __forceinline__ int first_pixel(const Side& side, bool runs, const Corner& corner) {
  return corner.row * side.width + (runs ? max(corner.column, 0) : corner.column);
}

// This warp's share of the copies of an operand; returns their number.
__device__ __forceinline__ int copies_of_warp(const Side& side, int warp) {
  return (side.segments * side.copies - warp + kTurnWarps - 1) / kTurnWarps;
}
__device__ __forceinline__ void ask_side(const Side& side, const CUtensorMap* map, uint32_t to,
                                         uint32_t barrier, int channel, int first, int n,
                                         int warp) {
  const int all = side.segments * side.copies;
#pragma unroll 1
  for (int i = warp; i < all; i += kTurnWarps) {
    const int segment = i / side.copies, copy = i - segment * side.copies;
    const int block = copy / side.residues, residue = copy - block * side.residues;
    const int start = first + segment * side.step * side.width + residue * side.plane;
    copy_box(to + i * side.copy_bytes, map, barrier, (start & -kEight) / 2,
             channel / side.residues + block * (kCellChannels / side.residues), 0, n);
  }
}

// The row of a stage where a pixel of dY's patch belongs.
__device__ __forceinline__ uint32_t y_entry(const WeightParams& p, const WeightScope& at,
                                            const Side& side, const Patch& patch, int row,
                                            int column) {
  const int h = patch.row + row, w = patch.column + column;
  for (int i = at.first_tap; i < at.first_tap + at.taps; ++i) {
    const WeightTap& tap = p.tap[i];
    const int down = h - tap.h, right = w - tap.w;
    if (down < 0 || right < 0) continue;
    const int patch_h = down / p.stride_h, patch_w = right / p.stride_w;
    if (patch_h * p.stride_h != down || patch_w * p.stride_w != right || patch_h >= p.patch_h ||
        patch_w >= p.patch_w)
      continue;
    const int place = p.x_blocks * kTilePixels + tap.plane * p.y_blocks * side.block_rows +
                      patch_h * p.patch_w + patch_w;
    return place | row << kEntryRow | uint32_t(column) << kEntryColumn;
  }
  return kNowhere;
}

// Tables of both operands, by all threads.
__device__ __forceinline__ void build_tables(const Params& p, const WeightScope& at,
                                             const Patch& y, uint32_t shared) {
  const WeightParams& weight = p.weight;
  const bool whole = weight.tiles_w == 1;  // segments of x are one run
  for (int i = threadIdx.x; i < table_entries(p.x); i += blockDim.x) {
    const int each = (p.x.octets + 1) * kEight, segment = i / each;
    const int pixel = i - segment * each - kEight;
    const int row = whole ? pixel / weight.x_w : segment;
    const int column = whole ? pixel - row * weight.x_w : pixel;
    const bool there = pixel >= 0 && row < weight.tile_h && column < weight.tile_w;
    store_shared_4(shared + p.x.table_at + i * 4,
                   there ? (row * weight.tile_w + column) | row << kEntryRow |
                               uint32_t(column) << kEntryColumn
                         : kNowhere);
  }
  for (int i = threadIdx.x; i < table_entries(p.y); i += blockDim.x) {
    const int each = (p.y.octets + 1) * kEight, segment = i / each;
    const int pixel = i - segment * each - kEight;
    int row = segment * p.y.step, column = pixel;
    if (p.runs) {
      const int in_plane = pixel + max(y.column, 0);
      row = in_plane / weight.y_w;
      column = in_plane - row * weight.y_w - y.column;
    }
    store_shared_4(shared + p.y.table_at + i * 4,
                   pixel < 0 ? kNowhere : y_entry(weight, at, p.y, y, row, column));
  }
}

// Of a lane: what an eight of pixels of half a block's channels needs.
struct Octet {
  uint32_t row;   // of the stage, for the lane's pixel and chunk of channels
  uint32_t there;  // a bit for each lane whose pixel exists
};
__device__ __forceinline__ Octet octet_of(const Side& side, uint32_t table, uint32_t dump_row,
                                          const Corner& corner, int segment, int octet, int half,
                                          int first, bool& wanted) {
  const int lane = threadIdx.x % 32, chunk = half * 4 + lane / 8;
  const int start = first + segment * side.step * side.width + chunk * side.residues / 8 * side.plane;
  const int entry_at = segment * (side.octets + 1) * kEight + kEight + octet * kEight + lane % 8 -
                       (start & kEight - 1);
  const uint32_t entry = load_shared_4(table + entry_at * 4);
  const bool placed = entry != kNowhere;
  wanted |= placed;
  const uint32_t row = corner.row + (entry >> kEntryRow & (1 << kEntryColumn - kEntryRow) - 1);
  const uint32_t column = corner.column + (entry >> kEntryColumn);
  const bool there = placed && row < static_cast<uint32_t>(side.height) &&
                     column < static_cast<uint32_t>(side.width);
  return {placed ? entry & (1 << kEntryRow) - 1 : dump_row + lane % 8,
          __ballot_sync(0xffffffff, there)};
}
// Zeros for pixels that do not exist: a word of tile i holds two neighbours of them.
__device__ __forceinline__ void clear_pixels(uint32_t (&word)[4], uint32_t there) {
  const int pixel = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t both = there >> (8 * i + pixel);
    word[i] &= (both & 1 ? 0xffffu : 0u) | (both & 2 ? 0xffff0000u : 0u);
  }
}

// A K tile of one operand, by all who turn; two eights of pixels at once, since what is loaded is some 30 cycles on its way.
__device__ __forceinline__ void turn_side(const Side& side, uint32_t table, uint32_t from,
                                          uint32_t stage, uint32_t dump_row, const Corner& corner,
                                          int first, int warp) {
  const int lane = threadIdx.x % 32, chunk = lane / 8;
  const int all = side.segments * side.octets;
  const uint32_t channel = side.octets * 16, half_bytes = 32 * channel;
  int segment[2], octet[2];
  segment[0] = warp / side.octets, octet[0] = warp - segment[0] * side.octets;
#pragma unroll 1
  for (int i = warp; i < all; i += 2 * kTurnWarps) {
    segment[1] = segment[0], octet[1] = octet[0] + kTurnWarps;
    while (octet[1] >= side.octets) octet[1] -= side.octets, ++segment[1];
    const bool both = i + kTurnWarps < all;
    bool wanted = false;
    Octet part[2][2];
    uint32_t source[2];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      // Of the last one alone, twice the same.
      const int s = u == 1 && both ? segment[1] : segment[0];
      const int o = u == 1 && both ? octet[1] : octet[0];
      source[u] = from + s * side.blocks * 2 * half_bytes + o * 16 + lane * channel;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        part[u][half] = octet_of(side, table, dump_row, corner, s, o, half, first, wanted);
    }
    segment[0] = segment[1], octet[0] = octet[1] + kTurnWarps;
    while (octet[0] >= side.octets) octet[0] -= side.octets, ++segment[0];
    if (!__any_sync(0xffffffff, wanted)) continue;
#pragma unroll 1
    for (int block = 0; block < side.blocks; ++block) {
      uint32_t word[2][2][4];
#pragma unroll
      for (int u = 0; u < 2; ++u)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          load_tiles(source[u] + (block * 2 + half) * half_bytes, word[u][half]);
#pragma unroll
      for (int u = 0; u < 2; ++u)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Octet& at = part[u][half];
          if (at.there != 0xffffffff) clear_pixels(word[u][half], at.there);
          const uint32_t row = at.row + (at.row < dump_row ? block * side.block_rows : 0);
          store_turned(stage + row * kRowBytes + ((half * 4 + chunk ^ row & 7) << 4),
                       word[u][half]);
        }
    }
  }
}

// All of a block's K tiles, by one of the warps that turn.
class Turner {
 public:
  __device__ __forceinline__ Turner(const Params& p, const Maps& maps, const WeightScope& at,
                                    const Patch& x, const Patch& y, uint32_t shared)
      : p_(p), maps_(maps), at_(at), x_(x), y_(y), shared_(shared),
        warp_((threadIdx.x / 32) % kTurnWarps),
        come_{shared + kRawBarriersAt, shared + p.raw_at, p.raw_stages, p.raw_bytes},
        asked_(come_), turned_(p.weight, at.begin), next_(turned_), tile_(at.begin),
        next_tile_(at.begin) {}

  // Segments of the next tile, if there is one.
  __device__ __forceinline__ void ask() {
    if (next_tile_ >= at_.end) return;
    barrier_wait(asked_.empty(), asked_.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      const Side &x = p_.x, &y = p_.y;
      barrier_expect(asked_.full(), copies_of_warp(x, warp_) * x.copy_bytes +
                                        copies_of_warp(y, warp_) * y.copy_bytes);
      ask_side(x, &maps_.x, asked_.stage() + x.at, asked_.full(), x_.channel, x_first(next_),
               next_.n, warp_);
      ask_side(y, &maps_.y, asked_.stage() + y.at, asked_.full(), y_.channel, y_first(next_),
               next_.n, warp_);
    }
    __syncwarp();
    asked_.advance();
    next_.advance(p_.weight);
    ++next_tile_;
  }
  __device__ __forceinline__ void ask_first() {
    for (int i = 1; i < p_.raw_stages; ++i) ask();
  }

  // The same once more.
  __device__ __forceinline__ void restart() {
    tile_ = next_tile_ = at_.begin;
    turned_ = next_ = TileStart(p_.weight, at_.begin);
    ask_first();
  }

  __device__ __forceinline__ void turn_tiles(StageRing& ring) {
    for (; tile_ < at_.end; ++tile_) {
      ask();
      barrier_wait(come_.full(), come_.parity);
      barrier_wait(ring.empty(), ring.parity ^ 1);
      turn_side(p_.x, shared_ + p_.x.table_at, come_.stage() + p_.x.at, ring.stage(), p_.dump_row,
                x_corner(turned_), x_first(turned_), warp_);
      turn_side(p_.y, shared_ + p_.y.table_at, come_.stage() + p_.y.at, ring.stage(), p_.dump_row,
                y_corner(p_.weight, y_, turned_), y_first(turned_), warp_);
      fence_for_wgmma();
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        barrier_arrive(come_.empty());
        barrier_arrive(ring.full());
      }
      come_.advance();
      ring.advance();
      turned_.advance(p_.weight);
    }
  }

 private:
  __device__ __forceinline__ int x_first(const TileStart& tile) const {
    return first_pixel(p_.x, false, x_corner(tile));
  }
  __device__ __forceinline__ int y_first(const TileStart& tile) const {
    return first_pixel(p_.y, p_.runs, y_corner(p_.weight, y_, tile));
  }

  const Params& p_;
  const Maps& maps_;
  const WeightScope& at_;
  const Patch &x_, &y_;
  const uint32_t shared_;
  const int warp_;
  StageRing come_, asked_;
  TileStart turned_, next_;
  int tile_, next_tile_;
};

}  // namespace convt2d::cuda::weft
