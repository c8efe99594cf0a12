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
__device__ __forceinline__ void build_tables(const Params& p, const WeightScope& at, const Patch& y,
                                             uint32_t shared) {
  const WeightParams& weight = p.weight;
  const bool whole = weight.tiles_w == 1;  // segments of x are one run
  for (int i = threadIdx.x; i < table_entries(p.side[kX]); i += blockDim.x) {
    const int each = (p.side[kX].octets + 1) * kEight, segment = i / each;
    const int pixel = i - segment * each - kEight;
    const int row = whole ? pixel / weight.x_w : segment;
    const int column = whole ? pixel - row * weight.x_w : pixel;
    const bool there = pixel >= 0 && row < weight.tile_h && column < weight.tile_w;
    store_shared_4(
        shared + p.side[kX].table_at + i * 4,
        there ? (row * weight.tile_w + column) | row << kEntryRow | uint32_t(column) << kEntryColumn
              : kNowhere);
  }
  for (int i = threadIdx.x; i < table_entries(p.side[kY]); i += blockDim.x) {
    const int each = (p.side[kY].octets + 1) * kEight, segment = i / each;
    const int pixel = i - segment * each - kEight;
    int row = segment * p.side[kY].step, column = pixel;
    if (p.runs) {
      const int in_plane = pixel + max(y.column, 0);
      row = in_plane / weight.y_w;
      column = in_plane - row * weight.y_w - y.column;
    }
    store_shared_4(shared + p.side[kY].table_at + i * 4,
                   pixel < 0 ? kNowhere : y_entry(weight, at, p.side[kY], y, row, column));
  }
}

// Where the lane's pixel of an eight belongs, of half a block's channels, as a row of the stage; and which of the pixels that
// the lane loads exist: of four tiles two each, a bit for each.
__device__ __forceinline__ uint32_t find_pixel(const Side& side, uint32_t table, uint32_t dump_row,
                                               const Corner& corner, int segment, int octet,
                                               int half, int first, uint32_t& there, bool& wanted) {
  const int lane = threadIdx.x % 32, chunk = half * 4 + lane / 8;
  const int start =
      first + segment * side.step * side.width + chunk * side.residues / 8 * side.plane;
  const int place = (segment * (side.octets + 1) + octet + 1) * kEight + lane % 8;
  const uint32_t entry = load_shared_4(table + (place - (start & kEight - 1)) * 4);
  const uint32_t row = corner.row + (entry >> kEntryRow & (1 << kEntryColumn - kEntryRow) - 1);
  const uint32_t column = corner.column + (entry >> kEntryColumn);
  const bool placed = entry != kNowhere;
  wanted |= placed;
  const uint32_t exist =
      __ballot_sync(0xffffffff, placed && row < static_cast<uint32_t>(side.height) &&
                                    column < static_cast<uint32_t>(side.width));
  there = 0xff;
  if (exist != 0xffffffff) {
    there = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) there |= (exist >> 8 * i + lane % 4 * 2 & 3) << 2 * i;
  }
  return placed ? entry & (1 << kEntryRow) - 1 : dump_row + lane % 8;
}
// Zeros for pixels that do not exist.
__device__ __forceinline__ void clear_pixels(uint32_t (&word)[4], uint32_t there) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t both = there >> 2 * i;
    word[i] &= (both & 1 ? 0xffffu : 0u) | (both & 2 ? 0xffff0000u : 0u);
  }
}

// A K tile of one operand, by all who turn; AT_ONCE eights of pixels of a warp, since what is loaded is some 30 cycles on its
// way.
template <int AT_ONCE>
__device__ __forceinline__ void turn_side(const Side& side, uint32_t table, uint32_t from,
                                          uint32_t stage, uint32_t dump_row, const Corner& corner,
                                          int first, int warp) {
  const int lane = threadIdx.x % 32;
  const int all = side.segments * side.octets;
  const uint32_t half_bytes = 32 * 16 * side.octets;
  int segment = warp / side.octets, octet = warp - segment * side.octets;
  const auto next = [&] {
    octet += kTurnWarps;
    while (octet >= side.octets) octet -= side.octets, ++segment;
  };
#pragma unroll 1
  for (int i = warp; i < all; i += AT_ONCE * kTurnWarps) {
    bool wanted = false;
    // Of each, rows of both halves of a block, 16 bits each.
    uint32_t rows[AT_ONCE], source[AT_ONCE], there = 0;
#pragma unroll
    for (int u = 0; u < AT_ONCE; ++u) {
      source[u] =
          from + segment * side.blocks * 2 * half_bytes + octet * 16 + lane * (side.octets * 16);
      rows[u] = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t exist;
        rows[u] |=
            find_pixel(side, table, dump_row, corner, segment, octet, half, first, exist, wanted)
            << 16 * half;
        there |= exist << (u * 16 + half * 8);
      }
      // Of a last one alone, twice the same.
      if (u + 1 == AT_ONCE || i + (u + 1) * kTurnWarps < all) next();
    }
    if (!__any_sync(0xffffffff, wanted)) continue;
#pragma unroll 1
    for (int block = 0; block < side.blocks; ++block) {
      uint32_t word[AT_ONCE][2][4];
#pragma unroll
      for (int u = 0; u < AT_ONCE; ++u)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          load_tiles(source[u] + half * half_bytes, word[u][half]);
#pragma unroll
      for (int u = 0; u < AT_ONCE; ++u) {
        source[u] += 2 * half_bytes;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t exist = there >> (u * 16 + half * 8) & 0xff;
          if (__any_sync(0xffffffff, exist != 0xff)) clear_pixels(word[u][half], exist);
          uint32_t row = rows[u] >> 16 * half & 0xffff;
          if (row < dump_row) row += block * side.block_rows;
          store_turned(stage + row * kRowBytes + ((half * 4 + lane / 8 ^ row & 7) << 4),
                       word[u][half]);
        }
      }
    }
  }
}

// All of a block's K tiles, by one of the warps that turn.
template <int AT_ONCE>
class Turner {
 public:
  __device__ __forceinline__ Turner(const Params& p, const Maps& maps, const WeightScope& at,
                                    const Patch& x, const Patch& y, uint32_t shared)
      : p_(p),
        maps_(maps),
        at_(at),
        x_(x),
        y_(y),
        shared_(shared),
        warp_(threadIdx.x / 32 % kTurnWarps),
        next_(p.weight, at.begin) {}

  // The segments of as many tiles as there is room for but one.
  __device__ __forceinline__ void ask_first() {
    for (int i = 1; i < p_.raw_stages; ++i) ask(at_.begin + i - 1);
  }
  // The same once more.
  __device__ __forceinline__ void restart() {
    next_ = TileStart(p_.weight, at_.begin);
    ask_first();
  }

  __device__ __forceinline__ void turn_tiles() {
    TileStart start(p_.weight, at_.begin);
    const bool speaks = threadIdx.x % 32 == 0;
    for (int tile = at_.begin; tile < at_.end; ++tile) {
      ask(tile + p_.raw_stages - 1);
      const uint32_t full = shared_ + turned_.stage * 16,
                     stage = shared_ + hopper::kStagesAt + turned_.stage * p_.stage_bytes;
      barrier_wait(full + 8, turned_.parity ^ 1);
      if (p_.direct && speaks && warp_ == 0) {
        barrier_expect(full, p_.weight.x_blocks * kTilePixels * kRowBytes);
        copy_box(stage, &maps_.x, full, start.w, x_.channel, start.h, start.n);
      }
      barrier_wait(barrier(come_), come_.parity);
      if (!p_.direct) turn<kX>(stage, x_corner(start));
      turn<kY>(stage, y_corner(p_.weight, y_, start));
      fence_for_wgmma();
      __syncwarp();
      if (speaks) {
        barrier_arrive(barrier(come_) + 8);
        barrier_arrive(full);
      }
      come_.advance(p_.raw_stages);
      turned_.advance(p_.weight.stages);
      start.advance(p_.weight);
    }
  }

 private:
  template <int OPERAND>
  __device__ __forceinline__ void turn(uint32_t stage, const Corner& corner) const {
    const Side& side = p_.side[OPERAND];
    turn_side<AT_ONCE>(side, shared_ + side.table_at, place(come_) + side.at, stage, p_.dump_row,
                       corner, first_pixel(side, OPERAND == kY && p_.runs, corner), warp_);
  }
  // Of the next tile, this one, if there is one.
  __device__ __forceinline__ void ask(int tile) {
    if (tile >= at_.end) return;
    const uint32_t full = barrier(asked_);
    barrier_wait(full + 8, asked_.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      const Side &x = p_.side[kX], &y = p_.side[kY];
      barrier_expect(
          full, copies_of_warp(x, warp_) * x.copy_bytes + copies_of_warp(y, warp_) * y.copy_bytes);
      ask_side(x, &maps_.x, place(asked_), full, x_.channel, x_first(next_), next_.n, warp_);
      ask_side(y, &maps_.y, place(asked_) + y.at, full, y_.channel, y_first(next_), next_.n, warp_);
    }
    __syncwarp();
    asked_.advance(p_.raw_stages);
    next_.advance(p_.weight);
  }

  // Of what comes: `full`, behind which `empty` is; and where.
  __device__ __forceinline__ uint32_t barrier(const Ring& ring) const {
    return shared_ + kRawBarriersAt + ring.stage * 16;
  }
  __device__ __forceinline__ uint32_t place(const Ring& ring) const {
    return shared_ + p_.raw_at + ring.stage * p_.raw_bytes;
  }
  __device__ __forceinline__ int x_first(const TileStart& tile) const {
    return first_pixel(p_.side[kX], false, x_corner(tile));
  }
  __device__ __forceinline__ int y_first(const TileStart& tile) const {
    return first_pixel(p_.side[kY], p_.runs, y_corner(p_.weight, y_, tile));
  }

  const Params& p_;
  const Maps& maps_;
  const WeightScope& at_;
  const Patch &x_, &y_;
  const uint32_t shared_;
  const int warp_;
  Ring come_, asked_, turned_;
  TileStart next_;
};

}  // namespace convt2d::cuda::weft
