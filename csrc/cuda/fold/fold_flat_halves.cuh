// Flat tiles of 16 bits, 2 x 2 and 4 x 4 kernels that are their stride: a kernel of their own.
//
// Both operands are multiplied as they lie. A block keeps its rows of weights, if there is room; the copy engine brings them
// with its first tile. x comes line by line, with zeros from behind a plane's end, or shifted (fold_shift.cuh).
//
// Of a block of 64 rows a warp has 16: 4 channels, or with 4 x 4 taps one. It lays them out in shared memory, turned, so that
// the 16 products of a pixel are 32 bytes in the order of w's memory: of 2 x 2 taps a word is two neighbours of a row of y, of
// 4 x 4 taps two are four. Then a lane fetches those of neighbouring pixels, `together`, and stores them at once; 8 lanes
// have neighbours, 4 the rows of y that a pixel has, or of 2 x 2 taps two of two channels. No warp waits for another, and a
// warpgroup that stores leaves the tensor cores to the other one.
//
// Units of 16 bytes trade places so that nothing meets in a bank: a pixel among four by the number of its eight, the halves
// of a pixel by which four of eight it belongs to.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/fold/fold_kernel.cuh"
#include "cuda/gather_device.cuh"

namespace convt2d::cuda::fold {

// A block's x and weights, in a ring of stages; weights that stay with the first tile, each chunk of them before that of x
// counts as arrived.
template <class T, int ROW>
__device__ __forceinline__ void bring_flat(const Params& p, const Maps& maps, const Scope& at,
                                           uint32_t shared, StageRing& ring) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kNumbers = line_numbers(sizeof(T));
  LineRows<T, ROW> line_row;
  find_lines<T, ROW>(p, at, line_row);
  bool weights = p.copied != 0;
  for_tiles(p, at, [&](const Item& item, int row) {
    const int pixel = first_pixel(p, item, row), plane = item.n * p.groups + at.group;
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      const uint32_t to = ring.stage(), full = ring.full();
      barrier_wait(ring.empty(), ring.parity ^ 1);
      barrier_expect(full, x_bytes(p, tile) + (weights ? weight_bytes(p, tile) : 0));
      for (int line = 0; line < tile_lines(tile, sizeof(T)); ++line)
        copy_box(to + line * p.depth * kLine, &maps.x_line, full, pixel + line * kNumbers,
                 chunk * sets<ROW>(p), plane, 0);
      if (!weights) continue;
      const uint32_t weights_to = p.resident ? shared + p.weights_at + chunk * weight_bytes(p, tile)
                                             : to + x_bytes(p, tile);
#pragma unroll
      for (int line = 0; line < weight_lines(tile, sizeof(T)); ++line)
        copy_box(weights_to + line * p.depth * kLine, &maps.w_line, full, line_row[line],
                 chunk * sets<ROW>(p), at.group, 0);
    }
    weights = weights && !p.resident;
  });
}

// Where half of a pixel's products is laid out.
__device__ __forceinline__ int laid_at(int pixel, int half) {
  return (pixel ^ (pixel / 8 & 3)) * 32 + (half ^ (pixel / 4 & 1)) * 16;
}

// A warp's 16 rows of one block of rows.
template <class T, int WIDTH>
__device__ __forceinline__ void lay_out(uint32_t laid, const float (&sum)[WIDTH / 2],
                                        const float (&bias)[2]) {
  const int tile = threadIdx.x % 32 / 8;  // of the four that are stored together
  const uint32_t mine = laid + laid_at(tile / 2 * 8 + threadIdx.x % 8, tile % 2);
#pragma unroll
  for (int i = 0; i < WIDTH / 8; i += 2) {
    uint32_t word[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* const value = sum + 4 * (i + j / 2) + 2 * (j % 2);
      word[j] = pack<T>(value[0] + bias[j % 2], value[1] + bias[j % 2]);
    }
    store_turned((mine ^ (i & 2) * 32) + i * 256, word);
  }
}

// What a warp has laid out of a block of rows whose first channel is `first`, to memory. TAPS: of a row. TOGETHER: pixels
// that are neighbours wherever a lane has them.
template <class T, int ROW, int TAPS, int TOGETHER>
__device__ __forceinline__ void store_laid(const Params& p, const Scope& at, const Item& item,
                                           uint32_t laid, int first) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kTaps = TAPS * TAPS, kWords = TAPS / 2,
                kSteps = (tile.width + 8 * TOGETHER - 1) / (8 * TOGETHER),
                kHalves = TAPS == 2 ? 2 : 1;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int quarter = lane / 8, mine = lane % 8 * TOGETHER;  // pixel of the first step
  const int plane = p.x_h * p.x_w, y_w = p.row_w * TAPS;
  const int end = min(plane, item.first_position + p.strip_positions);
  const int first_pixel = item.first_position + threadIdx.x / 128 % parts(tile) * tile.width,
            first_row = first_pixel / p.row_w, column = first_pixel - first_row * p.row_w + mine;
  // From a plane's first output to those of a step's first pixel, bytes: below 2^32.
  uint32_t place[kSteps];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int row = first_row + divide(column + s * 8 * TOGETHER, p.row_magic);
    place[s] = uint32_t(first_pixel + mine + s * 8 * TOGETHER + (TAPS - 1) * p.row_w * row) *
               (TAPS * sizeof(T));
  }
  // The last step that has pixels; negative if none has.
  const int steps = (end - first_pixel - mine + 8 * TOGETHER - 1) / (8 * TOGETHER) - 1;
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    // Of the words of a half: of 2 x 2 taps two channels, of two rows of y each; of 4 x 4 taps rows of y, in both halves.
    const int channel = first + (TAPS == 2 ? warp * 4 + half * 2 + quarter / 2 : warp),
              row = TAPS == 2 ? quarter % 2 : quarter;
    const int last = channel < p.columns ? steps : -1;
    unsigned char* const to =
        static_cast<unsigned char*>(p.destination) +
        (int64_t{(item.n * p.groups + at.group) * p.columns + channel} * plane * kTaps +
         row * y_w) *
            int(sizeof(T));
    const uint32_t from = TAPS == 2 ? laid + laid_at(mine, half) + quarter * 4
                                    : laid + laid_at(mine, quarter / 2) + quarter % 2 * 8;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < TOGETHER; ++i) {
        const uint32_t address = (from ^ (i ^ (s * TOGETHER & 3)) * 32) + s * 8 * TOGETHER * 32;
        if constexpr (kWords == 1) {
          word[i] = load_shared_4(address);
        } else {
          uint32_t two[2];
          load_shared_8(address, two);
          word[2 * i] = two[0];
          word[2 * i + 1] = two[1];
        }
      }
      store_words_if<TOGETHER * kWords>(last - s, to + place[s], word[0], word[1], word[2],
                                        word[3]);
    }
  }
}

// The products of a tile, a block of rows after the other, in a loop: so there is one code for all that stores them.
template <class T, int ROW>
__device__ __forceinline__ void store_flat_halves(const Params& p, const Scope& at,
                                                  const Item& item, uint32_t shared,
                                                  const Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int first_block = threadIdx.x / 128 / parts(tile) * tile.row_blocks;
  const uint32_t laid = shared + p.products_at + threadIdx.x / 32 * laid_bytes(tile);
#pragma unroll 1
  for (int b = 0; b < tile.row_blocks; ++b) {
    float bias[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      bias[half] = load_shared<float>(
          shared + kBiasAt +
          ((first_block + b) * p.row_channels + (warp * 16 + half * 8 + lane / 4) / taps(p)) * 4);
    if (tile.row_blocks == 1 || b == 0)
      lay_out<T, tile.width>(laid, sum[0], bias);
    else
      lay_out<T, tile.width>(laid, sum[tile.row_blocks - 1], bias);
    __syncwarp();
    const int first = first_channel(p, tile, at, first_block + b);
    if (p.kernel == 4)
      store_laid<T, ROW, 4, 1>(p, at, item, laid, first);
    else if (p.together == 4)
      store_laid<T, ROW, 2, 4>(p, at, item, laid, first);
    else if (p.together == 2)
      store_laid<T, ROW, 2, 2>(p, at, item, laid, first);
    else
      store_laid<T, ROW, 2, 1>(p, at, item, laid, first);
    __syncwarp();
  }
}

template <class T, int ROW>
__device__ __forceinline__ void consume_flat_halves(const Params& p, const Scope& at,
                                                    uint32_t shared, StageRing& ring) {
  for_tiles(p, at, [&](const Item& item, int) {
    Sums<ROW> sum;
    multiply<T, ROW>(p, shared, ring, sum);
    store_flat_halves<T, ROW>(p, at, item, shared, sum);
  });
}

template <class T, int ROW>
__global__ void __launch_bounds__(threads(kTiles[ROW]), 1)
    convt2d_fold_flat_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  constexpr Tile tile = kTiles[ROW];
  const Scope at = scope_of(p);
  StageRing ring{shared, shared + p.stages_at, p.stages, stage_bytes(p, tile)};
  init_barriers<ROW>(ring);
  bring_bias<T, ROW>(p, at, shared);
  if (!p.copied) bring_weights<T, ROW>(p, at, shared);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= consumers(tile) / 32) {
    fewer_registers<producer_registers(tile, sizeof(T))>();
    if (threadIdx.x == consumers(tile)) bring_flat<T, ROW>(p, maps, at, shared, ring);
    if (p.set_shift > 0 && threadIdx.x >= threads(tile) - kHelpers * 32)
      shift_tiles<ROW>(p, at, ring);
  } else {
    more_registers<consumer_registers(tile, sizeof(T))>();
    consume_flat_halves<T, ROW>(p, at, shared, ring);
  }
#endif
}

}  // namespace convt2d::cuda::fold
