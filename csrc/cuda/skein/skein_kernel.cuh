// The skein kernel; skein_config.h draws the product.
//
// One warp asks the copy engine for bands, in a ring of stages: `full` ends a phase when a stage has arrived, `empty` when all warps
// have fetched it.
#pragma once

#include "cuda/device/as_multiplied.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/device/elect.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/skein/skein_stage.cuh"

namespace convt2d::cuda::skein {

template <int ROW>
using Sums = float[kTiles[ROW].pairs][kTiles[ROW].eights][4];

// What a lane fetches for an instruction. Of dY, 16 bits: a row of a matrix that is turned, a piece of the first or second row of a pair,
// of one of 16 places. Words: number g of both rows, of places t and t + 4. Of x, for column g: places 2 t, 2 t + 1 and eight behind
// them, or t and t + 4.
template <class T, int ROW>
struct Lane {
  static constexpr bool kWords = sizeof(T) == 4;
  uint32_t y_table, x_table, y, x[kTiles[ROW].eights];
  int x_step;  // to the second of two places

  __device__ __forceinline__ Lane(const Params& p, uint32_t tables, uint32_t table_bytes) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int place = kWords ? t : lane / 16 * 8 + lane % 8;
    y_table = tables + place * 4;
    x_table = tables + table_bytes + (kWords ? t : 2 * t) * 4;
    y = kWords ? g * 4 : lane / 8 % 2 * p.y_pitch;
    x_step = p.pixels * sizeof(T);
#pragma unroll
    for (int i = 0; i < kTiles[ROW].eights; ++i) {
      // Columns that stand for nothing fetch what the first one does.
      const int column = i * 8 + g, j = column / p.shifts, shift = column - j * p.shifts;
      const bool there = j < p.back;
      x[i] = p.x_at + (there ? (p.back - 1 - j) * p.x_pitch : 0) +
             (p.lead + (there ? shift : 0)) * sizeof(T);
    }
  }

  // An operand's word of x, for one column: of a place in words, else of a pair of them.
  __device__ __forceinline__ uint32_t pixels(uint32_t at, bool there) const {
    if (!there) return 0;
    if constexpr (kWords) {
      return load_shared_4(at);
    } else {
      return load_shared<unsigned short>(at) | uint32_t{load_shared<unsigned short>(at + x_step)}
                                                   << 16;
    }
  }
};

// Products of the places of a stage that are this warp's: of two instructions' places at once, since one waits for what it fetches.
template <class M, int ROW>
__device__ __forceinline__ void multiply(const Params& p, int warp, uint32_t stage,
                                         const Lane<typename M::Element, ROW>& lane,
                                         Sums<ROW>& sum) {
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kStepBytes = step_places(sizeof(T)) * 4, kHalf = kStepBytes / 2, kAtOnce = 2;
#pragma unroll 1
  for (int first = warp; first < p.steps; first += kAtOnce * kWarps) {
    int x[kAtOnce][2];
    uint32_t y[kAtOnce][lane.kWords ? 2 : 1];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int step = first + k * kWarps;
      const uint32_t at = min(step, p.steps - 1) * kStepBytes;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        x[k][half] = load_shared_4(lane.x_table + at + half * kHalf);
        if (lane.kWords || half == 0)
          y[k][half] = stage + lane.y + load_shared_4(lane.y_table + at + half * kHalf);
      }
    }
    uint32_t b[kAtOnce][tile.eights][2];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < tile.eights; ++i)
          b[k][i][half] = lane.pixels(stage + lane.x[i] + x[k][half],
                                      x[k][half] >= 0 && first + k * kWarps < p.steps);
#pragma unroll
    for (int pair = 0; pair < tile.pairs; ++pair) {
      uint32_t a[kAtOnce][4];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const uint32_t row = y[k][0] + 2 * pair * p.y_pitch;
        if constexpr (lane.kWords) {
          const uint32_t other = y[k][1] + 2 * pair * p.y_pitch;
          a[k][0] = load_shared_4(row), a[k][1] = load_shared_4(row + p.y_pitch);
          a[k][2] = load_shared_4(other), a[k][3] = load_shared_4(other + p.y_pitch);
        } else {
          ldmatrix_x4_turned(a[k], row);
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
        for (int i = 0; i < tile.eights; ++i) M::mma(sum[pair][i], a[k], b[k][i][0], b[k][i][1]);
    }
  }
}

// One output of the block's bands, of the products that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M>
__device__ __noinline__ float sum_with_care(const Params& p, const Scope& at, int tap_h,
                                            int tap_w) {
  float sum = 0;
  const int f = tap_h % p.stride_h, j = tap_h / p.stride_h;
#pragma unroll 1
  for (int number = at.begin; number < at.end; ++number) {
    const Band band(p, number);
    const int first = band.v * kPiece, end = min(first + p.pieces * kPiece, p.y_w);
#pragma unroll 1
    for (int i = 0; i < p.band * p.images; ++i) {
      const int image = i / p.band, n = band.n + image, q = band.q + i - image * p.band;
      const int row = q * p.stride_h - p.pad_h + f;
      if (n >= p.batch || q >= p.all_q || unsigned(row) >= unsigned(p.y_h) ||
          unsigned(q - j) >= unsigned(p.x_h))
        continue;
      const int64_t y = ((int64_t{n} * p.groups * p.columns + at.channel) * p.y_h + row) * p.y_w;
      const int64_t x = ((int64_t{n} * p.groups + at.channel / p.columns) * p.x_h + q - j) * p.x_w;
#pragma unroll 1
      for (int w = 0; w < p.x_w; ++w) {
        const int column = w * p.stride_w - p.pad_w + tap_w;
        if (column >= first && column < end)
          sum = fmaf(as_multiplied<M>(p.x, x + w), as_multiplied<M>(p.y, y + column), sum);
      }
    }
  }
  return sum;
}

// What the block's warps have of a tap, from their sums in shared memory: those of all numbers u that a shift takes there.
template <class M, int ROW>
__device__ __forceinline__ float sum_of_warps(const Params& p, const Scope& at, uint32_t from,
                                              int tap) {
  constexpr Tile tile = kTiles[ROW];
  const int tap_h = tap / p.kernel_w, tap_w = tap - tap_h * p.kernel_w;
  const int f = tap_h % p.stride_h, j = tap_h / p.stride_h;
  float sum = 0;
#pragma unroll 1
  for (int shift = 0; shift < p.shifts; ++shift) {
    const int u = tap_w - p.pad_w + (p.first_shift + shift) * p.stride_w;
    if (unsigned(u) >= unsigned(kPiece)) continue;
    const int column = j * p.shifts + shift;
    const int number = (f / 2 * tile.eights + column / 8) * 4 + f % 2 * 2 + column % 2;
    const uint32_t mine = from + number * 128 + (u * 4 + column % 8 / 2) * 4;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
      sum += load_shared<float>(mine + warp * (sums(tile) * 128));
  }
  return sum - sum == 0 ? sum : sum_with_care<M>(p, at, tap_h, tap_w);
}

// To dW, or to the piece's partial sums.
template <class T>
__device__ __forceinline__ void store_tap(const Params& p, const Scope& at, int tap, float sum) {
  const int tap_h = tap / p.kernel_w, tap_w = tap - tap_h * p.kernel_w,
            input = at.channel / p.columns;
  const int place = input * p.stride[0] + (at.channel - input * p.columns) * p.stride[1] +
                    tap_h * p.stride[2] + tap_w * p.stride[3];
  if (p.partials) {
    p.partials[int64_t{at.piece} * p.piece_floats + place] = sum;
  } else {
    store(static_cast<T*>(p.weight) + place, sum);
  }
}

// All taps of a block, by the warps that multiply: stored, or where its cluster finds them.
template <class M, int ROW>
__device__ __forceinline__ void store_taps(const Params& p, const Scope& at, uint32_t from,
                                           uint32_t outputs) {
#pragma unroll 1
  for (int tap = threadIdx.x; tap < taps(p); tap += kWarps * 32) {
    const float sum = sum_of_warps<M, ROW>(p, at, from, tap);
    if (p.ranks == 1) {
      store_tap<typename M::Element>(p, at, tap, sum);
    } else {
      store_shared_4(outputs + tap * 4, __float_as_uint(sum));
    }
  }
}

// Those of a pair of blocks, added in their order, each block half of them. All threads of both come by.
template <class T>
__device__ __forceinline__ void store_taps_of_pair(const Params& p, const Scope& at,
                                                   uint32_t outputs) {
  const int all = taps(p);
  __syncwarp();
  cluster_arrive();
  cluster_wait();
#pragma unroll 1
  for (int first = (blockIdx.y * kThreads + threadIdx.x) * 4; first < all;
       first += 2 * kThreads * 4) {
    const float4 one = load_of_rank(place_of_rank(outputs + first * 4, 0)),
                 other = load_of_rank(place_of_rank(outputs + first * 4, 1));
    const float sum[4] = {one.x + other.x, one.y + other.y, one.z + other.z, one.w + other.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (first + i < all) store_tap<T>(p, at, first + i, sum[i]);
  }
  __syncwarp();
  cluster_arrive_as_reader();  // who leaves takes its memory along
  cluster_wait();
}

// A warp's sums of the block's bands, to shared memory.
template <class M, int ROW>
__device__ __forceinline__ void multiply_bands(const Params& p, const Scope& at, int warp,
                                               uint32_t tables, uint32_t in_tables, uint32_t to,
                                               StageRing& ring) {
  constexpr Tile tile = kTiles[ROW];
  const Lane<typename M::Element, ROW> lane(p, tables, in_tables);
  Sums<ROW> sum = {};
  for (int number = at.begin; number < at.end; ++number, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    multiply<M, ROW>(p, warp, ring.stage(), lane, sum);
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
  }
  to += (warp * sums(tile) * 32 + threadIdx.x % 32) * 4;
#pragma unroll
  for (int pair = 0; pair < tile.pairs; ++pair)
#pragma unroll
    for (int i = 0; i < tile.eights; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        store_shared_4(to + ((pair * tile.eights + i) * 4 + e) * 128,
                       __float_as_uint(sum[pair][i][e]));
}

template <class M, int ROW>
__global__ void __launch_bounds__(kThreads, 2)
    convt2d_skein_grad_weight_kernel(const __grid_constant__ Params p,
                                     const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  extern __shared__ __align__(128) unsigned char smem[];
  const uint32_t shared = shared_address(smem), tables = shared + kTablesAt,
                 in_tables = table_bytes(p, sizeof(T));
  const Scope at = scope_of(p);
  StageRing ring{shared, shared + stages_at(p, tile, sizeof(T)), p.stages, p.stage_bytes};
  start_stages(shared, p.stages, 1, kWarps);
  fill_tables<T>(p, tables, tables + in_tables);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  const int warp = warp_of_block();
  const uint32_t outputs = shared + outputs_at(p, tile, sizeof(T));
  if (warp == kWarps) {
    if (elected()) bring_bands(p, maps, at, ring, copied_bytes(p));
  } else {
    const uint32_t warp_sums = shared + sums_at(p, sizeof(T));
    multiply_bands<M, ROW>(p, at, warp, tables, in_tables, warp_sums, ring);
    barrier_among(1, kWarps * 32);
    store_taps<M, ROW>(p, at, warp_sums, outputs);
  }
  if (p.ranks > 1) store_taps_of_pair<T>(p, at, outputs);
#endif
}

}  // namespace convt2d::cuda::skein
