// The crimp kernel of words; crimp_config.h draws the GEMM.
//
// Those who multiply first write the weights of all chunks, which stay. Then they fetch the words of a slice while the slice before
// is multiplied, and rows of y leave while the next row of x is. Strips behind the last image's are zeros, of which nothing is stored.
#pragma once

#include "cuda/crimp/crimp_scope.cuh"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/elect.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/tensor_store.cuh"
#include "cuda/device/uniform.cuh"

namespace convt2d::cuda::crimp {

// A strip of the rows of all images side by side.
struct Strip {
  int image, column;
};
__device__ __forceinline__ Strip strip_of(const Params& p, const Item& item, int number) {
  const unsigned strip = item.column / kStripWords + number,
                 image = p.by_row_strips.quotient(strip);
  return {int(image), int(strip - image * p.by_row_strips.divisor) * kStripWords};
}

// One lane asks for all; that it is one, the whole warp knows.
__device__ __forceinline__ void bring_words(const Params& p, const Maps& maps, uint32_t shared) {
  const bool asks = elected();
  const int line = p.slices * kWordSlice * kLine;
  for_chunks(p, shared, p.teams * kRows,
             [&](const StageRing& ring, const Item& item, int row, int chunk, bool) {
               if (asks) barrier_expect(ring.full(), p.stage_bytes);
               Strip strip = strip_of(p, item, 0);
               const uint32_t end = ring.stage() + p.stage_bytes;
#pragma unroll 1
               for (uint32_t to = ring.stage(); to < end; to += line) {
                 if (asks)
                   copy_box(to, &maps.x, ring.full(), strip.column, row,
                            chunk * p.slices * kWordSlice, strip.image * p.groups + item.group);
                 strip.column += kStripWords;
                 if (strip.column >= p.width) strip.column = 0, ++strip.image;
               }
             });
}

// Weights and bias of a block's channels, by all who multiply.
template <int COLUMNS>
__device__ __forceinline__ void lay_weights(const Params& p, const Item& item, uint32_t shared) {
  constexpr int kAtOnce = 8;  // loads take long
  const int threads = p.teams * 128, count = p.chunks * p.slices * (kWordSlice / 4) * COLUMNS,
            taps = 2 * p.stride, row = p.columns * taps,
            there = (p.columns - item.channel) * taps;  // columns that exist
  const float* const from =
      static_cast<const float*>(p.w) + int64_t{item.group} * p.reduce * row + item.channel * taps;
#pragma unroll 1
  for (int first = threadIdx.x; first < count; first += threads * kAtOnce) {
    uint32_t word[kAtOnce][4];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * threads, channel = i / COLUMNS * 4, column = i % COLUMNS,
                left = column < there ? p.reduce : 0;
#pragma unroll
      for (int c = 0; c < 4; ++c)
        word[n][c] = load_if<4>(from + (channel + c) * row + column, channel + c, left);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * threads, column = i % COLUMNS, tap = column & taps - 1,
                place = i - tap + (tap & p.stride - 1) * 2 + (tap >= p.stride);
#pragma unroll
      for (int c = 0; c < 4; ++c) word[n][c] = MmaTF32::round(word[n][c]);
      if (i < count) store_shared_16(shared + p.weights_at + place * 16, word[n]);
    }
  }
  const int line = threadIdx.x, channel = item.channel + line / p.stride;
  if (line < COLUMNS / 2)
    store_shared_sum(shared + kBiasAt + line * 4,
                     p.bias && channel < p.columns
                         ? static_cast<const float*>(p.bias)[item.group * p.columns + channel]
                         : 0.f);
  fence_for_wgmma();
  barrier_among(1 + kTeamStrips * most_teams_of_words(COLUMNS), threads);
}

// Rows g and g + 8 of an instruction are two neighbours of a warp's 16 pixels of a strip; which ones, is such that lanes meet no
// bank twice, neither of channels in nor of rows of y: both are lines, of which a lane has every fourth one.
struct Lane {
  int pixel;
  uint32_t place;  // in line t
};
__device__ __forceinline__ Lane lane_of(int warp) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int pixel = g % 2 * 2 + g / 4 * 4 + warp % 2 * 8 + g / 2 % 2 * 16;
  return {pixel, uint32_t(t * kLine + (pixel * 4 ^ t << 4))};
}
// The same in line 4 j + t.
__device__ __forceinline__ uint32_t place_in(const Lane& lane, int j) {
  return (lane.place ^ j % 2 * 64) + j * 4 * kLine;
}

// Multiplies a chunk, in batches: while one is multiplied, words of the next are fetched, and stay until they are. A slice of few
// columns takes no longer than its words.
template <int COLUMNS, int SLICES>
__device__ __forceinline__ void multiply_words(float (&sum)[COLUMNS / 2], const Lane& lane,
                                               uint32_t x, uint64_t w) {
  constexpr int kBatch = COLUMNS > 128 ? 1 : SLICES / 2;
  uint32_t word[2][kBatch][4];
#pragma unroll
  for (int batch = 0; batch < SLICES / kBatch; ++batch) {
#pragma unroll
    for (int i = 0; i < 2 * kBatch; ++i) {
      uint32_t pair[2];
      load_shared_8(x + place_in(lane, 2 * kBatch * batch + i), pair);
      uint32_t* const mine = word[batch % 2][i / 2] + i % 2 * 2;
      mine[0] = pair[0], mine[1] = pair[1];
    }
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      WgmmaFetched<float, COLUMNS>::add(sum, word[batch % 2][i],
                                        advance(w, (batch * kBatch + i) * COLUMNS * 2));
    wgmma_commit();
    wgmma_wait<1>();
  }
}

// Adds a tile's products to `sum`, and calls meanwhile() once the first are under way: between chunks, since within one ptxas
// would make the multiplications wait for each other (C7513).
template <int COLUMNS, class Meanwhile>
__device__ __forceinline__ void multiply_tile(const Params& p, const Lane& lane, uint32_t strip,
                                              uint32_t weights, StageRing& ring,
                                              float (&sum)[COLUMNS / 2], Meanwhile&& meanwhile) {
  const uint64_t layout = operand_layout(COLUMNS * 16, 128);
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, weights += p.weight_bytes, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    const uint32_t x = ring.stage() + strip;
    const uint64_t w = operand(layout, weights);
    if (p.slices == kMostSlices) {
      multiply_words<COLUMNS, kMostSlices>(sum, lane, x, w);
    } else {
      multiply_words<COLUMNS, kMostSlices / 2>(sum, lane, x, w);
    }
    __syncwarp();  // all have their words
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
    if (chunk == 0) meanwhile();
  }
  wgmma_wait<0>();
  finished(sum);
}

// What `sum` of taps below s has become, rows of y; those of the next row of x begin where the others are. `bias`: of a lane's first.
template <int COLUMNS>
__device__ __forceinline__ void take_rows(float (&sum)[COLUMNS / 2], float (&made)[COLUMNS / 4],
                                          uint32_t bias) {
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; ++j) {
    made[2 * j] = sum[4 * j], made[2 * j + 1] = sum[4 * j + 2];
    sum[4 * j] = sum[4 * j + 1], sum[4 * j + 2] = sum[4 * j + 3];
    sum[4 * j + 1] = sum[4 * j + 3] = load_shared<float>(bias + j * 16);
  }
}

template <int COLUMNS>
__device__ __forceinline__ void consume_words(const Params& p, const Maps& maps, uint32_t shared) {
  const int warp = warp_of_block(), t = threadIdx.x % 4, pair = warp / 2;  // a pair has a strip
  const bool speaks = threadIdx.x % 64 == 0;
  const Lane lane = lane_of(warp);
  const uint32_t out = shared + kOutAt + pair * strip_bytes(COLUMNS),
                 bias = shared + kBiasAt + t * 4, strip_at = pair * p.slices * kWordSlice * kLine;
  // A lane's pixels of row 4 j + t.
  const auto place = [&](int j) { return out + place_in(lane, j); };
  StageRing ring = ring_of(p, shared);
  lay_weights<COLUMNS>(p, item_of(p, blockIdx.x, p.teams * kRows), shared);
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of(p, i, p.teams * kRows);
    const Strip strip = strip_of(p, item, pair);
    float sum[COLUMNS / 2], made[COLUMNS / 4];
#pragma unroll
    for (int j = 0; j < COLUMNS / 2; ++j) sum[j] = load_shared<float>(bias + j / 4 * 16);
    // What row `row` of x completed, to memory.
    const auto store = [&](int row) {
      if (row < item.begin) return;
      if (speaks) stored_boxes_read();
      barrier_among(1 + pair, 64);  // the rows before have been read
#pragma unroll
      for (int j = 0; j < COLUMNS / 8; ++j)
        store_shared_sums(place(j), made[2 * j], made[2 * j + 1]);
      fence_for_wgmma();  // and for the copy engine
      barrier_among(1 + pair, 64);
      const int y = row * p.stride - p.pad;
      if (y < 0) {  // the copy engine stores no box that starts outside: lanes take theirs
        const int w = strip.column + lane.pixel;
        const bool exists = strip.image < p.batch && w < p.width;
        const int64_t plane = (int64_t{strip.image} * p.groups + item.group) * p.columns;
#pragma unroll 1
        for (int j = 0; j < COLUMNS / 8; ++j) {
          const int line = 4 * j + t, channel = item.channel + line / p.stride,
                    h = y + line % p.stride;
          uint32_t word[2];
          load_shared_8(place(j), word);
          if (exists && channel < p.columns && h >= 0 && h < p.y_h)
            store_words(static_cast<float*>(p.y) + ((plane + channel) * p.y_h + h) * p.width + w,
                        word[0], word[1]);
        }
      } else if (speaks) {
        store_box(&maps.y, out, strip.column, y, item.channel, item.group, strip.image);
      }
    };
    for (int row = item.first; row < item.end; ++row) {
      multiply_tile<COLUMNS>(p, lane, strip_at, shared + p.weights_at, ring, sum,
                             [&] { store(row - 1); });
      take_rows<COLUMNS>(sum, made, bias);
    }
    store(item.end - 1);
    if (item.end == p.x_h) {  // below the last row of x
      take_rows<COLUMNS>(sum, made, bias);
      store(p.x_h);
    }
  }
  if (speaks) stored_boxes_there();
}

template <int COLUMNS>
__global__ void __launch_bounds__(threads_of(most_teams_of_words(COLUMNS)), 1)
    convt2d_crimp_words_kernel(const __grid_constant__ Params p,
                               const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  begin(p, maps, shared);
  if (warp_of_block() >= p.teams * 4) {
    bring_words(p, maps, shared);
  } else {
    consume_words<COLUMNS>(p, maps, shared);
  }
#endif
}

}  // namespace convt2d::cuda::crimp
