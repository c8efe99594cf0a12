// Warps that sort: rows of raw dY to registers, and from there, tap by tap, to where the tensor core finds them.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/plait/plait_raw.cuh"

namespace convt2d::cuda::plait {

// A row as loaded, from a multiple of 16 bytes on, and where its run starts, which tells how to move it.
template <int KIND>
struct Loaded {
  uint32_t vector[vectors_of(kTaps[KIND])][4];
  uint32_t from;
};

// `from`: shared address.
template <int KIND>
__device__ __forceinline__ void load_row(uint32_t from, Loaded<KIND>& loaded) {
  constexpr Taps taps = kTaps[KIND];
  loaded.from = from;
  const int end = (taps.lead < 0 ? int(from >> 1 & 7) : taps.lead) + span_of(taps);
  const uint32_t vector = from & ~15u;
#pragma unroll
  for (int i = 0; i < vectors_of(taps); ++i)
    if (taps.lead >= 0 || span_of(taps) > 8 * i || end > 8 * i)
      load_shared_16(vector + 16 * i, loaded.vector[i]);
}

// Which elements of a lane's run are of its row of dY: ones for those.
template <int KIND>
using Inside = uint32_t[words_of(kTaps[KIND])];
template <int KIND>
__device__ __forceinline__ void find_inside(const Params& p, int x, Inside<KIND>& inside) {
#pragma unroll
  for (int i = 0; i < words_of(kTaps[KIND]); ++i)
    inside[i] = (uint32_t(x + 2 * i) < uint32_t(p.y_w) ? 0xffffu : 0) |
                (uint32_t(x + 2 * i + 1) < uint32_t(p.y_w) ? 0xffff0000u : 0);
}

// Moves a row to where its element 0 is the first, clears what is beside it, and writes a run of eight for each tap.
// `k`: of the first tap, in the chunk, of which the first `count` are wanted. `eight`: of 32. `to`: its block.
template <int KIND>
__device__ __forceinline__ void write_row(const Loaded<KIND>& loaded, const Inside<KIND>& inside,
                                          int k, int count, int eight, uint32_t to) {
  constexpr Taps taps = kTaps[KIND];
  constexpr int kWords = words_of(taps), kLast = vectors_of(taps) * 4 - 1;
  const auto word = [&](int i) { return loaded.vector[min(i, kLast) / 4][min(i, kLast) % 4]; };
  uint32_t number[kWords];
  if constexpr (taps.lead >= 0) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int first = taps.lead / 2 + i;
      number[i] = taps.lead % 2 ? __byte_perm(word(first), word(first + 1), 0x5432) : word(first);
    }
  } else {
    uint32_t twos[kWords + 2], ones[kWords + 1];
    const bool by_two = loaded.from & 8, by_one = loaded.from & 4;
    const uint32_t half = loaded.from & 2 ? 0x5432 : 0x3210;
#pragma unroll
    for (int i = 0; i < kWords + 2; ++i) twos[i] = by_two ? word(i + 2) : word(i);
#pragma unroll
    for (int i = 0; i < kWords + 1; ++i) ones[i] = by_one ? twos[i + 1] : twos[i];
#pragma unroll
    for (int i = 0; i < kWords; ++i) number[i] = __byte_perm(ones[i], ones[i + 1], half);
  }
#pragma unroll
  for (int i = 0; i < kWords; ++i) number[i] &= inside[i];
  static_assert(kAtomBytes == 8 * 128);
  const auto place = [&](int of_chunk) {
    return to + of_chunk * 128 + ((eight * 16 ^ of_chunk * 16) & 0x70);
  };
  // Where a kernel row starts at a multiple of its taps, these differ in the last bits.
  constexpr bool kWhole = kDepth % taps.kernel == 0;
  const uint32_t first = place(k);
#pragma unroll
  for (int tap = 0; tap < taps.kernel; ++tap) {
    uint32_t run[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int a = tap + 2 * i * taps.step, b = a + taps.step;
      run[i] = __byte_perm(number[a / 2], number[b / 2],
                           (a % 2 ? 0x32 : 0x10) | (b % 2 ? 0x7600 : 0x5400));
    }
    if constexpr (kWhole) {
      store_shared_16((first ^ tap * 16) + tap * 128, run);
    } else if (uint32_t(k + tap) < uint32_t(count)) {
      store_shared_16(place(k + tap), run);
    }
  }
}

// The rows of a warp in a chunk of K: of (channel, kernel row), of 32 eights; or PAIRED, of (channel, row of dY), of eight,
// four at a time. `number`: which of the warp's. Warps take turns at the rows that are left over.
template <int KIND, bool PAIRED>
struct ChunkRows {
  static constexpr Taps taps = kTaps[KIND];
  static constexpr int kLeftOver = PAIRED ? 2 : 0;
  int first, step;  // of this warp: numbers of the block; a power of two
  // Kept: what followed from threadIdx.x was found again for each run that is written.
  uint32_t lane;

  __device__ __forceinline__ ChunkRows(int first, int step) : first(first), step(step) {
    lane = threadIdx.x % 32;
    keep_in_register(lane);
  }
  __device__ __forceinline__ int eight() const { return PAIRED ? lane & 7 : lane; }
  __device__ __forceinline__ int row(int chunk, int number) const {
    const int of_block = ((first + chunk / kTeams * kLeftOver) & (step - 1)) + number * step;
    return PAIRED ? of_block * 4 + int(lane >> 3) : chunk * kDepth / taps.kernel + of_block;
  }
  __device__ __forceinline__ int end(const Params& p, int chunk) const {
    const int k = chunk_end(p, chunk);
    return PAIRED ? (k - chunk * kDepth) / 16 * (kPairs * 2) : (k - 1) / taps.kernel + 1;
  }
  // Where a row is, of what starts at `base` for channel 0 and has its first row at `y`.
  __device__ __forceinline__ uint32_t place(const Params& p, int chunk, int y, uint32_t base,
                                            uint32_t zeros, int row) const {
    int channel, down;
    if (PAIRED) {
      channel = row / (kPairs * 2);
      down = row - channel * (kPairs * 2);
      channel += chunk * kPairedChannels;
    } else {
      channel = int(p.by_kernel_h.quotient(uint32_t(row)));
      down = (row - channel * p.kernel_h) * p.dilation_h;
    }
    const bool there = channel < p.reduce && uint32_t(y + down) < uint32_t(p.y_h);
    return there ? base + channel * p.raw_channel + down * p.raw_row : zeros;
  }
  // `to`: of this lane, without the row.
  __device__ __forceinline__ void write(const Params& p, const Loaded<KIND>& loaded,
                                        const Inside<KIND>& inside, int chunk, int row,
                                        uint32_t to) const {
    if (PAIRED) {
      const int channel = row / (kPairs * 2), down = row - channel * (kPairs * 2);
      write_row<KIND>(loaded, inside, down % 2 * kPairedTaps, 8, eight(),
                      to + channel * kPairedSlice + down / 2 * kAtomBytes);
    } else {
      const int start = chunk * kDepth;
      write_row<KIND>(loaded, inside, row * taps.kernel - start, chunk_end(p, chunk) - start,
                      eight(), to + (eight() >> 3) * kBlockBytes);
    }
  }
};

// Everything that the warps that sort do, by teams. `full` ends with all of a team, and the weights.
template <int KIND, bool PAIRED>
__device__ __forceinline__ void bring_kind(const Params& p, const Maps& maps, const Scope& at,
                                           uint32_t shared) {
  constexpr int kBatch = batch_of(kTaps[KIND], PAIRED);
  const int warp = (threadIdx.x - kConsumers) / 32, lane = threadIdx.x % 32;
  const int half = p.halves > 1 ? warp & 1 : 0, shift = p.halves > 1 ? 1 : 0;
  const ChunkRows<KIND, PAIRED> rows(warp % kTeamWarps >> shift, kTeamWarps >> shift);
  const int streamed = p.resident ? 0 : weight_bytes(p);
  StageRing ring{shared, shared + p.stages_at, p.stages, p.stage_bytes};
  StageRing raw{shared + kRawBarriers, shared + p.raw_at, p.raw_stages, p.raw_stage_bytes};
  int number = 0, tile = at.walker, chunk = 0;
  const auto advance = [&] {
    ++number;
    raw.advance();
    ring.advance();
    if (++chunk == p.chunks) chunk = 0, tile += p.walkers;
  };
  if (warp >= kTeamWarps) advance();
  const auto place_of = [&] {
    return Place(p, at, tile, tile * tile_eights(p) + half * kEights + rows.eight());
  };
  // A block's first tile exists, the team's first chunk may not.
  if (tile >= p.tiles) return ask_ahead(p, maps, at, warp, number, tile, chunk, raw);
  Place place = place_of();
  Inside<KIND> inside;
  find_inside<KIND>(p, place.x, inside);
#pragma unroll 1
  for (int placed = tile; tile < p.tiles;) {
    if (tile != placed) {
      placed = tile;
      place = place_of();
      find_inside<KIND>(p, place.x, inside);
    }
    ask_ahead(p, maps, at, warp, number, tile, chunk, raw);
    barrier_wait(ring.empty(), ring.parity ^ 1);
    if (streamed && warp % kTeamWarps == 0 && lane == 0) {
      barrier_expect(ring.full(), streamed);
      copy_box(ring.stage(), &maps.weight, ring.full(), chunk * kDepth,
               at.group * p.columns + at.column_tile * tile_channels(p), 0, 0);
    }
    __syncwarp();
    barrier_wait(raw.full(), raw.parity);
    const int end = rows.end(p, chunk), first = first_channel(p, chunk);
    const uint32_t to = ring.stage() + streamed + half * p.half_bytes,
                   base = raw.stage() + ((place.origin + channel_place(p, first)) & 15) +
                          place.address - first * p.raw_channel;
#pragma unroll 1
    for (int number = 0; rows.row(chunk, number) < end; number += kBatch) {
      Loaded<KIND> loaded[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = rows.row(chunk, number + i);
        if (row < end)
          load_row<KIND>(rows.place(p, chunk, place.y, base, shared + kZerosAt, row), loaded[i]);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = rows.row(chunk, number + i);
        if (row < end) rows.write(p, loaded[i], inside, chunk, row, to);
      }
    }
    fence_for_wgmma();
    __syncwarp();
    if (lane == 0) {
      barrier_arrive(raw.empty());
      barrier_arrive(ring.full());
    }
    for (int i = 0; i < kTeams; ++i) advance();
  }
}

// The same where taps are rows of dY: one thread asks for blocks of 64 positions. `full` ends with what it asks for.
__device__ __forceinline__ void copy_rows(const Params& p, const Maps& maps, const Scope& at,
                                          uint32_t shared) {
  const int weight_row = at.group * p.columns + at.column_tile * tile_channels(p);
  const int streamed = p.resident ? 0 : weight_bytes(p), channels = kDepth / p.kernel_h;
  StageRing ring{shared, shared + p.stages_at, p.stages, p.stage_bytes};
#pragma unroll 1
  for (int tile = at.walker; tile < p.tiles; tile += p.walkers)
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), streamed + p.halves * kHalfBytes);
      if (streamed)
        copy_box(ring.stage(), &maps.weight, ring.full(), chunk * kDepth, weight_row, 0, 0);
#pragma unroll 1
      for (int block = 0; block < p.halves * (kColumns / kBlock); ++block) {
        const int number = tile * tile_eights(p) + block * (kBlock / kEight);
        const Eight eight = eight_of(p, min(number, p.eights - 1));
        copy_box(ring.stage() + streamed + block * kBlockBytes, &maps.source, ring.full(), eight.w,
                 eight.h * p.stride_h - p.pad_h, at.group * p.reduce + chunk * channels, eight.n);
      }
    }
}

}  // namespace convt2d::cuda::plait
