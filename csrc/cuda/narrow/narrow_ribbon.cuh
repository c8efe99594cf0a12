// The kernel of narrow's ribbons; narrow_ribbon.h draws the tiling.
//
// One thread asks the copy engine for chunks of x, in a ring of stages: `full` ends a phase when a chunk has arrived, `empty`
// when every warp has done with it. Four warps multiply, then collect a row together.
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

// Weights in the order of NCHW, where the copy engine does not bring them as they lie.
template <class T>
__device__ __forceinline__ void bring_raw(const RibbonParams& p, uint32_t to) {
  const int count = p.raw_bytes / int(sizeof(T));
#pragma unroll 1
  for (int i = threadIdx.x; i < count; i += kRibbonConsumers) {
    const int line = i / p.kernel_w, kw = i - line * p.kernel_w, kernel = line / p.kernel_h,
              kh = line - kernel * p.kernel_h, ci = p.by_columns.quotient(kernel),
              co = kernel - ci * p.columns;
    const T* const from =
        static_cast<const T*>(p.weight) +
        (ci * p.weight_reduce + co * p.weight_column + kh * p.weight_h + kw * p.weight_w);
    if constexpr (sizeof(T) == 4) {
      store_shared_4(to + i * 4, __float_as_uint(*from));
    } else {
      store_shared_2(to + i * 2, *reinterpret_cast<const unsigned short*>(from));
    }
  }
}

// All weights, by fragments: of a lane, columns l / 4 and channels as the fetching of x deals them out. A warp fetches a
// batch of them before it stores any. `raw`: as they lie.
template <class T, int ROW>
__device__ __forceinline__ void bring_fragments(const RibbonParams& p, uint32_t shared,
                                                uint32_t raw) {
  constexpr Ribbon ribbon = kRibbons[ROW];
  constexpr int kColumns = ribbon.width / 8, kCount = fragments(ribbon),
                kPairs = fragment_pairs(ribbon), kNumbers = 4 / sizeof(T),
                kSlice = slice_channels(sizeof(T)), kBatch = kPairs < 4 ? kPairs : 4;
  const int lane = threadIdx.x % 32, t = lane % 4;
  int offset[kCount], left[kCount];  // of a fragment: of its column's tap; channels there are
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const int column = n * 8 + lane / 4, line = p.by_line.quotient(column);
    const int kw = column - line * p.line_columns, phase = p.by_columns.quotient(line);
    const int channel = line - phase * p.columns;
#pragma unroll
    for (int s = 0; s < ribbon.span; ++s) {
      const int reach = s * p.stride_h + phase, kh = p.by_dilation.quotient(reach);
      const bool there =
          phase < p.stride_h && kw < p.kernel_w && kh < p.kernel_h && kh * p.dilation_h == reach;
      offset[s * kColumns + n] = channel * p.raw_column + kh * p.raw_h + kw * p.raw_w;
      left[s * kColumns + n] = there ? p.reduce : 0;
    }
  }
  // The channel of number i of word b.
  const int word_step = sizeof(T) == 4 ? (p.channels_last ? 4 : 1) : 8,
            first = sizeof(T) == 4 ? (p.channels_last ? t : 2 * t) : 2 * t;
#pragma unroll 1
  for (int slice = threadIdx.x / 32; slice < p.slices; slice += kRibbonWarps) {
    const uint32_t to = shared + p.weights_at + slice * slice_weights(ribbon);
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
            const uint32_t from =
                raw + (c * p.raw_reduce + offset[2 * batch + f]) * uint32_t(sizeof(T));
            if (c >= left[2 * batch + f]) continue;
            if constexpr (sizeof(T) == 4) {
              number[f][b][i] = load_shared_4(from);
            } else {
              number[f][b][i] = load_shared<unsigned short>(from);
            }
          }
      const auto word = [&](int f, int b) {
        const uint32_t low = number[f][b][0];
        if constexpr (kNumbers == 2) return low | number[f][b][kNumbers - 1] << 16;
        return kRibbons[ROW].strict ? low : RibbonMma<T>::round(low);
      };
      if constexpr (ribbon.strict) {
#pragma unroll
        for (int i = 0; i < kBatch && batch + i < kPairs; ++i) {
          uint32_t four[4], rest[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) MmaF32x3::split(word(2 * i + j / 2, j % 2), four[j], rest[j]);
          store_shared_16(to + (batch + i) * 512 + lane * 16, four);
          store_shared_16(to + (kPairs + batch + i) * 512 + lane * 16, rest);
        }
      } else {
#pragma unroll
        for (int f = 0; f < 2 * kBatch && 2 * batch + f < kCount; ++f)
#pragma unroll
          for (int b = 0; b < 2; ++b) {
            const int eight = 2 * batch + f;
            if (sizeof(T) == 4 || p.channels_last) {
              store_shared_4(to + ((b * kCount + eight) * 32 + lane) * 4, word(f, b));
            } else {
#pragma unroll
              for (int i = 0; i < kNumbers; ++i)
                store_shared_2(to + eight * 256 + (b * 8 + 2 * t + i) * 16 + lane / 4 * 2,
                               static_cast<unsigned short>(number[f][b][i]));
            }
          }
      }
    }
  }
}

// Rows of a stretch, of all images one behind the other: a block's first one, one past its last, and the item that begins at
// one of them.
struct RibbonRows {
  int at, end, sweep;

  __device__ __forceinline__ explicit RibbonRows(const RibbonParams& p) {
    const int strand = p.by_sweeps.quotient(blockIdx.x);
    sweep = blockIdx.x - strand * p.sweeps;
    at = strand * p.walker_rows + min(strand, p.longer);
    end = at + p.walker_rows + (strand < p.longer);
  }
  __device__ __forceinline__ Item next(const RibbonParams& p) {
    const int group = p.by_rows.quotient(at), above = at - group * p.rows,
              rows = min(end - at, p.rows - above);
    at += rows;
    return {group * p.images, sweep, p.first_row + above, rows};
  }
};

// Calls `visit` with each item of a block.
template <class Visit>
__device__ __forceinline__ void for_ribbons(const RibbonParams& p, Visit&& visit) {
  for (RibbonRows rows(p); rows.at < rows.end;) visit(rows.next(p));
}

// Barriers (device/barrier.cuh): of those who multiply; of both buffers of products, that they are there, or free.
constexpr int kMultiplying = 1, kProductsThere = 2, kProductsFree = 4;

// Asks for a chunk of a row of x, when the stage is free.
__device__ __forceinline__ void bring_chunk(const RibbonParams& p, const CUtensorMap& map,
                                            StageRing& ring, const Item& item, int row, int chunk) {
  const int numbers = 1 << p.line_bits, first = item.sweep * p.step,
            channel = chunk * p.chunk_slices * slice_channels(p.number_bytes);
  barrier_wait(ring.empty(), ring.parity ^ 1);
  barrier_expect(ring.full(), p.stage_bytes);
  uint32_t to = ring.stage();
  if (p.channels_last) {
    copy_box(to, &map, ring.full(), channel, first, row, item.n);
  } else {
    for (int pixel = 0; pixel < p.run; pixel += numbers, to += p.box_bytes)
      copy_box(to, &map, ring.full(), first + pixel, channel, row, item.n);
  }
  ring.advance();
}

__device__ __forceinline__ void bring_chunks(const RibbonParams& p, const CUtensorMap& map,
                                             StageRing& ring) {
  for_ribbons(p, [&](const Item& item) {
    const int end = min(item.row + item.rows, p.x_h);
    for (int row = max(item.row - p.reach, 0); row < end; ++row)
      for (int chunk = 0; chunk < p.chunks; ++chunk) bring_chunk(p, map, ring, item, row, chunk);
  });
}

// The same, a chunk at a time.
struct RibbonAsk {
  RibbonRows rows;
  Item item;
  int row = 0, below = 0, chunk = 0;

  __device__ __forceinline__ void ask(const RibbonParams& p, const CUtensorMap& map,
                                      StageRing& ring) {
    while (row >= below) {
      if (rows.at >= rows.end) return;
      item = rows.next(p);
      row = max(item.row - p.reach, 0), below = min(item.row + item.rows, p.x_h);
    }
    bring_chunk(p, map, ring, item, row, chunk);
    if (++chunk == p.chunks) chunk = 0, ++row;
  }
};

// A warpgroup that lends registers: its first thread asks the copy engine, for as much as there is room for, then for a chunk
// whenever one is done with; all of it collects the rows whose products are there.
template <class T, int ROW>
__device__ __forceinline__ void collect_ribbons(const RibbonParams& p, const CUtensorMap& map,
                                                uint32_t shared, StageRing& ring) {
  const bool asks = threadIdx.x == kRibbonConsumers;
  RibbonAsk asked{RibbonRows(p)};
  int left = asked.rows.end - asked.rows.at;  // rows that are not collected
  if (asks)
    for (int i = 0; i < p.stages; ++i) asked.ask(p, map, ring);
  __syncwarp();
  for (int i = 0; i < min(left, 2); ++i) barrier_join(kProductsFree + i, 2 * kRibbonConsumers);
  const RibbonBias<ROW> bias = find_bias<T, ROW>(p);
  int buffer = 0;
  for_ribbons(p, [&](const Item& item) {
#pragma unroll 1
    for (int row = max(item.row - p.reach, 0); row < item.row + item.rows; ++row) {
      const bool collects = row >= item.row;
      if (collects) barrier_among(kProductsThere + buffer, 2 * kRibbonConsumers);
      if (asks && row < p.x_h)
        for (int chunk = 0; chunk < p.chunks; ++chunk) asked.ask(p, map, ring);
      __syncwarp();
      if (!collects) continue;
      collect_ribbon<T, ROW>(p, item, row, bias, shared,
                             shared + p.products_at + buffer * p.products_bytes);
      if (--left > 1) barrier_join(kProductsFree + buffer, 2 * kRibbonConsumers);
      buffer ^= 1;
    }
  });
}

// Where a lane finds words of the first slice of a chunk: in NHWC what ldmatrix wants of each block, in NCHW four pixels of
// channels 2 t and 2 t + 1.
__device__ __forceinline__ void find_ribbon(const RibbonParams& p, uint32_t (&place)[2]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto swizzled = [&](uint32_t at) { return at ^ (at >> 7 & (p.line / 16 - 1)) << 4; };
  if (p.channels_last) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      place[i] = swizzled((i * 64 + warp * 16 + lane % 16) * p.line + lane / 16 * 16);
    return;
  }
  const int pixel = warp * kWarpPixels + lane / 4 * 4, image = p.by_run.quotient(pixel),
            inside = pixel - image * p.run, box = inside >> p.line_bits;
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    const uint32_t at =
        ((box * p.images + image) * p.chunk_slices * slice_channels(4) + lane % 4 * 2 + odd) *
            p.line +
        (inside - (box << p.line_bits)) * 4;
    place[odd] = swizzled(at);
  }
}

// What a lane has of a slice; in NCHW rows l / 4 and + 8 of both blocks are four neighbours.
using RibbonWords = uint32_t[2][4];
__device__ __forceinline__ void fetch_words(const RibbonParams& p, const uint32_t (&place)[2],
                                            uint32_t x, int slice, RibbonWords& word) {
  if (p.channels_last) {
#pragma unroll
    for (int i = 0; i < 2; ++i) ldmatrix_x4(word[i], x + (place[i] ^ slice * kSliceBytes));
    return;
  }
  x += slice * slice_channels(4) * p.line;
  uint32_t even[4], odd[4];
  load_shared_16(x + place[0], even);
  load_shared_16(x + place[1], odd);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    word[i][0] = even[2 * i], word[i][1] = even[2 * i + 1];
    word[i][2] = odd[2 * i], word[i][3] = odd[2 * i + 1];
  }
}

// Adds to the sums of a fragment of columns.
template <int COUNT>
__device__ __forceinline__ void add_fragment(float (&sum)[COUNT], int fragment,
                                             const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  float four[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) four[r] = sum[4 * fragment + r];
  MmaTF32::mma(four, a, b0, b1);
#pragma unroll
  for (int r = 0; r < 4; ++r) sum[4 * fragment + r] = four[r];
}

// Adds the products of a chunk, in strict fp32.
template <int ROW>
__device__ __forceinline__ void multiply_strict(const RibbonParams& p, const uint32_t (&place)[2],
                                                uint32_t x, uint32_t w, int slices,
                                                RibbonSums<ROW>& sum) {
  constexpr Ribbon ribbon = kRibbons[ROW];
  constexpr int kPairs = fragment_pairs(ribbon);
#pragma unroll 2
  for (int slice = 0; slice < slices; ++slice, w += slice_weights(ribbon)) {
    RibbonWords a, rest;
    fetch_words(p, place, x, slice, a);
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) MmaF32x3::split(a[i][j], a[i][j], rest[i][j]);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      uint32_t b[4], b_rest[4];
      load_shared_16(w + pair * 512, b);
      load_shared_16(w + (kPairs + pair) * 512, b_rest);
      const auto add = [&](const RibbonWords& pixels, const uint32_t (&columns)[4]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int f = 2 * pair + half;
          if (f >= fragments(ribbon)) continue;
#pragma unroll
          for (int i = 0; i < 2; ++i)
            add_fragment(sum[i], f, pixels[i], columns[2 * half], columns[2 * half + 1]);
        }
      };
      add(rest, b);  // the lesser products first
      add(a, b_rest);
      add(a, b);
    }
  }
}

// Adds the products of a chunk of so many slices. `w`: the descriptor of its weights.
template <class T, int ROW, int SLICES>
__device__ __forceinline__ void multiply_ribbon(const RibbonParams& p, const uint32_t (&place)[2],
                                                uint32_t x, uint64_t w, RibbonSums<ROW>& sum) {
  constexpr int kAll = all_columns(kRibbons[ROW]);
  const auto weights = [&](int slice) {
    return advance(w, slice * slice_weights(kRibbons[ROW]) >> 4);
  };
  if constexpr (sizeof(T) == 4) {
    RibbonWords word[SLICES];
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
      fetch_words(p, place, x, slice, word[slice]);
#pragma unroll
      for (int i = 0; i < 2; ++i) computed(word[slice][i]);
    }
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        WgmmaFetched<T, kAll>::add(sum[i], word[slice][i], weights(slice));
  } else if (p.channels_last) {
    const uint64_t pixels = operand(swizzled_layout(p.line, 8 * p.line), x);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        Wgmma<T, kAll>::add(sum[i], advance(pixels, (i * 64 * p.line + slice * kSliceBytes) >> 4),
                            weights(slice));
  } else {
    const int chunk_channels = p.chunk_slices * slice_channels(2);
    const uint64_t pixels = operand(turned_layout(p.line, chunk_channels * p.line), x);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        WgmmaTurned<T, kAll>::add(
            sum[i],
            advance(pixels, (i * chunk_channels * 128 + slice * slice_channels(2) * p.line) >> 4),
            weights(slice));
  }
  // A chunk is one batch: where several are under way at a branch, ptxas lets none be (C7520).
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < 2; ++i) finished(sum[i]);
}

// Adds the products of a chunk.
template <class T, int ROW>
__device__ __forceinline__ void multiply_chunk(const RibbonParams& p, const uint32_t (&place)[2],
                                               uint32_t x, uint32_t w, int slices,
                                               RibbonSums<ROW>& sum) {
  const uint64_t layout = sizeof(T) == 4 || p.channels_last
                              ? operand_layout(all_columns(kRibbons[ROW]) * 16, 128)
                              : operand_layout(128, 256);
  const uint64_t weights = operand(layout, w);
  static_assert(kChunkSlices == 4);
  if (slices == 4) {
    multiply_ribbon<T, ROW, 4>(p, place, x, weights, sum);
  } else if (slices == 3) {
    multiply_ribbon<T, ROW, 3>(p, place, x, weights, sum);
  } else if (slices == 2) {
    multiply_ribbon<T, ROW, 2>(p, place, x, weights, sum);
  } else {
    multiply_ribbon<T, ROW, 1>(p, place, x, weights, sum);
  }
}

template <class T, int ROW>
__device__ __forceinline__ void follow_ribbons(const RibbonParams& p, uint32_t shared,
                                               StageRing& ring) {
  constexpr int kRow = kRibbons[ROW].width / 2, kAll = all_columns(kRibbons[ROW]) / 2,
                kWeights = kChunkSlices * slice_weights(kRibbons[ROW]);  // of a chunk
  constexpr bool kStrict = kRibbons[ROW].strict;
  uint32_t place[2] = {};
  if constexpr (sizeof(T) == 4) find_ribbon(p, place);
  const RibbonBias<ROW> bias = find_bias<T, ROW>(p);
  int buffer = 0;
  for_ribbons(p, [&](const Item& item) {
    RibbonSums<ROW> sum;
    const auto each = [&](auto&& change) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int k = 0; k < kAll; ++k) change(i, k);
    };
    clear(sum);
#pragma unroll 1
    for (int row = max(item.row - p.reach, 0); row < item.row + item.rows; ++row) {
      if (row < p.x_h) {
#pragma unroll 1
        for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
          const int slices = min(p.slices - chunk * kChunkSlices, kChunkSlices);
          const uint32_t w =
              shared + p.weights_at + chunk * kWeights + (kStrict ? threadIdx.x % 32 * 16 : 0);
          barrier_wait(ring.full(), ring.parity);
          if constexpr (kStrict) {  // 32 channels are summed apart: the tensor core cuts digits off
            RibbonSums<ROW> part;
            clear(part);
            multiply_strict<ROW>(p, place, ring.stage(), w, slices, part);
            each([&](int i, int k) { sum[i][k] += part[i][k]; });
          } else {
            multiply_chunk<T, ROW>(p, place, ring.stage(), w, slices, sum);
          }
          __syncwarp();
          if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
        }
      }
      if (row >= item.row) {
        if constexpr (collects_apart(kRibbons[ROW], sizeof(T))) {
          barrier_among(kProductsFree + buffer, 2 * kRibbonConsumers);
          store_ribbon<T, ROW>(p, sum, shared + p.products_at + buffer * p.products_bytes);
          barrier_join(kProductsThere + buffer, 2 * kRibbonConsumers);
          buffer ^= 1;
        } else {
          barrier_among(kMultiplying, kRibbonConsumers);  // the row before has been collected
          store_ribbon<T, ROW>(p, sum, shared + p.products_at);
          barrier_among(kMultiplying, kRibbonConsumers);
          collect_ribbon<T, ROW>(p, item, row, bias, shared, shared + p.products_at);
        }
      }
      each(
          [&](int i, int k) { sum[i][k] = k + kRow < kAll ? sum[i][min(k + kRow, kAll - 1)] : 0; });
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
#pragma unroll 1
    for (int i = 0; i < p.stages; ++i) {
      barrier_init(ring.barriers + i * 16, 1);
      barrier_init(ring.barriers + i * 16 + 8, kRibbonWarps);
    }
    const uint32_t raw_there = shared + kMostRibbonStages * 16;
    barrier_init(raw_there, 1);
    fence_for_wgmma();  // for the copy engine
    if (p.raw_copied) {
      barrier_expect(raw_there, p.raw_bytes);
      copy_run(shared + p.products_at, p.weight, p.raw_bytes, raw_there);
    }
  }
  __syncthreads();
  if (threadIdx.x >= kRibbonConsumers) {
    if constexpr (lends(kRibbons[ROW])) {
      fewer_registers<kept_registers(sizeof(T))>();
    }
    if constexpr (collects_apart(kRibbons[ROW], sizeof(T))) {
      collect_ribbons<T, ROW>(p, map, shared, ring);
    } else if (threadIdx.x == kRibbonConsumers) {
      bring_chunks(p, map, ring);
    }
  } else {
    if constexpr (lends(kRibbons[ROW])) more_registers<256 - kept_registers(sizeof(T))>();
    const uint32_t products = shared + p.products_at;
    if (p.raw_copied) {
      barrier_wait(shared + kMostRibbonStages * 16, 0);
    } else {
      bring_raw<T>(p, products);
      barrier_among(kMultiplying, kRibbonConsumers);
    }
    bring_fragments<T, ROW>(p, shared, products);
    barrier_among(kMultiplying, kRibbonConsumers);
    const int clear_bytes = product_buffers(kRibbons[ROW], sizeof(T)) * p.products_bytes;
#pragma unroll 1
    for (int at = threadIdx.x * 16; at < clear_bytes; at += kRibbonConsumers * 16)
      store_shared_16(products + at, {0, 0, 0, 0});  // the margins stay
    fence_for_wgmma();
    barrier_among(kMultiplying, kRibbonConsumers);
    follow_ribbons<T, ROW>(p, shared, ring);
  }
#endif
}

}  // namespace convt2d::cuda::narrow
