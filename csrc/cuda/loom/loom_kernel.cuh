// The loom kernel; loom_config.h draws the tiling.
//
// Rings of stages with two barriers each: `full` ends a phase when a stage has arrived, `empty` when all who read it have
// left it. Warpgroups that multiply the same patches take no turns; those that have tiles of their own do (loom_laid.cuh).
#pragma once

#include <type_traits>

#include "cuda/loom/loom_laid.cuh"
#include "cuda/loom/loom_stage.cuh"
#include "cuda/loom/loom_store.cuh"
#include "cuda/loom/loom_strict.cuh"

namespace convt2d::cuda::loom {

// Taps of one phase, or of two by turns: a batch. No branch within, and the sums of a phase are an array of their own: as
// in fan's multiply_batch().
template <class T, int TILE, int PHASE>
__device__ __forceinline__ void multiply_batch(const GatherParams& p, Sums<TILE>& sum,
                                               const Fetched<TILE>& step, uint32_t layout_high) {
  constexpr Tile tile = kTiles[TILE];
  wgmma_fence();
#pragma unroll
  for (int tap = 0; tap < tile.taps; ++tap)
    WgmmaFetched<T, positions(tile)>::add(
        sum[(PHASE + tap) % tile.phases], step.word[tap],
        uint64_t{layout_high} << 32 | (tap ? step.pixel + p.column[tap] : step.pixel));
  wgmma_commit();
}
template <class T, int TILE>
__device__ __forceinline__ void multiply(const GatherParams& p, Sums<TILE>& sum,
                                         const Fetched<TILE>& step, uint32_t layout_high) {
  if (kTiles[TILE].phases == 1 || kTiles[TILE].taps > 1 || step.phase == 0)
    multiply_batch<T, TILE, 0>(p, sum, step, layout_high);
  else
    multiply_batch<T, TILE, 1>(p, sum, step, layout_high);
}

// The products of a tile.
template <class T, int TILE>
__device__ __forceinline__ void multiply_tile(const GatherParams& p, Fetcher<T, TILE>& fetcher,
                                              Sums<TILE>& sum, uint32_t layout_high) {
  const int fetches = steps_of_row(p, fetcher.row) * p.slices * p.chunks;
  constexpr int kTurns = fetched_ahead(kTiles[TILE]) + 1;
  // These take turns: of one the words come while those of the others are multiplied.
  Fetched<TILE> turn[kTurns];
  fetcher.fetch(turn[0]);
  const auto multiply_and_fetch = [&](auto index, bool more) {
    constexpr int kNow = decltype(index)::value;
    multiply<T, TILE>(p, sum, turn[kNow], layout_high);
    if constexpr (kTurns == 2) wgmma_wait<1>();
    const auto left = fetcher.take_left();
    if constexpr (kTurns == 2) fetcher.give_back(left);
    if (more) fetcher.fetch(turn[(kNow + 1) % kTurns]);
    if constexpr (kTurns == 3) {
      wgmma_wait<1>();
      fetcher.give_back(left);
    }
  };
#pragma unroll 1
  for (int left = fetches; left > 0; left -= kTurns) {
    multiply_and_fetch(std::integral_constant<int, 0>(), left > 1);
    if (left == 1) break;
    multiply_and_fetch(std::integral_constant<int, 1>(), left > 2);
    if constexpr (kTurns == 3) {
      if (left == 2) break;
      multiply_and_fetch(std::integral_constant<int, 2>(), left > 3);
    }
  }
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < kTiles[TILE].phases; ++i) finished(sum[i]);
}

template <class T, int TILE>
__device__ __forceinline__ void consume(const GatherParams& p, const Scope& at, uint32_t shared,
                                        const CUtensorMap* map) {
  const int lane = threadIdx.x % 32, warp = warp_of_block(), group = warp / 4;
  const int row = at.group_h * p.row_phases + uniform(row_phase(p));
  Fetcher<T, TILE> fetcher{p, shared, row};
  fetcher.lane = warp % 4 / 2 * p.two_warps_pitch + warp % 2 * p.warp_pitch +
                 (p.woven ? woven_lane(p, lane) : lane / 4 * p.row_pitch);
  fetcher.number = p.woven ? 0 : lane % 4 * p.number_pitch;
  if constexpr (!Fetcher<T, TILE>::kSegments) fetcher.lane += fetcher.number;
  // What 128 bytes of a channel in are swizzled by.
  fetcher.swizzle = p.segment_bytes ? fetcher.number >> 3 & 0x70 : 0;
  const uint64_t layout = operand_layout(p.half_bytes, p.column_pitch);
  uint32_t layout_high = layout >> 32;
  keep_in_register(layout_high);
  fetcher.operand = operand(layout, shared + p.turned_at);
  if (same_positions(p))
    fetcher.lane += group * p.set_pitch;
  else
    fetcher.operand += group * p.beside >> 4;
  fetcher.part = 0;
  fetcher.left = {};
  const TileWalk walk = uniform_walk(shared);
  bool nan = false;
  for (int tile = walk.first; tile < walk.end; tile += walk.step) {
    Sums<TILE> sum;
    clear(sum);
    if (steps_of_row(p, row) > 0) {
      fetcher.enter();
      if constexpr (kTiles[TILE].strict)
        multiply_tile_strict(p, fetcher, sum, layout_high);
      else
        multiply_tile<T>(p, fetcher, sum, layout_high);
      fetcher.leave();
      fetcher.give_back(fetcher.take_left());
    }
    if constexpr (sizeof(T) == 2 && kTiles[TILE].phases == 2) {
      if (p.boxed) {
        nan |= store_boxes<T, TILE>(p, shared, tile, sum, map);
        continue;
      }
    }
    nan |=
        p.lined ? store_lines<T, TILE>(p, shared, tile, sum) : store<T, TILE>(p, shared, tile, sum);
  }
  finish_boxes(p);
  if (nan) repair_tiles<T, TILE>(p, shared, walk);
}

template <class T, int TILE>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_loom_kernel(const __grid_constant__ GatherParams p,
                        const __grid_constant__ TensorMaps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const int in_round = blocks_of_round(p), round = blockIdx.x / in_round;
  const Scope at = walker_scope_of(p, p.walkers_first != 0, blockIdx.x - round * in_round);
  Rings rings = rings_of(p, shared);
  if (threadIdx.x == 0) {
    make_known(at, shared + kScope);
    make_walk_known(p, at, round, shared + kWalk);
  }
  build_positions<TILE>(p, shared);
  if constexpr (sizeof(T) == 4)
    build_items(p, shared);
  else
    build_octets(p, at, shared);
  if constexpr (kTiles[TILE].laid) build_laid(p, at, shared);
  for (int i = threadIdx.x; i < p.zeros; i += kThreads)
    store_shared_4(shared + p.zeros_at + i * 4, 0);
  const auto init = [](const StageRing& ring, int full, int empty) {
    if (threadIdx.x >= ring.count) return;
    barrier_init(ring.barriers + threadIdx.x * 16, full);
    barrier_init(ring.barriers + threadIdx.x * 16 + 8, empty);
  };
  init(rings.x, 1, kTurners);
  const int readers = kConsumers / 32 / (p.own_tiles ? kGroups : 1);
  init(rings.turned, kTurners, readers);
  init(rings.weights, 1, readers);
  if (threadIdx.x < kGroups) barrier_init(shared + kTurns + threadIdx.x * 8, readers);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= kConsumers / 32) {
    fewer_registers<producer_registers(sizeof(T))>();
    if (p.first_step[at.group_h * p.row_phases * p.parts] ==
        p.first_step[(at.group_h + 1) * p.row_phases * p.parts]) {
      // Phases that no tap reaches.
    } else if (threadIdx.x >= kConsumers + 32) {
      if constexpr (sizeof(T) == 2 || kTiles[TILE].laid)
        turn<T, false>(p, at, shared, rings);
      else if (p.brought)
        bring_and_turn<T, kTiles[TILE].strict>(p, at, shared, rings.turned);
      else
        turn<T, kTiles[TILE].strict>(p, at, shared, rings);
    } else if (threadIdx.x == kConsumers) {
      copy<T, kTiles[TILE].laid>(p, at, shared, maps, rings);
    }
  } else {
    more_registers<consumer_registers(sizeof(T))>();
    if constexpr (kTiles[TILE].laid)
      consume_laid<T, TILE>(p, at, shared, &maps.destination);
    else
      consume<T, TILE>(p, at, shared, &maps.destination);
  }
#endif
}

}  // namespace convt2d::cuda::loom
