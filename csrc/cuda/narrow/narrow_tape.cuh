// The kernel of narrow's tapes; narrow_tape.h draws the tiling.
//
// Of each team a thread asks the copy engine for chunks of x, in a ring of stages: `full` ends a phase when a chunk has
// arrived, `empty` when every warp of the team has its pixels in registers.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma_few.cuh"
#include "cuda/narrow/narrow_tape_fetch.cuh"
#include "cuda/narrow/narrow_tape_store.cuh"

namespace convt2d::cuda::narrow {

// Walks a team's chunks: stretch by stretch, rows of x, chunks of channels. Rows below x have none.
struct TapeWalk {
  int left;  // rows of the destination that are still to begin
  Stretch at;
  int row, chunk;

  __device__ __forceinline__ void begin(const TapeParams& p, int position) {
    const int line = p.by_rows.quotient(position), group = p.by_sweeps.quotient(line);
    at.n = group * p.images, at.sweep = line - group * p.sweeps;
    enter(p, position - line * p.rows);
  }
  __device__ __forceinline__ void enter(const TapeParams& p, int above) {
    const int count = min(left, p.rows - above);
    left -= count;
    at.row = p.first_row + above, at.end = at.row + count;
    row = max(at.row - p.reach, 0), chunk = 0;
  }
  // The next stretch, if there is one.
  __device__ __forceinline__ bool next(const TapeParams& p) {
    if (left == 0) return false;
    if (++at.sweep == p.sweeps) at.sweep = 0, at.n += p.images;
    enter(p, 0);
    return true;
  }
};

// What a team asks the copy engine for, one chunk after the other.
struct TapeAsk {
  TapeWalk walk;
  bool more;

  // To a stage whose barrier is `full`; false if there is nothing left.
  __device__ __forceinline__ void ask(const TapeParams& p, const CUtensorMap& map, uint32_t to,
                                      uint32_t full) {
    while (more && walk.row >= min(walk.at.end, p.x_h)) more = walk.next(p);
    if (!more) return;
    barrier_expect(full, p.stage_bytes);
    const int first = walk.at.sweep * p.step, numbers = 1 << p.line_bits,
              channel = walk.chunk * p.chunk_slices * slice_channels(p.number_bytes);
    if (p.channels_last) {
      copy_box(to, &map, full, channel, first, walk.row, walk.at.n);
    } else {
      for (int pixel = 0; pixel < p.run; pixel += numbers, to += p.box_bytes)
        copy_box(to, &map, full, first + pixel, channel, walk.row, walk.at.n);
    }
    if (++walk.chunk == p.chunks) walk.chunk = 0, ++walk.row;
  }
};

// Adds the products of a chunk, some slices at a time. The chunk is free when all of it is in registers.
template <class T, int ROW, bool LAST>
__device__ __forceinline__ void multiply_tape(const TapeParams& p,
                                              const TapePlaces<T, kTapes[ROW].reach>& place,
                                              uint32_t x, uint32_t zeros, uint32_t w,
                                              uint32_t empty, TapeSums<ROW>& sum) {
  constexpr Tape tape = kTapes[ROW];
  constexpr int kColumns = tape_columns(tape), kSteps = tape_steps(tape),
                kStored = tape_stored(tape),
                kOperands = kTapeOperands<tape.reach, LAST>, kBatch = kOperands > 8 ? 1 : 2;
  const uint64_t layout = operand_layout(kSteps * kStored * 16, 128);
#pragma unroll 1
  for (int slice = 0; slice < p.chunk_slices; slice += kBatch) {
    uint32_t word[kBatch][kOperands][4];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      fetch_tape<T, tape.reach, LAST>(p, place, x, zeros, slice + i, word[i]);
#pragma unroll
      for (int o = 0; o < kOperands; ++o) computed(word[i][o]);
    }
    const uint64_t weights = operand(layout, w + slice * tape_slice_weights(tape));
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int b = 0; b < 2; ++b)
          WgmmaFetched<T, kColumns>::add(
              sum[b], word[i][tape_operand<LAST>(s, b)],
              advance(weights, (i * 2 * kSteps + s) * kStored));
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int b = 0; b < 2; ++b) finished(sum[b]);
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}

template <class T, int ROW>
__device__ __forceinline__ void follow_tape(const TapeParams& p, const CUtensorMap& map,
                                            uint32_t shared, StageRing& ring, TapeAsk& asked,
                                            TapeWalk& walk) {
  constexpr Tape tape = kTapes[ROW];
  TapePlaces<T, tape.reach> place;
  find_tape<T, tape.reach>(p, place);
  TapePairs<ROW> pairs;
  find_pairs<T, ROW>(p, pairs);
  const uint32_t chunk_weights = p.chunk_slices * tape_slice_weights(tape);
  do {
    TapeSums<ROW> sum;
    clear(sum);
    bool second = false;  // of two rows between which nothing moves up
#pragma unroll 1
    for (int row = walk.row; row < walk.at.end; ++row) {
      if (row < p.x_h) {
#pragma unroll 1
        for (int chunk = 0; chunk < p.chunks; ++chunk) {
          const uint32_t w =
              shared + p.weights_at + chunk * chunk_weights + (second ? 0 : tape_spare(tape) * 16);
          barrier_wait(ring.full(), ring.parity);
          if (p.channels_last) {
            multiply_tape<T, ROW, true>(p, place, ring.stage(), shared + p.zeros_at, w,
                                        ring.empty(), sum);
          } else {
            multiply_tape<T, ROW, false>(p, place, ring.stage(), shared + p.zeros_at, w,
                                         ring.empty(), sum);
          }
          if (threadIdx.x % kTeamThreads == 0 && asked.more) {
            barrier_wait(ring.empty(), ring.parity);
            asked.ask(p, map, ring.stage(), ring.full());
          }
          __syncwarp();
          ring.advance();
        }
      }
      if (row >= walk.at.row) store_tape<T, ROW>(p, walk.at, row, second, pairs, sum);
      move_up<ROW>(second, sum);
      if (tape_spare(tape)) second = !second;
    }
  } while (walk.next(p));
}

template <class T, int ROW>
__global__ void __launch_bounds__(kTapes[ROW].teams* kTeamThreads, 1)
    convt2d_narrow_tape_kernel(const __grid_constant__ TapeParams p,
                               const __grid_constant__ CUtensorMap map) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const int team = __shfl_sync(0xffffffff, int(threadIdx.x) / kTeamThreads, 0),
            strand = blockIdx.x * p.teams + team;
  StageRing ring{shared + team * kMostTapeStages * 16,
                 shared + p.stages_at + team * p.stages * p.stage_bytes, p.stages, p.stage_bytes};
  TapeWalk walk;
  walk.left = strand < p.strands ? p.strand_rows + (strand < p.longer) : 0;
  const bool busy = walk.left > 0;
  if (busy) walk.begin(p, strand * p.strand_rows + min(strand, p.longer));
  TapeAsk asked{walk, busy};
  bring_tape_weights<T, ROW>(p, shared, [&] {
    if (threadIdx.x % kTeamThreads != 0) return;
#pragma unroll 1
    for (int i = 0; i < p.stages; ++i) {
      barrier_init(ring.barriers + i * 16, 1);
      barrier_init(ring.barriers + i * 16 + 8, kTeamThreads / 32);
    }
    fence_for_wgmma();  // for the copy engine
#pragma unroll 1
    for (int i = 0; i < p.stages; ++i)
      asked.ask(p, map, ring.stages + i * p.stage_bytes, ring.barriers + i * 16);
  });
  if (threadIdx.x < 8) store_shared_16(shared + p.zeros_at + threadIdx.x * 16, {0, 0, 0, 0});
  fence_for_wgmma();
  __syncthreads();
  if (busy) follow_tape<T, ROW>(p, map, shared, ring, asked, walk);
#endif
}

}  // namespace convt2d::cuda::narrow
