// The kernel of slide's turned tiles; slide_turned.h draws them.
//
// One thread asks the copy engine for rows of x, four warps turn them into the slots of a ring, as soon as every warp that
// multiplies is done with what was there; `full` and `empty` tell. A warpgroup that multiplies needs the rows of x of its
// own rows of y, and gives back those that its next one does not need, so the others may be elsewhere: while one stores the
// others multiply.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/slide/slide_store.cuh"
#include "cuda/slide/slide_turned.h"

namespace convt2d::cuda::slide {

// The slots of the ring, as somebody goes round it.
__device__ __forceinline__ StageRing slots_of(const TurnedParams& p, uint32_t shared) {
  return {shared, shared + p.rows_at, p.slots, p.row_bytes};
}

template <class T>
__device__ __forceinline__ void bring_turned_weights(const TurnedParams& p, const Scope& at,
                                                     uint32_t shared) {
  const T* const weight = static_cast<const T*>(p.weight) + int64_t{at.group} * p.weight_group;
  const int taps = p.kernel_h * p.kernel_w, per_residue = p.reduce_padded >> p.residue_shift;
  const int octets = p.reduce_padded / 8, count = tile_channels(p);
  const int64_t step = int64_t(sizeof(T)) * p.weight_reduce << p.residue_shift;
#pragma unroll 2
  for (int i = threadIdx.x; i < octets * count * taps; i += kTurnedThreads) {
    const int octet = i / (count * taps), rest = i - octet * (count * taps);
    const int inside = rest / taps, tap = rest - inside * taps;
    const int kh = tap / p.kernel_w, kw = tap - kh * p.kernel_w;
    const int column = at.column_tile * count + inside;
    const int residue = octet * 8 / per_residue;
    const int first = ((octet * 8 - residue * per_residue) << p.residue_shift) + residue;
    const int left =
        column < p.columns ? (p.reduce - first + p.residues - 1) >> p.residue_shift : 0;
    const char* from = reinterpret_cast<const char*>(weight + (int64_t{first} * p.weight_reduce +
                                                               int64_t{column} * p.weight_column +
                                                               kh * p.weight_h + kw * p.weight_w));
    uint32_t number[8], word[4];
#pragma unroll
    for (int j = 0; j < 8; ++j, from += step) number[j] = load_if<2>(from, j, left);
#pragma unroll
    for (int j = 0; j < 4; ++j) word[j] = number[2 * j] | number[2 * j + 1] << 16;
    store_shared_16(shared + p.weights_at + p.last_tap + (p.kernel_h - 1 - kh) * p.tap_row +
                        (p.kernel_w - 1 - kw) * p.tap_column + octet * (p.weight_slice / 2) +
                        inside * 16,
                    word);
  }
  if (p.group_rows == 1) return;
  // Between the kernel rows of two columns or channels, and around them all.
  for (int i = threadIdx.x; i < (p.kernel_w * octets + 1) * count; i += kTurnedThreads)
    store_shared_16(shared + p.weights_at + i / count * (p.weight_slice / 2) + i % count * 16,
                    {0, 0, 0, 0});
}

template <class T>
__device__ __forceinline__ void bring_turned_bias(const TurnedParams& p, const Scope& at,
                                                  uint32_t shared) {
  const int i = threadIdx.x, channel = at.column_tile * tile_channels(p) + i;
  if (i >= tile_channels(p)) return;
  const bool exists = p.bias && channel < p.columns;
  store_shared_4(
      shared + kTurnedBiasAt + i * 4,
      exists ? __float_as_uint(load(static_cast<const T*>(p.bias) + at.group * p.columns + channel))
             : 0);
}

// Rows of x, in the order of the walk.
struct RowWalk {
  Stretches stretches;
  int row, left;  // of the stretch's rows; 0: there is none

  __device__ __forceinline__ RowWalk(const TurnedParams& p, const Scope& at) : stretches(p, at) {
    enter(p);
  }
  __device__ __forceinline__ void enter(const TurnedParams& p) {
    row = p.low_h + stretches.now.first * step_rows(p);
    left = stretches.now.count > 0 ? stretches.now.count * step_rows(p) + p.reach : 0;
  }
  __device__ __forceinline__ void advance(const TurnedParams& p) {
    ++row;
    if (--left > 0) return;
    stretches.advance(p);
    enter(p);
  }
  __device__ __forceinline__ int column(const TurnedParams& p) const {
    return stretches.now.strip * p.strip + p.low_w;
  }
  // Of its first pixel in a set of planes, which may lie before them.
  __device__ __forceinline__ int pixel(const TurnedParams& p, int residue) const {
    return (residue * p.x_h + row) * p.x_w + column(p);
  }
};

__device__ __forceinline__ void copy_row(const TurnedParams& p, const CUtensorMap& map,
                                         const Scope& at, const RowWalk& walk, uint32_t to,
                                         uint32_t full) {
  barrier_expect(full, p.raw_bytes);
  const bool exists = walk.row >= 0 && walk.row < p.x_h;
  const int beyond = p.residues * p.x_h * p.x_w;  // zeros
  for (int residue = 0; residue < p.residues; ++residue, to += p.raw_bytes >> p.residue_shift)
    copy_box(to, &map, full,
             exists ? walk.pixel(p, residue) & -kVector : beyond + kVector & -kVector,
             at.group * p.reduce >> p.residue_shift, walk.stretches.now.n, 0);
}

// Eight channels of a row, by a warp. Of 32 pixels a lane addresses one channel of eight pixels, and one pixel to be written.
// EDGES: what comes from beside the row becomes zeros.
template <int STRIP, bool EDGES>
__device__ __forceinline__ void turn_octet(const TurnedParams& p, uint32_t raw, uint32_t row,
                                           uint32_t dump, int octet, int lead, int column) {
  constexpr int kCopied = copied_pixels(STRIP), kParts = (kCopied + 31) / 32;
  const int lane = threadIdx.x & 31, pixel_bytes = p.depth * 2;
  const uint32_t from = raw + (octet * 8 + lane % 8) * (kCopied * 2) + lane / 8 * 16;
  const int block = octet * 8 / p.depth, pixel = lane - lead;
  uint32_t to = row + block * p.block_bytes + pixel * pixel_bytes + (octet * 16 & pixel_bytes - 1);
  to ^= (to >> 7 & pixel_bytes / 16 - 1) << 4;
  uint32_t word[kParts][4];
#pragma unroll
  for (int i = 0; i < kParts; ++i) load_tiles(from + i * 64, word[i]);
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    if constexpr (EDGES) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int at = column - lead + i * 32 + k * 8 + lane % 4 * 2;
        const uint32_t low = uint32_t(at) < uint32_t(p.x_w) ? 0xffffu : 0u,
                       high = uint32_t(at + 1) < uint32_t(p.x_w) ? 0xffff0000u : 0u;
        word[i][k] &= low | high;
      }
    }
    const bool wanted = uint32_t(pixel + i * 32) < uint32_t(p.pixels);
    store_turned(wanted ? to + i * 32 * pixel_bytes : dump, word[i]);
  }
}

template <int STRIP>
__device__ __forceinline__ void turn_rows(const TurnedParams& p, const CUtensorMap& map,
                                          const Scope& at, uint32_t shared) {
  constexpr int kWarps = kTurners / 32;
  const int thread = threadIdx.x - kTurnedConsumers, warp = thread / 32, lane = thread % 32;
  const uint32_t dump = shared + kDumpAt + lane * 16, copied = shared + kCopiedAt;
  const int octets = p.reduce_padded / 8, residue_octets = octets >> p.residue_shift;
  StageRing ring = slots_of(p, shared);
  RowWalk walk(p, at), ahead(p, at);
  int raw = 0;
  uint32_t parity = 0;
  const auto raw_at = [&](int i) { return shared + p.raws_at + i * p.raw_bytes; };
  const auto ask = [&](int i) {
    if (ahead.left == 0) return;
    if (thread == 0) copy_row(p, map, at, ahead, raw_at(i), copied + i * 8);
    ahead.advance(p);
  };
  for (int i = 0; i < p.raws; ++i) ask(i);
  for (; walk.left > 0; walk.advance(p), ring.advance()) {
    const int column = walk.column(p);
    const bool edges = column < 0 || column + p.pixels > p.x_w;
    barrier_wait(copied + raw * 8, parity);
    barrier_wait(ring.empty(), ring.parity ^ 1);
    __syncwarp();
#pragma unroll 1
    for (int octet = warp; octet < octets; octet += kWarps) {
      const int lead = walk.pixel(p, octet / residue_octets) & (kVector - 1);
      if (edges) {
        turn_octet<STRIP, true>(p, raw_at(raw), ring.stage(), dump, octet, lead, column);
      } else {
        turn_octet<STRIP, false>(p, raw_at(raw), ring.stage(), dump, octet, lead, column);
      }
    }
    fence_for_wgmma();
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.full());
    barrier_among(1, kTurners);  // all have read it
    ask(raw);
    if (++raw == p.raws) raw = 0, parity ^= 1;
  }
}

template <int STRIP>
using TurnedSums = float[STRIP / 2];

// The products of a warpgroup's rows of y; `ring` stands at their first row of x.
template <class T, int STRIP, int SLICES>
__device__ __forceinline__ void multiply_turned(const TurnedParams& p, uint32_t shared,
                                                StageRing ring, TurnedSums<STRIP>& sum) {
  const int pixel_bytes = p.depth * 2, steps = kernel_steps(p);
  const uint64_t w_layout = operand_layout(p.weight_slice / 2, 8 * 16),
                 x_layout = swizzled_layout(pixel_bytes, 8 * pixel_bytes);
  const uint32_t w_step = p.weight_slice >> 4;
  uint32_t weights = shared + p.weights_at + p.last_tap;
#pragma unroll 1
  for (int i = 0;; weights += p.tap_row) {
    barrier_wait(ring.full(), ring.parity);
#pragma unroll 1
    for (int j = 0; j < p.kernel_w; ++j) {
      uint64_t a = operand(w_layout, weights + j * p.tap_column);
#pragma unroll 1
      for (int block = 0; block < p.depths; ++block) {
        const uint64_t b =
            operand(x_layout, ring.stage() + block * p.block_bytes + j * pixel_bytes);
        wgmma_fence();
#pragma unroll
        for (int slice = 0; slice < SLICES; ++slice)
          Wgmma<T, STRIP>::add(sum, advance(a, slice * w_step), advance(b, slice * 2));
        wgmma_commit();
        a = advance(a, SLICES * w_step);
      }
    }
    if (++i == steps) break;
    skip(ring, p.tap_rows);
  }
  wgmma_wait<0>();
  finished(sum);
}

// Of a warp's 16 rows of the sum, the first one's output channel in the tile.
__device__ __forceinline__ int warp_channel(const TurnedParams& p) {
  return threadIdx.x / 32 % 4 * 16 & tile_channels(p) - 1;
}

// Eight of a warp's 16 rows of the sum to its buffer.
template <class T, int STRIP, int HALF>
__device__ __forceinline__ void lay_out(const TurnedSums<STRIP>& sum, uint32_t to, uint32_t& nan) {
#pragma unroll
  for (int i = 0; i < STRIP / 8; ++i) {
    const uint32_t word = pack<T>(sum[4 * i + 2 * HALF], sum[4 * i + 2 * HALF + 1]);
    nan = add_zero_times_pair<T>(word, nan);
    store_shared_4(to + i * 16, word);
  }
}

// A warp's rows of the sum to memory, eight channels at a time; what slide_store.cuh does for sums that slide. Halves are a
// loop, so there is one code for all that stores them, and nothing is repaired while sums wait in registers.
template <class T, int STRIP>
__device__ __forceinline__ void store_row(const TurnedParams& p, const Scope& at, int n, int strip,
                                          int row, const TurnedSums<STRIP>& sum, uint32_t staging) {
  const int lane = threadIdx.x & 31;
  const int first_channel = uniform(at.column_tile * tile_channels(p) + warp_channel(p));
  const auto runs_of = [&](int half) {
    const int first = first_channel + half * kWarpChannels;
    Runs<T> runs;
    runs.y = static_cast<T*>(p.destination);
    runs.plane = p.y_h * p.y_w;
    runs.y_h = p.y_h;
    runs.y_w = p.y_w;
    runs.first = ((n * p.groups + at.group) * p.columns + first) * runs.plane + strip * STRIP;
    runs.row = row;
    runs.step = runs.end = 1;
    runs.channels = p.columns - first;
    runs.low = 0;
    runs.high = min(STRIP, p.y_w - strip * STRIP);
    return runs;
  };
  uint32_t nan = 0;
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    const Runs<T> runs = runs_of(half);
    if (runs.channels <= 0) break;
    const int skew = (runs.first + lane / 4 * runs.plane + row * p.y_w) & (kVector - 1);
    const uint32_t to = staging + lane / 4 * p.staging_pitch + skew / 2 * 4 + (lane & 3) * 4;
    half == 0 ? lay_out<T, STRIP, 0>(sum, to, nan) : lay_out<T, STRIP, 1>(sum, to, nan);
    __syncwarp();
    store_moving_runs<T, STRIP>(p, runs, staging);
    __syncwarp();
  }
  const float all = add_pair<T>(nan);
  if (!__any_sync(0xffffffffu, all != all)) return;
#pragma unroll 1
  for (int half = 0; half < 2; ++half)
    repair_runs<T>(p, {p.kernel_w, 1, false, STRIP}, runs_of(half), n, at.group,
                   first_channel + half * kWarpChannels, strip * STRIP);
}

template <class T, int STRIP>
__device__ __forceinline__ void consume_turned(const TurnedParams& p, const Scope& at,
                                               uint32_t shared) {
  const int group = warpgroup_of_block(), lane = threadIdx.x & 31;
  // Warps of the second half have the second row of a pair.
  const int first_row = p.group_rows * group + (p.group_rows > 1 ? warp_of_block() / 2 % 2 : 0);
  const uint32_t staging =
      shared + p.staging_at + threadIdx.x / 32 * (kWarpChannels * p.staging_pitch);
  float bias[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    bias[half] = load_shared<float>(shared + kTurnedBiasAt +
                                    (warp_channel(p) + half * kWarpChannels + lane / 4) * 4);
  StageRing ring = slots_of(p, shared);
  const auto give_back = [&](int rows) {
    for (int i = 0; i < rows; ++i, ring.advance()) {
      barrier_wait(ring.full(), ring.parity);  // or it would be given back before it is there
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.empty());
    }
  };
  for (Stretches walk(p, at); walk.now.count > 0; walk.advance(p)) {
    const Stretch& stretch = walk.now;
    give_back(p.group_rows * group);
#pragma unroll 1
    for (int step = 0; step < stretch.count; ++step) {
      const int row = (stretch.first + step) * step_rows(p) + first_row;
      TurnedSums<STRIP> sum;
#pragma unroll
      for (int i = 0; i < STRIP / 2; ++i) sum[i] = bias[i / 2 % 2];
      if (p.depth == 64) {
        multiply_turned<T, STRIP, 4>(p, shared, ring, sum);
      } else if (p.depth == 32) {
        multiply_turned<T, STRIP, 2>(p, shared, ring, sum);
      } else {
        multiply_turned<T, STRIP, 1>(p, shared, ring, sum);
      }
      give_back(step + 1 < stretch.count ? step_rows(p)
                                         : step_rows(p) - p.group_rows * group + p.reach);
      if (row < p.y_h) store_row<T, STRIP>(p, at, stretch.n, stretch.strip, row, sum, staging);
    }
  }
}

template <class T, int STRIP>
__global__ void __launch_bounds__(kTurnedThreads, 1)
    convt2d_slide_turned_kernel(const __grid_constant__ TurnedParams p,
                                const __grid_constant__ CUtensorMap map) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Scope at = scope_of(p);
  start_stages(shared, p.slots, kTurners / 32, kTurnedConsumers / 32);
  if (threadIdx.x < p.raws) barrier_init(shared + kCopiedAt + threadIdx.x * 8, 1);
  bring_turned_bias<T>(p, at, shared);
  bring_turned_weights<T>(p, at, shared);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= kTurnedConsumers / 32) {
    fewer_registers<kTurnerRegisters>();
    turn_rows<STRIP>(p, map, at, shared);
  } else {
    more_registers<kTurnedRegisters>();
    consume_turned<T, STRIP>(p, at, shared);
  }
#endif
}

}  // namespace convt2d::cuda::slide
