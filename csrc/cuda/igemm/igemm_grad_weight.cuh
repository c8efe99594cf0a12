// The igemm kernel of grad_weight. igemm_weight_config.h draws the tiling.
//
// A block walks its K tiles. While some warps multiply one, the others bring the next ones into other
// stages; one barrier a tile. The two kinds of warps never meet in a common piece of code, so that the
// accumulators of one cost the other no registers.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/igemm/igemm_weight_store.cuh"

namespace convt2d::cuda::igemm {

// What a warp multiplies: the fragments of one step, M::kRow pixels. `base` is what a lane knows of the
// step's pixels in the patch; it is read a step early.
template <class M, int ROW_TILES, int UNITS, int BYTES = sizeof(typename M::Element)>
struct WeightFragments;

template <class M, int ROW_TILES, int UNITS>
struct WeightFragments<M, ROW_TILES, UNITS, 2> {
  uint32_t x_lane, x_tile, x_step, unit[UNITS / 2];
  bool x_planes;
  int pixel;  // whose base the lane reads

  struct Base {
    int here;
  };

  __device__ __forceinline__ WeightFragments(const WeightParams& p, const WeightTables& tables,
                                             uint32_t x_plane, uint32_t) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, matrix = lane >> 3;
    const int warp_m = warp % p.warps_m, warp_n = warp / p.warps_m;
    x_planes = p.x_mode == kByPlanes;
    x_tile = (x_planes ? 16 : 2) * x_plane;
    x_step = 16 * pixel_bytes(p.x_mode, 2);
    x_lane = warp_m * ROW_TILES * x_tile +
             (x_planes ? ((matrix & 1) * 8 + (lane & 7)) * x_plane + (matrix >> 1) * 16
                       : (matrix & 1) * x_plane + ((matrix >> 1) * 8 + (lane & 7)) * 16);
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
    for (int m = 0; m < ROW_TILES; ++m) {
      const uint32_t from = stage + x_lane + step * x_step + m * x_tile;
      if (x_planes) {
        ldmatrix_x4(a[m], from);
      } else {
        ldmatrix_x4_turned(a[m], from);
      }
    }
  }
  __device__ __forceinline__ void load_y(uint32_t (&b)[4], uint32_t stage, Base at, int i) const {
    ldmatrix_x4_turned(b, stage + at.here + unit[i]);
  }
};

template <class M, int ROW_TILES, int UNITS>
struct WeightFragments<M, ROW_TILES, UNITS, 4> {
  uint32_t x_lane, x_half, x_pixel, y_lane, unit[UNITS];
  int pixel;

  struct Base {
    int here, four_on;
  };

  __device__ __forceinline__ WeightFragments(const WeightParams& p, const WeightTables& tables,
                                             uint32_t x_plane, uint32_t y_plane) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, channel = lane >> 2;
    const int warp_m = warp % p.warps_m, warp_n = warp / p.warps_m;
    const bool x_planes = p.x_mode == kByPlanes, y_planes = p.y_mode == kByPlanes;
    pixel = lane & 3;
    x_half = (x_planes ? 8 : 2) * x_plane;
    x_pixel = pixel_bytes(p.x_mode, 4);
    x_lane = warp_m * ROW_TILES * 2 * x_half + pixel * x_pixel +
             (x_planes ? channel * x_plane : (channel >> 2) * x_plane + (channel & 3) * 4);
    y_lane = y_planes ? channel * y_plane : (channel >> 2) * y_plane + (channel & 3) * 4;
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
      const uint32_t from = stage + x_lane + step * M::kRow * x_pixel + 2 * m * x_half;
      a[m][0] = load_shared_4(from);
      a[m][1] = load_shared_4(from + x_half);
      a[m][2] = load_shared_4(from + 4 * x_pixel);
      a[m][3] = load_shared_4(from + x_half + 4 * x_pixel);
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

// What four warps that multiply together, 64 input channels, know: x goes through registers, or comes from shared
// memory where those are SCARCE.
template <class M, int UNITS, int WIDTH, bool SCARCE>
struct TogetherFragments {
  WeightFragments<M, 1, UNITS> fragments;
  uint64_t x_layout;
  uint32_t rows, bases, y_plane;
  uint32_t units[UNITS / WIDTH];  // as descriptors have addresses
  int steps;

  __device__ __forceinline__ TogetherFragments(const WeightParams& p, const WeightTables& tables,
                                               uint32_t x_plane, uint32_t y_plane)
      : fragments(p, tables, x_plane, y_plane),
        x_layout(operand_layout(128, x_plane)),
        bases(shared_address(tables.bases)),
        y_plane(y_plane),
        steps(p.pixels / M::kRow) {
    const int warp = threadIdx.x >> 5;
    rows = warp % p.warps_m / 4 * 8 * x_plane;
#pragma unroll
    for (int i = 0; i < UNITS / WIDTH; ++i)
      units[i] = tables.units[warp / p.warps_m * UNITS + i * WIDTH] >> 4;
  }

  // A step's dY as of tap 0: eight pixels, and the next eight.
  __device__ __forceinline__ uint64_t y_of(uint32_t y_stage, int step) const {
    const uint32_t here = load_shared_4(bases + 64 * step);
    const uint32_t next = load_shared_4(bases + 64 * step + 32);
    return operand(operand_layout(next - here, y_plane), y_stage + here);
  }
  template <class X>
  __device__ __forceinline__ void multiply_step(WeightSums<1, UNITS>& sum, const X& x,
                                                uint64_t y) const {
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < UNITS / WIDTH; ++part)
      WgmmaTurned<typename M::Element, 8 * WIDTH>::add(
          reinterpret_cast<float (&)[4 * WIDTH]>(sum[0][part * WIDTH]), x, y + units[part]);
    wgmma_commit();
  }
  __device__ __forceinline__ void multiply(WeightSums<1, UNITS>& sum, uint32_t x_stage,
                                           uint32_t y_stage) const {
    fence_for_wgmma();  // the producers' copies
    if constexpr (SCARCE) {
      uint64_t x = operand(x_layout, x_stage + rows);
#pragma unroll 1
      for (int step = 0; step < steps; ++step, x += 16) {
        multiply_step(sum, x, y_of(y_stage, step));
        wgmma_wait<1>();
      }
    } else {
      uint32_t a[2][1][4];
      fragments.load_x(a[0], x_stage, 0);
      uint64_t y = y_of(y_stage, 0);
#pragma unroll 1
      for (int first = 0; first < steps; first += 2)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int following = first + i + 1;
          multiply_step(sum, a[i][0], y);
          if (following == steps) break;
          y = y_of(y_stage, following);
          wgmma_wait<1>();  // the other fragments are free
          fragments.load_x(a[1 - i], x_stage, following);
        }
    }
    wgmma_wait<0>();
  }
};

// What both kinds of warps know.
template <class T>
struct WeightBlock {
  const WeightParams& p;
  const WeightScope& at;
  const WeightTables& tables;
  unsigned char* stages;
  int stage_bytes, y_stage;
  uint32_t x_plane, y_plane;

  // The whole block, and the only order between its two kinds of warps. Both pass here once a K tile (twice where the
  // sums are done with care, on one stage). Between its passes t and t + 1 a warp that multiplies reads tile t, and
  // nothing else; a producer rounds tile t + 1, whose copies all who bring that operand in have waited for before their
  // own barrier (finish_operand), and starts tile t + stages - 1. With two to four stages these lie in different
  // ones, but for t + 1 with two, which is the same producers'. So what racecheck has reported of some launches, a
  // producer's rounded words against a first read, is ordered by the pass between the two.
  __device__ __forceinline__ void meet() const { barrier_among(0, blockDim.x); }
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

// The producers' part: a warp brings in one operand, so that it can keep what it knows of it in registers. BATCH:
// how many of the largest parcels there are registers for.
template <class M, int BATCH>
__device__ __forceinline__ void produce(const WeightBlock<typename M::Element>& block, int warp) {
  using T = typename M::Element;
  const WeightParams& p = block.p;
  const bool is_x = warp < p.x_producers;
  const int producers = is_x ? p.x_producers : p.producers - p.x_producers;
  const int producer = is_x ? warp : warp - p.x_producers;
  const int thread = producer * 32 + (threadIdx.x & 31), threads = producers * 32;
  Operand<T> of = operand_of<T>(is_x, p, block.at, block.tables);
  const int block_begin = block.at.begin, block_end = block.at.end;
  const uint32_t first = shared_address(block.stages) + (is_x ? 0 : block.y_stage);
  for (int begin = block_begin, end; begin < block_end; begin = end) {
    end = begin + min(p.turn_tiles, block_end - begin);
    for (bool again = false;; again = true) {      // once more if the sums are to be done with care
      const int ahead = again ? 0 : p.stages - 1;  // tiles from the one that is multiplied
      TileOrigin origin = tile_origin(p, begin);
      int started_stage = 0, wanted_stage = 0;
      const auto follow = [&](int& stage) {
        const uint32_t here = first + stage * block.stage_bytes;
        if (!again && ++stage == p.stages) stage = 0;
        return here;
      };
      for (int started = begin; started < end + ahead; ++started) {
        if (started < end) {
          of.move(origin, min(p.tile_n, p.batch - origin.n), follow(started_stage));
          start_operand<M, BATCH>(of, producer, producers);
          if (again)
            mark_valid(of, is_x ? block.tables.x_valid : block.tables.y_valid, thread, threads);
          advance(p, origin);
        }
        copy_async_commit();
        // The oldest tile that is not finished: the next one to be multiplied.
        const int wanted = started - max(ahead - 1, 0);
        if (wanted < begin) continue;
        if (wanted < end)
          finish_operand<M>(of, is_x, follow(wanted_stage), thread, threads, max(ahead - 1, 0));
        block.meet();
        if (again) block.meet();
      }
      if (again) break;
      if (barrier_all(0, blockDim.x, true)) break;
    }
  }
}

// The others' part: `multiply(sum, stage, stage of dY)` for every tile, and where the sums go.
template <class M, int ROW_TILES, int UNITS, class Multiply>
__device__ __forceinline__ void consume(const WeightBlock<typename M::Element>& block,
                                        Multiply&& multiply) {
  using T = typename M::Element;
  const WeightParams& p = block.p;
  for (int begin = block.at.begin, end; begin < block.at.end; begin = end) {
    end = begin + min(p.turn_tiles, block.at.end - begin);
    WeightSums<ROW_TILES, UNITS> sum = {};
    block.meet();
    const uint32_t first = shared_address(block.stages);
    uint32_t stage = first;
    for (int tile = begin, turn = 1; tile < end; ++tile, ++turn) {
      multiply(sum, stage, stage + block.y_stage);
      stage += block.stage_bytes;
      if (turn == p.stages) stage = first, turn = 0;
      block.meet();
    }
    if (!barrier_all(0, blockDim.x, !any_nan(sum))) {
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

template <class M, int ROW_TILES, int UNITS>
__device__ __forceinline__ void consume_alone(const WeightBlock<typename M::Element>& block) {
  const WeightFragments<M, ROW_TILES, UNITS> fragments(block.p, block.tables, block.x_plane,
                                                       block.y_plane);
  const int* const bases = block.tables.bases;
  const int steps = block.p.pixels / M::kRow;
  consume<M, ROW_TILES, UNITS>(
      block, [&](WeightSums<ROW_TILES, UNITS>& sum, uint32_t x_stage, uint32_t y_stage) {
        auto base = fragments.base(bases, 0);
#pragma unroll 1
        for (int step = 0; step < steps; step += 2) {
          const auto second = fragments.base(bases, step + 1);
          multiply_step<M, ROW_TILES, UNITS>(sum, fragments, x_stage, y_stage, base, step);
          base = fragments.base(bases, step + 2 < steps ? step + 2 : 0);
          multiply_step<M, ROW_TILES, UNITS>(sum, fragments, x_stage, y_stage, second, step + 1);
        }
      });
}

template <class M, int ROW>
__global__ void __launch_bounds__(32 * weight_warps(ROW), 1)
    convt2d_igemm_grad_weight_kernel(const __grid_constant__ WeightParams p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // older chips: declined by the planner
  using T = typename M::Element;
  extern __shared__ __align__(128) unsigned char smem[];
  const WeightMap map = weight_map(p, sizeof(T));
  WeightScope& at = *reinterpret_cast<WeightScope*>(smem + map.scope);
  if (threadIdx.x == 0) at = weight_scope(p);
  __syncthreads();
  const WeightTables tables = weight_tables(smem, map, p);
  const uint32_t x_plane = plane_bytes(p.x_mode, p.pixels, sizeof(T)),
                 y_plane = plane_bytes(p.y_mode, p.patch_pixels, sizeof(T));
  build_weight_tables(p, at, tables, y_plane * plane_count(p.y_mode, 1, sizeof(T)), sizeof(T));
  const WeightBlock<T> block{p,         at,          tables,  smem + map.stages,
                             map.stage, map.y_stage, x_plane, y_plane};
  const int consumers = p.warps_m * p.warps_n * 32;
  if (threadIdx.x < consumers) {
    constexpr WeightTile tile = weight_tile(ROW, sizeof(T));
#ifdef CONVT2D_HAS_WGMMA
    if constexpr (tile.width > 0) {
      const TogetherFragments<M, tile.units, tile.width, !tile.x_in_registers> together(
          p, tables, x_plane, y_plane);
      consume<M, 1, tile.units>(block, [&](auto& sum, uint32_t x_stage, uint32_t y_stage) {
        together.multiply(sum, x_stage, y_stage);
      });
    } else
#endif
      consume_alone<M, tile.row_tiles, tile.units>(block);
  } else {
    produce<M, weight_warps(ROW) == 12 ? 4 : 2>(block, (threadIdx.x - consumers) >> 5);
  }
#endif
}

}  // namespace convt2d::cuda::igemm
