// The kernel of strand's windows; strand_windows.h draws its operands.
//
// One thread asks the copy engine for units, in a ring of stages: `full` ends a phase when a unit has arrived, `empty` when
// every warp has multiplied its steps of it.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/strand/strand_store.cuh"
#include "cuda/strand/strand_windows.h"

namespace convt2d::cuda::strand {

// What a block works on: the first of the tile, and its units.
struct WindowScope {
  int column, h, w, image;
  int begin, end;
};
__device__ __forceinline__ WindowScope window_scope(const WindowParams& p, int positions) {
  Digits number{int(blockIdx.x)};
  const int rank = blockIdx.y;
  WindowScope at;
  at.column = number.next(p.column_tiles) * kWindowColumns;
  at.w = number.next(p.tiles_w) << p.width_bits;
  at.h = number.next(p.tiles_h) * (positions >> p.width_bits);
  at.image = number.rest;
  at.begin = p.units * rank / p.ranks;
  at.end = p.units * (rank + 1) / p.ranks;
  return at;
}

// Asks for a unit.
__device__ __forceinline__ void ask_for_unit(const WindowParams& p, const WindowScope& at, int unit,
                                             const CUtensorMap& source, const CUtensorMap& weights,
                                             uint32_t stage, uint32_t full) {
  const int outer = p.by_remainders.quotient(unit), remainder = unit - outer * p.remainders;
  const int plane = outer * p.planes, row = p.shift + remainder;
  const int more = row >= p.base.stride_h;
  barrier_expect(full, p.asked_bytes);
  copy_box(stage, &source, full, 0, at.w * p.hop - p.skipped, plane + at.image * p.image_planes,
           row - (more ? p.base.stride_h : 0), at.h + at.image * p.image_steps - p.before + more);
  copy_box(stage + p.weights_at, &weights, full, 0, at.column, remainder * p.across, plane, 0);
}

// Where the copy engine puts the 16 bytes of that address.
__device__ __forceinline__ uint32_t swizzled(uint32_t address, uint32_t mask) {
  return address ^ (address >> 3 & mask);
}

template <int SIXTEENS>
using WindowSums = float[SIXTEENS][kWindowColumns / 8][4];

// A lane's places in a stage for a step: of its positions, and of channels 0 to 15 and 16 to 23.
template <int SIXTEENS>
struct WindowPlaces {
  uint32_t position[SIXTEENS], channel[2];
};

// Those of the step whose operands are at `of[0]` and `of[1]`. A stage begins at a multiple of 1024 bytes, so the swizzle goes by
// what is added to that.
template <int SIXTEENS>
__device__ __forceinline__ WindowPlaces<SIXTEENS> places_of_step(
    const WindowPlaces<SIXTEENS>& first, const uint32_t (&of)[2], uint32_t mask) {
  WindowPlaces<SIXTEENS> found;
#pragma unroll
  for (int i = 0; i < SIXTEENS; ++i) found.position[i] = swizzled(of[0] + first.position[i], mask);
#pragma unroll
  for (int i = 0; i < 2; ++i) found.channel[i] = swizzled(of[1] + first.channel[i], mask);
  return found;
}

// sum += of a step.
template <class M, int SIXTEENS>
__device__ __forceinline__ void multiply_windows(WindowSums<SIXTEENS>& sum, uint32_t stage,
                                                 const WindowPlaces<SIXTEENS>& at) {
  constexpr int kN = kWindowColumns / 8;
  uint32_t column[kN][2];
  {
    uint32_t four[4];
    ldmatrix_x4(four, stage + at.channel[0]);
    column[0][0] = four[0], column[0][1] = four[1];
    column[1][0] = four[2], column[1][1] = four[3];
    ldmatrix_x2(column[2][0], column[2][1], stage + at.channel[1]);
  }
  if constexpr (M::kSplit) {
    uint32_t low[kN][2];
#pragma unroll
    for (int j = 0; j < kN; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) M::split(column[j][half], column[j][half], low[j][half]);
#pragma unroll
    for (int i = 0; i < SIXTEENS; ++i) {
      uint32_t row[4], rest[4];
      ldmatrix_x4(row, stage + at.position[i]);
#pragma unroll
      for (int w = 0; w < 4; ++w) M::split(row[w], row[w], rest[w]);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        M::mma(sum[i][j], rest, column[j][0], column[j][1]);
        M::mma(sum[i][j], row, low[j][0], low[j][1]);
        M::mma(sum[i][j], row, column[j][0], column[j][1]);
      }
    }
  } else {  // the copy engine has rounded
#pragma unroll
    for (int i = 0; i < SIXTEENS; ++i) {
      uint32_t row[4];
      ldmatrix_x4(row, stage + at.position[i]);
#pragma unroll
      for (int j = 0; j < kN; ++j) M::mma(sum[i][j], row, column[j][0], column[j][1]);
    }
  }
}

// `few` to `all`, and from zero again.
template <int SIXTEENS>
__device__ __forceinline__ void fold_windows(WindowSums<SIXTEENS>& few, WindowSums<SIXTEENS>& all) {
#pragma unroll
  for (int i = 0; i < SIXTEENS; ++i)
#pragma unroll
    for (int j = 0; j < kWindowColumns / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        all[i][j][e] += few[i][j][e];
        few[i][j][e] = 0;
      }
}

// Four neighbouring channels of a position of the tile.
template <class M>
__device__ __forceinline__ void store_window(const WindowParams& p, const WindowScope& at,
                                             int position, int channel,
                                             const float (&value)[kTogether]) {
  using T = typename M::Element;
  const int h = at.h + (position >> p.width_bits);
  const int w = at.w + (position & ((1 << p.width_bits) - 1));
  if (h >= p.x_h || w >= p.x_w) return;
  const int pixel = h * p.x_w + w, first = at.column + channel;
  T* const to = static_cast<T*>(p.base.destination) +
                (int64_t{at.image} * p.base.x_image + int64_t{pixel} * p.base.x_pixel);
#pragma unroll
  for (int i = 0; i < kTogether; ++i)
    if (first + i < p.base.rows) {
      float sum = value[i];
      if (sum != sum)
        sum = sum_with_care<M>(p.base, Scope{}, first + i, at.image * p.x_h * p.x_w + pixel);
      store(to + int64_t{first + i} * p.base.x_channel, sum);
    }
}

// The sums of teams, then of ranks, in a fixed order. A rank sends each other one what that adds and stores. All threads come
// here.
template <class M, int POSITIONS>
__device__ __forceinline__ void add_and_store_windows(const WindowParams& p, const WindowScope& at,
                                                      uint32_t sums, uint32_t received) {
  constexpr int kTeams = window_teams(POSITIONS, M::kSplit);
  constexpr int kItems = POSITIONS * kWindowColumns / kTogether;
  constexpr int kOfLine = kWindowColumns / kTogether;
  const int rank = blockIdx.y, share = p.by_share.divisor;
  const auto place = [&](int of, int i) { return received + 16 + (of * share + i) * 16; };
  // So many rows of fours, `apart` bytes, added.
  const auto add = [](uint32_t first, int count, int apart, float (&value)[kTogether]) {
#pragma unroll 8
    for (int r = 0; r < count; ++r) {
      uint32_t word[kTogether];
      load_shared_16(first + r * apart, word);
#pragma unroll
      for (int n = 0; n < kTogether; ++n) value[n] += __uint_as_float(word[n]);
    }
  };
  if (p.ranks > 1) cluster_wait();  // the others are there
#pragma unroll 1
  for (int i = threadIdx.x; i < kItems; i += kWindowThreads) {
    float value[kTogether] = {};
    add(sums + i * 16, kTeams, window_sum_bytes(POSITIONS), value);
    if (p.ranks > 1) {
      const int to = p.by_share.quotient(i);
      send_to_rank(place_of_rank(place(rank, i - to * share), to),
                   {__float_as_uint(value[0]), __float_as_uint(value[1]), __float_as_uint(value[2]),
                    __float_as_uint(value[3])},
                   place_of_rank(received, to));
    } else {
      store_window<M>(p, at, i / kOfLine, i % kOfLine * kTogether, value);
    }
  }
  if (p.ranks == 1) return;
  barrier_wait(received, 0);
  const int first = rank * share;
#pragma unroll 1
  for (int i = threadIdx.x; i < min(share, kItems - first); i += kWindowThreads) {
    float value[kTogether] = {};
    add(place(0, i), p.ranks, share * 16, value);
    store_window<M>(p, at, (first + i) / kOfLine, (first + i) % kOfLine * kTogether, value);
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kWindowThreads, 1)
    convt2d_strand_windows_kernel(const __grid_constant__ WindowParams p,
                                  const __grid_constant__ CUtensorMap source,
                                  const __grid_constant__ CUtensorMap weights) {
#ifdef CONVT2D_HAS_WGMMA
  constexpr int kPositions = kWindowPositions[ROW];
  constexpr int kSixteens = window_sixteens(kPositions, M::kSplit);
  constexpr int kTeams = window_teams(kPositions, M::kSplit);
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem), stages = shared + p.stages_at,
                 received = shared + p.received_at;
  const WindowScope at = window_scope(p, kPositions);
  const auto full = [&](int stage) { return shared + stage * 16; };
  const auto ask = [&](int unit, int stage) {
    ask_for_unit(p, at, unit, source, weights, stages + stage * p.stage_bytes, full(stage));
  };
  if (threadIdx.x == kWindowConsumers) {
    prefetch_map(&source);
    prefetch_map(&weights);
#pragma unroll 1
    for (int i = 0; i < p.stages; ++i) {
      barrier_init(full(i), 1);
      barrier_init(full(i) + 8, kWindowWarps);
    }
    fence_for_wgmma();  // for the copy engine
    if (p.ranks > 1) {
      constexpr int kItems = kPositions * kWindowColumns / kTogether;
      const int share = p.by_share.divisor, mine = kItems - int(blockIdx.y) * share;
      barrier_init(received, 1);
      show_barriers_to_cluster();
      barrier_expect(received, max(0, min(share, mine)) * p.ranks * 16);
    }
#pragma unroll 1
    for (int i = 0; i < p.stages && at.begin + i < at.end; ++i) ask(at.begin + i, i);
  } else {
    // The steps of a unit: where their 32 bytes of dY and of weights are.
#pragma unroll 1
    for (int i = threadIdx.x; i < p.steps; i += kWindowConsumers) {
      Digits number{i};
      const int part = number.next(p.segment / kStep) * kStep, across = number.next(p.across);
      const int down = number.next(p.down), plane = number.rest;
      store_shared_4(shared + p.table_at + i * 8,
                     down * p.row_bytes + (plane * p.segments + across) * p.segment + part);
      store_shared_4(shared + p.table_at + i * 8 + 4,
                     p.weights_at + down * p.weight_bytes +
                         (plane * p.across + across) * kWindowColumns * p.segment + part);
    }
  }
  __syncthreads();
  if (p.ranks > 1) cluster_arrive_as_reader();  // what others may send to is there
  if (threadIdx.x >= kWindowConsumers) {
    if (threadIdx.x == kWindowConsumers) {
      Ring ring;
#pragma unroll 1
      for (int unit = at.begin + p.stages; unit < at.end; ++unit) {
        barrier_wait(full(ring.stage) + 8, ring.parity);
        ask(unit, ring.stage);
        ring.advance(p.stages);
      }
    }
    __syncwarp();
    __syncthreads();  // sums may be written where units were
    __syncthreads();
  } else {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int team = warp % kTeams, first = warp / kTeams * kSixteens * 16;
    const uint32_t mask = p.segment - 16;
    WindowPlaces<kSixteens> lanes, here;
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
      const int number = first + i * 16 + lane % 16;
      lanes.position[i] = (number >> p.width_bits) * p.row_bytes +
                          (number & ((1 << p.width_bits) - 1)) * p.hop * p.segment + lane / 16 * 16;
    }
    lanes.channel[0] = (lane / 16 * 8 + lane % 8) * p.segment + lane / 8 % 2 * 16;
    lanes.channel[1] = (16 + lane % 8) * p.segment + lane / 8 % 2 * 16;
    const uint32_t table = shared + p.table_at;
    const auto look_up = [&](int step) {
      uint32_t of[2];
      load_shared_8(table + step * 8, of);
      return places_of_step<kSixteens>(lanes, of, mask);
    };
    // A team's one step of a unit lies at the same places in all of them.
    const bool one = p.steps <= kTeams;
    if (one && team < p.steps) here = look_up(team);
    WindowSums<kSixteens> sum = {}, few = {};
    Ring ring;
    int added = 0;
#pragma unroll 1
    for (int unit = at.begin; unit < at.end; ++unit) {
      barrier_wait(full(ring.stage), ring.parity);
      const uint32_t stage = stages + ring.stage * p.stage_bytes;
#pragma unroll 1
      for (int step = team; step < p.steps; step += kTeams) {
        if (!one) here = look_up(step);
        multiply_windows<M, kSixteens>(M::kSplit ? few : sum, stage, here);
        if constexpr (M::kSplit)
          if (++added == MmaF32x3::kFoldSteps) added = 0, fold_windows<kSixteens>(few, sum);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(full(ring.stage) + 8);
      ring.advance(p.stages);
    }
    if constexpr (M::kSplit) fold_windows<kSixteens>(few, sum);
    __syncthreads();
    const uint32_t to = stages + team * window_sum_bytes(kPositions) +
                        (first + lane / 4) * kWindowColumns * 4 + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < kSixteens; ++i)
#pragma unroll
      for (int j = 0; j < kWindowColumns / 8; ++j) {
        const uint32_t line = to + i * 16 * kWindowColumns * 4 + j * 32;
        store_shared_sums(line, sum[i][j][0], sum[i][j][1]);
        store_shared_sums(line + 8 * kWindowColumns * 4, sum[i][j][2], sum[i][j][3]);
      }
    __syncthreads();
  }
  add_and_store_windows<M, kPositions>(p, at, stages, received);
#endif
}

}  // namespace convt2d::cuda::strand
