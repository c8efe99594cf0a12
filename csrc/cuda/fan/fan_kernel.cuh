// The fan kernel; fan_config.h draws the tiling.
//
// Rings of stages with two barriers each: `full` ends a phase when a stage has arrived, `empty` when all who read it have
// left it. Warpgroups that multiply take no turns: while one stores others multiply.
#pragma once

#include "cuda/fan/fan_stage.cuh"
#include "cuda/fan/fan_store.cuh"

namespace convt2d::cuda::fan {

// What a lane holds of a step: pixels; and the weights they go with, as Step has them.
struct Fetched {
  uint32_t word[4];
  uint32_t weights;
};
// Which stage of a ring is the next, and the parity of its turn.
struct Ring {
  int index = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++index == stages) index = 0, parity ^= 1;
  }
};

// A batch of products with the phases of PHASES, a bit each; one that is multiplied with all of them, or with none of
// the others, has no branch: each instruction behind one would be a batch of its own.
template <int TILE, int PHASES>
__device__ __forceinline__ void multiply_batch(Sums<TILE>& sum, const Fetched& x) {
  constexpr int kChannels = channels(kTiles[TILE]);
  constexpr uint32_t kHalf = kEight * 16;
  const uint64_t w = operand_layout(kHalf, 2 * kHalf) | (x.weights & 0x3fff);
  int before = 0;
  wgmma_fence();
#pragma unroll
  for (int phase = 0; phase < count(kTiles[TILE]); ++phase)
    if (PHASES >> phase & 1)
      WgmmaFetched<float, kChannels>::add(sum[phase], x.word,
                                          advance(w, before++ * tap_bytes(kChannels) >> 4));
  wgmma_commit();
}
template <int TILE>
__device__ __forceinline__ void multiply(Sums<TILE>& sum, const Fetched& x) {
  constexpr int kPhases = count(kTiles[TILE]);
  if constexpr (kPhases == 1) {
    multiply_batch<TILE, 1>(sum, x);
  } else {
    switch (x.weights >> kPhasesShift) {
      case 1:
        multiply_batch<TILE, 1>(sum, x);
        break;
      case 2:
        multiply_batch<TILE, 2>(sum, x);
        break;
      case 3:
        multiply_batch<TILE, 3>(sum, x);
        break;
      default:
        if constexpr (kPhases == 4) {
          switch (x.weights >> kPhasesShift) {
            case 4:
              multiply_batch<TILE, 4>(sum, x);
              break;
            case 5:
              multiply_batch<TILE, 5>(sum, x);
              break;
            case 8:
              multiply_batch<TILE, 8>(sum, x);
              break;
            case 10:
              multiply_batch<TILE, 10>(sum, x);
              break;
            case 12:
              multiply_batch<TILE, 12>(sum, x);
              break;
            default:
              multiply_batch<TILE, 15>(sum, x);
          }
        }
    }
  }
}

// Goes through the steps of a tile, ahead of the multiplications.
struct Fetcher {
  const GatherParams& p;
  const uint32_t shared;
  const int first, end;  // steps of the block
  uint32_t lane[2];      // in a patch, of the lane's two positions
  uint32_t x, weights;   // of the slice: addresses, of weights in units of 16 bytes
  int step, slice;
  Ring x_ring, turned_ring;
  // Of a chunk that was left, but is maybe being read, its stages: one more than that of x, and the turned one.
  int left_x, left_turned;

  // `lead`: from where a patch starts to the pixels of a tile.
  __device__ __forceinline__ void enter(uint32_t lead) {
    barrier_wait(shared + kXBarriers + x_ring.index * 16, x_ring.parity);
    barrier_wait(shared + kTurnedBarriers + turned_ring.index * 16, turned_ring.parity);
    x = shared + p.x_at + x_ring.index * p.x_bytes + lead;
    weights = (shared + p.turned_at + turned_ring.index * p.turned_bytes) >> 4;
    step = first;
    slice = 0;
  }
  __device__ __forceinline__ void leave() {
    left_x = x_ring.index + 1;
    left_turned = turned_ring.index;
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
  __device__ __forceinline__ void fetch(Fetched& to, uint32_t lead) {
    if (step == end) {
      step = first;
      x += kSlice * p.channel_pitch;
      weights += p.slice_bytes >> 4;
      if (++slice == p.slices) {
        leave();
        enter(lead);
      }
    }
    const Step now = p.step[step++];
    to.weights = weights + now.weights;
    const uint32_t from = x + now.pixel, far = from + p.far;
#pragma unroll
    for (int i = 0; i < 4; ++i) to.word[i] = load_shared_4(lane[i % 2] + (i < 2 ? from : far));
  }
};

template <int TILE>
__device__ __forceinline__ void consume(const GatherParams& p, const Scope& at, uint32_t shared) {
  // From one lane, so that the compiler sees that a warp goes one way.
  const int warp = __shfl_sync(0xffffffff, int(threadIdx.x) / 32, 0), t = threadIdx.x % 32;
  int positions[2];
  Fetcher fetcher{p, shared, p.first_step[at.group_h], p.first_step[at.group_h + 1]};
  fetcher.left_x = 0;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int i = warp * 16 + row * 8 + t / 4, line = i / p.tile_w, n = line / p.tile_h;
    const int h = line - n * p.tile_h, w = i - line * p.tile_w;
    positions[row] = n < p.tile_n ? n << 20 | h << 10 | w : -1;
    fetcher.lane[row] =
        (n < p.tile_n ? n * p.image_pitch + h * p.row_pitch + w * 4 : 0) + t % 4 * p.channel_pitch;
  }
  const int steps = (fetcher.end - fetcher.first) * p.slices * p.chunks;
  const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  for (int tile = at.walker; tile < tiles; tile += p.walkers[at.group_h]) {
    Sums<TILE> sum;
    clear(sum);
    if (steps > 0) {
      Fetched even, odd;
      const uint32_t lead = (first_column(p, tile_origin(p, tile)) & 3) * 4;
      fetcher.enter(lead);
      fetcher.fetch(even, lead);
#pragma unroll 1
      for (int left = steps; left > 0; left -= 2) {
        multiply<TILE>(sum, even);
        wgmma_wait<1>();
        fetcher.give_back();
        if (left == 1) break;
        fetcher.fetch(odd, lead);
        multiply<TILE>(sum, odd);
        wgmma_wait<1>();
        fetcher.give_back();
        if (left > 2) fetcher.fetch(even, lead);
      }
      wgmma_wait<0>();
#pragma unroll
      for (int phase = 0; phase < count(kTiles[TILE]); ++phase) finished(sum[phase]);
      fetcher.leave();
      fetcher.give_back();
    }
    store<TILE>(p, shared, tile, positions, sum);
  }
}

template <int TILE>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_fan_kernel(const __grid_constant__ GatherParams p,
                       const __grid_constant__ TensorMaps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Scope at = scope_of(p);
  Rings rings = rings_of(p, shared);
  if (threadIdx.x == 0) make_known(at, shared);
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
  for (int i = threadIdx.x; i < kColumns; i += kThreads) {
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
