// The kernel of narrow's ribbons; narrow_ribbon.h draws the tiling.
//
// One thread asks the copy engine for chunks of x, in a ring of stages: `full` ends a phase when a chunk has arrived, `empty`
// when every warp has fetched it. Four warps multiply, then collect a row together.
#pragma once

#include <type_traits>

#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/narrow/narrow_ribbon_collect.cuh"

namespace convt2d::cuda::narrow {

template <class T>
using RibbonMma =
    std::conditional_t<sizeof(T) == 4, MmaTF32,
                       std::conditional_t<std::is_same_v<T, __half>, MmaF16, MmaBF16>>;

// All weights, as fragments: of a lane, columns l / 4 and channels as the fetching of x deals them out. A warp loads a
// batch of them before it stores any.
template <class T, int ROW>
__device__ __forceinline__ void bring_fragments(const RibbonParams& p, uint32_t shared) {
  constexpr Ribbon ribbon = kRibbons[ROW];
  constexpr int kColumns = ribbon.width / 8, kCount = ribbon.span * kColumns,
                kPairs = fragment_pairs(ribbon), kNumbers = 4 / sizeof(T),
                kSlice = slice_channels(sizeof(T)), kBatch = kPairs < 4 ? kPairs : 4;
  const int lane = threadIdx.x % 32, t = lane % 4;
  int offset[kCount], left[kCount];  // of a fragment: of its column's tap; channels there are
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const int column = n * 8 + lane / 4, line = p.by_kernel_w.quotient(column);
    const int kw = column - line * p.kernel_w, phase = p.by_columns.quotient(line);
    const int channel = line - phase * p.columns;
#pragma unroll
    for (int s = 0; s < ribbon.span; ++s) {
      const int reach = s * p.stride_h + phase, kh = p.by_dilation.quotient(reach);
      const bool there = phase < p.stride_h && kh < p.kernel_h && kh * p.dilation_h == reach;
      offset[s * kColumns + n] = channel * p.weight_column + kh * p.weight_h + kw * p.weight_w;
      left[s * kColumns + n] = there ? p.reduce : 0;
    }
  }
  // The channel of number i of word b.
  const int word_step = sizeof(T) == 4 ? (p.channels_last ? 4 : 1) : 8,
            first = sizeof(T) == 4 ? (p.channels_last ? t : 2 * t) : 2 * t;
  const T* const weight = static_cast<const T*>(p.weight);
#pragma unroll 1
  for (int slice = threadIdx.x / 32; slice < p.slices; slice += kRibbonWarps) {
    const uint32_t to = shared + p.weights_at + slice * slice_fragments(ribbon) + lane * 16;
#pragma unroll
    for (int batch = 0; batch < kPairs; batch += kBatch) {
      uint32_t number[2 * kBatch][2][kNumbers] = {};
#pragma unroll
      for (int f = 0; f < 2 * kBatch && 2 * batch + f < kCount; ++f)
#pragma unroll
        for (int b = 0; b < 2; ++b)
#pragma unroll
          for (int i = 0; i < kNumbers; ++i) {
            const int c = slice * kSlice + first + b * word_step + i;
            number[f][b][i] = load_if<sizeof(T)>(
                weight + (c * p.weight_reduce + offset[2 * batch + f]), c, left[2 * batch + f]);
          }
      const auto word = [&](int f, int b) {
        const uint32_t low = number[f][b][0];
        if constexpr (kNumbers == 2) return low | number[f][b][kNumbers - 1] << 16;
        return ribbon.strict ? low : RibbonMma<T>::round(low);
      };
#pragma unroll
      for (int i = 0; i < kBatch && batch + i < kPairs; ++i) {
        uint32_t four[4], rest[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          four[j] = word(2 * i + j / 2, j % 2);
          if constexpr (ribbon.strict) MmaF32x3::split(four[j], four[j], rest[j]);
        }
        store_shared_16(to + (batch + i) * 512, four);
        if constexpr (ribbon.strict) store_shared_16(to + (kPairs + batch + i) * 512, rest);
      }
    }
  }
}

__device__ __forceinline__ void bring_chunks(const RibbonParams& p, const CUtensorMap& map,
                                             StageRing& ring) {
  const int numbers = 1 << p.line_bits,
            chunk_channels = p.chunk_slices * slice_channels(p.number_bytes);
  for_items(p, [&](const Item& item) {
    const int first = item.sweep * p.step, end = min(item.row + item.rows, p.x_h);
    for (int row = max(item.row - p.reach, 0); row < end; ++row)
      for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        barrier_expect(ring.full(), p.stage_bytes);
        uint32_t to = ring.stage();
        if (p.channels_last) {
          copy_box(to, &map, ring.full(), chunk * chunk_channels, first, row, item.n);
        } else {
          for (int pixel = 0; pixel < p.run; pixel += numbers, to += p.box_bytes)
            copy_box(to, &map, ring.full(), first + pixel, chunk * chunk_channels, row, item.n);
        }
      }
  });
}

// Where a lane finds what it fetches of the first slice of a chunk: of 16 bits and in NHWC what ldmatrix wants for each 16
// pixels; words of NCHW: four pixels of channels 2 t and 2 t + 1.
template <class T>
__device__ __forceinline__ void find_ribbon(const RibbonParams& p, uint32_t (&place)[2]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int chunk_channels = p.chunk_slices * slice_channels(sizeof(T));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t at;
    if (p.channels_last) {
      const int pixel = warp * kWarpPixels + i * 16 + lane / 8 % 2 * 8 + lane % 8;
      at = pixel * p.line + lane / 16 * 16;
    } else {
      const int pixel = warp * kWarpPixels +
                        (sizeof(T) == 4 ? lane / 4 * 4 : i * 16 + lane / 8 % 2 * 8),
                channel = sizeof(T) == 4 ? lane % 4 * 2 + i : lane / 16 * 8 + lane % 8;
      const int image = p.by_run.quotient(pixel), inside = pixel - image * p.run,
                box = inside >> p.line_bits;
      at = ((box * p.images + image) * chunk_channels + channel) * p.line +
           (inside - (box << p.line_bits)) * sizeof(T);
    }
    place[i] = at ^ (at >> 7 & (p.line / 16 - 1)) << 4;
  }
}

// Adds the products of a chunk.
template <class T, int ROW, bool CHANNELS_LAST>
__device__ __forceinline__ void multiply_chunk(const RibbonParams& p, const uint32_t (&place)[2],
                                               uint32_t x, uint32_t w, int slices,
                                               RibbonSums<ROW>& sum) {
  constexpr Ribbon ribbon = kRibbons[ROW];
  constexpr int kColumns = ribbon.width / 8, kCount = ribbon.span * kColumns,
                kPairs = fragment_pairs(ribbon);
  const uint32_t slice_bytes = slice_channels(sizeof(T)) * p.line;
#pragma unroll 2
  for (int slice = 0; slice < slices; ++slice, w += slice_fragments(ribbon)) {
    uint32_t a[2][4];
    if constexpr (CHANNELS_LAST) {
#pragma unroll
      for (int i = 0; i < 2; ++i) ldmatrix_x4(a[i], x + (place[i] ^ slice * kSliceBytes));
    } else if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) ldmatrix_x4_turned(a[i], x + place[i] + slice * slice_bytes);
    } else {
      uint32_t even[4], odd[4];
      load_shared_16(x + place[0] + slice * slice_bytes, even);
      load_shared_16(x + place[1] + slice * slice_bytes, odd);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        a[i][0] = even[2 * i], a[i][1] = even[2 * i + 1];
        a[i][2] = odd[2 * i], a[i][3] = odd[2 * i + 1];
      }
    }
    uint32_t rest[2][4];
    if constexpr (ribbon.strict) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) MmaF32x3::split(a[i][j], a[i][j], rest[i][j]);
    }
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      uint32_t b[4];
      load_shared_16(w + pair * 512, b);
      const auto add = [&](const uint32_t (&pixels)[2][4], const uint32_t (&columns)[4]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int f = 2 * pair + half;
          if (f >= kCount) continue;
#pragma unroll
          for (int i = 0; i < 2; ++i)
            RibbonMma<T>::mma(sum[f / kColumns][i][f % kColumns], pixels[i], columns[2 * half],
                              columns[2 * half + 1]);
        }
      };
      if constexpr (ribbon.strict) {  // the lesser products first
        uint32_t b_rest[4];
        load_shared_16(w + (kPairs + pair) * 512, b_rest);
        add(rest, b);
        add(a, b_rest);
      }
      add(a, b);
    }
  }
}

template <class T, int ROW>
__device__ __forceinline__ void follow_ribbons(const RibbonParams& p, uint32_t shared,
                                               StageRing& ring) {
  constexpr int kColumns = kRibbons[ROW].width / 8, kSpan = kRibbons[ROW].span,
                kWeights = kChunkSlices * slice_fragments(kRibbons[ROW]);  // of a chunk
  const uint32_t products = shared + p.products_at,
                 weights = shared + p.weights_at + threadIdx.x % 32 * 16;
  uint32_t place[2];
  find_ribbon<T>(p, place);
  for_items(p, [&](const Item& item) {
    RibbonSums<ROW> sum;
    const auto each = [&](auto&& change) {
#pragma unroll
      for (int s = 0; s < kSpan; ++s)
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int n = 0; n < kColumns; ++n)
#pragma unroll
            for (int r = 0; r < 4; ++r) change(s, i, n, r);
    };
    each([&](int s, int i, int n, int r) { sum[s][i][n][r] = 0; });
#pragma unroll 1
    for (int row = max(item.row - p.reach, 0); row < item.row + item.rows; ++row) {
      if (row < p.x_h) {
        uint32_t w = weights;
        int left = p.slices;
#pragma unroll 1
        for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
          const int slices = min(left, kChunkSlices);
          barrier_wait(ring.full(), ring.parity);
          if constexpr (
              kRibbons[ROW]
                  .strict) {  // 32 channels are summed apart: the tensor core cuts digits off
            RibbonSums<ROW> part;
            each([&](int s, int i, int n, int r) { part[s][i][n][r] = 0; });
            multiply_chunk<T, ROW, false>(p, place, ring.stage(), w, slices, part);
            each([&](int s, int i, int n, int r) { sum[s][i][n][r] += part[s][i][n][r]; });
          } else if (p.channels_last) {
            multiply_chunk<T, ROW, true>(p, place, ring.stage(), w, slices, sum);
          } else {
            multiply_chunk<T, ROW, false>(p, place, ring.stage(), w, slices, sum);
          }
          __syncwarp();
          if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
          left -= kChunkSlices;
          w += kWeights;
        }
      }
      if (row >= item.row) {
        barrier_among(1, kRibbonConsumers);  // the row before has been collected
        store_ribbon<T, ROW>(p, sum[0], products);
        barrier_among(1, kRibbonConsumers);
        collect_ribbon<T, ROW>(p, item, row, shared);
      }
      each([&](int s, int i, int n, int r) {
        sum[s][i][n][r] = s + 1 < kSpan ? sum[min(s + 1, kSpan - 1)][i][n][r] : 0;
      });
    }
  });
}

template <class T, int ROW>
__global__ void __launch_bounds__(ribbon_threads(kRibbons[ROW]), kRibbons[ROW].blocks)
    convt2d_narrow_ribbon_kernel(const __grid_constant__ RibbonParams p,
                                 const __grid_constant__ CUtensorMap map) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  StageRing ring{shared, shared + p.stages_at, p.stages, p.stage_bytes};
  if (threadIdx.x == kRibbonConsumers) {
    prefetch_map(&map);
    for (int i = 0; i < p.stages; ++i) {
      barrier_init(ring.barriers + i * 16, 1);
      barrier_init(ring.barriers + i * 16 + 8, kRibbonWarps);
    }
    fence_for_wgmma();  // for the copy engine
  }
  __syncthreads();
  if (threadIdx.x >= kRibbonConsumers) {
    if constexpr (lends(kRibbons[ROW])) fewer_registers<kLentRegisters>();
    if (threadIdx.x == kRibbonConsumers) bring_chunks(p, map, ring);
  } else {
    if constexpr (lends(kRibbons[ROW])) more_registers<kRibbonRegisters>();
    for (int at = threadIdx.x * 16; at < p.products_bytes; at += kRibbonConsumers * 16)
      store_shared_16(shared + p.products_at + at, {0, 0, 0, 0});  // the margins stay
    bring_fragments<T, ROW>(p, shared);
    barrier_among(1, kRibbonConsumers);
    follow_ribbons<T, ROW>(p, shared, ring);
  }
#endif
}

}  // namespace convt2d::cuda::narrow
