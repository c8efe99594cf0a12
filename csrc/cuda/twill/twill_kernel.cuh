// The twill kernel; twill_config.h draws the GEMM.
//
// One thread asks the copy engine for the chunks of a block's tiles, in a ring of stages: `full` ends a phase when a stage has
// arrived, `empty` when both warpgroups have multiplied it.
#pragma once

#include <type_traits>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/tensor_store.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/twill/twill_config.h"

namespace convt2d::cuda::twill {

// 64 output channels, and rows of an image or a part of one.
struct Item {
  int image, group, channel;  // the first channel, of the group's
  int row, start;             // of x: the first row, and pixel of a row
};
// Items side by side have the same pixels.
__device__ __forceinline__ Item item_of(const Params& p, int index) {
  unsigned rest = index, next = p.by_row_tiles.quotient(rest);
  Item item;
  item.channel = int(rest - next * p.by_row_tiles.divisor) * kChannels;
  rest = next, next = p.by_strips.quotient(rest);
  item.start = int(rest - next * p.by_strips.divisor) * p.own;
  rest = next, next = p.by_blocks.quotient(rest);
  item.row = int(rest - next * p.by_blocks.divisor) * p.rows;
  item.image = int(p.by_groups.quotient(next));
  item.group = int(next - item.image * p.by_groups.divisor);
  return item;
}

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

// A kernel row of a slice, as the tensor core wants it.
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

template <int PIXELS>
using Sums = float[kKernel][PIXELS / 2];

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
  // These take turns: of one the words come while those of the other are multiplied.
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

// A bit for each eight of a tile's pixels: a row of x ends with it.
__device__ __forceinline__ uint32_t row_ends(const Params& p, const Item& item) {
  const int left = p.x_w - item.start;
  return left <= kMostPixels ? p.row_ends << (left / kEight - 1) : 0;
}

// A warp's rows of y to `staging`; whether there may be a NaN among them.
template <class T, int PIXELS, bool TWO>
__device__ __forceinline__ bool add_up(const Params& p, const Sums<PIXELS>& sum, uint32_t ends,
                                       uint32_t staging) {
  const int lane = threadIdx.x % 32, t = lane % 4, pair = lane / 4,
            neighbour = pair * 4 + (t + 1) % 4;
  // Where a lane's two channels are, and what their 16 bytes are swizzled by.
  const int line = p.box * kEightBytes;
  uint32_t to[2], swizzle[2], probe = 0;
#pragma unroll
  for (int channel = 0; channel < 2; ++channel) {
    const int at = (pair * 2 + channel) * line;
    to[channel] = staging + at / 128 * 128;
    swizzle[channel] = (at % 128 + t * 8) ^ (at / 128 & (p.box * 2 - 1)) * 16;
  }
  if (t != 3) ends = 0;
#pragma unroll
  for (int e = 0; e < PIXELS / kEight; ++e)
#pragma unroll
    for (int channel = 0; channel < 2; ++channel) {
      const int i = 4 * e + 2 * channel;
      // Of the pixel behind two: the next lane's first, which the last of four finds in the next eight.
      const float own = sum[0][i], later = e + 1 < PIXELS / kEight ? sum[0][i + 4] : 0.f;
      float right = __shfl_sync(~0u, t == 0 ? later : own, neighbour);
      if (ends >> e & 1) right = 0;
      const uint32_t word[2] = {pack<T>(sum[1][i], sum[2][i] + sum[0][i + 1]),
                                pack<T>(sum[1][i + 1], sum[2][i + 1] + right)};
      store_shared(to[channel] + (p.place[e] ^ swizzle[channel]), word);
      if (TWO) probe = add_zero_times_pair<T>(word[0], add_zero_times_pair<T>(word[1], probe));
    }
  const float all = add_pair<T>(probe);
  return all != all;
}

// Row 2 * x_h - 1 of y has a tap row below the image, whose zeros make NaN of a weight that is not finite. What came out NaN of it is
// summed again without that. All of a warp's outputs are there.
template <class T>
__device__ __noinline__ void repair(const Params& p) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, h = p.x_h - 1,
            plane = p.x_h * p.x_w;
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of(p, i);
    if (item.row + p.rows < p.x_h || h * kStride + 1 >= p.y_h) continue;
    const int columns = min(p.own, p.x_w - item.start) * kStride;
    for (int k = lane; k < kOutChannels * columns; k += 32) {
      const int column = item.start * kStride + k % columns,
                channel = item.channel + warp * kOutChannels + k / columns,
                all = item.group * p.columns + channel, j = column / kStride;
      if (channel >= p.columns) continue;
      T* const y = static_cast<T*>(p.y) +
                   (int64_t{item.image} * p.groups * p.columns + all) * p.y_h * p.x_w * kStride +
                   (h * kStride + 1) * p.x_w * kStride + column;
      const float value = Numeric<T>::widen(*y);
      if (value == value) continue;
      const T* x = static_cast<const T*>(p.x) +
                   (int64_t{item.image} * p.groups + item.group) * p.reduce * plane + h * p.x_w + j;
      const T* w = static_cast<const T*>(p.w) +
                   (int64_t{item.group} * p.reduce * p.columns + channel) * kTaps + 2 * kKernel;
      float sum = 0;
      for (int in = 0; in < p.reduce; ++in, x += plane, w += p.columns * kTaps) {
        sum += load(x) * load(w + (column % 2 ? 2 : 1));
        if (column % 2 && j + 1 < p.x_w) sum += load(x + 1) * load(w);
      }
      *y = Numeric<T>::narrow(sum + (p.bias ? load(static_cast<const T*>(p.bias) + all) : 0.f));
    }
  }
}

template <class T, int PIXELS, bool TWO>
__device__ __forceinline__ void consume(const Params& p, const CUtensorMap* y, uint32_t shared) {
  const int lane = threadIdx.x % 32, warp = warp_of_block();
  const uint32_t staging = shared + kStagesAt + p.stages * kStageBytes + warp * kOutBytes;
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
    if (lane == 0) stored_boxes_read();
    __syncwarp();  // the outputs before have been read
    nan |= add_up<T, PIXELS, TWO>(p, sum, row_ends(p, item), staging);
    fence_for_wgmma();  // and for the copy engine
    __syncwarp();
    if (lane == 0) {
      const int columns = p.box * kEight, bytes = p.rows * kOutChannels * p.box * kEightBytes;
      const int channel = item.channel + warp % 4 * kOutChannels,
                end = min(item.start + p.own, p.x_w);
      uint32_t from = staging;
      for (int column = item.start; column < end; column += columns, from += bytes)
        store_box(y, from, column * kStride, channel, item.row, item.group, item.image);
    }
  }
  if (lane == 0) stored_boxes_there();
  __syncwarp();
  if (TWO && __any_sync(~0u, nan)) repair<T>(p);
}

template <class T, int TILE>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_twill_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  if (threadIdx.x < p.stages) {
    barrier_init(shared + threadIdx.x * 16, 1);
    barrier_init(shared + threadIdx.x * 16 + 8, kConsumers / 32);
  }
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
    if (warpgroup_of_block() == 0)
      consume<T, kPixels[TILE], true>(p, &maps.y[0], shared);
    else
      consume<T, kPixels[TILE], false>(p, &maps.y[1], shared);
  }
#endif
}

}  // namespace convt2d::cuda::twill
