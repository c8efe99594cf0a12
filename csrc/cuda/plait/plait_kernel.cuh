// The kernel of plait; plait_config.h draws it.
#pragma once

#include <type_traits>

#include "cuda/plait/plait_load.cuh"
#include "cuda/plait/plait_store.cuh"

namespace convt2d::cuda::plait {

// A warpgroup that multiplies.
template <class T>
__device__ __forceinline__ void consume(const Params& p, const Scope& at, uint32_t shared) {
  const int warpgroup = warpgroup_of_block(), set = p.sets > 1 ? warpgroup : 0,
            half = p.halves > 1 ? warpgroup : 0;
  const int channel = at.column_tile * tile_channels(p) + set * kRows;
  const uint64_t w_layout = swizzled_layout(kWeightRow, 8 * kWeightRow),
                 y_layout = turned_layout(128, p.block_bytes);
  const int streamed = p.resident ? 0 : weight_bytes(p);
  StageRing ring{shared, shared + p.stages_at, p.stages, p.stage_bytes};
  if (p.resident) barrier_wait(shared + kResidentAt, 0);
  int number = 0;
#pragma unroll 1
  for (int tile = at.walker; tile < p.tiles; tile += p.walkers, ++number) {
    if (p.turns && (number & 1) != warpgroup) {
      for (int chunk = 0; chunk < p.chunks; ++chunk) ring.advance();
      continue;
    }
    // Whoever waits for a stage's next filling has to know that the one before is over.
    if (p.turns && number > 0) barrier_among(1 + warpgroup, kConsumers);
    Sums sum;
    auto& low = reinterpret_cast<float (&)[kColumns / 4]>(sum);
    auto& high = reinterpret_cast<float (&)[kColumns / 4]>(sum[kColumns / 4]);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] = 0;
    uint32_t left = 0;  // `empty` of the stage that was left last, but is maybe being read
    const auto release = [&] {
      if (threadIdx.x % 32 == 0 && left) barrier_arrive(left);
    };
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      const uint32_t weights =
          (p.resident ? shared + p.weights_at + chunk * weight_bytes(p) : ring.stage()) +
          set * kWeightBytes;
      const uint64_t a = operand(w_layout, weights),
                     b = operand(y_layout, ring.stage() + streamed + half * p.half_bytes);
      const int slices = (chunk_end(p, chunk) - chunk * kDepth) / kSlice;
      barrier_wait(ring.full(), ring.parity);
      // Whole chunks at once; the last one may be shorter.
      const auto multiply = [&](auto count) {
        wgmma_fence();
#pragma unroll
        for (int slice = 0; slice < decltype(count)::value; ++slice) {
          const uint64_t a_slice = advance(a, slice * (kSlice * 2 >> 4)),
                         b_slice = advance(b, slice * (p.slice_bytes >> 4));
          Wgmma<T, kColumns / 2, true>::add(low, a_slice, b_slice);
          Wgmma<T, kColumns / 2, true>::add(high, a_slice,
                                            advance(b_slice, p.block_bytes * 2 >> 4));
        }
        wgmma_commit();
      };
      if (slices == 4)
        multiply(std::integral_constant<int, 4>{});
      else if (slices == 3)
        multiply(std::integral_constant<int, 3>{});
      else if (slices == 2)
        multiply(std::integral_constant<int, 2>{});
      else
        multiply(std::integral_constant<int, 1>{});
      wgmma_wait<1>();
      release();
      left = ring.empty();
      ring.advance();
    }
    if (p.turns && tile + p.walkers < p.tiles) barrier_join(2 - warpgroup, kConsumers);
    wgmma_wait<0>();
    finished(sum);
    release();
    store_sums<T>(p, at.group, channel, tile * tile_eights(p) + half * kEights, sum);
  }
}

// All weights, by the threads that sort, where rows of K are no whole 16 bytes: as the copy engine would lay them.
__device__ __forceinline__ void lay_weights(const Params& p, const Scope& at, uint32_t shared) {
  constexpr int kTogether = 8;
  const int channels = tile_channels(p), all = p.chunks * channels * kDepth,
            first = at.column_tile * channels;
  const auto* const from = static_cast<const unsigned short*>(p.weight) +
                           int64_t{at.group * p.columns + first} * p.depth;
#pragma unroll 1
  for (int start = threadIdx.x - kConsumers; start < all; start += kTogether * kBringers) {
    uint32_t number[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int n = start + i * kBringers, line = n / kDepth, chunk = line / channels,
                channel = line - chunk * channels, k = chunk * kDepth + n % kDepth;
      const bool there = n < all && k < p.depth && first + channel < p.columns;
      number[i] = there ? from[channel * p.depth + k] : 0;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int n = start + i * kBringers, line = n / kDepth, k = n % kDepth;
      if (n < all)
        store_shared_2(
            shared + p.weights_at + line * kWeightRow + ((k >> 3 ^ line) & 7) * 16 + (k & 7) * 2,
            number[i]);
    }
  }
  fence_for_wgmma();
  barrier_among(1 + kGroups, kBringers);
  if (threadIdx.x == kConsumers) barrier_arrive(shared + kResidentAt);
}

template <int KIND = 0>
__device__ __forceinline__ void bring(const Params& p, const Maps& maps, const Scope& at,
                                      uint32_t shared) {
  if constexpr (KIND < kTapKinds) {
    constexpr bool kMayPair = kTaps[KIND].kernel == kPairedTaps && kTaps[KIND].step == kPairedStep;
    if (p.kind != KIND)
      bring<KIND + 1>(p, maps, at, shared);
    else if (kMayPair && p.paired && p.raw == kLoaded)
      load_kind<KIND, kMayPair>(p, maps, at, shared);
    else if (kMayPair && p.paired)
      bring_kind<KIND, kMayPair>(p, maps, at, shared);
    else if (p.raw == kLoaded)
      load_kind<KIND, false>(p, maps, at, shared);
    else
      bring_kind<KIND, false>(p, maps, at, shared);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_plait_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Scope at = scope_of(p);
  const int thread = threadIdx.x;
  if (thread < p.stages) {
    const int warps = p.raw == kLoaded ? kBringWarps : kTeamWarps;
    barrier_init(shared + thread * 16, p.copied ? 1 : warps + !p.resident);
    barrier_init(shared + thread * 16 + 8, (p.turns ? 1 : kGroups) * 4);
  }
  if (thread == 0) {
    barrier_init(shared + kResidentAt, 1);
    if (!p.uneven) prefetch_map(&maps.weight);
    if (p.copied || p.raw == kBoxes) prefetch_map(&maps.source);
  }
  if (!p.copied && thread < p.raw_stages) {
    barrier_init(shared + kRawBarriers + thread * 16, 32);
    barrier_init(shared + kRawBarriers + thread * 16 + 8, kTeamWarps);
  }
  if (thread < kZeros / 4) store_shared_4(shared + kZerosAt + thread * 4, 0);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() < kConsumers / 32) {
    more_registers<kConsumerRegisters>();
    consume<T>(p, at, shared);
    return;
  }
  fewer_registers<kBringerRegisters>();
  if (p.uneven) {
    lay_weights(p, at, shared);
  } else if (thread == kConsumers && p.resident) {
    const int row = at.group * p.columns + at.column_tile * tile_channels(p);
    barrier_expect(shared + kResidentAt, p.chunks * weight_bytes(p));
    for (int chunk = 0; chunk < p.chunks; ++chunk)
      copy_box(shared + p.weights_at + chunk * weight_bytes(p), &maps.weight, shared + kResidentAt,
               chunk * kDepth, row, 0, 0);
  }
  if (!p.copied)
    bring(p, maps, at, shared);
  else if (thread == kConsumers)
    copy_rows(p, maps, at, shared);
#endif
}

}  // namespace convt2d::cuda::plait
