// The igemm kernel of grad_weight. igemm_weight_config.h draws the tiling.
//
// A block walks its K tiles. While the tensor cores work on one, the next arrives in the other stage, and
// the table of the one after it is built; one barrier a tile.
#pragma once

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
    x_lane = (warp_m * ROW_TILES * 2 + (matrix & 1)) * x_plane + ((matrix >> 1) * 8 + (lane & 7)) * 16;
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

template <class M, int ROW>
__global__ void __launch_bounds__(32 * kWeightTiles[ROW].most_warps, kWeightTiles[ROW].min_blocks)
    convt2d_igemm_grad_weight_kernel(const __grid_constant__ WeightParams p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // older chips: declined by the planner
  using T = typename M::Element;
  constexpr int ROW_TILES = kWeightTiles[ROW].row_tiles, UNITS = kWeightTiles[ROW].units;
  constexpr int kParcels = kWeightTiles[ROW].parcels;
  extern __shared__ __align__(128) unsigned char smem[];
  const WeightMap map = weight_map(p, sizeof(T));
  const WeightScope at = weight_scope(p);
  const WeightTables tables = weight_tables(smem, map, p);
  const uint32_t x_plane = plane_rows(p.pixels) * 16, y_plane = plane_rows(p.patch_pixels) * 16;
  build_weight_tables(p, at, tables, y_plane * (sizeof(T) / 2));
  const WeightFragments<M, ROW_TILES, UNITS> fragments(p, tables, x_plane, y_plane);
  const uint32_t stages = shared_address(smem + map.stages);

  const auto bring_in = [&](int tile, int stage, Operand<T>& x, Operand<T>& y) {
    x = x_operand<T>(p, at, tables, tile, stages + stage * map.stage);
    y = y_operand<T>(p, at, tables, tile, stages + stage * map.stage + map.y_stage);
    copy_rows(x);
    copy_rows(y);
    copy_async_commit();
  };
  const auto pick = [&](const Operand<T>& x, const Operand<T>& y, int& next, int total,
                        WeightParcel& parcel) {
    const int x_parcels = parcels_of(x);
    parcel.first = parcel.second = 0;
    if (next < x_parcels) {
      pick_channels<M>(x, next, parcel);
    } else if (next < total) {
      pick_channels<M>(y, next - x_parcels, parcel);
    }
    next += blockDim.x;
  };
  const auto finish_bringing = [&](const Operand<T>& x, const Operand<T>& y, int next) {
    const int total = parcels_of(x) + parcels_of(y);
    while (next < total) {
      WeightParcel parcel[kParcels];
#pragma unroll
      for (int i = 0; i < kParcels; ++i) pick(x, y, next, total, parcel[i]);
#pragma unroll
      for (int i = 0; i < kParcels; ++i) deliver_channels<M>(parcel[i]);
    }
    copy_async_wait(0);
    round_rows<M>(x);
    round_rows<M>(y);
  };

  const int steps = p.pixels / M::kRow;
  for (int begin = at.begin, end; begin < at.end; begin = end) {
    end = begin + min(p.run_tiles, at.end - begin);
    WeightSums<ROW_TILES, UNITS> sum = {};
    Operand<T> x, y;
    build_weight_sources(p, at, tables, begin);
    if (begin + 1 < end) build_weight_sources(p, at, tables, begin + 1);
    __syncthreads();
    bring_in(begin, 0, x, y);
    finish_bringing(x, y, threadIdx.x);
    __syncthreads();
    for (int tile = begin, stage = 0; tile < end; ++tile, stage ^= 1) {
      const uint32_t x_stage = stages + stage * map.stage, y_stage = x_stage + map.y_stage;
      const bool another = tile + 1 < end;
      int next = threadIdx.x, total = 0;
      if (another) {
        bring_in(tile + 1, stage ^ 1, x, y);
        total = parcels_of(x) + parcels_of(y);
      }
      if (tile + 2 < end) build_weight_sources(p, at, tables, tile + 2);
      auto base = fragments.base(tables.bases, 0);
      for (int step = 0; step < steps; step += 2) {
        WeightParcel parcel[kParcels];
        const bool carrying = next < total;
        if (carrying) {
#pragma unroll
          for (int i = 0; i < kParcels; ++i) pick(x, y, next, total, parcel[i]);
        }
        const auto second = fragments.base(tables.bases, step + 1);
        multiply_step<M, ROW_TILES, UNITS>(sum, fragments, x_stage, y_stage, base, step);
        if (step + 2 < steps) base = fragments.base(tables.bases, step + 2);
        multiply_step<M, ROW_TILES, UNITS>(sum, fragments, x_stage, y_stage, second, step + 1);
        if (carrying) {
#pragma unroll
          for (int i = 0; i < kParcels; ++i) deliver_channels<M>(parcel[i]);
        }
      }
      if (another) finish_bringing(x, y, next);
      __syncthreads();
    }

    if (__syncthreads_or(any_nan(sum))) {
      clear(sum);
      for (int tile = begin; tile < end; ++tile) {
        build_weight_sources(p, at, tables, tile);
        __syncthreads();
        bring_in(tile, 0, x, y);
        finish_bringing(x, y, threadIdx.x);
        mark_valid(x, p.pixels, tables.x_valid);
        mark_valid(y, p.patch_pixels, tables.y_valid);
        __syncthreads();
        multiply_valid<T>(p, sum, tables, smem + map.stages, smem + map.stages + map.y_stage,
                          x_plane, y_plane);
        __syncthreads();
      }
    }
    store_weights<T>(p, at, sum, begin > at.begin);
  }
#endif
}

}  // namespace convt2d::cuda::igemm
