// The kernel of weft; weft_config.h draws it, weft_stage.cuh fills the stages, weft_multiply.cuh reads them,
// weft_store.cuh is what comes after.
//
// `full` ends a phase when four warps have turned a stage, `empty` when every warp that multiplies has read it; the ring of
// what the copy engine brings has barriers of its own. If a sum came out NaN, all of it once more, with care.
#pragma once

#include "cuda/device/successor.cuh"
#include "cuda/weft/weft_multiply.cuh"
#include "cuda/weft/weft_stage.cuh"
#include "cuda/weft/weft_store.cuh"

namespace convt2d::cuda::weft {

template <int ROW>
__device__ __forceinline__ bool agree(bool good) {
  return barrier_all(kVerdict, hopper::weight_consumers(kWeightTiles[ROW]) + kTurners, good);
}

template <class T, int ROW>
__global__ void __launch_bounds__(hopper::weight_threads(kWeightTiles[ROW]), 1)
    convt2d_weft_grad_weight_kernel(const __grid_constant__ Params p,
                                    const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  constexpr WeightTile tile = kWeightTiles[ROW];
  constexpr int kConsumers = hopper::weight_consumers(tile);
  extern __shared__ __align__(1024) unsigned char smem[];
  const WeightScope at = hopper::weight_scope(p.weight);
  const uint32_t shared = shared_address(smem);
  StageRing ring{shared, shared + hopper::kStagesAt, p.weight.stages, p.stage_bytes};
  if (threadIdx.x < p.weight.stages) {
    barrier_init(shared + threadIdx.x * 16, kTurnWarps + p.direct);
    barrier_init(shared + threadIdx.x * 16 + 8, kConsumers / 32);
  }
  if (threadIdx.x < p.raw_stages) {
    barrier_init(shared + kRawBarriersAt + threadIdx.x * 16, kTurnWarps);
    barrier_init(shared + kRawBarriersAt + threadIdx.x * 16 + 8, kTurnWarps);
  }
  WeightCells* const cells = reinterpret_cast<WeightCells*>(smem + hopper::kCellsAt);
  if (threadIdx.x < tile.instructions * tile.groups)
    cells[threadIdx.x] = hopper::cells_of(p.weight, tile, at.first_tap, threadIdx.x);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  const Patch x = x_patch(p.weight, at), y = y_patch(p.weight, at);
  Turner<turned_at_once(tile)> turner(p, maps, at, x, y, shared);
  if (threadIdx.x >= kConsumers) turner.ask_first();
  build_tables(p, at, y, shared);
  // Rows where nothing belongs are multiplied as well, so they are zero.
  for (int i = threadIdx.x * 16; i < p.weight.stages * p.stage_bytes;
       i += hopper::weight_threads(tile) * 16)
    store_shared_16(ring.stages + i, {0, 0, 0, 0});
  fence_for_wgmma();
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    fewer_registers<turner_registers(tile)>();
    for (bool again = false;; again = true) {
      turner.turn_tiles();
      if (again || agree<ROW>(true)) return;
      turner.restart();
    }
  } else {
    more_registers<consumer_registers(tile)>();
    WeightSums<ROW> sum;
    clear(sum);
    multiply_tiles<T, ROW>(p, at, cells, sum, ring);
    if (!agree<ROW>(!hopper::any_nan<ROW>(p.weight, at, cells, sum)))
      multiply_tiles_with_care<T, ROW>(p, at, cells, sum, ring);
    const int group = threadIdx.x / 128;
    const uint32_t sums = ring.stages + group * laid_bytes(tile);
    lay_out<ROW>(p, sum, sums);
    barrier_among(kGroup0 + group, 128);
    if (p.weight.partials) {
      store_partials<ROW>(p, at, cells, sums);
    } else {
      store_weights<T, ROW>(p, at, cells, sums);
    }
  }
#endif
}

}  // namespace convt2d::cuda::weft
