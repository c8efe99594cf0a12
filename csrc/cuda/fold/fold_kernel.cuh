// The fold kernel; fold_config.h draws the tiling.
//
// One thread asks the copy engine for the chunks of a block's tiles, in a ring of stages: `full` ends a phase when a
// stage has arrived, `helped` when its x has been turned (words) or shifted, `empty` when every warp that multiplies has
// read it. A warpgroup that has multiplied a tile puts its products into shared memory, a block of rows at a time, and collects the
// outputs; meanwhile the other one may multiply.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/fold/fold_collect.cuh"
#include "cuda/fold/fold_flat.cuh"
#include "cuda/fold/fold_shift.cuh"
#include "cuda/fold/fold_words.cuh"

namespace convt2d::cuda::fold {

// All of a block's weights, as the copy engine would have laid them, but for the lead.
template <class T, int ROW>
__device__ __forceinline__ void bring_weights(const Params& p, const Scope& at, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kNumbers = 4 / int(sizeof(T)), kLineRows = line_numbers(sizeof(T));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const T* const first = static_cast<const T*>(p.weight) +
                         static_cast<int64_t>(at.group) * p.reduce * p.weight_stride[0];
  for (int line = 0; line < weight_lines(tile, sizeof(T)); ++line) {
    int from[kNumbers];  // elements from the input channel's first; negative: a row that is none
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      // Words are rows of one run; blocks of 16 bits have lines of their own.
      const int row = (is_word<T> ? line * kLineRows : 0) + kNumbers * lane + i;
      const int inside = row / taps(p), tap = row - inside * taps(p);
      const int channel = first_channel(p, tile, at, is_word<T> ? 0 : line) + inside;
      from[i] = (is_word<T> || inside < p.row_channels) && channel < p.columns
                    ? channel * p.weight_stride[1] + tap / p.kernel * p.weight_stride[2] +
                          tap % p.kernel * p.weight_stride[3]
                    : -1;
    }
#pragma unroll 4
    for (int c = warp; c < p.chunks * p.depth; c += threads(tile) / 32) {
      const int chunk = c / p.depth, inside = c - chunk * p.depth;
      int input = c;
      if constexpr (tile.shifted) {
        const int place = inside / sets<ROW>(p);  // in its set
        input = chunk * p.depth + (inside - place * sets<ROW>(p) << p.set_shift) + place;
      }
      const T* const channel = first + int64_t{input} * p.weight_stride[0];
      float number[kNumbers];
#pragma unroll
      for (int i = 0; i < kNumbers; ++i)
        number[i] = input < p.reduce && from[i] >= 0 ? load(channel + from[i]) : 0.f;
      uint32_t to = shared + p.weights_at + chunk * weight_bytes(p, tile) +
                    (line * p.depth + inside) * kLine + lane * 4;
      to ^= (to >> 7 & 7) << 4;
      uint32_t word;
      if constexpr (is_word<T>) {
        word = __float_as_uint(number[0]);
        if constexpr (!tile.strict) word = MmaTF32::round(word);
      } else {
        word = pack<T>(number[0], number[1]);
      }
      store_shared_4(to, word);
    }
  }
}

// The bias of its channels.
template <class T, int ROW>
__device__ __forceinline__ void bring_bias(const Params& p, const Scope& at, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  const int first = first_channel(p, tile, at, 0);
  for (int i = threadIdx.x; i < block_channels(p, tile); i += threads(tile)) {
    const bool exists = p.bias && first + i < p.columns;
    store_shared_4(shared + kBiasAt + i * 4,
                   exists ? __float_as_uint(load(static_cast<const T*>(p.bias) +
                                                 at.group * p.columns + first + i))
                          : 0);
  }
}

// How many chunks come as one box, which must not reach beyond the tensor's end: `behind` numbers are between what a box
// has of the first channel and that end. Later chunks come line by line, with zeros for what there is not.
__device__ __forceinline__ int whole_chunks(const Params& p, int channel_numbers, int64_t behind) {
  if (int64_t{p.reduce - 1} * channel_numbers <= behind) return p.chunks;
  return behind < 0 ? 0 : static_cast<int>(behind / channel_numbers + 1) / p.depth;
}

// The first row of each line of a block's weights: those of words are one run, blocks of 16 bits start anew.
template <class T, int ROW>
using LineRows = int[weight_lines(kTiles[ROW], sizeof(T))];
template <class T, int ROW>
__device__ __forceinline__ void find_lines(const Params& p, const Scope& at,
                                           LineRows<T, ROW>& row) {
#pragma unroll
  for (int line = 0; line < weight_lines(kTiles[ROW], sizeof(T)); ++line) {
    const int column = first_channel(p, kTiles[ROW], at, is_word<T> ? 0 : line);
    row[line] =
        column * taps(p) - lead(p, column) + (is_word<T> ? line * line_numbers(sizeof(T)) : 0);
  }
}

// A chunk of x, line by line.
template <class T, int ROW>
__device__ __forceinline__ void bring_pixel_lines(const Params& p, const Maps& maps, int plane,
                                                  int pixel, int chunk, uint32_t to,
                                                  uint32_t full) {
  constexpr int kNumbers = line_numbers(sizeof(T)), kLines = tile_lines(kTiles[ROW], sizeof(T));
  const int channels = is_word<T> ? kRegionChannels : p.depth, bytes = channels * kLine;
  for (int c = 0; c < p.depth; c += channels, to += kLines * bytes)
    for (int image = 0; image < p.tile_images; ++image)
      for (int line = 0; line < p.image_lines; ++line)
        copy_box(to + (image * p.image_lines + line) * bytes, &maps.x_line, full,
                 pixel + line * kNumbers, chunk * sets<ROW>(p) + c, plane + image * p.groups, 0);
}

template <class T, int ROW>
__device__ __forceinline__ void bring_tiles(const Params& p, const Maps& maps, const Scope& at,
                                            StageRing& ring) {
  constexpr Tile tile = kTiles[ROW];
  const int plane = p.x_h * p.x_w, rows = p.columns * taps(p);
  const uint32_t weights_at = x_bytes(p, tile) + low_bytes(p, tile);
  const uint32_t bytes =
      p.tile_images * p.image_lines * p.depth * kLine + (p.resident ? 0 : weight_bytes(p, tile));
  LineRows<T, ROW> line_row;
  find_lines<T, ROW>(p, at, line_row);
  int whole_weights = 0;
  if constexpr (is_word<T>)
    whole_weights = whole_chunks(
        p, rows,
        int64_t{p.groups - at.group} * p.reduce * rows - (line_row[0] + row_blocks(tile) * kRows));
  // The box's axis that goes by chunks: eights of channels, or channels.
  const int step = is_word<T> ? p.depth / kRegionChannels : p.depth,
            first_step = is_word<T> ? at.group * p.reduce / kRegionChannels : 0;
  for_tiles(p, at, [&](const Item& item, int row) {
    const int first = first_pixel(p, item, row), pixel = tile.shifted ? first & -kVector : first;
    const int last = min(item.n + p.tile_images, p.batch) * p.groups - p.groups + at.group;
    const int whole =
        pixel < 0 || tile.shifted
            ? 0
            : min(p.box_chunks,
                  whole_chunks(p, plane,
                               int64_t{p.batch * p.groups - last} * p.reduce * plane -
                                   (pixel + p.image_lines * line_numbers(sizeof(T)))));
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      const uint32_t to = ring.stage(), full = ring.full();
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(full, bytes);
      if (chunk < whole) {
        const int at_step = first_step + chunk * step;
        copy_box(to, &maps.x, full, pixel, is_word<T> ? 0 : at_step, 0, item.n,
                 is_word<T> ? at_step : at.group);
      } else {
        bring_pixel_lines<T, ROW>(p, maps, item.n * p.groups + at.group, pixel, chunk, to, full);
      }
      if (chunk < whole_weights && !p.resident) {
        copy_box(to + weights_at, &maps.w, full, line_row[0], chunk * p.depth, 0, at.group);
      } else if (!p.resident) {
#pragma unroll
        for (int line = 0; line < weight_lines(tile, sizeof(T)); ++line)
          copy_box(to + weights_at + line * p.depth * kLine, &maps.w_line, full, line_row[line],
                   chunk * sets<ROW>(p), at.group, 0);
      }
    }
  });
}

template <class T, int ROW, int SLICES>
__device__ __forceinline__ void multiply_slices(const Params& p, uint64_t w, uint64_t x,
                                                Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kSlice = slice_channels(sizeof(T));
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
    for (int b = 0; b < tile.row_blocks; ++b)
      WgmmaTurned<T, tile.width>::add(
          sum[b], advance(w, b * p.depth * (kLine >> 4) + slice * (kSlice * kLine >> 4)),
          advance(x, slice * (kSlice * kLine >> 4)));
  wgmma_commit();
}

// The products of a tile of 16-bit numbers.
template <class T, int ROW>
__device__ __forceinline__ void multiply(const Params& p, uint32_t shared, StageRing& ring,
                                         Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kLineNumbers = line_numbers(sizeof(T)), kSlice = slice_channels(sizeof(T));
  const int group = warpgroup_of_block(), row_group = group / parts(tile),
            part = group % parts(tile);
  const uint64_t layout = turned_layout(kLine, p.depth * kLine);
  clear(sum);
  uint32_t previous = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    if (tile.shifted && (!tile.flat || p.set_shift > 0))
      barrier_wait(helped_barrier(ring), ring.parity);
    const uint32_t stage = ring.stage();
    const uint32_t weights = p.resident ? shared + p.weights_at + chunk * weight_bytes(p, tile)
                                        : stage + x_bytes(p, tile);
    const uint64_t w = operand(layout, weights + row_group * tile.row_blocks * p.depth * kLine);
    const uint64_t x =
        operand(layout, stage + part * (tile.width / kLineNumbers) * p.depth * kLine);
    // A loop of a number that is not known makes the compiler wait for each; behind branches that were not committed it
    // adds an empty instruction, and waits for that.
    if (p.depth == 4 * kSlice) {
      multiply_slices<T, ROW, 4>(p, w, x, sum);
    } else if (p.depth == 2 * kSlice) {
      multiply_slices<T, ROW, 2>(p, w, x, sum);
    } else {
      multiply_slices<T, ROW, 1>(p, w, x, sum);
    }
    if (chunk > 0) {
      wgmma_wait<1>();
      if (threadIdx.x % 32 == 0) barrier_arrive(previous);
    }
    previous = ring.empty();
  }
  wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) barrier_arrive(previous);
#pragma unroll
  for (int b = 0; b < tile.row_blocks; ++b) finished(sum[b]);
}

// The products of one of a warpgroup's blocks of rows go to shared memory. `place`: bytes in a row of products, of a pair
// of pixels.
template <int PITCH, int WIDTH>
__device__ __forceinline__ void put_products(const Params& p, uint32_t products,
                                             const uint32_t (&place)[WIDTH / 8],
                                             const float (&sum)[WIDTH / 2]) {
  const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
  for (int i = 0; i < WIDTH / 8; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t to = products + (row + half * 8) * PITCH * 4;
      const uint32_t pair[2] = {__float_as_uint(sum[4 * i + 2 * half]),
                                __float_as_uint(sum[4 * i + 2 * half + 1])};
      if (p.paired) {
        store_shared<2>(to + (place[i] & 0xffff), pair);
      } else {
        store_shared_4(to + (place[i] & 0xffff), pair[0]);
        store_shared_4(to + (place[i] >> 16), pair[1]);
      }
    }
}

template <int ROW>
__device__ __forceinline__ void consume_flat(const Params& p, const Scope& at, uint32_t shared,
                                             StageRing& ring) {
  Places<ROW> weights;
  find_weights<ROW>(p, at, weights);
  for_tiles(p, at, [&](const Item& item, int) {
    Sums<ROW> sum;
    multiply_words<ROW>(p, shared, weights, ring, sum);
    if (p.kernel == 2) {
      store_flat<ROW, 2>(p, at, item, shared, sum);
    } else {
      store_flat<ROW, 1>(p, at, item, shared, sum);
    }
  });
}

template <class T, int ROW>
__device__ __forceinline__ void consume(const Params& p, const Scope& at, uint32_t shared,
                                        StageRing& ring) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kMembers = 128 * parts(tile);  // threads that share rows
  const int group = warpgroup_of_block(), row_group = group / parts(tile);
  const int member = threadIdx.x % kMembers, barrier = 1 + row_group;
  const uint32_t products = shared + p.products_at + row_group * product_bytes(tile);
  Places<ROW> weights;
  if constexpr (is_word<T>) find_weights<ROW>(p, at, weights);
  uint32_t place[tile.width / 8];
  for (int i = at.walker; i < p.items; i += p.walkers) {
    const Item item = item_of(p, i);
    if (p.strips > 1 || i == at.walker) {
      // The zeros between rows of x; other strips have them elsewhere.
      for (int to = member * 16; to < product_bytes(tile); to += kMembers * 16)
        store_shared_16(products + to, {0, 0, 0, 0});
#pragma unroll
      for (int j = 0; j < tile.width / 8; ++j) {
        const int pixel = group % parts(tile) * tile.width + 8 * j + threadIdx.x % 4 * 2;
        place[j] = product_byte(p, tile, item, pixel) | product_byte(p, tile, item, pixel + 1)
                                                            << 16;
      }
      barrier_among(barrier, kMembers);
    }
    int turn = 0;
    for (int first = item.first_row; first < item.end_row; first += p.tile_rows, turn ^= 1) {
      Sums<ROW> sum;
      if constexpr (is_word<T>) {
        multiply_words<ROW>(p, shared, weights, ring, sum);
      } else {
        multiply<T, ROW>(p, shared, ring, sum);
      }
      const Moment now = moment_of(p, item, first);
#pragma unroll
      for (int b = 0; b < tile.row_blocks; ++b) {
        put_products<pitch(tile), tile.width>(p, products, place, sum[b]);
        barrier_among(barrier, kMembers);
        const int block = row_group * tile.row_blocks + b;
        const int channel = first_channel(p, tile, at, block);
        const uint32_t carried = shared + p.carried_at + block * 2 * carried_bytes(p);
        collect<T, pitch(tile), tile.strict>(
            p, item, now,
            {at.group * p.columns + channel, min(p.row_channels, p.columns - channel),
             products + (is_word<T> ? 0 : lead(p, channel)) * pitch(tile) * 4,
             shared + kBiasAt + block * p.row_channels * 4, carried + turn * carried_bytes(p),
             carried + (turn ^ 1) * carried_bytes(p)},
            member / 32, kMembers / 32);
        barrier_among(barrier, kMembers);
      }
    }
  }
}

template <int ROW>
__device__ __forceinline__ void init_barriers(const StageRing& ring) {
  if (threadIdx.x >= ring.count) return;
  barrier_init(ring.barriers + threadIdx.x * 16, 1);
  barrier_init(ring.barriers + threadIdx.x * 16 + 8, consumers(kTiles[ROW]) / 32);
  barrier_init(ring.barriers + kHelpedAt + threadIdx.x * 8, kHelpers);
}

template <class T, int ROW>
__global__ void __launch_bounds__(threads(kTiles[ROW]), 1)
    convt2d_fold_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  constexpr Tile tile = kTiles[ROW];
  const Scope at = scope_of(p);
  StageRing ring{shared, shared + p.stages_at, p.stages, stage_bytes(p, tile)};
  init_barriers<ROW>(ring);
  bring_bias<T, ROW>(p, at, shared);
  if (p.resident) bring_weights<T, ROW>(p, at, shared);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= consumers(tile) / 32) {
    fewer_registers<producer_registers(tile, sizeof(T))>();
    if (threadIdx.x == consumers(tile)) bring_tiles<T, ROW>(p, maps, at, ring);
    if (helped(tile, sizeof(T)) && threadIdx.x >= threads(tile) - kHelpers * 32) {
      if constexpr (tile.shifted) {
        shift_tiles<ROW>(p, at, ring);
      } else if constexpr (is_word<T>) {
        turn_tiles<ROW>(p, at, ring);
      }
    }
  } else {
    more_registers<consumer_registers(tile, sizeof(T))>();
    if (is_word<T> && p.flat) {
      if constexpr (is_word<T>) consume_flat<ROW>(p, at, shared, ring);
    } else {
      consume<T, ROW>(p, at, shared, ring);
    }
  }
#endif
}

}  // namespace convt2d::cuda::fold
