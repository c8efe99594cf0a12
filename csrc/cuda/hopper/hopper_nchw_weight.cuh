// The hopper kernel of grad_weight in NCHW; hopper_nchw_weight.h draws the tiling.
//
// One warp asks the copy engine for a block's K tiles, in a ring of stages, and lists where their pixels stand; `full`
// ends a phase when a stage has arrived, `empty` when every warp that multiplies has read it. If a sum came out NaN,
// all of it once more, with care.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/strict_product.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/hopper/hopper_nchw_weight.h"

namespace convt2d::cuda::hopper {

// The channels, taps and K tiles of a block.
struct NchwWeightScope {
  int group, row_block, column_block;
  int kernel_h, kernel_w;  // of its first tap
  int piece, begin, end;
};

// Neighbouring blocks read the same pixels, at about the same time.
__device__ __forceinline__ NchwWeightScope nchw_weight_scope(const NchwWeightParams& p) {
  NchwWeightScope at;
  int rest = blockIdx.x;
  const auto digit = [&](int count) {
    const int found = rest % count;
    rest /= count;
    return found;
  };
  at.kernel_w = digit(p.units_w) * p.unit_taps;
  at.kernel_h = digit(p.kernel_h);
  at.column_block = digit(p.column_blocks);
  at.row_block = digit(p.row_blocks);
  at.group = digit(p.groups);
  at.piece = rest;
  const int64_t tiles = int64_t{p.batch} * p.image_tiles;
  at.begin = static_cast<int>(tiles * at.piece / p.split);
  at.end = static_cast<int>(tiles * (at.piece + 1) / p.split);
  return at;
}

// Where a K tile starts.
struct KTile {
  int n, h, w;  // of its first pixel
  __device__ __forceinline__ KTile(const NchwWeightParams& p, int tile) {
    n = tile / p.image_tiles;
    const int rest = tile - n * p.image_tiles;
    if (p.runs) {
      const int first = rest * tile_pixels(p);
      h = first / p.x_w;
      w = first - h * p.x_w;
    } else {
      h = rest / p.row_tiles;
      w = (rest - h * p.row_tiles) * tile_pixels(p);
    }
  }
  // The same of one of its pixels.
  __device__ __forceinline__ void pixel(const NchwWeightParams& p, int i, int& row,
                                        int& column) const {
    row = h, column = w + i;
    if (!p.runs) return;
    const int rows = column / p.x_w;
    row += rows;
    column -= rows * p.x_w;
  }
};

// The column of dY that a tile's patch starts with, for the block's first tap, and how many elements before it the
// patch really starts: at a multiple of 16 bytes.
__device__ __forceinline__ int patch_column(const NchwWeightParams& p, const NchwWeightScope& at,
                                            const KTile& tile, int& lead) {
  const int first = (p.runs ? 0 : tile.w * p.stride_w) - p.pad_w + at.kernel_w * p.dilation_w;
  lead = first & (16 / p.element_bytes - 1);
  return first - lead;
}

// Where the pixels of a ring's stage stand.
__device__ __forceinline__ uint32_t table_of(const StageRing& ring) {
  return ring.barriers + kNchwTablesAt + ring.index * kMostTilePixels * 4;
}

// Named barrier: all who multiply and the warp that asks, who agree whether the sums are good.
constexpr int kNchwVerdict = 1;
__device__ __forceinline__ bool nchw_agree(bool good) {
  return barrier_all(kNchwVerdict, kNchwConsumers + 32, good);
}

// All of a block's K tiles, by one warp.
template <int ROW>
__device__ __forceinline__ void bring_tiles(const NchwWeightParams& p, const NchwWeightMaps& maps,
                                            const NchwWeightScope& at, StageRing& ring) {
  constexpr NchwWeightTile tile = kNchwWeightTiles[ROW];
  const int lane = threadIdx.x % 32, pixels = tile_pixels(p);
  const int x_channel = at.group * p.rows + at.row_block * tile.width;
  const int y_channel = at.group * p.columns + at.column_block * p.y_blocks * kOutChannels;
  for (int k = at.begin; k < at.end; ++k, ring.advance()) {
    const KTile start(p, k);
    int lead;
    const int column = patch_column(p, at, start, lead);
    barrier_wait(ring.empty(), ring.parity ^ 1);
    for (int i = lane; i < pixels; i += 32) {
      int h, w;
      start.pixel(p, i, h, w);
      const int row = min(h - start.h, p.patch_rows - 1);  // beyond the last image row, x is zero
      const int inside = (w - (p.runs ? 0 : start.w)) * p.stride_w + lead;
      const uint32_t where[1] = {
          static_cast<uint32_t>(row * kOutChannels * p.patch_row + inside * p.element_bytes)};
      store_shared<1>(table_of(ring) + i * 4, where);
    }
    // Every lane has written a part of the table.
    if (lane > 0) {
      barrier_arrive(ring.full());
    } else {
      barrier_expect(ring.full(), copied_bytes(p, tile));
      if (p.runs) {
        copy_box(ring.stage(), &maps.x, ring.full(), start.h * p.x_w + start.w, 0, x_channel,
                 start.n);
      } else {
        copy_box(ring.stage(), &maps.x, ring.full(), start.w, start.h, x_channel, start.n);
      }
      for (int i = 0; i < p.y_blocks; ++i)
        copy_box(ring.stage() + x_bytes(tile) + low_bytes(tile) + i * y_block_bytes(p), &maps.y,
                 ring.full(), column, y_channel + i * kOutChannels,
                 start.h * p.stride_h - p.pad_h + at.kernel_h * p.dilation_h, start.n);
    }
    __syncwarp();
  }
}

// Of a thread: [instruction][input channel 8 i + 2 t or + 1, output channel g or g + 8 of the warp's 16].
template <int ROW>
using NchwSums = float[kNchwWeightTiles[ROW].instructions][kNchwWeightTiles[ROW].width / 2];

// What an instruction of this warpgroup is about.
struct NchwCell {
  int tap, y_block;  // of the block
};
template <int ROW>
__device__ __forceinline__ NchwCell nchw_cell(const NchwWeightParams& p, int instruction) {
  const int cell = threadIdx.x / 128 * kNchwWeightTiles[ROW].instructions + instruction;
  return {cell / p.y_blocks, cell % p.y_blocks};
}
// Where it finds the thread's first output channel, from the start of a stage.
template <int ROW>
__device__ __forceinline__ uint32_t cell_start(const NchwWeightParams& p, const NchwCell& cell) {
  const int channel = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  constexpr NchwWeightTile tile = kNchwWeightTiles[ROW];
  return x_bytes(tile) + low_bytes(tile) + cell.y_block * y_block_bytes(p) + channel * p.patch_row +
         cell.tap * p.dilation_w * p.element_bytes;
}
template <int ROW>
__device__ __forceinline__ bool cell_exists(const NchwWeightParams& p, const NchwWeightScope& at,
                                            const NchwCell& cell) {
  return cell.tap < p.unit_taps && at.kernel_w + cell.tap < p.kernel_w;
}

// What a lane holds of a slice of the first operand: pixels at `offset`, of two output channels.
template <class T>
__device__ __forceinline__ void fetch_slice(uint32_t (&word)[4], uint32_t from, uint32_t second,
                                            const uint32_t (&offset)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint32_t at = from + (row ? second : 0);
      if constexpr (sizeof(T) == 4) {
        word[half * 2 + row] = load_shared_4(at + offset[half]);
      } else {
        word[half * 2 + row] = load_shared<unsigned short>(at + offset[half * 2]) |
                               uint32_t(load_shared<unsigned short>(at + offset[half * 2 + 1]))
                                   << 16;
      }
    }
}

// Where a lane's pixels of a slice stand.
template <class T>
__device__ __forceinline__ void find_slice(uint32_t (&offset)[4], uint32_t table, int slice) {
  const uint32_t t = threadIdx.x % 4;
  if constexpr (sizeof(T) == 4) {
    offset[0] = load_shared_4(table + (slice * 8 + t) * 4);
    offset[1] = load_shared_4(table + (slice * 8 + t + 4) * 4);
  } else {
    uint32_t pair[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      load_shared_8(table + (slice * 16 + half * 8 + 2 * t) * 4, pair);
      offset[half * 2] = pair[0], offset[half * 2 + 1] = pair[1];
    }
  }
}

// Strict fp32: where a stage of x has been split, which three warps do.
constexpr int kNchwSplitters = 96;
__device__ __forceinline__ uint32_t split_barrier(const StageRing& ring) {
  return ring.barriers + kNchwSplitAt + ring.index * 8;
}

// What the tensor core cuts off of the numbers of x goes behind them.
template <int ROW>
__device__ __forceinline__ void split_tiles(const NchwWeightScope& at, StageRing& ring) {
  constexpr NchwWeightTile tile = kNchwWeightTiles[ROW];
  const int thread = threadIdx.x - (kNchwThreads - kNchwSplitters);
  for (int k = at.begin; k < at.end; ++k, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
#pragma unroll 2
    for (int i = thread * 16; i < x_bytes(tile); i += kNchwSplitters * 16) {
      uint32_t word[4];
      load_shared_16(ring.stage() + i, word);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        word[j] = MmaTF32::round(
            __float_as_uint(__uint_as_float(word[j]) - __uint_as_float(word[j] & 0xffffe000u)));
      store_shared_16(ring.stage() + x_bytes(tile) + i, word);
    }
    fence_for_wgmma();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(split_barrier(ring));
  }
}

// A K tile in strict fp32.
template <int ROW>
__device__ __forceinline__ void multiply_strict(
    NchwSums<ROW>& sum, const uint32_t (&start)[kNchwWeightTiles[ROW].instructions],
    uint32_t second, uint32_t stage, uint32_t table, uint64_t x) {
  constexpr NchwWeightTile tile = kNchwWeightTiles[ROW];
  uint32_t high[kKSlices][tile.instructions][4], low[kKSlices][tile.instructions][4];
#pragma unroll
  for (int s = 0; s < kKSlices; ++s) {
    uint32_t offset[4];
    find_slice<float>(offset, table, s);
#pragma unroll
    for (int i = 0; i < tile.instructions; ++i) {
      fetch_slice<float>(high[s][i], stage + start[i], second, offset);
#pragma unroll
      for (int w = 0; w < 4; ++w) MmaF32x3::split(high[s][i][w], high[s][i][w], low[s][i][w]);
    }
  }
  add_strict<tile.width>(sum, high, low, x, kKSlice >> 4, low_bytes(tile) >> 4);
}

// Multiplies all of a block's K tiles. The words stay until they are multiplied; the other warpgroup multiplies
// meanwhile.
template <class T, int ROW>
__device__ __forceinline__ void multiply_tiles(const NchwWeightParams& p, const NchwWeightScope& at,
                                               NchwSums<ROW>& sum, StageRing& ring) {
  constexpr NchwWeightTile tile = kNchwWeightTiles[ROW];
  constexpr int kAtOnce = tile.instructions > 2 ? 2 : kKSlices;  // slices
  uint32_t start[tile.instructions];
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) start[i] = cell_start<ROW>(p, nchw_cell<ROW>(p, i));
  const uint32_t second = 8 * p.patch_row;
  const uint64_t layout = swizzled_layout(kKRow, 8 * kKRow);
  for (int k = at.begin; k < at.end; ++k, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    const uint32_t stage = ring.stage();
    const uint64_t x = operand(layout, stage);
    if constexpr (tile.strict) {
      barrier_wait(split_barrier(ring), ring.parity);
      multiply_strict<ROW>(sum, start, second, stage, table_of(ring), x);
    } else {
#pragma unroll
      for (int first = 0; first < kKSlices; first += kAtOnce) {
        uint32_t word[kAtOnce][tile.instructions][4];
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s) {
          uint32_t offset[4];
          find_slice<T>(offset, table_of(ring), first + s);
#pragma unroll
          for (int i = 0; i < tile.instructions; ++i)
            fetch_slice<T>(word[s][i], stage + start[i], second, offset);
        }
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s)
#pragma unroll
          for (int i = 0; i < tile.instructions; ++i)
            WgmmaFetched<T, tile.width>::add(sum[i], word[s][i],
                                             advance(x, (first + s) * (kKSlice >> 4)));
        wgmma_commit();
        wgmma_wait<0>();
      }
    }
    __syncwarp();  // all lanes have read the table and the patch
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
  }
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) finished(sum[i]);
}

template <class T>
__device__ __forceinline__ float read_shared(uint32_t at) {
  if constexpr (sizeof(T) == 4) {
    return load_shared<float>(at);
  } else {
    const unsigned short bits = load_shared<unsigned short>(at);
    return Numeric<T>::widen(*reinterpret_cast<const T*>(&bits));
  }
}

// The same on plain multiply-adds, where every product is of two pixels that exist: zeros from outside of dY are
// multiplied above too, and 0 * inf is NaN. Slow, and rare: somewhere is a NaN or an infinity.
template <class T, int ROW>
__device__ __forceinline__ void multiply_tiles_with_care(const NchwWeightParams& p,
                                                         const NchwWeightScope& at,
                                                         NchwSums<ROW>& sum, StageRing& ring) {
  constexpr NchwWeightTile tile = kNchwWeightTiles[ROW];
  const int t = threadIdx.x % 4;
  clear(sum);
  for (int k = at.begin; k < at.end; ++k, ring.advance()) {
    const KTile begin(p, k);
    barrier_wait(ring.full(), ring.parity);
    const uint32_t stage = ring.stage();
#pragma unroll 1
    for (int pixel = 0; pixel < tile_pixels(p); ++pixel) {
      int h, w;
      begin.pixel(p, pixel, h, w);
      const int y_h = h * p.stride_h - p.pad_h + at.kernel_h * p.dilation_h;
      if (h >= p.x_h || w >= p.x_w || y_h < 0 || y_h >= p.y_h) continue;
      const uint32_t offset = load_shared_4(table_of(ring) + pixel * 4);
#pragma unroll
      for (int i = 0; i < tile.instructions; ++i) {
        const NchwCell cell = nchw_cell<ROW>(p, i);
        const int y_w = w * p.stride_w - p.pad_w + (at.kernel_w + cell.tap) * p.dilation_w;
        if (!cell_exists<ROW>(p, at, cell) || y_w < 0 || y_w >= p.y_w) continue;
        const uint32_t from = stage + cell_start<ROW>(p, cell) + offset;
        const float y[2] = {read_shared<T>(from), read_shared<T>(from + 8 * p.patch_row)};
#pragma unroll
        for (int j = 0; j < tile.width / 8; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int channel = 8 * j + 2 * t + e;
            const float x = read_shared<T>(stage + channel * kKRow +
                                           (pixel * int(sizeof(T)) ^ (channel & 7) * 16));
            sum[i][4 * j + e] = fmaf(y[0], x, sum[i][4 * j + e]);
            sum[i][4 * j + 2 + e] = fmaf(y[1], x, sum[i][4 * j + 2 + e]);
          }
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
  }
}

// To dW, or to this piece's partial sums: eight lanes store neighbouring output channels.
template <class T, int ROW>
__device__ __forceinline__ void store_sums(const NchwWeightParams& p, const NchwWeightScope& at,
                                           const NchwSums<ROW>& sum) {
  constexpr NchwWeightTile tile = kNchwWeightTiles[ROW];
  const int g = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int32_t* const stride = p.weight_stride;
  const int64_t dense = int64_t{p.groups} * p.rows * p.columns;  // of partial sums
  float* const partials = p.partials + int64_t{at.piece} * p.piece_floats;
  const int first_row = at.row_block * tile.width + 2 * t;
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) {
    const NchwCell cell = nchw_cell<ROW>(p, i);
    if (!cell_exists<ROW>(p, at, cell)) continue;
    const int kernel_w = at.kernel_w + cell.tap;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column =
          (at.column_block * p.y_blocks + cell.y_block) * kOutChannels + g + 8 * half;
      if (column >= p.columns) continue;
      const int64_t channel = at.group * p.rows + first_row;
      float* const in_partials = partials + (int64_t{at.kernel_h} * p.kernel_w + kernel_w) * dense +
                                 channel * p.columns + column;
      T* const in_weight = static_cast<T*>(p.weight) + channel * stride[0] +
                           int64_t{column} * stride[1] + at.kernel_h * stride[2] +
                           kernel_w * stride[3];
#pragma unroll
      for (int j = 0; j < tile.width / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (first_row + 8 * j + e >= p.rows) continue;
          const float value = sum[i][4 * j + 2 * half + e];
          if (p.partials) {
            in_partials[int64_t{8 * j + e} * p.columns] = value;
          } else {
            store(in_weight + int64_t{8 * j + e} * stride[0], value);
          }
        }
    }
  }
}

template <class T, int ROW>
__global__ void __launch_bounds__(kNchwThreads, 1)
    convt2d_hopper_nchw_grad_weight_kernel(const __grid_constant__ NchwWeightParams p,
                                           const __grid_constant__ NchwWeightMaps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  constexpr NchwWeightTile tile = kNchwWeightTiles[ROW];
  extern __shared__ __align__(1024) unsigned char smem[];
  const NchwWeightScope at = nchw_weight_scope(p);
  const uint32_t shared = shared_address(smem);
  StageRing ring{shared, shared + kNchwStagesAt, p.stages, stage_bytes(p, tile)};
  if (threadIdx.x < p.stages) {
    barrier_init(ring.barriers + threadIdx.x * 16, 32);
    barrier_init(ring.barriers + threadIdx.x * 16 + 8, kNchwConsumers / 32);
    barrier_init(ring.barriers + kNchwSplitAt + threadIdx.x * 8, kNchwSplitters / 32);
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  if (threadIdx.x >= kNchwConsumers) {
    fewer_registers<kNchwProducerRegisters>();
    if (threadIdx.x >= kNchwConsumers + 32) {
      if constexpr (tile.strict) split_tiles<ROW>(at, ring);
      return;
    }
    for (bool again = false;; again = true) {
      bring_tiles<ROW>(p, maps, at, ring);
      if (again || nchw_agree(true)) return;
    }
  } else {
    more_registers<kNchwConsumerRegisters>();
    NchwSums<ROW> sum;
    clear(sum);
    multiply_tiles<T, ROW>(p, at, sum, ring);
    bool good = true;
#pragma unroll
    for (int i = 0; i < tile.instructions; ++i) {
      bool nan = false;
#pragma unroll
      for (int j = 0; j < tile.width / 2; ++j) nan |= sum[i][j] != sum[i][j];
      good &= !nan || !cell_exists<ROW>(p, at, nchw_cell<ROW>(p, i));
    }
    if (!nchw_agree(good)) multiply_tiles_with_care<T, ROW>(p, at, sum, ring);
    store_sums<T, ROW>(p, at, sum);
  }
#endif
}

}  // namespace convt2d::cuda::hopper
