// The quilt kernel; quilt_config.h draws the GEMM, quilt_stage.cuh brings it to shared memory.
//
// If a sum came out NaN, it is added up again, of pixels that exist: where x is filled up with zeros, some pixel of dY is
// multiplied by them, and 0 * inf is NaN.
#pragma once

#include "cuda/device/as_multiplied.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/quilt/quilt_stage.cuh"

namespace convt2d::cuda::quilt {

// Of a thread: [instruction][input channel 8 i + 2 t or + 1, row g or g + 8 of the sum].
template <int ROW>
using Sums = float[kInstructions][kTiles[ROW].width / 2];

// One of a warp's bands: a kernel row, that of both, of eight output channels of the block.
struct Band {
  int octet, row;
};
template <int ROW>
__device__ __forceinline__ Band band_of(const Params& p, int which) {
  const int band = threadIdx.x / 32 * warp_bands(kTiles[ROW]) + which;
  const int octets = p.channels / 8, row = band / octets;
  return {band - row * octets, row};
}

// What a lane holds of a step: of each instruction, as mma.sync has it.
template <class M, int ROW>
__device__ __forceinline__ void fetch(uint32_t (&word)[kInstructions][4], uint32_t table, int step,
                                      const uint32_t (&from)[warp_bands(kTiles[ROW])]) {
  constexpr bool kHalf = sizeof(typename M::Element) == 2, kFour = kTiles[ROW].taps == 4;
  const uint32_t t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t where = load_shared_4(table + (step * kWords + half * 4 + t) * 4);
    if constexpr (kFour && kHalf) {
      // Two pixels, those of every second two lanes the other way round.
      const bool turned = threadIdx.x & 8;
      const uint32_t low = (where & 0xffff) * 8, high = (where >> 16) * 8;
      uint32_t a[2], b[2];
      load_shared_8(from[0] + (turned ? high : low), a);
      load_shared_8(from[0] + (turned ? low : high), b);
      const uint32_t even = turned ? 0x1054 : 0x5410, odd = turned ? 0x3276 : 0x7632;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        word[i][half * 2] = __byte_perm(a[i], b[i], even);
        word[i][half * 2 + 1] = __byte_perm(a[i], b[i], odd);
      }
    } else if constexpr (kFour) {
      uint32_t taps[4];
      load_shared_16(from[0] + where, taps);
#pragma unroll
      for (int i = 0; i < 4; ++i) word[i / 2][half * 2 + i % 2] = taps[i];
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t two[2];
        load_shared_8(from[i] + where, two);
        word[i][half * 2] = kHalf ? __byte_perm(two[0], two[1], 0x5410) : two[0];
        word[i][half * 2 + 1] = kHalf ? __byte_perm(two[0], two[1], 0x7632) : two[1];
      }
    }
  }
}

// Adds the products of STEPS steps.
template <class T, int ROW, int STEPS>
__device__ __forceinline__ void add_steps(Sums<ROW>& sum,
                                          const uint32_t (&word)[STEPS][kInstructions][4],
                                          uint64_t x) {
  wgmma_fence();
#pragma unroll
  for (int s = 0; s < STEPS; ++s)
#pragma unroll
    for (int i = 0; i < kInstructions; ++i)
      WgmmaFetched<T, kTiles[ROW].width>::add(sum[i], word[s][i],
                                              advance(x, s * (step_bytes(kTiles[ROW]) >> 4)));
  wgmma_commit();
  wgmma_wait<0>();
}

// Fetches STEPS steps from `step` on, and adds their products.
template <class M, int ROW, int STEPS>
__device__ __forceinline__ void add_fetched(Sums<ROW>& sum, const Params& p, uint32_t table,
                                            int step,
                                            const uint32_t (&from)[warp_bands(kTiles[ROW])],
                                            uint64_t x) {
  constexpr Tile tile = kTiles[ROW];
  uint32_t word[STEPS][kInstructions][4];
#pragma unroll
  for (int s = 0; s < STEPS; ++s) fetch<M, ROW>(word[s], table, step + s, from);
  x = advance(x, step * (step_bytes(tile) >> 4));
  if constexpr (tile.strict) {
    uint32_t low[STEPS][kInstructions][4];
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int i = 0; i < kInstructions; ++i)
#pragma unroll
        for (int w = 0; w < 4; ++w) M::split(word[s][i][w], word[s][i][w], low[s][i][w]);
    add_strict<tile.width>(sum, word, low, x, step_bytes(tile) >> 4,
                           p.steps * (step_bytes(tile) >> 4));
  } else {
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int i = 0; i < kInstructions; ++i) computed(word[s][i]);
    add_steps<typename M::Element, ROW, STEPS>(sum, word, x);
  }
}

// Multiplies all of a block's chunks.
template <class M, int ROW>
__device__ __forceinline__ void multiply(const Params& p, const Scope& at, Sums<ROW>& sum,
                                         StageRing& ring) {
  using T = typename M::Element;
  constexpr Tile tile = kTiles[ROW];
  constexpr int kAtOnce = at_once(tile);
  uint32_t start[warp_bands(tile)];
#pragma unroll
  for (int i = 0; i < warp_bands(tile); ++i) {
    const Band band = band_of<ROW>(p, i);
    const int channel = band.octet * 8 + threadIdx.x % 32 / 4;
    start[i] = p.y_at + channel * p.y_pitch;
  }
  const uint32_t tables = ring.barriers + kTablesAt + band_of<ROW>(p, 0).row * p.table_bytes;
  const uint64_t layout = swizzled_layout(kStep, 8 * kStep);
  Chunk chunk(p, at.begin);
  // One loop: of two, one in the other, the compiler makes copies of the sums.
  for (int k = at.begin, step = 0; k < at.end;) {
    if (step == 0) {
      barrier_wait(ring.full(), ring.parity);
      barrier_wait(shifted_barrier(ring), ring.parity);
    }
    const uint32_t table = tables + chunk.table_set(p) * p.kernel_h * p.table_bytes;
    uint32_t from[warp_bands(tile)];
#pragma unroll
    for (int i = 0; i < warp_bands(tile); ++i) from[i] = ring.stage() + start[i];
    const uint64_t x = operand(layout, ring.stage());
    // Whole batches, or the compiler fences what a branch in one of them adds. Of those left, alike as may be.
    const int left = chunk.steps(p) - step;
    const auto add = [&](auto steps) {
      add_fetched<M, ROW, decltype(steps)::value>(sum, p, table, step, from, x);
      step += decltype(steps)::value;
    };
    if constexpr (tile.strict) {
      add(std::integral_constant<int, kAtOnce>());
    } else if (left == 4 || left > 6) {
      add(std::integral_constant<int, 4>());
    } else if (left == 3 || left > 4) {
      add(std::integral_constant<int, 3>());
    } else if (left == 2) {
      add(std::integral_constant<int, 2>());
    } else {
      add(std::integral_constant<int, 1>());
    }
    if (step < chunk.steps(p)) continue;
    step = 0;
    __syncwarp();  // all lanes have read dY
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
    ring.advance();
    chunk.advance(p);
    ++k;
  }
#pragma unroll
  for (int i = 0; i < kInstructions; ++i) finished(sum[i]);
}

// One sum, of the pixels that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M, int ROW>
__device__ __noinline__ float sum_with_care(const Params& p, const Scope& at, int row, int column,
                                            int tap_h, int tap_w) {
  float sum = 0;
  Chunk chunk(p, at.begin);
  for (int k = at.begin; k < at.end; ++k, chunk.advance(p)) {
    const int x = chunk.first_x(p, at) + row * p.x_h * p.x_w;
    const int y = chunk.first_y(p, at, column) + tap_h * p.y_row + tap_w;
    for (int h = 0; h < chunk.rows(p); ++h)
      for (int w = 0; w < p.x_w; ++w)
        sum = fmaf(as_multiplied<M>(p.x, x + h * p.x_w + w),
                   as_multiplied<M>(p.y, y + h * p.kernel_h * p.y_row + w * kTiles[ROW].taps), sum);
  }
  return sum;
}

// Neighbouring taps' sums, as what is stored. COUNT numbers lie at a multiple of their size.
template <class To, int COUNT>
struct alignas(sizeof(To) * COUNT) Neighbours {
  To value[COUNT];
};

// Sums to shared memory, in the place of the stages, as they lie in dW: [column of the sum][co, kh, kw].
template <int ROW>
__device__ __forceinline__ void lay_sums(const Params& p, const Sums<ROW>& sum, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kTaps = tile.taps, kBands = warp_bands(tile);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int which = 0; which < kBands; ++which) {
    const Band band = band_of<ROW>(p, which);
    const uint32_t to = shared + lane % 4 * 2 * kSumPitch +
                        ((band.octet * 8 + lane / 4) * p.kernel_h + band.row) * kTaps * 4;
#pragma unroll
    for (int i = 0; i < tile.width / 4; ++i) {
      const uint32_t place = to + (i / 2 * 8 + i % 2) * kSumPitch;
#pragma unroll
      for (int tap = 0; tap < kTaps; tap += 2) {
        const float (&sums)[tile.width / 2] = sum[kBands == 1 ? tap / 2 : which];
        store_shared_sums(place + tap * 4, sums[i / 2 * 4 + i % 2], sums[i / 2 * 4 + 2 + i % 2]);
      }
    }
  }
}

// What lay_sums left to `to`, the group's first one in dW; those that are NaN once more. A short loop: a block comes by here
// once, and long code would be fetched from memory for that.
template <class M, int ROW, class To>
__device__ __forceinline__ void store_sums(const Params& p, const Scope& at, uint32_t shared,
                                           To* to) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kTaps = tile.taps, kRow = kSums / kTaps;
  const int line = p.columns * p.kernel_h;
  const int bands = min(p.channels, p.columns - at.column) * p.kernel_h;
#pragma unroll 1
  for (int i = threadIdx.x; i < tile.width * kRow; i += kConsumers) {
    const int column = i / kRow, band = i % kRow;
    const int row = channel_of<typename M::Element, ROW>(column);
    if (band >= bands || at.row + row >= p.rows) continue;
    uint32_t sums[kTaps];
    const uint32_t from = shared + column * kSumPitch + band * kTaps * 4;
    if constexpr (kTaps == 4) {
      load_shared_16(from, sums);
    } else {
      load_shared_8(from, sums);
    }
    Neighbours<To, kTaps> taps;
    bool nan = false;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const float value = __uint_as_float(sums[tap]);
      nan |= value != value;
      taps.value[tap] = Numeric<To>::narrow(value);
    }
    To* const place = to + (int64_t{at.row + row} * line + at.column * p.kernel_h + band) * kTaps;
    *reinterpret_cast<Neighbours<To, kTaps>*>(place) = taps;
    if (!nan) continue;
#pragma unroll 1
    for (int tap = 0; tap < kTaps; ++tap) {
      const float value = Numeric<To>::widen(place[tap]);
      if (value != value)
        store(place + tap,
              sum_with_care<M, ROW>(p, at, row, band / p.kernel_h, band % p.kernel_h, tap));
    }
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_quilt_grad_weight_kernel(const __grid_constant__ Params p,
                                     const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  using T = typename M::Element;
  extern __shared__ __align__(1024) unsigned char smem[];
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  const Scope at = scope_of(p, kTiles[ROW]);
  const uint32_t shared = shared_address(smem);
  StageRing ring{shared, shared + p.stages_at, p.stages, p.stage_bytes};
  if (threadIdx.x < p.stages) {
    barrier_init(ring.barriers + threadIdx.x * 16, 1);
    barrier_init(ring.barriers + threadIdx.x * 16 + 8, kConsumers / 32);
    barrier_init(ring.barriers + kShiftedAt + threadIdx.x * 8, kHelpers);
  }
  if (threadIdx.x < classes(sizeof(T))) prefetch_map(&maps.x[threadIdx.x]);
  if (threadIdx.x == kMostClasses) prefetch_map(&maps.y);
  if (threadIdx.x < kRaws)
    barrier_init(ring.barriers + kRawAt + threadIdx.x * 8, classes(sizeof(T)));
  list_pixels<T, ROW>(p, shared);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    fewer_registers<kHelperRegisters>();
    help<M, ROW>(p, maps, at, ring);
  } else {
    more_registers<kConsumerRegisters>();
    Sums<ROW> sum;
    clear(sum);
    multiply<M, ROW>(p, at, sum, ring);
    barrier_among(kConsumersMeet, kConsumers);  // nobody reads a stage any more
    lay_sums<ROW>(p, sum, ring.stages);
    barrier_among(kConsumersMeet, kConsumers);
    const int64_t first = int64_t{at.group} * p.rows * p.columns * p.kernel_h * kTiles[ROW].taps;
    if (p.partials) {
      store_sums<M, ROW>(p, at, ring.stages,
                         p.partials + int64_t{at.piece} * p.piece_floats + first);
    } else {
      store_sums<M, ROW>(p, at, ring.stages, static_cast<T*>(p.weight) + first);
    }
  }
#endif
}

}  // namespace convt2d::cuda::quilt
