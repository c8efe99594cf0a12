// The twill kernel; twill_config.h draws the GEMM.
//
// One thread asks the copy engine for the chunks of a block's tiles, in a ring of stages: `full` ends a phase when a stage has
// arrived, `empty` when both warpgroups have multiplied it.
#pragma once

#include <type_traits>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/twill/twill_store.cuh"

namespace convt2d::cuda::twill {

__device__ __forceinline__ StageRing ring_of(const Params& p, uint32_t shared) {
  return {shared, shared + kStagesAt, p.stages, kStageBytes};
}

// Of a stage: pixels, those a row below, weights.
constexpr int kBelowAt = kPixelBoxes * kBox, kWeightsAt = 2 * kBelowAt;

__device__ __forceinline__ void bring(const Params& p, const Maps& maps, uint32_t shared) {
  StageRing ring = ring_of(p, shared);
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of(p, i);
    const int pixel = item.row * p.x_w + item.start, number = item.channel * kTaps;
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      const int depth = chunk * kDepth;
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), kStageBytes);
      uint32_t to = ring.stage();
#pragma unroll
      for (int box = 0; box < 2 * kPixelBoxes; ++box, to += kBox)
        copy_box(to, &maps.x, ring.full(),
                 pixel + box % kPixelBoxes * kLineNumbers + (box < kPixelBoxes ? 0 : p.x_w), depth,
                 item.group, item.image);
#pragma unroll
      for (int box = 0; box < kWeightBoxes; ++box, to += kBox)
        copy_box(to, &maps.w, ring.full(), number + box * kLineNumbers, depth, item.group, 0);
    }
  }
}

// Where a lane finds a kernel row of its two channels out, 18 numbers that follow each other: three are in two words.
constexpr int kWordsOfRow = 2;
CONVT2D_HOST_DEVICE constexpr int first_word(int channel, int kernel_row) {
  return (channel * kTaps + kernel_row * kKernel) / 2;
}

struct Words {
  uint32_t at[2][kWordsOfRow];  // of a stage, of its first channel in
  __device__ __forceinline__ Words(int kernel_row) {
    const int in = threadIdx.x % 4 * 2, pair = threadIdx.x % 128 / 4;
#pragma unroll
    for (int channel = 0; channel < 2; ++channel)
#pragma unroll
      for (int i = 0; i < kWordsOfRow; ++i) {
        const int word = pair * kTaps + first_word(channel, kernel_row) + i;
        at[channel][i] =
            kWeightsAt + word / 32 * kBox + in * kLine + ((word / 4 % 8) ^ in) * 16 + word % 4 * 4;
      }
  }
};

// A kernel row of a slice, as the tensor core wants it: words of its first two tap columns, and of the last.
using Word = uint32_t[4];
template <int KERNEL_ROW>
__device__ __forceinline__ void fetch(Word (&to)[kKernel - 1], Word& last, const Words& words,
                                      uint32_t from) {
#pragma unroll
  for (int channel = 0; channel < 2; ++channel) {
    uint32_t word[kWordsOfRow][2][2];  // of channels in: eight apart, neighbours
#pragma unroll
    for (int i = 0; i < kWordsOfRow; ++i) {
      const uint32_t even = from + words.at[channel][i], odd = (even ^ 16) + kLine;
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        word[i][eight][0] = load_shared_4(even + eight * 8 * kLine);
        word[i][eight][1] = load_shared_4(odd + eight * 8 * kLine);
      }
    }
#pragma unroll
    for (int tap = 0; tap < kKernel; ++tap) {
      const int number = channel * kTaps + KERNEL_ROW * kKernel + tap,
                i = number / 2 - first_word(channel, KERNEL_ROW);
#pragma unroll
      for (int eight = 0; eight < 2; ++eight)
        (tap == kKernel - 1 ? last : to[tap])[eight * 2 + channel] =
            __byte_perm(word[i][eight][0], word[i][eight][1], number % 2 ? 0x7632 : 0x5410);
    }
  }
#pragma unroll
  for (int tap = 0; tap < kKernel; ++tap) computed(tap == kKernel - 1 ? last : to[tap]);
}

// In two batches: once the first one is done, words of the last column may come again.
template <class T, int PIXELS>
__device__ __forceinline__ void multiply_row(Sums<PIXELS>& sum, const Word (&w)[kKernel - 1],
                                             const Word& last, uint64_t x) {
  wgmma_fence();
  WgmmaTurned<T, PIXELS>::add(sum[kKernel - 1], last, x);
  wgmma_commit();
#pragma unroll
  for (int tap = 0; tap < kKernel - 1; ++tap) WgmmaTurned<T, PIXELS>::add(sum[tap], w[tap], x);
  wgmma_commit();
}

// The kernel rows of a warpgroup's rows of y, and which pixels they are multiplied by: two, or one.
template <bool TWO>
struct Rows {
  static constexpr int count = TWO ? 2 : 1, batches = count * kSlices;
  CONVT2D_HOST_DEVICE static constexpr int kernel_row(int batch) {
    return !TWO ? 1 : batch % 2 ? 2 : 0;
  }
  CONVT2D_HOST_DEVICE static constexpr int offset(int batch) {
    return (TWO && batch % 2 == 0 ? kBelowAt : 0) + batch / count * kSlice * kLine;
  }
  const Words first = Words(kernel_row(0)), second = Words(kernel_row(1));
  template <int BATCH>
  __device__ __forceinline__ void fetch_batch(Word (&to)[kKernel - 1], Word& last,
                                              uint32_t stage) const {
    fetch<kernel_row(BATCH)>(to, last, TWO && BATCH % 2 ? second : first,
                             stage + BATCH / count * kSlice * kLine);
  }
};

// Where sums start: those of two of the three tap columns, which outputs have, at the bias.
template <class T, int PIXELS>
__device__ __forceinline__ void start(const Params& p, int index, Sums<PIXELS>& sum) {
  float bias[2] = {};
  if (p.bias) {
    const Item item = item_of(p, index);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int channel = item.channel + threadIdx.x % 128 / 4 * 2 + i;
      if (channel < p.columns)
        bias[i] = load(static_cast<const T*>(p.bias) + item.group * p.columns + channel);
    }
  }
#pragma unroll
  for (int tap = 0; tap < kKernel; ++tap)
#pragma unroll
    for (int i = 0; i < PIXELS / 2; ++i) sum[tap][i] = tap == 0 ? 0.f : bias[i / 2 % 2];
}

// The products of a tile.
template <class T, int PIXELS, bool TWO>
__device__ __forceinline__ void multiply(const Params& p, const Rows<TWO>& rows, StageRing& ring,
                                         Sums<PIXELS>& sum) {
  const uint64_t layout = turned_layout(kLine, kBox);
  // These take turns: of one the words come while those of the other are multiplied. For the last column's there is no room twice.
  Word turn[2][kKernel - 1], last;
  barrier_wait(ring.full(), ring.parity);
  rows.template fetch_batch<0>(turn[0], last, ring.stage());
  uint32_t before = 0;  // `empty` of the stage whose last products are under way
#pragma unroll 1
  for (int left = p.chunks; left > 0; --left) {
    const StageRing now = ring;
    ring.advance();
    // After the last stage its first words once more.
    const bool more = left > 1;
    const uint32_t next = more ? ring.stage() : now.stage(), full = more ? ring.full() : now.full(),
                   parity = more ? ring.parity : now.parity;
    const uint64_t x = operand(layout, now.stage());
    const auto batch = [&](auto index) {
      constexpr int kNow = decltype(index)::value, kNext = (kNow + 1) % Rows<TWO>::batches;
      multiply_row<T, PIXELS>(sum, turn[kNow % 2], last, advance(x, Rows<TWO>::offset(kNow) >> 4));
      wgmma_wait<1>();
      if (kNow == 0 && before && threadIdx.x % 32 == 0) barrier_arrive(before);
      if (kNext == 0) barrier_wait(full, parity);
      rows.template fetch_batch<kNext>(turn[kNext % 2], last, kNext == 0 ? next : now.stage());
    };
    batch(std::integral_constant<int, 0>());
    batch(std::integral_constant<int, 1>());
    if constexpr (TWO) {
      batch(std::integral_constant<int, 2>());
      batch(std::integral_constant<int, 3>());
    }
    before = now.empty();
  }
  wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) barrier_arrive(before);
#pragma unroll
  for (int tap = 0; tap < kKernel; ++tap) finished(sum[tap]);
}

template <class T, int PIXELS, bool TWO, bool RUNS>
__device__ __forceinline__ void consume(const Params& p, const CUtensorMap* y, uint32_t shared) {
  const int lane = threadIdx.x % 32, warp = warp_of_block();
  const uint32_t staging = shared + kStagesAt + p.stages * kStageBytes + warp * p.out_bytes;
  const Rows<TWO> rows;
  StageRing ring = ring_of(p, shared);
  bool nan = false;
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    Sums<PIXELS> sum;
    start<T, PIXELS>(p, i, sum);
    multiply<T, PIXELS, TWO>(p, rows, ring, sum);
    uint32_t index = i;
    keep_in_register(index);  // what follows from it is worked out again: sums want the registers
    const Item item = item_of(p, int(index));
    if constexpr (RUNS)
      nan |= store_runs<T, PIXELS, TWO>(p, sum, item, staging);
    else
      nan |= store_boxes<T, PIXELS, TWO>(p, sum, item, y, staging);
  }
  if (RUNS || lane == 0) stored_boxes_there();
  __syncwarp();
  if (TWO && __any_sync(~0u, nan)) repair<T>(p);
}

template <class T, int TILE>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_twill_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  start_stages(shared, p.stages, 1, kConsumers / 32);
  if (threadIdx.x == kConsumers) {
    prefetch_map(&maps.x);
    prefetch_map(&maps.w);
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= kConsumers / 32) {
    fewer_registers<kProducerRegisters>();
    if (threadIdx.x == kConsumers) bring(p, maps, shared);
  } else {
    more_registers<kConsumerRegisters>();
    constexpr Tile tile = kTiles[TILE];
    if (warpgroup_of_block() == 0)
      consume<T, tile.pixels, true, tile.runs>(p, &maps.y[0], shared);
    else
      consume<T, tile.pixels, false, tile.runs>(p, &maps.y[1], shared);
  }
#endif
}

}  // namespace convt2d::cuda::twill
