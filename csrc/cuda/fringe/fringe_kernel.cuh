// The fringe kernel; fringe_config.h draws the GEMM, fringe_stage.cuh brings it to shared memory.
//
// If a sum came out NaN, it is added up again, of products that exist: zeros stand for what does not, and 0 * inf is NaN.
#pragma once

#include "cuda/device/as_multiplied.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/fringe/fringe_stage.cuh"

namespace convt2d::cuda::fringe {

// Of a thread: [instruction][column 8 i + 2 t or + 1, row g or g + 8].
template <int ROW>
using Sums = float[kTiles[ROW].count][kTiles[ROW].width / 2];

// Adds the products of STEPS steps of a tile.
template <class T, int ROW, int STEPS>
__device__ __forceinline__ void add_steps(Sums<ROW>& sum, uint64_t x, uint64_t y) {
  constexpr Tile tile = kTiles[ROW];
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < STEPS; ++step)
#pragma unroll
    for (int j = 0; j < tile.count; ++j)
      Wgmma<T, tile.width>::add(sum[j], advance(x, step * (kStep >> 4)),
                                advance(y, (j * tile.width * kRow + step * kStep) >> 4));
  wgmma_commit();
  wgmma_wait<0>();
}

// The same of loose planes, whose rows g and g + 8 of this lane start at `near` and `far`.
template <class T, int ROW, int STEPS>
__device__ __forceinline__ void add_loose(Sums<ROW>& sum, uint32_t near, uint32_t far, uint64_t y) {
  constexpr Tile tile = kTiles[ROW];
  uint32_t word[STEPS][4];
#pragma unroll
  for (int step = 0; step < STEPS; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word[step][i] = load_shared_4((i % 2 ? far : near) + step * kStep + i / 2 * (kStep / 2));
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < STEPS; ++step)
#pragma unroll
    for (int j = 0; j < tile.count; ++j)
      WgmmaFetched<T, tile.width>::add(sum[j], word[step],
                                       advance(y, (j * tile.width * kRow + step * kStep) >> 4));
  wgmma_commit();
  wgmma_wait<0>();
}

// Multiplies a warpgroup's tiles of all of a block's bands.
template <class T, int ROW>
__device__ __forceinline__ void multiply(const Params& p, const Scope& at, int group,
                                         Sums<ROW>& sum, StageRing ring) {
  const uint64_t layout = swizzled_layout(kRow, 8 * kRow);
  const uint32_t rows = p.row_groups == 2 ? group * kRows * kRow : 0;
  constexpr bool kLoose = kTiles[ROW].loose;
  const int lane = threadIdx.x % 32,
            first = (p.row_groups == 2 ? group * kRows : 0) + threadIdx.x / 32 % 4 * 16 + lane / 4;
  const uint32_t near = kLoose ? loose_row(p, first) + lane % 4 * 4 : 0,
                 far = kLoose ? loose_row(p, first + 8) + lane % 4 * 4 : 0;
  int turn = 0;  // whose tile
#pragma unroll 1
  for (int index = at.begin; index < at.end; ++index) {
    const Band band = Band::of<T>(p, index);
#pragma unroll 1
    for (int i = 0; i < band.tiles; ++i, ring.advance()) {
      turn ^= 1;
      if (p.row_groups == 1 && turn == group) continue;
      const uint64_t x = operand(layout, ring.stage() + rows);
      const uint64_t y = operand(layout, ring.stage() + p.y_at);
      barrier_wait(ring.full(), ring.parity);
      // Whole batches, or the compiler fences what a branch in one of them adds.
      if constexpr (kLoose) {
        // Two steps at a time: registers hold no more words beside the sums.
        const int steps = steps_of<T>(p, band, i);
#pragma unroll 1
        for (int step = 0; step < steps; step += 2) {
          const uint32_t at_step = ring.stage() + step * kStep;
          const uint64_t y_step = advance(y, step * (kStep >> 4));
          if (steps == 1)
            add_loose<T, ROW, 1>(sum, at_step + near, at_step + far, y_step);
          else
            add_loose<T, ROW, 2>(sum, at_step + near, at_step + far, y_step);
        }
        __syncwarp();  // all have read the rows
      } else if (pixels_of<T>(p, band, i) > kStep / int(sizeof(T))) {
        add_steps<T, ROW, kRow / kStep>(sum, x, y);
      } else {
        add_steps<T, ROW, 1>(sum, x, y);
      }
      if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
    }
  }
#pragma unroll
  for (int j = 0; j < kTiles[ROW].count; ++j) finished(sum[j]);
}

// One sum, of the products that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M>
__device__ __noinline__ float sum_with_care(const Params& p, const Scope& at, int row, int column) {
  using T = typename M::Element;
  const int taps = p.kernel_h * p.kernel_w, channel = column / taps, tap = column - channel * taps;
  const int tap_h = tap / p.kernel_w, tap_w = tap - tap_h * p.kernel_w;
  float sum = 0;
#pragma unroll 1
  for (int index = at.begin; index < at.end; ++index) {
    const Band band = Band::of<T>(p, index);
    const int last = p.flat ? p.x_w : min(p.x_w, band.column + p.band_tiles * kTilePixels<T>);
    const int x = ((band.image * p.groups + at.group) * p.rows + at.row + row) * p.x_h;
    const int y = ((band.image * p.groups + at.group) * p.columns + channel) * p.y_h;
#pragma unroll 1
    for (int h = band.row; h < band.row + band.rows; ++h) {
      const int y_h = h * p.stride_h - p.pad_h + tap_h * p.dilation_h;
      if (y_h < 0 || y_h >= p.y_h) continue;
#pragma unroll 1
      for (int w = band.column; w < last; ++w) {
        const int y_w = w * p.stride_w - p.pad_w + tap_w * p.dilation_w;
        if (y_w < 0 || y_w >= p.y_w) continue;
        sum = fmaf(as_multiplied<M>(p.x, int64_t{x + h} * p.x_w + w),
                   as_multiplied<M>(p.y, int64_t{y + y_h} * p.y_w + y_w), sum);
      }
    }
  }
  return sum;
}

// Sums to shared memory, in the place of the stages: [input channel][column], or of both warpgroups, one after the other.
template <int ROW>
__device__ __forceinline__ void lay_sums(int group, const Sums<ROW>& sum, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const uint32_t to =
      shared + (group * kRows + warp * 16 + lane / 4) * sum_pitch(tile) + lane % 4 * 8;
#pragma unroll
  for (int j = 0; j < tile.count; ++j)
#pragma unroll
    for (int i = 0; i < tile.width / 4; ++i)
      store_shared_sums(to + i % 2 * 8 * sum_pitch(tile) + (j * tile.width + i / 2 * 8) * 4,
                        sum[j][i * 2], sum[j][i * 2 + 1]);
}

__device__ __forceinline__ void load_sums(float (&sum)[1], uint32_t from) {
  sum[0] = load_shared<float>(from);
}
__device__ __forceinline__ void load_sums(float (&sum)[4], uint32_t from) {
  uint32_t word[4];
  load_shared_16(from, word);
#pragma unroll
  for (int j = 0; j < 4; ++j) sum[j] = __uint_as_float(word[j]);
}

// These to dW, or to this piece's partial sums, from `to` on, whose columns follow each other: four at a time, if they are whole
// such, and of these some at once, or a thread would wait for each.
template <class M, int ROW, int COUNT, class To>
__device__ __forceinline__ void store_runs(const Params& p, const Scope& at, uint32_t shared,
                                           To* to) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kTogether = 8 / COUNT;
  const int runs = p.by_runs.divisor, columns = runs * COUNT, block_rows = p.row_groups * kRows,
            rows = min(block_rows, p.rows - at.row), all = (tile.loose ? block_rows : rows) * runs;
  to += int64_t{at.group * p.rows + at.row} * columns;
#pragma unroll 1
  for (int first = threadIdx.x; first < all; first += kTogether * kConsumers) {
    int channel[kTogether], column[kTogether];
    float sum[kTogether][COUNT];
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int number = min(first + i * kConsumers, all - 1), row = p.by_runs.quotient(number);
      column[i] = (number - row * runs) * COUNT;
      channel[i] = tile.loose ? channel_of_row(p, row) : row;
      const uint32_t from = shared + row * sum_pitch(tile) + column[i] * 4;
      load_sums(sum[i], from);
      if (p.row_groups == 1) {
        float other[COUNT];
        load_sums(other, from + kRows * sum_pitch(tile));
#pragma unroll
        for (int j = 0; j < COUNT; ++j) sum[i][j] += other[j];
      }
#pragma unroll
      for (int j = 0; j < COUNT; ++j) finite &= sum[i][j] == sum[i][j];
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i * kConsumers >= all || channel[i] >= rows) continue;
      if (!finite) {
#pragma unroll
        for (int j = 0; j < COUNT; ++j)
          if (sum[i][j] != sum[i][j])
            sum[i][j] = sum_with_care<M>(p, at, channel[i], column[i] + j);
      }
      To* const there = to + channel[i] * columns + column[i];
      if constexpr (COUNT == 4 && sizeof(To) == 4) {
        *reinterpret_cast<float4*>(there) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
      } else {
#pragma unroll
        for (int j = 0; j < COUNT; ++j) store(there + j, sum[i][j]);
      }
    }
  }
}
template <class M, int ROW, class To>
__device__ __forceinline__ void store_sums(const Params& p, const Scope& at, uint32_t shared,
                                           To* to) {
  if (p.run == 4)
    store_runs<M, ROW, 4>(p, at, shared, to);
  else
    store_runs<M, ROW, 1>(p, at, shared, to);
}

constexpr int kConsumersMeet = 1;  // named barrier
template <class M, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_fringe_grad_weight_kernel(const __grid_constant__ Params p,
                                      const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  using T = typename M::Element;
  extern __shared__ __align__(1024) unsigned char smem[];
  const Scope at = scope_of(p);
  const uint32_t shared = shared_address(smem);
  const StageRing ring{shared, shared + p.stages_at, p.stages, p.stage_bytes};
  if (threadIdx.x < p.stages) {
    barrier_init(ring.barriers + threadIdx.x * 16, kWriters + 1);
    barrier_init(ring.barriers + threadIdx.x * 16 + 8, 4 * p.row_groups);
  }
  if (threadIdx.x < kRaws) {
    barrier_init(raw_barrier(ring, threadIdx.x), 1);
    barrier_init(raw_barrier(ring, threadIdx.x) + 8, kWriters);
  }
  if (threadIdx.x == 32) prefetch_map(&maps.x);
  if (threadIdx.x == 64) prefetch_map(&maps.y);
  if constexpr (kTiles[ROW].loose) {
    list_loose(p, shared);
  } else {
    list_places<T>(p, columns(kTiles[ROW]), shared);
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  const int warp = warp_of_block() - kConsumers / 32;
  if (warp >= 0) {
    fewer_registers<kWriterRegisters>();
    if (warp < kWriters) {
      if constexpr (kTiles[ROW].loose) {
        write_loose<T>(p, at, ring, warp);
      } else {
        write_tiles<T, ROW>(p, at, ring, warp);
      }
    } else if (elected()) {
      ask<T, kTiles[ROW].loose>(p, maps, at, ring);
    }
  } else {
    more_registers<kConsumerRegisters>();
    const int group = warpgroup_of_block();
    Sums<ROW> sum;
    clear(sum);
    multiply<T, ROW>(p, at, group, sum, ring);
    barrier_among(kConsumersMeet, kConsumers);  // nobody reads a stage any more
    lay_sums<ROW>(group, sum, ring.stages);
    barrier_among(kConsumersMeet, kConsumers);
    if (p.partials) {
      store_sums<M, ROW>(p, at, ring.stages, p.partials + int64_t{at.piece} * p.piece_floats);
    } else {
      store_sums<M, ROW>(p, at, ring.stages, static_cast<T*>(p.weight));
    }
  }
#endif
}

}  // namespace convt2d::cuda::fringe
