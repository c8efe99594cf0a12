// The purl kernel; purl_config.h draws the GEMM.
//
// One thread asks the copy engine for the chunks of a block's tiles, in a ring of stages: `full` ends a phase when a stage has
// arrived, `empty` when all warps have multiplied it.
#pragma once

#include <type_traits>

#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/purl/purl_boxes.cuh"

namespace convt2d::cuda::purl {

__device__ __forceinline__ StageRing ring_of(const Params& p, uint32_t shared) {
  return {shared, shared + p.stages_at, p.stages, p.stage_bytes};
}

template <class T>
constexpr int kChunk = kLine / int(sizeof(T));  // numbers of K

template <class T, int WIDTH>
__device__ __forceinline__ void bring(const Params& p, const Maps& maps, uint32_t shared) {
  if (p.resident) {
    const Item item = item_of<WIDTH>(p, blockIdx.x);
    const uint32_t barrier = shared + kResidentBarrier;
    barrier_expect(barrier, p.chunks * WIDTH * kLine);
    for (int chunk = 0; chunk < p.chunks; ++chunk)
      copy_box(shared + kResidentAt + chunk * WIDTH * kLine, &maps.w, barrier, chunk * kChunk<T>,
               item.channel, item.group, 0);
  }
  StageRing ring = ring_of(p, shared);
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of<WIDTH>(p, i);
    const int column = p.first_column + item.row * p.columns_of_row + item.column * p.stride_w,
              row = p.first_row + item.row * p.rows_of_row,
              plane = item.image * p.groups + item.group;
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), p.copied_bytes);
      if (!p.resident)
        copy_box(ring.stage(), &maps.w, ring.full(), chunk * kChunk<T>, item.channel, item.group,
                 0);
      uint32_t to = ring.stage() + p.pixels_at;
      for (int image = 0; image < p.images; ++image)
        for (int box = 0; box < p.boxes; ++box, to += p.box_pitch)
          copy_box(to, &maps.y, ring.full(), (column + box * p.box_step) & -p.aligned, 0, row,
                   chunk * p.depth / p.together, plane + image * p.groups);
    }
  }
}

template <class T, int WIDTH>
__device__ __forceinline__ void multiply_batch(float (&sum)[WIDTH / 2],
                                               const uint32_t (&word)[kBatch][4],
                                               uint64_t weights) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kBatch; ++step)
    WgmmaFetched<T, WIDTH>::add(sum, word[step], advance(weights, step * (kStepWords * 4 >> 4)));
  wgmma_commit();
}

// The products of a tile.
template <class T, int WIDTH, bool ODD>
__device__ __forceinline__ void multiply(const Params& p, const Words<T, ODD>& words,
                                         uint32_t shared, StageRing& ring,
                                         float (&sum)[WIDTH / 2]) {
  const uint64_t layout = swizzled_layout(kLine, 8 * kLine);
  // These take turns: of one the words come while those of the other are multiplied.
  uint32_t turn[2][kBatch][4];
  barrier_wait(ring.full(), ring.parity);
  words.template fetch<0>(turn[0], ring.stage());
  uint32_t before = 0;  // `empty` of the stage whose last products are under way
  uint32_t resident = shared + kResidentAt;
  // A last chunk of a batch of steps or less is multiplied behind all others.
#pragma unroll 1
  for (int left = p.chunks; left > p.short_end; --left) {
    const StageRing now = ring;
    ring.advance();
    // After the last stage its first words once more.
    const bool more = left > 1;
    const uint32_t next = more ? ring.stage() : now.stage(), full = more ? ring.full() : now.full(),
                   parity = more ? ring.parity : now.parity;
    const uint64_t w = operand(layout, p.resident ? resident : now.stage());
    resident += WIDTH * kLine;
    const auto batch = [&](auto index) {
      constexpr int kNow = decltype(index)::value, kNext = 1 - kNow;
      multiply_batch<T, WIDTH>(sum, turn[kNow], advance(w, kNow * kBatchBytes >> 4));
      wgmma_wait<1>();
      if (kNow == 0 && before && threadIdx.x % 32 == 0) barrier_arrive(before);
      if (kNext == 0) barrier_wait(full, parity);
      words.template fetch<kNext>(turn[kNext], kNext == 0 ? next : now.stage());
    };
    batch(std::integral_constant<int, 0>());
    batch(std::integral_constant<int, 1>());
    before = now.empty();
  }
  if (p.short_end) {
    multiply_batch<T, WIDTH>(sum, turn[0], operand(layout, p.resident ? resident : ring.stage()));
    wgmma_wait<1>();
    if (before && threadIdx.x % 32 == 0) barrier_arrive(before);
    before = ring.empty();
    ring.advance();
  }
  wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) barrier_arrive(before);
  finished(sum);
}

template <class T, int WIDTH, bool ODD>
__device__ __forceinline__ void consume(const Params& p, const CUtensorMap& x, uint32_t shared) {
  const uint32_t staging = shared + p.staging_at + warpgroup_of_block() * p.team_bytes;
  uint32_t turn = 0;
  const Words<T, ODD> words(p);
  StageRing ring = ring_of(p, shared);
  uint32_t probe = 0;
  if (p.resident) barrier_wait(shared + kResidentBarrier, 0);
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    float sum[WIDTH / 2] = {};
    multiply<T, WIDTH, ODD>(p, words, shared, ring, sum);
    uint32_t index = i;
    keep_in_register(index);  // what follows from it is worked out again: sums want the registers
    const Item item = item_of<WIDTH>(p, int(index));
    if (p.places) {
      store_boxes<T, WIDTH>(p, sum, item, x, staging, turn, probe);
    } else {
      store_tile<T, WIDTH>(p, sum, item, staging, probe);
    }
  }
  if (p.places && asks_of_team()) stored_boxes_there();
  if (p.outside && !barrier_all(1 + kTeams, kConsumers, !is_nan<T>(probe))) repair<T, WIDTH>(p);
}

template <class T, int TILE>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_purl_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  start_stages(shared, p.stages, 1, kConsumers / 32);
  if (threadIdx.x == kConsumers) {
    barrier_init(shared + kResidentBarrier, 1);
    prefetch_map(&maps.y);
    prefetch_map(&maps.w);
    if (p.places) prefetch_map(&maps.x);
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= kConsumers / 32) {
    fewer_registers<kProducerRegisters>();
    if (threadIdx.x == kConsumers) bring<T, kTiles[TILE].width>(p, maps, shared);
  } else {
    more_registers<kConsumerRegisters>();
    consume<T, kTiles[TILE].width, kTiles[TILE].odd>(p, maps.x, shared);
  }
#endif
}

}  // namespace convt2d::cuda::purl
