// The fan kernel; fan_config.h draws the tiling.
//
// Rings of stages with two barriers each: `full` ends a phase when a stage has arrived, `empty` when all who read it have
// left it. Warpgroups that multiply take no turns: while one stores others multiply.
#pragma once

#include <type_traits>

#include "cuda/fan/fan_stage.cuh"
#include "cuda/fan/fan_store.cuh"

namespace convt2d::cuda::fan {

// What a lane holds of a step: pixels; and the weights they go with, as Step has them.
struct Fetched {
  uint32_t word[4];
  uint32_t weights;
};

// A batch of products with the weights of PHASES, a bit each. No branch within: behind one, each instruction would be a
// batch of its own to the compiler, and nothing would be fetched while it runs. And the sums of a phase are an array of
// their own: if one instruction takes more of them and another fewer, the compiler moves them around (nvcc 13.0).
template <int TILE, int OPERAND, int PHASES>
__device__ __forceinline__ void multiply_batch(Sums<TILE>& sum, const Fetched& x) {
  constexpr int kChannels = channels(kTiles[TILE]);
  constexpr uint32_t kHalf = kEight * 16;
  const uint64_t w = operand_layout(kHalf, 2 * kHalf) | (x.weights & 0x3fff);
  int before = 0;
  wgmma_fence();
#pragma unroll
  for (int phase = 0; phase < phases(kTiles[TILE]); ++phase)
    if (PHASES >> phase & 1)
      WgmmaFetched<float, kChannels>::add(sum[OPERAND * phases(kTiles[TILE]) + phase], x.word,
                                          advance(w, before++ * tap_bytes(kChannels) >> 4));
  wgmma_commit();
}
template <int TILE, int OPERAND>
__device__ __forceinline__ void multiply(Sums<TILE>& sum, const Fetched& x) {
  constexpr int kPhases = phases(kTiles[TILE]);
  if constexpr (kPhases == 1) {
    multiply_batch<TILE, OPERAND, 1>(sum, x);
  } else {
    switch (x.weights >> kPhasesShift) {
      case 1:
        multiply_batch<TILE, OPERAND, 1>(sum, x);
        break;
      case 2:
        multiply_batch<TILE, OPERAND, 2>(sum, x);
        break;
      case 3:
        multiply_batch<TILE, OPERAND, 3>(sum, x);
        break;
      default:
        if constexpr (kPhases == 4) {
          switch (x.weights >> kPhasesShift) {
            case 4:
              multiply_batch<TILE, OPERAND, 4>(sum, x);
              break;
            case 5:
              multiply_batch<TILE, OPERAND, 5>(sum, x);
              break;
            case 8:
              multiply_batch<TILE, OPERAND, 8>(sum, x);
              break;
            case 10:
              multiply_batch<TILE, OPERAND, 10>(sum, x);
              break;
            case 12:
              multiply_batch<TILE, OPERAND, 12>(sum, x);
              break;
            default:
              multiply_batch<TILE, OPERAND, 15>(sum, x);
          }
        }
    }
  }
}

// Goes through the steps of a tile, ahead of the multiplications.
template <int TILE>
struct Fetcher {
  const GatherParams& p;
  const uint32_t shared;
  const int first, end;                      // steps of the block
  uint32_t lane[kTiles[TILE].operands * 2];  // in a patch, of the lane's positions
  uint32_t x, weights;  // of the slice: addresses, of weights in units of 16 bytes
  Step now;
  int step, slice;
  Ring x_ring, turned_ring;
  // Of a chunk that was left, but is maybe being read, its stages: one more than that of x, and the turned one.
  int left_x, left_turned;

  // `lead`: from where a patch starts to the pixels of a tile.
  __device__ __forceinline__ void enter(uint32_t lead) {
    barrier_wait(shared + kXBarriers + x_ring.stage * 16, x_ring.parity);
    barrier_wait(shared + kTurnedBarriers + turned_ring.stage * 16, turned_ring.parity);
    x = shared + p.x_at + x_ring.stage * p.x_bytes + lead;
    weights = (shared + p.turned_at + turned_ring.stage * p.turned_bytes) >> 4;
    step = first;
    slice = 0;
  }
  __device__ __forceinline__ void leave() {
    left_x = x_ring.stage + 1;
    left_turned = turned_ring.stage;
    x_ring.advance(p.x_stages);
    turned_ring.advance(p.turned_stages);
    if (p.resident) turned_ring.parity = 0;
  }
  __device__ __forceinline__ void give_back() {
    if (threadIdx.x % 32 == 0 && left_x) {
      barrier_arrive(shared + kXBarriers + left_x * 16 - 8);
      if (!p.resident) barrier_arrive(shared + kTurnedBarriers + left_turned * 16 + 8);
    }
    left_x = 0;
  }
  // The operands of a step come one after the other.
  template <int OPERAND>
  __device__ __forceinline__ void fetch(Fetched& to, uint32_t lead) {
    if constexpr (OPERAND == 0) {
      if (step == end) {
        step = first;
        x += kSlice * p.channel_pitch;
        weights += p.slice_bytes >> 4;
        if (++slice == p.slices) {
          leave();
          enter(lead);
        }
      }
      now = p.step[step++];
    }
    to.weights = weights + now.weights;
    const uint32_t from = x + now.pixel, far = from + p.far;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to.word[i] = load_shared_4(lane[OPERAND * 2 + i % 2] + (i < 2 ? from : far));
  }
};

template <int TILE>
__device__ __forceinline__ void consume(const GatherParams& p, const Scope& at, uint32_t shared) {
  constexpr int kOperands = kTiles[TILE].operands;
  Fetcher<TILE> fetcher{p, shared, p.first_step[at.group_h], p.first_step[at.group_h + 1]};
  fetcher.left_x = 0;
#pragma unroll
  for (int row = 0; row < kOperands * 2; ++row) {
    const int packed = max(packed_position<TILE>(shared, row), 0);
    fetcher.lane[row] = (packed >> 20) * p.image_pitch + (packed >> 10 & 1023) * p.row_pitch +
                        (packed & 1023) * 4 + threadIdx.x % 4 * p.channel_pitch;
  }
  const int fetches = (fetcher.end - fetcher.first) * p.slices * p.chunks * kOperands;
  const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  for (int tile = at.walker; tile < tiles; tile += p.walkers[at.group_h]) {
    Sums<TILE> sum;
    clear(sum);
    if (fetches > 0) {
      // Two that take turns: of one the words come while those of the other are multiplied.
      Fetched turn[2];
      const uint32_t lead = (first_column(p, tile_origin(p, tile)) & 3) * 4;
      fetcher.enter(lead);
      fetcher.template fetch<0>(turn[0], lead);
      const auto multiply_and_fetch = [&](auto index, bool more) {
        constexpr int kNow = decltype(index)::value, kNext = kNow + 1;
        multiply<TILE, kNow % kOperands>(sum, turn[kNow % 2]);
        wgmma_wait<1>();
        fetcher.give_back();
        if (more) fetcher.template fetch<kNext % kOperands>(turn[kNext % 2], lead);
      };
      constexpr int kTurns = kOperands > 2 ? kOperands : 2;
#pragma unroll 1
      for (int left = fetches; left > 0; left -= kTurns) {
        multiply_and_fetch(std::integral_constant<int, 0>(), left > 1);
        if (kOperands == 1 && left == 1) break;
        multiply_and_fetch(std::integral_constant<int, 1>(), left > 2);
        if constexpr (kTurns == 4) {
          multiply_and_fetch(std::integral_constant<int, 2>(), true);
          multiply_and_fetch(std::integral_constant<int, 3>(), left > 4);
        }
      }
      wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < kOperands * phases(kTiles[TILE]); ++i) finished(sum[i]);
      fetcher.leave();
      fetcher.give_back();
    }
    store<TILE>(p, shared, tile, sum);
  }
}

template <int TILE>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_fan_kernel(const __grid_constant__ GatherParams p,
                       const __grid_constant__ TensorMaps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Scope at = walker_scope_of(p);
  Rings rings = rings_of(p, shared);
  if (threadIdx.x == 0) make_known(at, shared + kScope);
  build_positions(p, positions(kTiles[TILE]), shared);
  const auto init = [](const StageRing& ring, int full, int empty) {
    if (threadIdx.x >= ring.count) return;
    barrier_init(ring.barriers + threadIdx.x * 16, full);
    barrier_init(ring.barriers + threadIdx.x * 16 + 8, empty);
  };
  init(rings.x, 1, kConsumers / 32);
  init(rings.raw, 1, kTurners);
  init(rings.turned, kTurners, kConsumers / 32);
  for (int i = threadIdx.x; i < p.taps; i += kThreads)
    store_shared_4(shared + kPlaces + i * 4, p.place[at.group_h][i]);
  for (int i = threadIdx.x; i < kSums; i += kThreads) {
    const int column = at.column_tile * p.tile_channels + i;
    const bool there = p.bias && i < p.tile_channels && column < p.columns;
    const float* const bias = static_cast<const float*>(p.bias) + at.group * p.columns + column;
    store_shared_4(shared + kBiases + i * 4, there ? __float_as_uint(*bias) : 0);
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    fewer_registers<kProducerRegisters>();
    if (p.first_step[at.group_h] == p.first_step[at.group_h + 1]) {
      // Phases that no tap reaches.
    } else if (threadIdx.x >= kConsumers + 32) {
      turn(p, at, shared, rings);
    } else if (threadIdx.x == kConsumers) {
      copy(p, at, maps, rings);
    }
  } else {
    more_registers<kConsumerRegisters>();
    consume<TILE>(p, at, shared);
  }
#endif
}

}  // namespace convt2d::cuda::fan
