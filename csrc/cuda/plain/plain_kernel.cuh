// plain's forward and grad_input; plain_config.h draws them.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/plain/plain_config.h"

namespace convt2d::cuda::plain {

// A block's channels, and which of the blocks with the same channels it is. Neighbouring blocks read the same pixels.
struct Scope {
  int row, group, walker;
};
template <int ROW>
__device__ __forceinline__ Scope scope_of(const Params& p) {
  const int rest = blockIdx.x / p.row_tiles;
  return {(static_cast<int>(blockIdx.x) - rest * p.row_tiles) * tile_rows(kTiles[ROW]),
          rest % p.groups, rest / p.groups};
}

// A tile of pixels: its plane among those of all images and groups, and its first pixel.
struct Place {
  int plane, pixel;
};
template <int ROW>
__device__ __forceinline__ Place place_of(const Params& p, const Scope& at, int tile) {
  const int image = p.by_image.quotient(tile);
  return {image * p.groups + at.group,
          (tile - image * static_cast<int>(p.by_image.divisor)) * kTiles[ROW].width};
}

// A chunk's weights of a block. FORWARD: they lie turned.
template <int ROW, bool FORWARD>
__device__ __forceinline__ void bring_weights(const Maps& maps, const Scope& at, uint32_t to,
                                              uint32_t full, int chunk) {
#pragma unroll
  for (int b = 0; b < kTiles[ROW].row_blocks; ++b) {
    const int row = at.row + b * kBox, summed = chunk * kBox;
    copy_box(to + b * kBoxBytes, &maps.first, full, FORWARD ? row : summed, FORWARD ? summed : row,
             at.group, 0);
  }
}

// The stages of a group are a ring of its own: a barrier tells apart two turns only, so who waits for it must see all of them.
__device__ __forceinline__ StageRing ring_of(const Params& p, uint32_t shared, int group,
                                             int bytes) {
  const int first = group * p.stages;
  return {shared + first * 16, shared + p.stages_at + first * bytes, p.stages, bytes};
}

// All that a block reads, by one thread.
template <int ROW, bool FORWARD>
__device__ __forceinline__ void bring(const Params& p, const Maps& maps, const Scope& at,
                                      uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  if (p.resident) {
    const uint32_t full = shared + kWeightsBarrierAt;
    barrier_expect(full, p.chunks * chunk_weights(tile));
    for (int chunk = 0; chunk < p.chunks; ++chunk)
      bring_weights<ROW, FORWARD>(maps, at, shared + kHeader + chunk * chunk_weights(tile), full,
                                  chunk);
  }
  StageRing ring = ring_of(p, shared, 0, stage_bytes(p, tile)),
            next = ring_of(p, shared, 1, stage_bytes(p, tile));
  for (int i = at.walker; i < p.tiles; i += p.walkers) {
    const Place place = place_of<ROW>(p, at, i);
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), stage_bytes(p, tile));
#pragma unroll
      for (int box = 0; box < tile.width / kBox; ++box)
        copy_box(ring.stage() + box * kBoxBytes, &maps.second, ring.full(),
                 place.pixel + box * kBox, chunk * kBox, place.plane, 0);
      if (!p.resident)
        bring_weights<ROW, FORWARD>(maps, at, ring.stage() + source_bytes(tile), ring.full(),
                                    chunk);
    }
    const StageRing done = ring;
    ring = next;
    next = done;
  }
}

template <int ROW>
using Sums = float[kTiles[ROW].row_blocks][kTiles[ROW].width / 2];

// A chunk's products, as one batch.
template <class T, int ROW, bool FORWARD>
__device__ __forceinline__ void multiply(uint32_t weights, uint32_t source, Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kTurnedSlice = kSlice * kLine >> 4;
  const uint64_t turned = turned_layout(kLine, kBoxBytes);
  const uint64_t x = operand(turned, source),
                 w = operand(FORWARD ? turned : swizzled_layout(kLine, 8 * kLine), weights);
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < kBox / kSlice; ++slice) {
#pragma unroll
    for (int b = 0; b < tile.row_blocks; ++b) {
      const uint64_t block = advance(w, b * (kBoxBytes >> 4));
      if constexpr (FORWARD)
        WgmmaTurned<T, tile.width>::add(sum[b], advance(block, slice * kTurnedSlice),
                                        advance(x, slice * kTurnedSlice));
      else
        Wgmma<T, tile.width, true>::add(sum[b], advance(block, slice * (2 * kSlice >> 4)),
                                        advance(x, slice * kTurnedSlice));
    }
  }
  wgmma_commit();
}

// A warp's 16 channels of a block of 64, to memory: laid out in shared memory, a channel's pixels in a row, whose pieces of 16
// bytes trade places so that neither side meets in a bank.
template <class T, int ROW>
__device__ __forceinline__ void store_rows(const Params& p, const Place& place, uint32_t laid,
                                           int row, const float (&bias)[2],
                                           const float (&sum)[kTiles[ROW].width / 2]) {
  constexpr int kWidth = kTiles[ROW].width, kPieces = kWidth / 8, kPitch = 2 * kWidth;
  const int lane = threadIdx.x % 32;
  // Of the four tiles that are stored together: rows 0 to 7 and 8 to 15 of eight pixels, then of the next eight.
  const uint32_t mine = laid + lane % 16 * kPitch;
#pragma unroll
  for (int i = 0; i < kPieces; i += 2) {
    uint32_t word[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* const value = sum + 4 * (i + j / 2) + 2 * (j % 2);
      word[j] = pack<T>(value[0] + bias[j % 2], value[1] + bias[j % 2]);
    }
    store_tiles(mine + ((i + lane / 16) ^ lane % 8) * 16, word);
  }
  __syncwarp();
  constexpr int kRows = 32 / kPieces;  // of a step
  const int piece = lane % kPieces;
  const bool there = place.pixel + piece * 8 < p.pixels;
  T* const to = static_cast<T*>(p.destination) + int64_t{place.plane} * p.rows * p.pixels +
                place.pixel + piece * 8;
#pragma unroll 4
  for (int step = 0; step < 16 / kRows; ++step) {
    const int r = step * kRows + lane / kPieces;
    uint32_t word[4];
    load_shared_16(laid + r * kPitch + (piece ^ r % 8) * 16, word);
    store_words_if<4>(there && row + r < p.rows ? 0 : -1, to + int64_t{row + r} * p.pixels, word[0],
                      word[1], word[2], word[3]);
  }
  __syncwarp();
}

template <class T, int ROW, bool FORWARD>
__device__ __forceinline__ void consume(const Params& p, const Scope& at, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  const int group = warpgroup_of_block(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t laid = shared + p.laid_at + warp * laid_bytes(tile);
  const int row = at.row + warp % 4 * 16;
  float bias[tile.row_blocks][2];
#pragma unroll
  for (int b = 0; b < tile.row_blocks; ++b)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int channel = row + b * kBox + half * 8 + lane / 4;
      bias[b][half] = p.bias && channel < p.rows
                          ? load(static_cast<const T*>(p.bias) + at.group * p.rows + channel)
                          : 0.f;
    }
  StageRing ring = ring_of(p, shared, group, stage_bytes(p, tile));
  if (p.resident) barrier_wait(shared + kWeightsBarrierAt, 0);
  for (int i = at.walker + group * p.walkers; i < p.tiles; i += kGroups * p.walkers) {
    Sums<ROW> sum;
    clear(sum);
    uint32_t before = 0;  // `empty` of the stage whose products are under way
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.full(), ring.parity);
      const uint32_t stage = ring.stage();
      multiply<T, ROW, FORWARD>(
          p.resident ? shared + kHeader + chunk * chunk_weights(tile) : stage + source_bytes(tile),
          stage, sum);
      if (before) {
        wgmma_wait<1>();
        if (lane == 0) barrier_arrive(before);
      }
      before = ring.empty();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int b = 0; b < tile.row_blocks; ++b) finished(sum[b]);
    if (lane == 0) barrier_arrive(before);
    const Place place = place_of<ROW>(p, at, i);
#pragma unroll
    for (int b = 0; b < tile.row_blocks; ++b)
      store_rows<T, ROW>(p, place, laid, row + b * kBox, bias[b], sum[b]);
  }
}

template <class T, int ROW, bool FORWARD>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_plain_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Scope at = scope_of<ROW>(p);
  if (threadIdx.x < kGroups * p.stages) {
    barrier_init(shared + threadIdx.x * 16, 1);
    barrier_init(shared + threadIdx.x * 16 + 8, 4);  // the warps of a group
  }
  if (threadIdx.x == kMostStages) barrier_init(shared + kWeightsBarrierAt, 1);
  if (threadIdx.x == kConsumers) prefetch_map(&maps.second);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= kConsumers / 32) {
    fewer_registers<kProducerRegisters>();
    if (threadIdx.x == kConsumers) bring<ROW, FORWARD>(p, maps, at, shared);
  } else {
    more_registers<kConsumerRegisters>();
    consume<T, ROW, FORWARD>(p, at, shared);
  }
#endif
}

}  // namespace convt2d::cuda::plain
