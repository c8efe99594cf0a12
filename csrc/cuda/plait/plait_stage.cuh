// Warps that bring: rows of dY to registers, and from there, tap by tap, to where the tensor core finds them.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/plait/plait_scope.cuh"

namespace convt2d::cuda::plait {

// The rows of (channel, kernel row) of a warp, tile after tile and chunk after chunk. Chunks may share a row.
template <int KERNEL>
struct RowWalk {
  int tile, chunk, row, end;

  __device__ __forceinline__ RowWalk(const Params& p, const Scope& at, int first)
      : tile(at.walker), chunk(0) {
    enter(p, first);
  }
  __device__ __forceinline__ bool there(const Params& p) const { return tile < p.tiles; }
  __device__ __forceinline__ bool in_chunk() const { return row < end; }
  __device__ __forceinline__ void enter(const Params& p, int first) {
    row = chunk * kDepth / KERNEL + first;
    end = (chunk_end(p, chunk) - 1) / KERNEL + 1;
  }
  // Whether that is another tile.
  __device__ __forceinline__ bool next_chunk(const Params& p, int first) {
    const bool last = ++chunk == p.chunks;
    if (last) chunk = 0, tile += p.walkers;
    enter(p, first);
    return last;
  }
};

// What a lane's eight of positions reads: tap (0, 0) of the first position.
struct Place {
  int pixel;  // of the group's channel 0, from the beginning of dY
  int y, x;

  __device__ __forceinline__ Place(const Params& p, const Scope& at, int number) {
    const bool there = number < p.eights;
    const Eight eight = eight_of(p, there ? number : 0);
    y = there ? eight.h * p.stride_h - p.pad_h : -(1 << 30);
    x = eight.w * p.stride_w - p.pad_w;
    pixel = (eight.n * p.groups + at.group) * p.reduce * (p.y_h * p.y_w) +
            (there ? y : 0) * p.y_w + x;
  }
};

// A row as loaded, from a multiple of 16 bytes on.
template <int KIND>
using Loaded = uint32_t[vectors_of(kTaps[KIND])][4];

// Where a row of (channel, kernel row) starts for an eight: elements, and whether it exists.
struct RowPlace {
  int element;
  bool there;

  __device__ __forceinline__ RowPlace(const Params& p, const Place& place, int row) {
    const int channel = int(p.by_kernel_h.quotient(uint32_t(row))),
              down = (row - channel * p.kernel_h) * p.dilation_h;
    element = place.pixel + (channel * p.y_h + down) * p.y_w;
    there = channel < p.reduce && uint32_t(place.y + down) < uint32_t(p.y_h);
  }
};

template <int KIND>
__device__ __forceinline__ void load_row(const Params& p, const RowPlace& from,
                                         Loaded<KIND>& loaded) {
  constexpr Taps taps = kTaps[KIND];
  const int vector = from.element >> 3, end = (from.element & 7) + span_of(taps);
  const auto* const source = static_cast<const uint4*>(p.source) + vector;
#pragma unroll
  for (int i = 0; i < vectors_of(taps); ++i) {
    const bool wanted =
        from.there && end > 8 * i && uint32_t(vector + i) < uint32_t(p.vectors);
    load_16_if(source + i, 0, wanted, loaded[i]);
  }
}

// Which elements of a lane's run are of its row of dY: a byte of ones for each that is.
template <int KIND>
using Inside = uint32_t[(words_of(kTaps[KIND]) + 1) / 2];
__device__ __forceinline__ uint32_t first_bytes(int count) {
  return count >= 4 ? 0xffffffffu : (1u << 8 * max(count, 0)) - 1;
}
template <int KIND>
__device__ __forceinline__ void find_inside(const Params& p, int x, Inside<KIND>& inside) {
#pragma unroll
  for (int i = 0; i < int(sizeof(inside) / 4); ++i)
    inside[i] = first_bytes(p.y_w - x - 4 * i) & ~first_bytes(-x - 4 * i);
}

// Moves a row to where its element 0 is the first, clears what is beside it, and writes a run of eight for each tap.
// `k`: of the first tap, in the chunk, of which the first `count` are wanted. `eight`: of 32. `to`: its block.
template <int KIND>
__device__ __forceinline__ void write_row(const Loaded<KIND>& loaded, const Inside<KIND>& inside,
                                          int element, int k, int count, int eight, uint32_t to) {
  constexpr Taps taps = kTaps[KIND];
  constexpr int kWords = words_of(taps), kLast = vectors_of(taps) * 4 - 1;
  const auto word = [&](int i) { return loaded[min(i, kLast) / 4][min(i, kLast) % 4]; };
  uint32_t twos[kWords + 2], ones[kWords + 1], number[kWords];
  const bool by_two = element & 4, by_one = element & 2;
  const uint32_t half = element & 1 ? 0x5432 : 0x3210;
#pragma unroll
  for (int i = 0; i < kWords + 2; ++i) twos[i] = by_two ? word(i + 2) : word(i);
#pragma unroll
  for (int i = 0; i < kWords + 1; ++i) ones[i] = by_one ? twos[i + 1] : twos[i];
#pragma unroll
  for (int i = 0; i < kWords; ++i)
    number[i] = __byte_perm(ones[i], ones[i + 1], half) &
                __byte_perm(inside[i / 2], 0, i % 2 ? 0x3322 : 0x1100);
#pragma unroll
  for (int tap = 0; tap < taps.kernel; ++tap, ++k) {
    uint32_t run[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int a = tap + 2 * i * taps.step, b = a + taps.step;
      run[i] = __byte_perm(number[a / 2], number[b / 2],
                           (a % 2 ? 0x32 : 0x10) | (b % 2 ? 0x7600 : 0x5400));
    }
    if (kDepth % taps.kernel == 0 || uint32_t(k) < uint32_t(count))
      store_shared_16(to + (k >> 3) * kAtomBytes + (k & 7) * 128 + ((eight ^ k) & 7) * 16, run);
  }
}

// Everything that the warps that bring do. `full` ends with all of them, and the weights.
template <int KIND>
__device__ __forceinline__ void bring_kind(const Params& p, const CUtensorMap& map, const Scope& at,
                                           uint32_t shared) {
  constexpr Taps taps = kTaps[KIND];
  constexpr int kAhead = rows_ahead(taps);
  const int warp = (threadIdx.x - kConsumers) / 32, lane = threadIdx.x % 32;
  const int half = p.halves > 1 ? warp & 1 : 0, first = p.halves > 1 ? warp >> 1 : warp,
            step = p.halves > 1 ? kBringWarps / 2 : kBringWarps;
  const int weight_row = at.group * p.columns + at.column_tile * tile_channels(p);
  const int streamed = p.resident ? 0 : weight_bytes(p);
  StageRing ring{shared, shared + p.stages_at, p.stages, p.stage_bytes};
  RowWalk<taps.kernel> walk(p, at, first), ahead = walk;
  const auto place_of = [&](int tile) {
    return Place(p, at, tile * tile_eights(p) + half * kEights + lane);
  };
  Place place = place_of(walk.tile), next = place;
  Inside<KIND> inside;
  find_inside<KIND>(p, place.x, inside);

  const auto begin = [&] {
    barrier_wait(ring.empty(), ring.parity ^ 1);
    if (streamed && warp == 0 && lane == 0) {
      barrier_expect(ring.full(), streamed);
      copy_box(ring.stage(), &map, ring.full(), walk.chunk * kDepth, weight_row, 0, 0);
    }
    __syncwarp();
  };
  const auto end = [&] {
    fence_for_wgmma();
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.full());
    ring.advance();
    if (walk.next_chunk(p, first) && walk.there(p)) {
      place = place_of(walk.tile);
      find_inside<KIND>(p, place.x, inside);
    }
  };
  const auto load_next = [&](Loaded<KIND>& loaded) {
    while (ahead.there(p) && !ahead.in_chunk())
      if (ahead.next_chunk(p, first) && ahead.there(p)) next = place_of(ahead.tile);
    if (!ahead.there(p)) return;
    load_row<KIND>(p, RowPlace(p, next, ahead.row), loaded);
    ahead.row += step;
  };

  Loaded<KIND> loaded[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load_next(loaded[i]);
  if (!walk.there(p)) return;
  begin();
#pragma unroll 1
  for (;;) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      while (!walk.in_chunk()) {
        end();
        if (!walk.there(p)) return;
        begin();
      }
      const RowPlace from(p, place, walk.row);
      const int start = walk.chunk * kDepth;
      write_row<KIND>(loaded[i], inside, from.element, walk.row * taps.kernel - start,
                      chunk_end(p, walk.chunk) - start, lane,
                      ring.stage() + streamed + half * kHalfBytes + (lane >> 3) * kBlockBytes);
      walk.row += step;
      load_next(loaded[i]);
    }
  }
}

}  // namespace convt2d::cuda::plait
