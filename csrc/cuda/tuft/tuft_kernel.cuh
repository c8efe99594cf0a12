// The tuft kernel; tuft_config.h draws the GEMM.
//
// A warp of the last warpgroup asks the copy engine for the chunks of a team's lines, in the team's ring of stages: `full` ends a phase
// when a stage has arrived, `empty` when all warps of the team have fetched it. The team's warps ask for the weights, which stay.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/elect.cuh"
#include "cuda/device/hidden_zero.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/turn_regions.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/tuft/tuft_store.cuh"

namespace convt2d::cuda::tuft {

// Of what an instruction takes of w: all of it, and the part that a box brings.
template <int ROW>
constexpr uint32_t kWeights = kTiles[ROW].width * kSliceBytes;
template <class T>
constexpr uint32_t kWeightBox = kSliceBytes / sizeof(T) * kColumnLine;

// A team's pixels, in its ring.
template <class T, int ROW>
__device__ __forceinline__ void bring_pixels(const Params& p, const Maps& maps, const Scope& at,
                                             int team, StageRing& ring) {
  constexpr int kPlaces = places(sizeof(T));
  for_lines<ROW>(p, at, team, [&](const Line& line) {
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(ring.full(), ring.bytes);
      for (int place = 0, box = 0; place < kPlaces; place += p.box_places, ++box)
        copy_box(ring.stage() + place * place_bytes(sizeof(T)), &maps.x, ring.full(),
                 line.first + box_start(p, box, sizeof(T)), chunk * kSets, place,
                 line.n * p.groups + at.group);
    }
  });
}

// A block's weights: the warps that multiply ask for boxes of them, each for its share; words they turn when all are there.
template <class T, int ROW>
__device__ __forceinline__ void bring_weights(const Params& p, const Maps& maps, const Scope& at,
                                              uint32_t weights, uint32_t arrived) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kLines = weight_lines(tile, sizeof(T)), kWarps = consumers(tile) / 32,
                kNumbers = kColumnLine / sizeof(T), kPairs = places(sizeof(T)) / 2 / kSlices;
  const int warp = warp_of_block(), boxes = p.chunks * kSlices * kLines;
  const uint32_t bytes = weight_bytes(p, tile);
  if (threadIdx.x == 0) barrier_expect(arrived, bytes);
  if (elected()) {
    for (int box = warp; box < boxes; box += kWarps) {
      const int line = box % kLines, slice = box / kLines;
      copy_box(weights + box * kWeightBox<T>, &maps.w, arrived,
               at.column_block * tile.width + line * kNumbers, 0, slice / kSlices * kSets,
               slice % kSlices * kPairs, at.group);
    }
  }
  __syncwarp();
  barrier_wait(arrived, 0);
  if constexpr (is_word<T>) {
    for (uint32_t from = warp * 2 * kWeightBox<T>; from < bytes; from += kWarps * 2 * kWeightBox<T>)
      turn_regions<false>(weights + from, 0, threadIdx.x % 32 * 4);
    fence_for_wgmma();
    barrier_among(1, consumers(tile));
  }
}

// What a lane fetches of a slice, and makes of it: rows g and g + 8 of the first operand. Words: pixels g and g + 8 of two places.
// 16 bits: pixels 2 g and 2 g + 1, which are a word of each of four places, or halves of two of each odd one.
template <class T, int ROW>
struct Pixels {
  static constexpr int bytes = sizeof(T), slice_places = places(sizeof(T)) / kSlices;
  static constexpr bool odd = kTiles[ROW].odd;
  using Fetched = uint32_t[odd ? 6 : 4];
  uint32_t place[places(sizeof(T))];  // in a stage

  __device__ __forceinline__ explicit Pixels(const Params& p) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int first = warp * 16 + lane / 4 * (is_word<T> ? 1 : 2);
#pragma unroll
    for (int i = 0; i < places(bytes); ++i)
      place[i] = i * place_bytes(bytes) + lane % 4 * line_bytes(bytes) +
                 ((first + shift(p, i, bytes)) * bytes & -4);
  }

  template <int SLICE>
  __device__ __forceinline__ void fetch(Fetched& fetched, uint32_t stage) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (is_word<T>) {
        fetched[i] = load_shared_4(stage + place[SLICE * slice_places + i / 2] + i % 2 * 32);
      } else {
        const uint32_t from = stage + place[SLICE * slice_places + i];
        fetched[i] = load_shared_4(from);
        if (odd && i % 2) fetched[4 + i / 2] = load_shared_4(from + 4);
      }
    }
  }

  static __device__ __forceinline__ void arrange(uint32_t (&word)[4], const Fetched& fetched) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (is_word<T>) {
        word[i] = fetched[i] | hidden_zero();
      } else {
        const uint32_t even = fetched[i / 2 * 2], other = fetched[i / 2 * 2 + 1];
        if constexpr (odd) {
          word[i] = i % 2 ? __byte_perm(even, fetched[4 + i / 2], 0x5432)
                          : __byte_perm(even, other, 0x7610);
        } else {
          word[i] = __byte_perm(even, other, i % 2 ? 0x7632 : 0x5410);
        }
      }
    }
    computed(word);
  }
};

// The products of a line. The words of a slice stay until it is multiplied, two slices later; those of the next one are fetched
// meanwhile, since that takes as long.
template <class T, int ROW>
__device__ __forceinline__ void multiply(const Params& p, float (&sum)[kTiles[ROW].width / 2],
                                         const Pixels<T, ROW>& pixels, StageRing& ring,
                                         uint32_t at_weights, uint64_t layout) {
  constexpr int kWidth = kTiles[ROW].width;
  uint32_t word[2][4];
  typename Pixels<T, ROW>::Fetched fetched;
  barrier_wait(ring.full(), ring.parity);
  pixels.template fetch<0>(fetched, ring.stage());
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, at_weights += kSlices * kWeights<ROW>) {
    const uint64_t weights = operand(layout, at_weights);
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      pixels.arrange(word[slice], fetched);
      wgmma_fence();
      const uint64_t now = advance(weights, slice * (kWeights<ROW> >> 4));
      if constexpr (is_word<T>) {
        WgmmaFetched<T, kWidth>::add(sum, word[slice], now);
      } else {
        WgmmaTurned<T, kWidth>::add(sum, word[slice], now);
      }
      wgmma_commit();
      if (slice + 1 < kSlices) {
        pixels.template fetch<1>(fetched, ring.stage());
      } else {
        __syncwarp();  // all have their words
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
        ring.advance();
        if (chunk + 1 < p.chunks) {
          barrier_wait(ring.full(), ring.parity);
          pixels.template fetch<0>(fetched, ring.stage());
        }
      }
      wgmma_wait<1>();
    }
  }
  wgmma_wait<0>();
  finished(sum);
}

template <class T, int ROW>
__device__ __forceinline__ void consume(const Params& p, const Scope& at, int team, uint32_t shared,
                                        StageRing& ring) {
  const uint64_t layout = is_word<T> ? operand_layout(kColumnLine, 2 * kColumnLine)
                                     : turned_layout(kColumnLine, kWeightBox<T>);
  const Pixels<T, ROW> pixels(p);
  for_lines<ROW>(p, at, team, [&](const Line& line) {
    float sum[kTiles[ROW].width / 2] = {};
    multiply<T, ROW>(p, sum, pixels, ring, shared + p.weights_at, layout);
    store_line<T, kTiles[ROW].width>(p, at, line, shared + kOutputsAt, sum);
  });
}

template <class T, int ROW>
__global__ void __launch_bounds__(threads(kTiles[ROW]), 1)
    convt2d_tuft_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem), arrived = shared + kArrivedAt;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kWarps = consumers(tile) / 32, kBytes = stage_bytes(sizeof(T));
  const Scope at = scope_of(p);
  // Whose pixels this warp asks for or multiplies.
  const int warp = warp_of_block(), team = warp < kWarps ? warp / 4 : warp - kWarps;
  StageRing ring{shared + team * kRingBytes, shared + p.stages_at + team * p.stages * kBytes,
                 p.stages, kBytes};
  if (threadIdx.x == 0) barrier_init(arrived, 1);
  start_stages(shared, tile.teams * kMostStages, 1, 4);
  bring_outputs<T, ROW>(p, at, shared + kOutputsAt);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp >= kWarps) {
    fewer_registers<producer_registers(tile)>();
    if (team < tile.teams && elected()) bring_pixels<T, ROW>(p, maps, at, team, ring);
  } else {
    more_registers<consumer_registers(tile)>();
    bring_weights<T, ROW>(p, maps, at, shared + p.weights_at, arrived);
    consume<T, ROW>(p, at, team, shared, ring);
  }
#endif
}

}  // namespace convt2d::cuda::tuft
