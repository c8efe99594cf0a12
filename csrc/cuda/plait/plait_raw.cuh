// What a tile reads of dY, as it lies in memory: who asks the copy engine for it, and where it is found.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/plait/plait_scope.cuh"

namespace convt2d::cuda::plait {

// Of a chunk of K, the channels.
__device__ __forceinline__ int first_channel(const Params& p, int chunk) {
  return int(p.by_taps.quotient(uint32_t(chunk * kDepth)));
}
__device__ __forceinline__ int channels_end(const Params& p, int chunk) {
  return min(p.reduce, int(p.by_taps.quotient(uint32_t((chunk + 1) * kDepth - 1))) + 1);
}

// The first of a segment: image, row and column of dY, of which those before the plane are counted too; and how many rows of
// dY there are, from there on. `offset`: from the beginning of a stage.
struct Segment {
  int n, y, x, rows, offset;

  // `first` and `last`: eights of the tile.
  __device__ __forceinline__ Segment(const Params& p, const Eight& first, const Eight& last,
                                     int segment)
      : n(int(p.by_strips.quotient(uint32_t(segment)))), x(0) {
    const int strip = int(p.by_beside.quotient(uint32_t(segment))),
              from = strip == first.strip ? first.h : 0,
              to = strip == last.strip ? last.h : p.x_h - 1,
              more = (p.kernel_h - 1) * p.dilation_h + 1;
    y = p.raw == kPlanes ? 0 : from * p.stride_h - p.pad_h;
    rows = p.raw == kPlanes ? p.y_h : (to - from) * p.stride_h + more;
    if (p.raw == kBoxes)
      x = ((segment - n * p.strips) * p.strip_eights * kEight * p.stride_w - p.pad_w) & -kEight;
    if (p.raw != kRuns) {
      offset = (segment - first.strip * p.beside) * p.raw_segment_bytes;
      return;
    }
    // Those before it, of the strip and of others; whole ones have `p.raw_segment_bytes`.
    const auto bytes_of = [&](int some) { return some * p.raw_row + 30 + 15 & -16; };
    offset = (segment - strip * p.beside) * bytes_of(rows);
    if (strip > first.strip)
      offset += p.beside * (bytes_of((p.x_h - 1 - first.h) * p.stride_h + more) +
                            (strip - first.strip - 1) * p.raw_segment_bytes);
  }
  // Of channel 0, from the beginning of dY, in bytes; where a box starts does not matter.
  __device__ __forceinline__ uint32_t place(const Params& p, const Scope& at) const {
    return p.raw == kBoxes
               ? 0
               : 2 * uint32_t(((n * p.groups + at.group) * p.reduce * p.y_h + y) * p.y_w);
  }
};
__device__ __forceinline__ uint32_t channel_place(const Params& p, int channel) {
  return p.raw == kBoxes ? 0 : 2 * uint32_t(channel * (p.y_h * p.y_w));
}

// A warp asks for a chunk of a tile, each lane for some pieces.
__device__ __forceinline__ void ask_raw(const Params& p, const Maps& maps, const Scope& at,
                                        int tile, int chunk, const StageRing& raw) {
  const int lane = threadIdx.x % 32;
  const Eight first = eight_of(p, tile * tile_eights(p)),
              last = eight_of(p, min((tile + 1) * tile_eights(p), p.eights) - 1);
  const int channel = first_channel(p, chunk), channels = channels_end(p, chunk) - channel;
  const int first_segment = first.strip * p.beside,
            end_segment = min((last.strip + 1) * p.beside, p.batch * p.strips);
  const int of_segment = p.raw == kRuns ? channels : 1,
            pieces = (end_segment - first_segment) * of_segment;
  // Bytes of a piece, where they start in dY, and whereto they go.
  struct Piece {
    uint32_t from, to;
    int bytes;
  };
  const auto piece_of = [&](const Segment& segment, int rest) -> Piece {
    const uint32_t to = raw.stage() + segment.offset;
    if (p.raw == kBoxes) return {0, to, p.raw_box_bytes};
    const uint32_t all = segment.place(p, at) + channel_place(p, channel);
    const int line = p.y_w * 2, before = max(0, -segment.y),
              end = min(segment.rows, p.y_h - segment.y);
    const uint32_t from = all + channel_place(p, rest) + before * line;
    const int bytes = p.raw == kPlanes ? channels * p.y_h * line : (end - before) * line;
    if (bytes <= 0) return {0, to, 0};
    // Whole 16 bytes.
    const uint32_t begin = from & ~15u;
    return {begin, to + (all & 15) + rest * p.raw_channel + before * line - (from - begin),
            int((from + bytes + 15 & ~15u) - begin)};
  };
  const auto each = [&](auto&& use) {
#pragma unroll 1
    for (int number = lane; number < pieces; number += 32) {
      const int which = number / of_segment;
      const Segment segment(p, first, last, first_segment + which);
      use(segment, piece_of(segment, number - which * of_segment));
    }
  };
  int bytes = 0;
  each([&](const Segment&, const Piece& piece) { bytes += piece.bytes; });
  barrier_wait(raw.empty(), raw.parity ^ 1);
  barrier_expect(raw.full(), bytes);
  each([&](const Segment& segment, const Piece& piece) {
    if (p.raw == kBoxes)
      copy_box(piece.to, &maps.source, raw.full(), segment.x, segment.y,
               at.group * p.reduce + channel, segment.n);
    else if (piece.bytes > 0)
      copy_run(piece.to, static_cast<const char*>(p.source) + piece.from, piece.bytes, raw.full());
  });
}

// Where a lane's eight finds what it reads: tap (0, 0) of the first position, of the first channel.
struct Place {
  int y, x;          // of dY
  uint32_t origin;   // bytes of dY before the segment, which tell where it starts among 16
  uint32_t address;  // from the beginning of a stage

  __device__ __forceinline__ Place(const Params& p, const Scope& at, int tile, int number) {
    const int eights = tile * tile_eights(p);
    const Eight first = eight_of(p, eights),
                last = eight_of(p, min(eights + tile_eights(p), p.eights) - 1);
    Eight eight = eight_of(p, min(number, p.eights - 1));
    const bool there = number < p.eights && eight.there(p);
    if (!there) eight = first;
    const Segment segment(p, first, last, eight.segment);
    y = eight.h * p.stride_h - p.pad_h;
    x = eight.w * p.stride_w - p.pad_w;
    origin = segment.place(p, at);
    address = segment.offset + (y - segment.y) * p.raw_row + (x - segment.x) * 2;
    if (!there) y = -(1 << 30);
  }
};

// Teams of warps sort chunks by turns, and their warps ask by turns for that which is `p.raw_stages` - 2 further on: it comes to
// the stage of what the team did last. `number`: of the chunk, of all of the block; before a team's first, all take part in
// asking for those between.
__device__ __forceinline__ void ask_ahead(const Params& p, const Maps& maps, const Scope& at,
                                          int warp, int number, int tile, int chunk,
                                          StageRing raw) {
  const int ahead = p.raw_stages - 2;
  bool mine;
  if (number < kTeams) {
    // Chunks from the block's first on.
    raw.index = warp;
    raw.parity = 0;
    tile = at.walker;
    chunk = warp;
    mine = warp < ahead + kTeams;
  } else {
    raw.index += ahead;
    if (raw.index >= raw.count) raw.index -= raw.count, raw.parity ^= 1;
    chunk += ahead;
    mine = (number / kTeams & kTeamWarps - 1) == warp % kTeamWarps;
  }
  if (mine) {
    while (chunk >= p.chunks) chunk -= p.chunks, tile += p.walkers;
    if (tile < p.tiles) ask_raw(p, maps, at, tile, chunk, raw);
  }
  __syncwarp();
}

}  // namespace convt2d::cuda::plait
