// What a block of shuttle works on, and how x and dY come to shared memory.
#pragma once

#include <cuda.h>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/elect.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/shuttle/shuttle_config.h"

namespace convt2d::cuda::shuttle {

// The channels, taps and K tiles of a block.
struct Scope {
  int group, input, output;  // the first channels, of the group's
  int row_unit, kernel_w;    // the first column of taps
  int piece, begin, end;     // K tiles
};
// Neighbouring blocks read the same pixels, at about the same time.
__device__ __forceinline__ Scope scope_of(const Params& p) {
  Digits number{int(blockIdx.x)};
  Scope at;
  at.kernel_w = number.next(p.units_w) * p.unit_w;
  at.row_unit = number.next(p.units_h);
  at.output = number.next(p.column_blocks) * p.y_blocks * kChannels;
  at.input = number.next(p.row_blocks) * p.x_blocks * kChannels;
  at.group = number.next(p.groups);
  at.piece = number.rest;
  const int64_t tiles = int64_t{p.image_groups} * p.strips * p.x_h;
  at.begin = static_cast<int>(tiles * at.piece / p.split);
  at.end = static_cast<int>(tiles * (at.piece + 1) / p.split);
  return at;
}

// A K tile: strip by strip, a row of x after the other. The first one of a strip, or of the block, shares no entries with the
// one before.
struct Walk {
  int image, column, h;
  __device__ __forceinline__ Walk(const Params& p, int tile) {
    const int strip = p.by_rows.quotient(tile), images = p.by_strips.quotient(strip);
    h = tile - strip * p.x_h;
    column = (strip - images * p.strips) * p.tile_w;
    image = images * p.tile_n;
  }
  __device__ __forceinline__ void advance(const Params& p) {
    if (++h == p.x_h) next_strip(p);
  }
  __device__ __forceinline__ void next_strip(const Params& p) {
    h = 0;
    column += p.tile_w;
    if (column >= p.strips * p.tile_w) column = 0, image += p.tile_n;
  }
};

// Barriers of a ring's places: what has come, and after it what has been read.
__device__ __forceinline__ uint32_t stage_full(uint32_t shared, int stage) {
  return shared + stage * 16;
}
__device__ __forceinline__ uint32_t slot_full(uint32_t shared, int slot) {
  return shared + kSlotBarriers + slot * 16;
}

// A row of x of a strip.
__device__ __forceinline__ void ask_for_x(const Params& p, const Scope& at, const CUtensorMap* map,
                                          const Walk& walk, int h, uint32_t shared, int stage) {
  const uint32_t full = stage_full(shared, stage);
  barrier_expect(full, x_stage_bytes(p.x_blocks));
  uint32_t to = shared + kXAt + stage * x_stage_bytes(p.x_blocks);
#pragma unroll 1
  for (int i = 0; i < p.x_blocks; ++i, to += x_stage_bytes(1))
    copy_box(to, map, full, walk.column, at.group * p.rows + at.input + i * kChannels, h,
             walk.image);
}

// What a warp turns at once are parts of an entry: eight channels, and the eight next to them, of a row of dY of all images of a
// tile. Of each eight:
struct Part {
  int number;           // of the map, from the entry's first row and its first column on
  int row, line;        // of dY, from the entry's first; of the map
  int to;               // bytes from the entry's start
  uint32_t map, chunk;  // which map; which 16 bytes of a pixel
};
__device__ __forceinline__ void store_part(uint32_t at, const Part& part) {
  store_shared_16(at, {uint32_t(part.number), uint32_t(part.line), uint32_t(part.to),
                       part.chunk | part.map << 4 | uint32_t(part.row) << 16});
}
__device__ __forceinline__ Part load_part(uint32_t at) {
  uint32_t word[4];
  load_shared_16(at, word);
  return {int(word[0]), int(word[3] >> 16), int(word[1]),
          int(word[2]), word[3] >> 4 & 7,   word[3] & 7};
}

// A warp that turns: strip by strip, parts of entries in order, some asked for ahead. Where there are two sets of such warps, each
// has every second entry.
template <int TURNERS>
class Turner {
 public:
  __device__ __forceinline__ Turner(const Params& p, const Scope& at, const Maps& maps,
                                    uint32_t shared)
      : maps_(maps),
        shared_(shared),
        number_(warp_of_block() % TURNERS),
        set_(number_ / kSetWarps) {
    const int lane = threadIdx.x % 32;
    raw_ = shared + p.raw_at + number_ * kRawStages * kPair * p.raw_bytes;
    notes_ = shared + kNotes + number_ * kNoteBytes;
    const RowUnit& unit = p.row_unit[at.row_unit];
    parts_ = p.y_blocks * unit.residues;
    if (lane < parts_ * kPair) {
      const int part = lane / kPair, residue = part / p.y_blocks,
                block = part - residue * p.y_blocks,
                chunk = number_ % kSetWarps * kPair + lane % kPair;
      const int channel = at.group * p.columns + at.output + block * kChannels + chunk,
                map = channel % kClasses, row = unit.residue[residue];
      store_part(notes_ + kPartsAt + lane * 16,
                 {row * p.y_w + p.lead[map], row, channel / kClasses,
                  part * p.stride_w * p.plane_bytes, uint32_t(map), uint32_t(chunk)});
    }
    if (lane < kRawStages) {
      barrier_init(notes_ + lane * 8, 1);
      fence_for_wgmma();  // and for the copy engine
    }
    __syncwarp();
  }

  // `SIMPLE`: a tile is of one image, and the stride along columns divides 32 pixels.
  template <bool SIMPLE>
  __device__ __forceinline__ void run(const Params& p, const Scope& at) {
    const RowUnit& unit = p.row_unit[at.row_unit];
    const uint32_t parts = notes_ + kPartsAt;
    Walk walk(p, at.begin);
    Ring full, asked, slot, x_ring;
    slot.skip(set_, p.slots);
    int dirty = 0, sides = 0, before_strip = 0;
    for (int tiles = at.end - at.begin; tiles > 0; walk.next_strip(p)) {
      // Rows of x of the strip, or of what the block has of it, and the entries that they read.
      const int rows = min(tiles, p.x_h - walk.h), all = rows + unit.depth - 1;
      tiles -= rows;
      const int column = walk.column * p.stride_w + at.kernel_w * p.dilation_w - p.pad_w;
      // Columns beside dY, before its first one and behind its last, stay zero in slots; those of other strips are cleared.
      const int before = min(max(0, -column), p.patch),
                behind = min(max(0, column + p.patch - p.y_w), p.patch);
      if (sides != (before | behind << 16)) dirty = p.slots;
      sides = before | behind << 16;
      // Of a warp: what it asks for next, and what it turns next; the entry's first row of dY, and the place of its first column.
      struct {
        int entry, part, row, number;
      } next = {kSets == 1 ? 0 : set_ ^ before_strip & 1, 0, (walk.h + unit.low) * p.stride_h, 0},
        here;
      before_strip += all;
      next.row += next.entry * p.stride_h;
      next.number = next.row * p.y_w + column;
      here = next;
      const auto advance = [&](auto& place) {
        if (++place.part < parts_) return;
        place.part = 0;
        place.entry += kSets;
        place.row += kSets * p.stride_h;
        place.number += kSets * p.stride_h * p.y_w;
      };
      // The first set asks for x: what rows of x read whose last entry is one before `end`. Each warp has a stage of its own,
      // since a wait for what another one has asked for could come too late.
      int x_row = 0;
      const auto ask_for_x_until = [&](int end) {
        if (set_ != 0) return;
        for (; x_row < rows && x_row + unit.depth - 1 < end; ++x_row) {
          if (x_ring.stage == number_) {
            barrier_wait(stage_full(shared_, number_) + 8, x_ring.parity ^ 1);
            if (elected()) ask_for_x(p, at, &maps_.x, walk, walk.h + x_row, shared_, number_);
            __syncwarp();
          }
          x_ring.advance(kStages);
        }
      };
      const auto ask = [&] {
        if (elected()) {
          const uint32_t barrier = notes_ + asked.stage * 8;
          barrier_expect(barrier, kPair * p.raw_bytes);
#pragma unroll
          for (int i = 0; i < kPair; ++i) {
            const Part part = load_part(parts + (next.part * kPair + i) * 16);
            copy_box(raw_ + (asked.stage * kPair + i) * p.raw_bytes, &maps_.y[part.map], barrier,
                     number_of(p, part, next.row, next.number) & ~7, part.line, walk.image, 0);
          }
        }
        __syncwarp();
        asked.advance(kRawStages);
        advance(next);
      };
      for (int i = 0; i < kRawStages && next.entry < all; ++i) ask();
#pragma unroll 1
      while (here.entry < all) {
        if (here.part == 0) {
          ask_for_x_until(here.entry + kSets);
          barrier_wait(slot_full(shared_, slot.stage) + 8, slot.parity ^ 1);
        }
        barrier_wait(notes_ + full.stage * 8, full.parity);
        turn<SIMPLE>(p, parts + here.part * kPair * 16, here.row, here.number, before, behind,
                     raw_ + full.stage * kPair * p.raw_bytes,
                     shared_ + p.y_at + slot.stage * p.entry_bytes, dirty > 0);
        if (here.part == parts_ - 1) {
          fence_for_wgmma();
          __syncwarp();
          if (elected()) barrier_arrive(slot_full(shared_, slot.stage));
          for (int i = 0; i < kSets; ++i) slot.advance(p.slots);
          dirty = max(0, dirty - 1);
        } else {
          __syncwarp();  // all have read the part
        }
        full.advance(kRawStages);
        advance(here);
        if (next.entry < all) ask();
      }
      ask_for_x_until(all);
    }
  }

 private:
  static constexpr int kSets = TURNERS / kSetWarps;

  // Of the map, where a part's patch starts.
  static __device__ __forceinline__ int number_of(const Params& p, const Part& part, int row,
                                                  int number) {
    const bool there = static_cast<uint32_t>(row + part.row) < static_cast<uint32_t>(p.y_h);
    return there ? number + part.number : kNowhere;
  }

  // Turns one. Lanes 8 i to 8 i + 7 show where eight pixels of the i-th eight go, or where nobody reads.
  template <bool SIMPLE>
  __device__ __forceinline__ void turn(const Params& p, uint32_t parts, int row, int number,
                                       int before, int behind, uint32_t raw, uint32_t entry,
                                       bool clears) const {
    const int lane = threadIdx.x % 32, room = p.patch - before - behind;
    const uint32_t spare = shared_ + p.spare_at + lane % 8 * 16;
    const auto inside = [&](int place) {
      return static_cast<uint32_t>(place - before) < static_cast<uint32_t>(room);
    };
    // Of an eight of channels: where a pixel's 16 bytes are.
    struct Place {
      uint32_t to, chunk;
      __device__ __forceinline__ uint32_t line_of(const Params& p, int pixel, int residue) const {
        const uint32_t line = to + residue * p.plane_bytes + static_cast<uint32_t>(pixel * 128);
        return line + ((chunk ^ (line >> 7 & 7)) << 4);
      }
      __device__ __forceinline__ uint32_t find(const Params& p, int place) const {
        const int pixel = p.by_stride.quotient(place);
        return line_of(p, pixel, place - pixel * p.stride_w);
      }
    } at[kPair];
    int shift[kPair];
#pragma unroll
    for (int i = 0; i < kPair; ++i) {
      const Part part = load_part(parts + i * 16);
      shift[i] = number_of(p, part, row, number) & 7;
      at[i] = {entry + part.to, part.chunk};
    }
    uint32_t from = raw + lane % 8 * p.raw_pitch + lane / 8 * 16;
#pragma unroll 1
    for (int n = SIMPLE ? 1 : p.tile_n; n > 0; --n) {
      if constexpr (SIMPLE) {
        // 32 pixels on, a place is as far among eight lines as before.
        constexpr int kAtOnce = 3;
        const int step = 32 * 128 >> p.stride_shift;
        int place[kPair];
        uint32_t here[kPair];
#pragma unroll
        for (int i = 0; i < kPair; ++i) {
          place[i] = lane - shift[i];
          here[i] = at[i].line_of(p, place[i] >> p.stride_shift, place[i] & p.stride_w - 1);
        }
#pragma unroll 1
        for (int left = p.patch + max(shift[0], shift[1]); left > 0; left -= 32 * kAtOnce) {
          uint32_t word[kAtOnce][kPair][4];
#pragma unroll
          for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
            for (int i = 0; i < kPair; ++i)
              ldmatrix_x4_turned(word[k][i], from + i * p.raw_bytes + k * 64);
#pragma unroll
          for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
            for (int i = 0; i < kPair; ++i) {
              store_tiles(inside(place[i]) ? here[i] : spare, word[k][i]);
              place[i] += 32, here[i] += step;
            }
          from += kAtOnce * 64;
        }
      } else {
#pragma unroll
        for (int i = 0; i < kPair; ++i) {
          uint32_t source = from + i * p.raw_bytes;
          int place = lane - shift[i];
#pragma unroll 1
          for (int left = p.patch + shift[i]; left > 0; left -= 32, place += 32, source += 64) {
            uint32_t word[4];
            ldmatrix_x4_turned(word, source);
            store_tiles(inside(place) ? at[i].find(p, place) : spare, word);
          }
        }
      }
      if (clears) {
#pragma unroll 1
        for (int k = lane; k < before + behind; k += 32)
#pragma unroll
          for (int i = 0; i < kPair; ++i)
            store_shared_16(at[i].find(p, k < before ? k : max(p.patch + before - 1 - k, 0)),
                            {0, 0, 0, 0});
        __syncwarp();
      }
      from += kClasses * p.raw_pitch;
#pragma unroll
      for (int i = 0; i < kPair; ++i) at[i].to += p.pitch * 128;
    }
  }

  const Maps& maps_;
  const uint32_t shared_;
  const int number_, set_;
  uint32_t raw_, notes_;
  int parts_;
};

}  // namespace convt2d::cuda::shuttle
