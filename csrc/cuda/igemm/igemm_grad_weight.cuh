// The igemm kernel of grad_weight. igemm_weight_config.h draws the tiling.
//
// A block walks its K tiles. While some warps multiply one, the others bring the next ones into other
// stages; one barrier a tile. The two kinds of warps never meet in a
// common piece of code, so that the accumulators of one cost the other no registers.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/igemm/igemm_weight_store.cuh"

namespace convt2d::cuda::igemm {

// What a warp multiplies: the fragments of one step, M::kRow pixels. `base` is what a lane knows of the
// step's pixels in the patch; it is read a step early.
template <class M, int ROW_TILES, int UNITS, int BYTES = sizeof(typename M::Element)>
struct WeightFragments;

template <class M, int ROW_TILES, int UNITS>
struct WeightFragments<M, ROW_TILES, UNITS, 2> {
  uint32_t x_lane, x_tile, unit[UNITS / 2];
  int pixel;  // whose base the lane reads

  struct Base {
    int here;
  };

  __device__ __forceinline__ WeightFragments(const WeightParams& p, const WeightTables& tables,
                                             uint32_t x_plane, uint32_t) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, matrix = lane >> 3;
    const int warp_m = warp % p.warps_m, warp_n = warp / p.warps_m;
    x_lane =
        (warp_m * ROW_TILES * 2 + (matrix & 1)) * x_plane + ((matrix >> 1) * 8 + (lane & 7)) * 16;
    x_tile = 2 * x_plane;
    pixel = (matrix & 1) * 8 + (lane & 7);
#pragma unroll
    for (int i = 0; i < UNITS / 2; ++i)
      unit[i] = tables.units[warp_n * UNITS + 2 * i + (matrix >> 1)];
  }
  __device__ __forceinline__ Base base(const int* bases, int step) const {
    return {bases[step * M::kRow + pixel]};
  }
  __device__ __forceinline__ void load_x(uint32_t (&a)[ROW_TILES][4], uint32_t stage,
                                         int step) const {
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m)
      ldmatrix_x4_turned(a[m], stage + x_lane + step * M::kRow * 16 + m * x_tile);
  }
  __device__ __forceinline__ void load_y(uint32_t (&b)[4], uint32_t stage, Base at, int i) const {
    ldmatrix_x4_turned(b, stage + at.here + unit[i]);
  }
};

template <class M, int ROW_TILES, int UNITS>
struct WeightFragments<M, ROW_TILES, UNITS, 4> {
  uint32_t x_lane, x_half, y_lane, unit[UNITS];
  int pixel;

  struct Base {
    int here, four_on;
  };

  __device__ __forceinline__ WeightFragments(const WeightParams& p, const WeightTables& tables,
                                             uint32_t x_plane, uint32_t y_plane) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int warp_m = warp % p.warps_m, warp_n = warp / p.warps_m;
    pixel = lane & 3;
    x_lane = (warp_m * ROW_TILES * 4 + (lane >> 4)) * x_plane + pixel * 16 + (lane >> 2 & 3) * 4;
    x_half = 2 * x_plane;
    y_lane = (lane >> 4) * y_plane + (lane >> 2 & 3) * 4;
#pragma unroll
    for (int i = 0; i < UNITS; ++i) unit[i] = tables.units[warp_n * UNITS + i];
  }
  __device__ __forceinline__ Base base(const int* bases, int step) const {
    return {bases[step * M::kRow + pixel], bases[step * M::kRow + pixel + 4]};
  }
  __device__ __forceinline__ void load_x(uint32_t (&a)[ROW_TILES][4], uint32_t stage,
                                         int step) const {
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) {
      const uint32_t from = stage + x_lane + step * M::kRow * 16 + 2 * m * x_half;
      a[m][0] = load_shared_4(from);
      a[m][1] = load_shared_4(from + x_half);
      a[m][2] = load_shared_4(from + 64);
      a[m][3] = load_shared_4(from + x_half + 64);
    }
  }
  __device__ __forceinline__ void load_y(uint32_t (&b)[4], uint32_t stage, Base at, int i) const {
    const uint32_t here = stage + y_lane + at.here, four_on = stage + y_lane + at.four_on;
    b[0] = load_shared_4(here + unit[2 * i]);
    b[1] = load_shared_4(four_on + unit[2 * i]);
    b[2] = load_shared_4(here + unit[2 * i + 1]);
    b[3] = load_shared_4(four_on + unit[2 * i + 1]);
  }
};

// One step: M::kRow pixels of everything the warp owns.
template <class M, int ROW_TILES, int UNITS, class Fragments>
__device__ __forceinline__ void multiply_step(WeightSums<ROW_TILES, UNITS>& sum,
                                              const Fragments& fragments, uint32_t x_stage,
                                              uint32_t y_stage, typename Fragments::Base base,
                                              int step) {
  uint32_t a[ROW_TILES][4];
  fragments.load_x(a, x_stage, step);
#pragma unroll
  for (int i = 0; i < UNITS / 2; ++i) {
    uint32_t b[4];
    fragments.load_y(b, y_stage, base, i);
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) {
      M::mma(sum[m][2 * i], a[m], b[0], b[1]);
      M::mma(sum[m][2 * i + 1], a[m], b[2], b[3]);
    }
  }
}

// What both kinds of warps know.
template <class T>
struct WeightBlock {
  const WeightParams& p;
  const WeightScope& at;
  const WeightTables& tables;
  unsigned char* stages;
  int stage_bytes, y_stage;
  uint32_t x_plane, y_plane;

  __device__ __forceinline__ void meet() const { barrier_among(1, blockDim.x); }
  __device__ __forceinline__ int end_of_turn(int begin) const {
    return begin + min(p.turn_tiles, at.end - begin);
  }
};

// The next tile.
__device__ __forceinline__ void advance(const WeightParams& p, TileOrigin& o) {
  o.w += p.tile_w;
  if (o.w < p.tiles_w * p.tile_w) return;
  o.w = 0;
  o.h += p.tile_h;
  if (o.h < p.tiles_h * p.tile_h) return;
  o.h = 0;
  o.n += p.tile_n;
}

// The producers' part.
template <class M>
__device__ __forceinline__ void produce(const WeightBlock<typename M::Element>& block, int thread) {
  using T = typename M::Element;
  const WeightParams& p = block.p;
  const int threads = p.producers * 32;
  const auto stage_of = [&](int tile, int begin) {
    return shared_address(block.stages) + (tile - begin) % p.stages * block.stage_bytes;
  };
  for (int begin = block.at.begin, end; begin < block.at.end; begin = end) {
    end = block.end_of_turn(begin);
    for (bool again = false;; again = true) {      // once more if the sums are to be done with care
      const int ahead = again ? 0 : p.stages - 1;  // tiles from the one that is multiplied
      TileOrigin origin = tile_origin(p, begin);
      for (int started = begin; started < end + ahead; ++started) {
        if (started < end) {
          const uint32_t to = stage_of(again ? begin : started, begin);
          const Operand<T> x = x_operand<T>(p, block.at, block.tables, origin, to);
          const Operand<T> y = y_operand<T>(p, block.at, block.tables, origin, to + block.y_stage);
          start_tile<M>(p, x, y, thread);
          if (again) {
            mark_valid(x, block.tables.x_valid, thread, threads);
            mark_valid(y, block.tables.y_valid, thread, threads);
          }
          advance(p, origin);
        }
        copy_async_commit();
        // The oldest tile that is not finished: the next one to be multiplied.
        const int wanted = again ? started : started - ahead + 1;
        if (wanted < begin) continue;
        if (wanted < end) {
          const uint32_t to = stage_of(again ? begin : wanted, begin);
          const Operand<T> x = x_operand<T>(p, block.at, block.tables, origin, to);
          const Operand<T> y = y_operand<T>(p, block.at, block.tables, origin, to + block.y_stage);
          finish_tile<M>(p, x, y, thread, again ? 0 : ahead - 1);
        }
        block.meet();
        if (again) block.meet();
      }
      if (again) break;
      if (barrier_all(1, blockDim.x, true)) break;
    }
  }
}

// The others' part.
template <class M, int ROW_TILES, int UNITS>
__device__ __forceinline__ void consume(const WeightBlock<typename M::Element>& block) {
  using T = typename M::Element;
  const WeightParams& p = block.p;
  const WeightFragments<M, ROW_TILES, UNITS> fragments(p, block.tables, block.x_plane,
                                                       block.y_plane);
  const int steps = p.pixels / M::kRow;
  for (int begin = block.at.begin, end; begin < block.at.end; begin = end) {
    end = block.end_of_turn(begin);
    WeightSums<ROW_TILES, UNITS> sum = {};
    block.meet();
    const uint32_t first = shared_address(block.stages);
    uint32_t stage = first;
    for (int tile = begin, turn = 1; tile < end; ++tile, ++turn) {
      auto base = fragments.base(block.tables.bases, 0);
#pragma unroll 1
      for (int step = 0; step < steps; step += 2) {
        const auto second = fragments.base(block.tables.bases, step + 1);
        multiply_step<M, ROW_TILES, UNITS>(sum, fragments, stage, stage + block.y_stage, base,
                                           step);
        base = fragments.base(block.tables.bases, step + 2 < steps ? step + 2 : 0);
        multiply_step<M, ROW_TILES, UNITS>(sum, fragments, stage, stage + block.y_stage, second,
                                           step + 1);
      }
      stage += block.stage_bytes;
      if (turn == p.stages) stage = first, turn = 0;
      block.meet();
    }
    if (!barrier_all(1, blockDim.x, !any_nan(sum))) {
      clear(sum);
      for (int tile = begin; tile < end; ++tile) {
        block.meet();
        multiply_valid<T>(p, sum, block.tables, block.stages, block.stages + block.y_stage,
                          block.x_plane, block.y_plane);
        block.meet();
      }
    }
    store_weights<T>(p, block.at, block.tables, sum, begin > block.at.begin);
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(32 * kMaxWeightWarps, 1)
    convt2d_igemm_grad_weight_kernel(const __grid_constant__ WeightParams p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // older chips: declined by the planner
  using T = typename M::Element;
  extern __shared__ __align__(128) unsigned char smem[];
  const WeightMap map = weight_map(p, sizeof(T));
  WeightScope& at = *reinterpret_cast<WeightScope*>(smem + map.scope);
  if (threadIdx.x == 0) at = weight_scope(p);
  __syncthreads();
  const WeightTables tables = weight_tables(smem, map, p);
  const uint32_t x_plane = plane_rows(p.pixels, sizeof(T)) * 16,
                 y_plane = plane_rows(p.patch_pixels, sizeof(T)) * 16;
  build_weight_tables(p, at, tables, y_plane * (sizeof(T) / 2));
  const WeightBlock<T> block{p,         at,          tables,  smem + map.stages,
                             map.stage, map.y_stage, x_plane, y_plane};
  const int consumers = p.warps_m * p.warps_n * 32;
  if (threadIdx.x < consumers) {
    constexpr WeightTile tile = weight_tile(ROW, sizeof(T));
    consume<M, tile.row_tiles, tile.units>(block);
  } else {
    produce<M>(block, threadIdx.x - consumers);
  }
#endif
}

}  // namespace convt2d::cuda::igemm
