// The loom kernel; loom_config.h draws the tiling.
//
// Rings of stages with two barriers each: `full` ends a phase when a stage has arrived, `empty` when all who read it have
// left it. Warpgroups that multiply take no turns: while one stores the other multiplies.
#pragma once

#include <type_traits>

#include "cuda/loom/loom_stage.cuh"
#include "cuda/loom/loom_store.cuh"

namespace convt2d::cuda::loom {

// What a lane holds of a step: weights of its taps; where the pixels of the first are, as an operand; its phase.
template <int TILE>
struct Fetched {
  uint32_t word[kTiles[TILE].taps][4];
  uint32_t pixel, phase;
};

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

// Goes through the steps of a tile, ahead of the multiplications.
template <class T, int TILE>
struct Fetcher {
  const GatherParams& p;
  const uint32_t shared;
  const int first, end;     // steps of the block
  uint32_t lane;            // in a stage of weights
  uint32_t operand;         // of the group's first position, if the ring began at 0: the lower half
  uint32_t pixel, weights;  // of the slice: units, and an address
  int step, slice;
  Ring turned_ring, weight_ring;
  // Of a chunk that was left, but is maybe being read, its stages: one more than the turned one, and that of weights.
  int left_turned, left_weights;

  __device__ __forceinline__ void enter() {
    barrier_wait(shared + kTurnedBarriers + turned_ring.stage * 16, turned_ring.parity);
    barrier_wait(shared + kWeightBarriers + weight_ring.stage * p.weight_barrier,
                 weight_ring.parity);
    pixel = operand + (turned_ring.stage * p.turned_bytes >> 4);
    weights = shared + p.weights_at + weight_ring.stage * p.weight_bytes + lane;
    step = first;
    slice = 0;
  }
  __device__ __forceinline__ void leave() {
    left_turned = turned_ring.stage + 1;
    left_weights = weight_ring.stage;
    turned_ring.advance(p.turned_stages);
    weight_ring.advance(p.weight_stages);
    if (p.resident) weight_ring.parity = 0;
  }
  __device__ __forceinline__ void give_back() {
    if (threadIdx.x % 32 == 0 && left_turned) {
      barrier_arrive(shared + kTurnedBarriers + left_turned * 16 - 8);
      if (!p.resident) barrier_arrive(shared + kWeightBarriers + left_weights * 16 + 8);
    }
    left_turned = 0;
  }
  __device__ __forceinline__ void fetch(Fetched<TILE>& to) {
    if (step == end) {
      step = first;
      pixel += p.half_bytes >> 3;
      weights += p.slice_pitch;
      if (++slice == p.slices) {
        leave();
        enter();
      }
    }
    const Step now = p.step[step++];
    to.pixel = pixel + now.pixel;
    uint32_t near = weights + now.weights;
    if constexpr (kTiles[TILE].phases > 1 && kTiles[TILE].taps == 1) {
      to.phase = now.weights >> kPhaseShift;
      near = weights + (now.weights & 0xffff);
    }
    if constexpr (sizeof(T) == 2)
      fetch_operand(p, near, to.word);
    else
      fetch_words(near, to.word);
  }
  __device__ __forceinline__ void fetch_words(uint32_t near,
                                              uint32_t (&word)[kTiles[TILE].taps][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t from = near + (i < 2 ? 0 : p.far_number) + (i % 2 ? p.far_row : 0);
      if constexpr (kTiles[TILE].taps == 4) {
        uint32_t taps[4];
        load_shared_16(from, taps);
#pragma unroll
        for (int tap = 0; tap < 4; ++tap) word[tap][i] = taps[tap];
      } else {
#pragma unroll
        for (int tap = 0; tap < kTiles[TILE].taps; ++tap)
          word[tap][i] = load_shared_4(from + tap * 4);
      }
    }
  }
};

template <class T, int TILE>
__device__ __forceinline__ void consume(const GatherParams& p, const Scope& at, uint32_t shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / 4;
  const int row = at.group_h * p.row_phases + row_phase(p);
  Fetcher<T, TILE> fetcher{p, shared, p.first_step[row], p.first_step[row + 1]};
  fetcher.lane = warp % 4 / 2 * p.two_warps_pitch + warp % 2 * p.warp_pitch +
                 lane / 4 * p.row_pitch + lane % 4 * p.number_pitch;
  const uint64_t layout = operand_layout(p.half_bytes, p.column_pitch);
  uint32_t layout_high = layout >> 32;
  keep_in_register(layout_high);
  fetcher.operand = operand(layout, shared + p.turned_at);
  if (same_positions(p))
    fetcher.lane += group * p.set_pitch;
  else
    fetcher.operand += group * p.beside >> 4;
  fetcher.left_turned = 0;
  const int fetches = (fetcher.end - fetcher.first) * p.slices * p.chunks;
  const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  for (int tile = at.walker; tile < tiles; tile += p.walkers[at.group_h]) {
    Sums<TILE> sum;
    clear(sum);
    if (fetches > 0) {
      // Two that take turns: of one the words come while those of the other are multiplied.
      Fetched<TILE> turn[2];
      fetcher.enter();
      fetcher.fetch(turn[0]);
      const auto multiply_and_fetch = [&](auto index, bool more) {
        constexpr int kNow = decltype(index)::value;
        multiply<T, TILE>(p, sum, turn[kNow], layout_high);
        wgmma_wait<1>();
        fetcher.give_back();
        if (more) fetcher.fetch(turn[1 - kNow]);
      };
#pragma unroll 1
      for (int left = fetches; left > 0; left -= 2) {
        multiply_and_fetch(std::integral_constant<int, 0>(), left > 1);
        if (left == 1) break;
        multiply_and_fetch(std::integral_constant<int, 1>(), left > 2);
      }
      wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < kTiles[TILE].phases; ++i) finished(sum[i]);
      fetcher.leave();
      fetcher.give_back();
    }
    if (p.shifted)
      store<T, TILE, true>(p, shared, tile, sum);
    else
      store<T, TILE, false>(p, shared, tile, sum);
  }
}

template <class T, int TILE>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_loom_kernel(const __grid_constant__ GatherParams p,
                        const __grid_constant__ TensorMaps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Scope at = walker_scope_of(p);
  Rings rings = rings_of(p, shared);
  if (threadIdx.x == 0) make_known(at, shared + kScope);
  build_positions<TILE>(p, shared);
  if constexpr (sizeof(T) == 4)
    build_items(p, shared);
  else
    build_octets(p, at, shared);
  const auto init = [](const StageRing& ring, int full, int empty) {
    if (threadIdx.x >= ring.count) return;
    barrier_init(ring.barriers + threadIdx.x * 16, full);
    barrier_init(ring.barriers + threadIdx.x * 16 + 8, empty);
  };
  init(rings.x, 1, kTurners);
  init(rings.turned, kTurners, kConsumers / 32);
  init(rings.weights, 1, kConsumers / 32);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    fewer_registers<kProducerRegisters>();
    if (p.first_step[at.group_h * p.row_phases] == p.first_step[(at.group_h + 1) * p.row_phases]) {
      // Phases that no tap reaches.
    } else if (threadIdx.x >= kConsumers + 32) {
      if constexpr (sizeof(T) == 4) {
        if (p.brought)
          bring_and_turn<T>(p, at, shared, rings.turned);
        else
          turn<T>(p, at, shared, rings);
      } else {
        turn<T>(p, at, shared, rings);
      }
    } else if (threadIdx.x == kConsumers) {
      copy<T>(p, at, maps, rings);
    }
  } else {
    more_registers<kConsumerRegisters>();
    consume<T, TILE>(p, at, shared);
  }
#endif
}

}  // namespace convt2d::cuda::loom
