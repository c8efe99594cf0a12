// The gauze kernel; gauze_config.h draws the GEMM.
//
// One thread asks the copy engine for the chunks of a block's tiles, in a ring of stages: `full` ends a phase when a stage has
// arrived, `empty` when all warps have fetched it.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/hidden_zero.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/gauze/gauze_store.cuh"

namespace convt2d::cuda::gauze {

__device__ __forceinline__ StageRing ring_of(const Params& p, uint32_t shared) {
  return {shared, shared + p.stages_at, p.stages, p.stage_bytes};
}

template <class T, int TILE>
__device__ __forceinline__ void bring(const Params& p, const Maps& maps, uint32_t shared) {
  constexpr int kFirst = first_shift(kTiles[TILE].kernel);
  StageRing ring = ring_of(p, shared);
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of<TILE>(p, i);
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), p.stage_bytes);
      copy_box(ring.stage(), &maps.x, ring.full(), item.column - p.lead, chunk * depth(sizeof(T)),
               item.row + kFirst, item.image * p.groups + item.group);
    }
  }
}

// Which channel of half a slice is number `k` of its 16 bytes: a lane fetches channels four apart, which 16 bits make a word of.
template <class T>
CONVT2D_HOST_DEVICE constexpr int channel_of(int k) {
  return sizeof(T) == 2 ? k / 2 + k % 2 * 4 : k;
}

// 16 bytes of w of each channel of half a slice, and from there to `half`: of each number what these channels have.
template <class T>
using Unit = uint32_t[16 / sizeof(T)][4];
template <class T, int TILE>
__device__ __forceinline__ void store_unit(const Unit<T>& word, int unit, uint32_t half) {
  constexpr Tile tile = kTiles[TILE];
  constexpr int kNumbers = 16 / sizeof(T);
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) {
    const int number = unit * kNumbers + i, channel = number / taps(tile),
              tap = number % taps(tile);
    uint32_t turned[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      turned[j] = sizeof(T) == 2
                      ? __byte_perm(word[2 * j % kNumbers][i / 2],
                                    word[(2 * j + 1) % kNumbers][i / 2], i % 2 ? 0x7632 : 0x5410)
                      : MmaTF32::round(word[j][i % 4]);
    store_shared_16(half + (tap * tile.channels + channel) * 16, turned);
  }
}

// A block's weights and biases to shared memory. What does not exist is zero.
template <class T, int TILE>
__device__ __forceinline__ void bring_weights(const Params& p, uint32_t shared) {
  constexpr Tile tile = kTiles[TILE];
  constexpr int kNumbers = 16 / sizeof(T), kUnits = tile.channels * taps(tile) / kNumbers,
                kAtOnce = 16 / kNumbers;  // all wait as long as one
  const Item item = item_of<TILE>(p, blockIdx.x);
  const int first = item.group * p.columns + item.channel, left = p.columns - item.channel;
  if (threadIdx.x < tile.channels)
    store_shared_sum(shared + kBiasAt + threadIdx.x * 4,
                     p.bias && int(threadIdx.x) < left
                         ? load(static_cast<const T*>(p.bias) + first + threadIdx.x)
                         : 0.f);
  const int row = p.columns * taps(tile), units = left * taps(tile) / kNumbers,
            all = p.chunks * kSlices * 2 * kUnits;
  const T* const w =
      static_cast<const T*>(p.w) + int64_t{item.group} * p.reduce * row + item.channel * taps(tile);
  for (int from = threadIdx.x; from < all; from += kAtOnce * consumers(tile)) {
    Unit<T> word[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int index = from + k * consumers(tile), half = index / kUnits, unit = index % kUnits;
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) {
        const int channel = half * kNumbers + channel_of<T>(i);
        load_16_if(w + channel * row + unit * kNumbers, unit, channel < p.reduce ? units : 0,
                   word[k][i]);
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int index = from + k * consumers(tile);
      if (index < all)
        store_unit<T, TILE>(word[k], index % kUnits,
                            shared + kWeightsAt + index / kUnits * half_bytes(tile));
    }
  }
  fence_for_wgmma();
  barrier_among(1, consumers(tile));
}

// What a lane fetches for a step, which is a slice of K of a row of x: the pairs of pixels, of four channels of 16 bits, or of two.
template <int TILE>
using Pairs = uint32_t[shifts(kTiles[TILE].kernel)][4];
// And what the tensor core wants for each shift along that row.
template <int TILE>
using Words = uint32_t[shifts(kTiles[TILE].kernel)][4];

template <class T, int TILE>
__device__ __forceinline__ void fetch(const Params& p, Pairs<TILE>& pair, uint32_t from) {
  constexpr int kChannels = sizeof(T) == 2 ? 4 : 2;
#pragma unroll
  for (int channel = 0; channel < kChannels; ++channel, from += 4 * p.pitch)
#pragma unroll
    for (int i = 0; i < shifts(kTiles[TILE].kernel); ++i) {
      const uint32_t at = from + i * 2 * int(sizeof(T));
      if constexpr (sizeof(T) == 2) {
        pair[i][channel] = load_shared_4(at);
      } else {
        uint32_t both[2];
        load_shared_8(at, both);
        pair[i][channel * 2] = both[0], pair[i][channel * 2 + 1] = both[1];
      }
    }
}

// Rows g and g + 8 of an instruction are neighbouring pixels, `shift` from a lane's own and the next.
template <class T, int TILE>
__device__ __forceinline__ void arrange(Words<TILE>& word, const Pairs<TILE>& pair) {
  constexpr int kFirst = first_shift(kTiles[TILE].kernel);
  // Else the compiler finds, too, that two shifts have words alike, and moves these from one's to the other's registers, for each
  // instruction.
  const uint32_t hidden = hidden_zero();
#pragma unroll
  for (int i = 0; i < shifts(kTiles[TILE].kernel); ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        // From the first pixel of the first pair.
        const int pixel = i + kFirst + next - 2 * kFirst;
        const uint32_t (&of)[4] = pair[pixel / 2];
        const int picked = pixel % 2 ? 0x7632 : 0x5410;
        word[i][half * 2 + next] = sizeof(T) == 2 ? __byte_perm(of[half * 2], of[half * 2 + 1],
                                                                next ? picked | hidden : picked)
                                   : next         ? of[half * 2 + pixel % 2] ^ hidden
                                                  : of[half * 2 + pixel % 2] | hidden;
      }
    computed(word[i]);
  }
}

// All products of a step: row `row` of those that shifts reach. In an order in which none adds to the sums of the one before.
template <class T, int TILE>
__device__ __forceinline__ void multiply_step(Sums<TILE>& sum, const Words<TILE>& word, int row,
                                              uint64_t weights) {
  constexpr Tile tile = kTiles[TILE];
  constexpr int kFirst = first_shift(tile.kernel);
#pragma unroll
  for (int column = 0; column < shifts(tile.kernel); ++column)
#pragma unroll
    for (int b = kStride - 1; b >= 0; --b)
#pragma unroll
      for (int a = 0; a < kStride; ++a) {
        const int h = tap_of(a, row + kFirst), v = tap_of(b, column + kFirst);
        if (h >= 0 && h < tile.kernel && v >= 0 && v < tile.kernel)
          WgmmaFetched<T, tile.channels>::add(
              sum[2 * a + b], word[column],
              advance(weights, (h * tile.kernel + v) * tile.channels));
      }
}

// The products of a tile. The words of a step stay until it is multiplied, two steps later; those of the next one are fetched
// meanwhile. `after_chunk` is called at the end of each.
template <class T, int TILE, class Visit>
__device__ __forceinline__ void multiply(const Params& p, uint32_t place, uint32_t shared,
                                         StageRing& ring, Sums<TILE>& sum, Visit&& after_chunk) {
  constexpr Tile tile = kTiles[TILE];
  constexpr int kRows = shifts(tile.kernel), kSteps = kSlices * kRows;
  static_assert(kSteps % 2 == 0);
  const uint64_t layout = operand_layout(half_bytes(tile), 128);
  const int slice = slice_channels(sizeof(T)) * p.pitch;
  Words<TILE> word[2];
  Pairs<TILE> pair;
  uint32_t at_weights = shared + kWeightsAt;
  barrier_wait(ring.full(), ring.parity);
  fetch<T, TILE>(p, pair, ring.stage() + place);
#pragma unroll 1
  for (int left = p.chunks; left > 0; --left, at_weights += kSlices * slice_bytes(tile)) {
    const uint64_t weights = operand(layout, at_weights);
    const uint32_t stage = ring.stage() + place;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      arrange<T, TILE>(word[step % 2], pair);
      wgmma_fence();
      multiply_step<T, TILE>(sum, word[step % 2], step % kRows,
                             advance(weights, step / kRows * (slice_bytes(tile) >> 4)));
      wgmma_commit();
      const int next = step + 1;
      if (next < kSteps) {
        fetch<T, TILE>(p, pair, stage + next % kRows * p.row_bytes + next / kRows * slice);
      } else {
        __syncwarp();  // all have their words
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
        ring.advance();
        after_chunk();
        if (left > 1) {
          barrier_wait(ring.full(), ring.parity);
          fetch<T, TILE>(p, pair, ring.stage() + place);
        }
      }
      wgmma_wait<1>();
    }
  }
  wgmma_wait<0>();
#pragma unroll
  for (int phase = 0; phase < kPhases; ++phase) finished(sum[phase]);
}

// Where sums start: at the biases.
template <int TILE>
__device__ __forceinline__ void start(Sums<TILE>& sum, uint32_t biases) {
#pragma unroll
  for (int channel = 0; channel < kTiles[TILE].channels; channel += 8)
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const float bias = load_shared<float>(biases + (channel + threadIdx.x % 4 * 2 + odd) * 4);
#pragma unroll
      for (int phase = 0; phase < kPhases; ++phase)
        sum[phase][channel / 2 + odd] = sum[phase][channel / 2 + 2 + odd] = bias;
    }
}

// Of the names of barriers: from behind it on, of each warpgroup but the first.
constexpr int kTurns = 1;

template <class T, int TILE>
__device__ __forceinline__ void consume(const Params& p, uint32_t shared) {
  constexpr Tile tile = kTiles[TILE];
  constexpr int kFirst = first_shift(tile.kernel);
  bring_weights<T, TILE>(p, shared);
  StageRing ring = ring_of(p, shared);
  // Of a stage, a lane's first pair, of its first row and channel.
  const Pixel pixel = pixel_of(p);
  const uint32_t place = pixel.row * p.row_bytes + threadIdx.x % 4 * p.pitch +
                         (p.lead + pixel.column + 2 * kFirst) * int(sizeof(T));
  uint32_t probe = 0;
  // Warpgroups start one after the other, a chunk apart, and stay so: while one stores, others multiply.
  const int team = warpgroup_of_block();
  bool next_waits = team + 1 < tile.teams;
  if (team > 0) barrier_among(kTurns + team, 256);
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    Sums<TILE> sum;
    start<TILE>(sum, shared + kBiasAt);
    multiply<T, TILE>(p, place, shared, ring, sum, [&] {
      if (next_waits) barrier_join(kTurns + team + 1, 256);
      next_waits = false;
    });
    uint32_t index = i;
    keep_in_register(index);  // what follows from it is worked out again: sums want the registers
    store_tile<T, TILE>(p, sum, item_of<TILE>(p, int(index)), probe);
  }
  if (!barrier_all(1, consumers(tile), !is_nan<T>(probe))) repair<T, TILE>(p);
}

template <class T, int TILE>
__global__ void __launch_bounds__(threads(kTiles[TILE]), 1)
    convt2d_gauze_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  constexpr Tile tile = kTiles[TILE];
  start_stages(shared, p.stages, 1, consumers(tile) / 32);
  if (threadIdx.x == consumers(tile)) prefetch_map(&maps.x);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= consumers(tile) / 32) {
    fewer_registers<producer_registers(tile)>();
    if (threadIdx.x == consumers(tile)) bring<T, TILE>(p, maps, shared);
  } else {
    more_registers<consumer_registers(tile)>();
    consume<T, TILE>(p, shared);
  }
#endif
}

}  // namespace convt2d::cuda::gauze
