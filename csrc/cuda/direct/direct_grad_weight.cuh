// direct, grad_weight: a GEMM whose depth is the pixels of the whole batch.
//
//   dW[ci, (co, tap)] = sum over pixels of x[ci, pixel] * dY[co, pixel * stride - near_pad + tap * d]
//
//            columns (co, tap)
//          +---------+             A slab is `depth` pixels. A table of their positions is kept one
//   pixels |   dY    |             step ahead, so that the loads below it need no division.
//          +---------+             dY outside the image is zero in the slab; a block that ends with a
//   +-----+---------+              NaN sum repeats its piece with every product guarded.
//   |  x  |  sums   | ci
//   +-----+---------+              Blocks that share a tile but not a piece of the depth write
//    pixels                        partial sums; reduce.cuh adds them in a fixed order.
//
// Sums of 32 bits are blocked: a run of a few slabs is summed from zero, then added to the total of
// the runs before it (fold_slabs says how long). One running sum over a few hundred pixels errs by
// up to 4 units of 2^-24 of sum |x dY|, blocked ones by 1.2; over positive terms 23 against 4.
#pragma once

#include "cuda/device/numeric.cuh"
#include "cuda/direct/direct_config.h"

namespace convt2d::cuda::direct {

struct WeightAxis {
  int64_t x_stride, y_stride, w_stride;  // of the tensors, in elements
  int32_t y_extent, stride, near_pad, dilation;
  FastDivide divide_x_extent, divide_kernel;
};

struct WeightParams {
  const void* x;
  const void* y;
  void* w;         // written when there is one piece
  void* partials;  // else [pieces][ci][co][kh][kw] in accumulator precision
  WeightAxis height, width;
  int64_t pixels, piece_pixels, blocks;
  int64_t x_n, x_c, y_n, y_c, w_ci, w_co;
  int64_t partial_stride;  // elements of dW
  int32_t rows, columns;   // of one group: input channels; output channels x taps
  int32_t group_out;
  int32_t fold_slabs;  // slabs of one run
  FastDivide divide_column_tiles, divide_row_tiles, divide_groups;
};

// `pixel_lanes`: neighbouring threads read neighbouring pixels (NCHW), so that a thread keeps to one
// pixel of a slab. Otherwise they read neighbouring channels (NHWC).
template <typename T, int tile_index, bool pixel_lanes>
struct WeightBlock {
  using A = Accumulator<T>;
  using V = Vector<A>;
  static constexpr Tile tile = fitted(kWeightTiles[tile_index], sizeof(A) == 8);
  static constexpr int threads = tile.threads();
  static constexpr int depth = tile.depth;
  static constexpr int row_vectors = tile.thread_rows / V::size;
  static constexpr int column_vectors = tile.thread_columns / V::size;
  static constexpr int row_lanes =
      tile.rows / tile.thread_rows < 8 ? tile.rows / tile.thread_rows : 8;
  static constexpr int column_lanes = 32 / row_lanes;
  static constexpr int warps_along_rows = tile.rows / (row_lanes * tile.thread_rows);
  static constexpr int thread_x = tile.rows * depth / threads;
  static constexpr int thread_y = tile.columns * depth / threads;
  static constexpr bool blocked = sizeof(A) == 4;
  static_assert(threads % depth == 0 && tile.rows * depth % threads == 0, "whole slabs");

  struct Pixel {
    int64_t x_offset, y_offset;
    int32_t y, x;  // position of tap 0 in dY; y is INT32_MIN past the end
  };
  struct Column {
    int64_t y_offset;
    int32_t y, x;  // shift of the tap; x is INT32_MIN if there is no such column
  };
  struct Shared {
    A x[2][depth][tile.rows + V::size];
    A y[2][depth][tile.columns + V::size];
    Pixel pixel[2][depth];
    Column column[tile.columns];
    bool valid[depth][tile.columns];
  };

  const WeightParams& params;
  Shared& shared;
  int group, first_row, first_column;  // of the tile inside the group
  int64_t piece, begin, end;           // pixels of this block
  A fetched_x[thread_x], fetched_y[thread_y];
  unsigned y_valid;                                // bit i: fetched_y[i] came from the image
  A sum[tile.thread_rows][tile.thread_columns];    // of the run; in the end of everything
  A total[tile.thread_rows][tile.thread_columns];  // of the runs before it, if blocked

  __device__ WeightBlock(const WeightParams& params, Shared& shared)
      : params(params), shared(shared) {}

  // ---- tables ----

  __device__ void locate(int64_t block) {
    int64_t rest = block;
    first_column = params.divide_column_tiles.split(rest) * tile.columns;
    first_row = params.divide_row_tiles.split(rest) * tile.rows;
    group = params.divide_groups.split(rest);
    piece = rest;
    begin = piece * params.piece_pixels;
    end = min(begin + params.piece_pixels, params.pixels);
    for (int index = threadIdx.x; index < tile.columns; index += threads) {
      Column column{0, 0, INT32_MIN};
      if (first_column + index < params.columns) {
        int64_t rest = first_column + index;
        const int tap_w = params.width.divide_kernel.split(rest);
        const int tap_h = params.height.divide_kernel.split(rest);
        column.y = tap_h * params.height.dilation;
        column.x = tap_w * params.width.dilation;
        column.y_offset = (int64_t(group) * params.group_out + rest) * params.y_c +
                          column.y * params.height.y_stride + column.x * params.width.y_stride;
      }
      shared.column[index] = column;
    }
  }

  // Positions of the pixels of the slab that starts at `first`.
  __device__ void describe_pixels(int64_t first) {
    if (threadIdx.x >= depth) return;
    const int64_t index = first + threadIdx.x;
    Pixel pixel{0, 0, INT32_MIN, 0};
    if (index < end) {
      int64_t n = index;
      const int x = params.width.divide_x_extent.split(n);
      const int y = params.height.divide_x_extent.split(n);
      pixel.x_offset = n * params.x_n + y * params.height.x_stride + x * params.width.x_stride;
      pixel.y = y * params.height.stride - params.height.near_pad;
      pixel.x = x * params.width.stride - params.width.near_pad;
      pixel.y_offset =
          n * params.y_n + pixel.y * params.height.y_stride + pixel.x * params.width.y_stride;
    }
    shared.pixel[(first - begin) / depth & 1][threadIdx.x] = pixel;
  }

  // The slab element of this thread's i-th load, from a slab `across` wide.
  template <int across>
  __device__ static int load_depth(int i) {
    return pixel_lanes ? threadIdx.x % depth : threadIdx.x / across + i * (threads / across);
  }
  template <int across>
  __device__ static int load_across(int i) {
    return pixel_lanes ? threadIdx.x / depth + i * (threads / depth) : threadIdx.x % across;
  }

  // ---- slabs ----

  __device__ void fetch(int slab) {
    fetch_x(slab);
    fetch_y(slab);
  }

  __device__ void fetch_x(int slab) {
    const int first = load_across<tile.rows>(0);
    const int rows = params.rows - first_row - first;
    const T* start = static_cast<const T*>(params.x) +
                     (int64_t(group) * params.rows + first_row + first) * params.x_c;
    if (pixel_lanes) {
      const Pixel& pixel = shared.pixel[slab][threadIdx.x % depth];
      const int wanted = pixel.y == INT32_MIN ? 0 : rows;
      const T* pointer = start + pixel.x_offset;
#pragma unroll
      for (int i = 0; i < thread_x; ++i) {
        fetched_x[i] = i * (threads / depth) < wanted ? load(pointer) : A(0);
        pointer += threads / depth * params.x_c;
      }
    } else {
#pragma unroll
      for (int i = 0; i < thread_x; ++i) {
        const Pixel& pixel = shared.pixel[slab][load_depth<tile.rows>(i)];
        const bool wanted = pixel.y != INT32_MIN && rows > 0;
        fetched_x[i] = wanted ? load(start + pixel.x_offset) : A(0);
      }
    }
  }

  __device__ void fetch_y(int slab) {
    y_valid = 0;
    Pixel pixel = shared.pixel[slab][load_depth<tile.columns>(0)];
    Column column = shared.column[load_across<tile.columns>(0)];
#pragma unroll
    for (int i = 0; i < thread_y; ++i) {
      if (pixel_lanes) column = shared.column[load_across<tile.columns>(i)];
      if (!pixel_lanes) pixel = shared.pixel[slab][load_depth<tile.columns>(i)];
      const bool inside = unsigned(pixel.y + column.y) < unsigned(params.height.y_extent) &&
                          unsigned(pixel.x + column.x) < unsigned(params.width.y_extent);
      y_valid |= unsigned(inside) << i;
      const T* pointer = static_cast<const T*>(params.y) + pixel.y_offset + column.y_offset;
      fetched_y[i] = inside ? load(pointer) : A(0);
    }
  }

  __device__ void deposit(int slab) {
#pragma unroll
    for (int i = 0; i < thread_x; ++i) {
      shared.x[slab][load_depth<tile.rows>(i)][load_across<tile.rows>(i)] = fetched_x[i];
    }
#pragma unroll
    for (int i = 0; i < thread_y; ++i) {
      shared.y[slab][load_depth<tile.columns>(i)][load_across<tile.columns>(i)] = fetched_y[i];
    }
  }

  // ---- sums ----

  __device__ int tile_row(int v) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % warps_along_rows;
    return ((warp * row_vectors + v) * row_lanes + lane / column_lanes) * V::size;
  }
  __device__ int tile_column(int v) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 / warps_along_rows;
    return ((warp * column_vectors + v) * column_lanes + lane % column_lanes) * V::size;
  }

  __device__ void clear_sums() {
#pragma unroll
    for (int i = 0; i < tile.thread_rows; ++i) {
#pragma unroll
      for (int j = 0; j < tile.thread_columns; ++j) sum[i][j] = total[i][j] = A(0);
    }
  }

  // Ends a run: `slabs` counts those of the present one.
  __device__ void fold(int& slabs) {
    if (!blocked || ++slabs < params.fold_slabs) return;
    slabs = 0;
#pragma unroll
    for (int i = 0; i < tile.thread_rows; ++i) {
#pragma unroll
      for (int j = 0; j < tile.thread_columns; ++j) {
        total[i][j] += sum[i][j];
        sum[i][j] = A(0);
      }
    }
  }

  __device__ void fold_last() {
    if constexpr (blocked) {
#pragma unroll
      for (int i = 0; i < tile.thread_rows; ++i) {
#pragma unroll
        for (int j = 0; j < tile.thread_columns; ++j) sum[i][j] += total[i][j];
      }
    }
  }

  __device__ void read_fragments(int slab, int k, A (&rows)[tile.thread_rows],
                                 A (&columns)[tile.thread_columns]) const {
#pragma unroll
    for (int v = 0; v < row_vectors; ++v) {
      const V vector = *reinterpret_cast<const V*>(&shared.x[slab][k][tile_row(v)]);
#pragma unroll
      for (int i = 0; i < V::size; ++i) rows[v * V::size + i] = vector.value[i];
    }
#pragma unroll
    for (int v = 0; v < column_vectors; ++v) {
      const V vector = *reinterpret_cast<const V*>(&shared.y[slab][k][tile_column(v)]);
#pragma unroll
      for (int j = 0; j < V::size; ++j) columns[v * V::size + j] = vector.value[j];
    }
  }

  __device__ void multiply(int slab) {
#pragma unroll
    for (int k = 0; k < depth; ++k) {
      A rows[tile.thread_rows], columns[tile.thread_columns];
      read_fragments(slab, k, rows, columns);
#pragma unroll
      for (int i = 0; i < tile.thread_rows; ++i) {
#pragma unroll
        for (int j = 0; j < tile.thread_columns; ++j) sum[i][j] += rows[i] * columns[j];
      }
    }
  }

  __device__ void accumulate() {
    clear_sums();
    describe_pixels(begin);
    describe_pixels(begin + depth);
    __syncthreads();
    fetch(0);
    deposit(0);
    __syncthreads();
    int slab = 0, slabs = 0;
#pragma unroll 1
    for (int64_t first = begin; first < end; first += depth, slab ^= 1) {
      const bool more = first + depth < end;
      if (more) fetch(slab ^ 1);
      describe_pixels(first + 2 * depth);
      multiply(slab);
      if (more) deposit(slab ^ 1);
      fold(slabs);
      __syncthreads();
    }
    fold_last();
  }

  __device__ bool any_nan() const {
    bool found = false;
#pragma unroll
    for (int i = 0; i < tile.thread_rows; ++i) {
#pragma unroll
      for (int j = 0; j < tile.thread_columns; ++j) found |= sum[i][j] != sum[i][j];
    }
    return found;
  }

  // The same sums in the same order, but a product counts only if its dY exists.
  __device__ void accumulate_guarded() {
    clear_sums();
    int slabs = 0;
#pragma unroll 1
    for (int64_t first = begin; first < end; first += depth) {
      const int slab = (first - begin) / depth & 1;
      describe_pixels(first);
      __syncthreads();
      fetch(slab);
      deposit(0);
#pragma unroll
      for (int i = 0; i < thread_y; ++i) {
        shared.valid[load_depth<tile.columns>(i)][load_across<tile.columns>(i)] = y_valid >> i & 1;
      }
      __syncthreads();
#pragma unroll 1
      for (int k = 0; k < depth; ++k) {
        A rows[tile.thread_rows], columns[tile.thread_columns];
        read_fragments(0, k, rows, columns);
#pragma unroll
        for (int j = 0; j < tile.thread_columns; ++j) {
          if (!shared.valid[k][tile_column(j / V::size) + j % V::size]) continue;
#pragma unroll
          for (int i = 0; i < tile.thread_rows; ++i) sum[i][j] += rows[i] * columns[j];
        }
      }
      fold(slabs);
      __syncthreads();
    }
    fold_last();
  }

  // ---- results ----

  __device__ void finish() {
#pragma unroll
    for (int j = 0; j < tile.thread_columns; ++j) {
      const int column = first_column + tile_column(j / V::size) + j % V::size;
      if (column >= params.columns) continue;
      int64_t rest = column;
      const int tap_w = params.width.divide_kernel.split(rest);
      const int tap_h = params.height.divide_kernel.split(rest);
      const int64_t w_offset =
          rest * params.w_co + tap_h * params.height.w_stride + tap_w * params.width.w_stride;
#pragma unroll
      for (int i = 0; i < tile.thread_rows; ++i) {
        const int row = first_row + tile_row(i / V::size) + i % V::size;
        if (row >= params.rows) continue;
        const int64_t ci = int64_t(group) * params.rows + row;
        if (params.partials) {
          static_cast<A*>(
              params.partials)[piece * params.partial_stride + ci * params.columns + column] =
              sum[i][j];
        } else {
          store(static_cast<T*>(params.w) + ci * params.w_ci + w_offset, sum[i][j]);
        }
      }
    }
  }
};

template <typename T, int tile_index, bool pixel_lanes>
__global__ __launch_bounds__(
    WeightBlock<T, tile_index, pixel_lanes>::threads,
    WeightBlock<T, tile_index, pixel_lanes>::tile
        .min_blocks) void convt2d_direct_grad_weight_kernel(const __grid_constant__ WeightParams
                                                                params) {
  using Block = WeightBlock<T, tile_index, pixel_lanes>;
  __shared__ typename Block::Shared shared;
  Block block(params, shared);
  for (int64_t index = blockIdx.x; index < params.blocks; index += gridDim.x) {
    block.locate(index);
    block.accumulate();
    if (__syncthreads_or(block.any_nan())) block.accumulate_guarded();
    block.finish();
    __syncthreads();
  }
}

}  // namespace convt2d::cuda::direct
