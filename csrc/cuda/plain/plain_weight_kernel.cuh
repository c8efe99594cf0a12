// plain's grad_weight; plain_config.h draws it.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/plain/plain_config.h"

namespace convt2d::cuda::plain {

// A block's channels of a group, and its chunks. Neighbouring blocks read the same pixels.
struct WeightScope {
  int row, column, group;
  int piece, begin, end;
};
__device__ __forceinline__ WeightScope scope_of(const WeightParams& p, int width) {
  Digits number{int(blockIdx.x)};
  WeightScope at;
  at.row = number.next(p.row_tiles) * block_rows(p);
  at.column = number.next(p.column_tiles) * width;
  at.group = number.next(p.groups);
  at.piece = number.rest;
  at.begin = static_cast<int>(int64_t{p.chunks} * at.piece / p.split);
  at.end = static_cast<int>(int64_t{p.chunks} * (at.piece + 1) / p.split);
  return at;
}

// All that a block reads, by one thread.
template <int WIDTH>
__device__ __forceinline__ void bring(const WeightParams& p, const Maps& maps,
                                      const WeightScope& at, StageRing& ring) {
  const int rows = block_rows(p);
  for (int i = at.begin; i < at.end; ++i, ring.advance()) {
    const int image = p.by_image.quotient(i), plane = image * p.groups + at.group,
              pixel = (i - image * static_cast<int>(p.by_image.divisor)) * kBox;
    barrier_wait(ring.empty(), ring.parity ^ 1);
    barrier_expect(ring.full(), stage_bytes(p, WIDTH));
    for (int r = 0; r < rows; r += kBox)
      copy_box(ring.stage() + r * kLine, &maps.first, ring.full(), pixel, at.row + r, plane, 0);
#pragma unroll
    for (int c = 0; c < WIDTH; c += kBox)
      copy_box(ring.stage() + (rows + c) * kLine, &maps.second, ring.full(), pixel, at.column + c,
               plane, 0);
  }
}

// The sums of a warpgroup: its rows, or its chunks.
template <class T, int WIDTH>
__device__ __forceinline__ void multiply(const WeightParams& p, const WeightScope& at,
                                         const StageRing& all, float (&sum)[1][WIDTH / 2]) {
  const int group = warpgroup_of_block(), step = p.apart ? kGroups : 1;
  const uint64_t layout = swizzled_layout(kLine, 8 * kLine);
  clear(sum);
  Ring ring;
  if (p.apart) ring.skip(group, p.stages);
#pragma unroll 1
  for (int i = at.begin + (p.apart ? group : 0); i < at.end; i += step, ring.skip(step, p.stages)) {
    const uint32_t barrier = all.barriers + ring.stage * 16,
                   stage = all.stages + ring.stage * all.bytes;
    barrier_wait(barrier, ring.parity);
    const uint64_t x = operand(layout, stage + (p.apart ? 0 : group * kBoxBytes)),
                   y = operand(layout, stage + block_rows(p) * kLine);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < kBox / kSlice; ++slice)
      Wgmma<T, WIDTH>::add(sum[0], advance(x, slice * (2 * kSlice >> 4)),
                           advance(y, slice * (2 * kSlice >> 4)));
    wgmma_commit();
    // Until the products are done: with another batch under way nvcc 13.0 copies the sums, and the other group has some.
    wgmma_wait<0>();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier + 8);
  }
  finished(sum[0]);
}

// What both warpgroups have of the same rows, added up by the first one.
template <int WIDTH>
__device__ __forceinline__ void add_up(uint32_t shared, float (&sum)[1][WIDTH / 2]) {
  const uint32_t mine = shared + threadIdx.x % 128 * 4;
  barrier_among(1, kConsumers);  // the stages have been read
  if (threadIdx.x >= 128)
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) store_shared_sum(mine + i * 512, sum[0][i]);
  barrier_among(1, kConsumers);
  if (threadIdx.x < 128)
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) sum[0][i] += load_shared<float>(mine + i * 512);
}

template <class T, int WIDTH>
__device__ __forceinline__ void store(const WeightParams& p, const WeightScope& at,
                                      const float (&sum)[WIDTH / 2]) {
  const int lane = threadIdx.x % 32;
  const int row =
      at.row + (p.apart ? 0 : threadIdx.x / 128 * kBox) + threadIdx.x / 32 % 4 * 16 + lane / 4;
  const int column = at.column + lane % 4 * 2;
  const int64_t first = int64_t{at.group * p.rows + row} * p.columns + column;
  float* const partial =
      p.partials ? p.partials + int64_t{at.piece} * p.piece_floats + first : nullptr;
  T* const weight = static_cast<T*>(p.weight) + first;
#pragma unroll
  for (int i = 0; i < WIDTH / 2; i += 2) {
    const int below = i % 4 * 4, right = i / 4 * 8;  // 8 rows, 8 columns
    const bool there = row + below < p.rows && column + right < p.columns;
    const int to = below * p.columns + right;
    if (p.partials)
      store_words_if<2>(there ? 0 : -1, partial + to, __float_as_uint(sum[i]),
                        __float_as_uint(sum[i + 1]), 0, 0);
    else
      store_words_if<1>(there ? 0 : -1, weight + to, pack<T>(sum[i], sum[i + 1]), 0, 0, 0);
  }
}

template <class T, int WIDTH>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_plain_grad_weight_kernel(const __grid_constant__ WeightParams p,
                                     const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const WeightScope at = scope_of(p, WIDTH);
  StageRing ring{shared, shared + kHeader, p.stages, stage_bytes(p, WIDTH)};
  if (threadIdx.x < p.stages) {
    barrier_init(ring.barriers + threadIdx.x * 16, 1);
    barrier_init(ring.barriers + threadIdx.x * 16 + 8, p.apart ? 4 : 8);  // warps
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= kConsumers / 32) {
    fewer_registers<kProducerRegisters>();
    if (threadIdx.x == kConsumers) bring<WIDTH>(p, maps, at, ring);
  } else {
    more_registers<kConsumerRegisters>();
    float sum[1][WIDTH / 2];
    multiply<T, WIDTH>(p, at, ring, sum);
    if (p.apart) add_up<WIDTH>(shared + kHeader, sum);
    if (!p.apart || threadIdx.x < 128) store<T, WIDTH>(p, at, sum[0]);
  }
#endif
}

}  // namespace convt2d::cuda::plain
