// The scroll kernel of planes; scroll_planes.h draws the tiling. Warps behind those that multiply turn rows
// (scroll_planes_stage.cuh): `full` ends a phase when a chunk's pieces are turned, `empty` when all warps have multiplied it.
#pragma once

#include "cuda/scroll/scroll_planes_stage.cuh"
#include "cuda/scroll/scroll_planes_store.cuh"
#include "cuda/scroll/scroll_widths.cuh"

namespace convt2d::cuda::scroll {

// Products of a chunk with the next COUNT taps.
template <class T, int ROW, int SLICES, int COUNT>
__device__ __forceinline__ void multiply_taps(uint64_t& pixels, uint64_t& weights, uint32_t tap,
                                              float (&sum)[columns_of(kTiles[ROW]) / 2]) {
  constexpr int kSlice = kSliceBytes >> 4, kProduct = columns_of(kTiles[ROW]) * SLICES * kSlice;
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
      Wgmma<T, columns_of(kTiles[ROW])>::add(sum, advance(pixels, slice * kSlice),
                                             advance(weights, i * kProduct + slice * kSlice));
    pixels = advance(pixels, tap);
  }
  weights = advance(weights, COUNT * kProduct);
  wgmma_commit();
  wgmma_wait<0>();
  finished(sum);
}

// All products of a chunk for a phase of columns, which has a tap at least.
template <class T, int ROW, int SLICES>
__device__ __forceinline__ void multiply_chunk(const Taps& taps, uint64_t pixels, uint64_t weights,
                                               float (&sum)[columns_of(kTiles[ROW]) / 2]) {
  constexpr int kTogether = kTiles[ROW].phases == 1 ? 3 : 2;
  const uint32_t tap = taps.shift * SLICES * kSliceBytes >> 4;
  int left = taps.count;
#pragma unroll 1
  for (; left >= kTogether; left -= kTogether)
    multiply_taps<T, ROW, SLICES, kTogether>(pixels, weights, tap, sum);
#pragma unroll 1
  for (; left > 0; --left) multiply_taps<T, ROW, SLICES, 1>(pixels, weights, tap, sum);
}

// What a lane has of the 64 pixels and 8 channels of an instruction, as mma.sync has it, from where its first one is; `apart`:
// bytes to the fourth channel from there.
__device__ __forceinline__ void fetch_words(uint32_t from, uint32_t apart, uint32_t (&word)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half, from += apart)
#pragma unroll
    for (int eight = 0; eight < 2; ++eight)
      word[half * 2 + eight] = load_shared_4(from + eight * 32);
}

// Words: all products of a chunk for a phase of columns. `from`: where a lane's first one is. While an instruction multiplies
// some, others come.
template <int ROW, int SLICES>
__device__ __forceinline__ void multiply_fetched(const Taps& taps, uint32_t from, uint32_t apart,
                                                 uint64_t weights, uint32_t (&operand)[2][4],
                                                 float (&sum)[columns_of(kTiles[ROW]) / 2]) {
  using Multiply = WgmmaFetched<float, columns_of(kTiles[ROW])>;
  constexpr int kSlice = kSliceBytes >> 4, kProduct = columns_of(kTiles[ROW]) * SLICES * kSlice;
  const uint32_t next_tap = taps.shift * int(sizeof(float)) - SLICES * 2 * apart;
  int left = taps.count;
#pragma unroll 1
  do {
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice, from += 2 * apart) {
      uint32_t (&here)[4] = operand[slice % 2];
      fetch_words(from, apart, here);
#pragma unroll
      for (uint32_t& word : here) word = MmaTF32::round(word);
      wgmma_fence();
      Multiply::add(sum, here, advance(weights, slice * kSlice));
      wgmma_commit();
      wgmma_wait<1>();
    }
    from += next_tap;
    weights = advance(weights, kProduct);
  } while (--left > 0);
}

// Sums from the `first` on begin with their channel's bias.
template <int ROW>
__device__ __forceinline__ void begin_rows(
    uint32_t biases, int first, float (&sum)[kTiles[ROW].phases][columns_of(kTiles[ROW]) / 2]) {
  constexpr int kEights = kTiles[ROW].width / 8;
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight) {
    uint32_t bias[2];
    load_shared_8(biases + (eight * 8 + threadIdx.x % 4 * 2) * 4, bias);
#pragma unroll
    for (auto& of_phase : sum)
#pragma unroll
      for (int i = first + eight * 4; i < columns_of(kTiles[ROW]) / 2; i += kEights * 4)
#pragma unroll
        for (int j = 0; j < 4; ++j) of_phase[i + j] = __uint_as_float(bias[j % 2]);
  }
}

template <class T, int ROW, int SLICES>
__device__ __forceinline__ void follow_tape(const PlaneParams& p, const Scope& at, int group,
                                            int ring_number, int share, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kSums = columns_of(tile) / 2, kUp = tile.step * tile.width / 2;
  StageRing ring = ring_of(p, shared, ring_number);
  const uint64_t layout = swizzled_layout(p.line, 8 * p.line);
  const uint32_t biases = shared + kBiasAt + share * tile.width * 4,
                 all_weights = shared + p.weights_at + share * p.share_bytes;
  // Words: where a lane finds its first one, of the first pixel that a strip needs.
  const uint32_t mine =
      threadIdx.x % 4 * p.raw_pitch +
      (p.early + p.lead - p.low + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4) *
          int(sizeof(T));
  [[maybe_unused]] uint32_t operands[2][4];
  uint32_t apart = 4 * p.raw_pitch;
  keep_in_register(apart);
  // Where registers allow, places stay; else they are found again for each row.
  constexpr bool kKept = sums_of(tile) <= 96;
  int piece = 0;
  TapeDescent part(p, at, ring_number);
  while (part.next(p, tile)) {
    PlanePlaces<T, ROW> places;
    if constexpr (kKept) places = plane_places<T, ROW>(p, at, part);
    float sum[tile.phases][kSums];
    begin_rows<ROW>(biases, 0, sum);
#pragma unroll 1
    for (int row = part.row; row < part.last; ++row) {
      wgmma_wait<0>();
      if (row >= 0 && row < p.x_h) {
        int chunk = 0;
#pragma unroll 1
        do {
          barrier_wait(ring.full(), ring.parity);
#pragma unroll
          for (int phase = 0; phase < tile.phases; ++phase) {
            const Taps& taps = p.taps[phase];
            const uint64_t weights =
                operand(layout, all_weights + phase * p.phase_bytes +
                                    chunk * taps.count * columns_of(tile) * p.line);
            if constexpr (are_fetched(tile, sizeof(T))) {
              multiply_fetched<ROW, SLICES>(taps, ring.stage() + mine + taps.low * int(sizeof(T)),
                                            apart, weights, operands, sum[phase]);
            } else {
              multiply_chunk<T, ROW, SLICES>(
                  taps, operand(layout, ring.stage() + (p.lead + taps.low - p.low) * p.line),
                  weights, sum[phase]);
            }
          }
          __syncwarp();
          if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
          ring.advance();
        } while (++chunk < p.chunks);
      }
      if constexpr (are_fetched(tile, sizeof(T))) {
        wgmma_wait<0>();  // of all rows, or what comes is serialized (C7515)
#pragma unroll
        for (auto& of_phase : sum) finished(of_phase);
      }
      if (row >= part.first)
        store_planes<T, ROW>(p, at, kKept ? places : plane_places<T, ROW>(p, at, part), group,
                             shared, row, piece, sum);
      // Sums move up. What is added is zero: without it nvcc 13.0 moves them before the others are stored, and has no registers
      // for both.
      const float zero = load_shared<float>(shared + kZeroAt);
#pragma unroll
      for (auto& of_phase : sum)
#pragma unroll
        for (int i = 0; i + kUp < kSums; ++i) of_phase[i] = of_phase[i + kUp] + zero;
      begin_rows<ROW>(biases, kSums - kUp, sum);
    }
  }
}

template <class T, int ROW>
__global__ void __launch_bounds__(most_threads(kTiles[ROW], sizeof(T)), 1)
    convt2d_scroll_planes_kernel(const __grid_constant__ PlaneParams p) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr Tile tile = kTiles[ROW];
  const uint32_t shared = shared_address(smem);
  const Scope at = scope_of(p);
  const int warp = warp_of_block(), consumers = 128 * p.warpgroups;
  if (threadIdx.x == consumers) {
    store_shared_4(shared + kZeroAt, 0);
    for (int i = 0; i < plane_groups(tile, sizeof(T)) * kMostStages; ++i) {
      barrier_init(shared + i * 16, are_fetched(tile, sizeof(T)) ? 32 : p.pieces);
      barrier_init(shared + i * 16 + 8, 4 * p.sharers);
    }
  }
  __syncthreads();
  if (warp >= consumers / 32) {
    const int mine = warp - consumers / 32, ring = mine / p.turners,
              turner = mine - ring * p.turners;
    if constexpr (lends(tile, sizeof(T))) {
      fewer_registers<kLendersRegisters>();
      if (ring >= p.rings) return;
    }
    // Calls use(bytes of a copy, slices of a chunk), as types.
    const auto with_sizes = [&](auto&& use) {
      const std::integral_constant<int, 2> two;
      const std::integral_constant<int, 4> four;
      const std::integral_constant<int, 16> sixteen;
      if (p.slices == 4) {
        if (p.copy_bytes == 16) {
          use(sixteen, four);
        } else {
          use(four, four);
        }
      } else if (p.copy_bytes == 16) {
        use(sixteen, two);
      } else {
        use(four, two);
      }
    };
    if constexpr (are_fetched(tile, sizeof(T))) {
      with_sizes([&](auto bytes, auto slices) {
        bring_chunks<T, ROW, decltype(bytes)::value, decltype(slices)::value>(p, at, ring, shared);
      });
    } else {
      const auto feed_pieces = [&](auto pieces) {
        with_sizes([&](auto bytes, auto slices) {
          feed<T, ROW, decltype(bytes)::value, decltype(slices)::value, decltype(pieces)::value>(
              p, at, ring, turner, shared);
        });
      };
      if constexpr (may_be_whole(tile, sizeof(T)))
        if (p.pieces == 1) return feed_pieces(std::integral_constant<int, 1>());
      feed_pieces(std::integral_constant<int, 2>());
    }
  } else {
    if constexpr (lends(tile, sizeof(T))) more_registers<kBorrowersRegisters>();
    const int group = warp / 4, ring = group / p.sharers, share = group - ring * p.sharers;
    const auto of_share = [&](int share, int phase) -> Scope {
      return {phase, at.column_tile * p.sharers + share, at.walker};
    };
    bool finite = true;
    for (int i = 0; i < p.sharers; ++i) {
      for (int phase = 0; phase < tile.phases; ++phase)
        finite &= bring_all_weights<T, ROW>(p, of_share(i, phase),
                                            shared + i * p.share_bytes + phase * p.phase_bytes);
      bring_bias<T, ROW>(p, of_share(i, 0), shared + i * tile.width * 4);
    }
    fence_for_wgmma();
    const bool all_finite = barrier_all(1, consumers, finite);
    const Scope mine = of_share(share, 0);
    if (p.slices == 4) {
      follow_tape<T, ROW, 4>(p, mine, group, ring, share, shared);
    } else {
      follow_tape<T, ROW, 2>(p, mine, group, ring, share, shared);
    }
    if (!all_finite) {
      barrier_among(2 + group, 128);  // what the others have stored
      repair_planes<T, ROW>(&p, mine, ring);
    }
  }
#endif
}

}  // namespace convt2d::cuda::scroll
