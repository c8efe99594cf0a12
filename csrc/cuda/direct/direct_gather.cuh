// direct, forward and grad_input: an implicit GEMM on shared memory with outer products in registers.
//
//            columns                 a step = one tap x `depth` source channels:
//          +---------+                 fetch    global -> registers, for the next step
//   depth  | weights |                 multiply this step's slab, shared -> registers -> FMA
//          +---------+                 deposit  registers -> the other slab, one barrier
//   +-----+---------+
//   |src  |  sums   | rows           source pixels outside the image and weights of absent taps are
//   +-----+---------+                zero in the slab. Zero times infinity is NaN, so a block that
//    depth                           ends with a NaN sum repeats its tile with every product guarded.
//
// The sums leave through shared memory, so that stores run along the contiguous axis of the
// destination whatever the layout, and over all phases of a row that the block holds: stacked beside
// each other in the columns, or looped, one after the other.
#pragma once

#include "cuda/direct/direct_gather_params.cuh"

namespace convt2d::cuda::direct {

template <typename T, int tile_index>
struct GatherBlock {
  using A = Accumulator<T>;
  using V = Vector<A>;
  static constexpr Tile tile = fitted(kGatherTiles[tile_index], sizeof(A) == 8);
  static constexpr int threads = tile.threads();
  static constexpr int depth = tile.depth;

  // The thread grid of a warp, and how a thread's rows and columns fall into vectors.
  static constexpr int column_lanes =
      tile.columns / tile.thread_columns < 4 ? tile.columns / tile.thread_columns : 4;
  static constexpr int row_lanes = 32 / column_lanes;
  static constexpr int row_vectors = tile.thread_rows / V::size;
  static constexpr int column_vectors = tile.thread_columns / V::size;
  static constexpr int warps_along_rows = tile.rows / (row_lanes * tile.thread_rows);

  // Global -> shared: the pixels of a thread, and the depths that it reads of each.
  static constexpr int thread_pixels = tile.rows > threads ? tile.rows / threads : 1;
  static constexpr int depth_groups = tile.rows > threads ? 1 : threads / tile.rows;
  static constexpr int thread_depths = depth / depth_groups;
  static constexpr int slab_weights = tile.columns * depth;
  static constexpr int depths_at_once =
      threads / tile.columns < depth ? threads / tile.columns : depth;
  static constexpr int weight_threads = tile.columns * depths_at_once;  // along the columns
  static constexpr int thread_weights = (slab_weights + weight_threads - 1) / weight_threads;
  static constexpr bool few_pixels = thread_pixels == 1;  // its position stays in registers

  static constexpr int weight_pitch = tile.columns + V::size;
  static constexpr int staged_rows = tile.rows / row_vectors;  // one vector of each thread
  static constexpr int store_threads = threads / tile.columns * tile.columns;
  static constexpr int looped_pitch = tile.rows + V::size;

  struct Source {  // of a pixel: position of its first tap's source before the offset is added
    int64_t offset;
    int32_t y, x;
  };
  struct Column {
    int64_t weight;
    int32_t phase_h, phase_w;  // stacked phases; -1: no such column
  };
  using Line = DestinationLine<A>;
  struct Slab {
    A source[2][depth][tile.rows];
    A weight[2][depth][weight_pitch];
  };
  struct Shared {
    union {
      Slab slab;
      A staged[tile.columns * (staged_rows + V::size)];
    };
    Source source[tile.rows];
    Target target[tile.rows];
    Column column[tile.columns];
    Line line[tile.columns];
    bool source_valid[tile.rows], weight_valid[tile.columns];
  };

  const GatherParams& params;
  Shared& shared;
  A* looped_sums;  // [line][phase][looped_pitch] in dynamic shared memory
  AxisSteps steps_h, steps_w;
  int group;

  // The next step to fetch: position in the walk, source offsets, and elements from the tensors' start.
  int step_h, step_w, channel, offset_h, offset_w;
  int64_t source_slab, weight_slab;  // of the first tap at `channel`
  int64_t source_step, weight_step;  // of this tap
  A fetched_source[thread_pixels][thread_depths];
  A fetched_weight[thread_weights];
  unsigned source_valid;  // bit i: pixel i of this thread is inside the source
  bool weight_valid;
  Source own_pixel;  // of this thread, if it has one pixel

  // The weights that this thread brings: the first, and what separates it from the next.
  const T* weight_pointer;
  int64_t weight_stride;
  int weight_depth, weight_places;  // its depth in a slab, and how many weights it deposits there
  int weight_limit;                 // how many of them belong to a column that exists
  int weight_place, weight_place_step;  // in a slab

  A sum[tile.thread_rows][tile.thread_columns];

  __device__ GatherBlock(const GatherParams& params, Shared& shared, void* dynamic_shared)
      : params(params), shared(shared), looped_sums(static_cast<A*>(dynamic_shared)) {}

  // ---- tables ----

  __device__ void locate(int64_t block) {
    const GatherAxis &h = params.h, &w = params.w;
    int64_t rest = block;
    const int column_tile = params.divide_column_tiles.split(rest);
    const int phase_w = w.divide_grid_phases.split(rest);
    const int phase_h = h.divide_grid_phases.split(rest);
    const PhaseWalk walk_h = phase_walk(h, phase_h), walk_w = phase_walk(w, phase_w);
    steps_h = axis_steps(h, walk_h);
    steps_w = axis_steps(w, walk_w);

    const int64_t pixels = params.batch * walk_h.extent * walk_w.extent;
    for (int row = threadIdx.x; row < tile.rows; row += threads) {
      const int64_t pixel = rest * tile.rows + row;
      Source source{0, INT32_MIN, 0};
      Target target{0, INT32_MAX, 0};  // below the last row: never stored
      if (pixel < pixels) {
        int64_t n = pixel;
        const int32_t x = walk_w.divide_extent.split(n);
        const int32_t y = walk_h.divide_extent.split(n);
        source.y = y * h.source_step;
        source.x = x * w.source_step;
        source.offset =
            n * params.source_n + source.y * h.source_stride + source.x * w.source_stride;
        target.y = phase_h + y * h.destination_step;
        target.x = phase_w + x * w.destination_step;
        target.offset = n * params.destination_n + target.y * h.destination_stride +
                        target.x * w.destination_stride;
      }
      shared.source[row] = source;
      shared.target[row] = target;
    }

    int64_t group_rest = column_tile;
    const int group_tile = params.divide_group_tiles.split(group_rest);
    group = int(group_rest);
    for (int index = threadIdx.x; index < tile.columns; index += threads) {
      const int local = params.divide_stack.quotient(index);
      const int stack = index - local * params.divide_stack.divisor;
      const int stack_h = params.divide_stack_w.quotient(stack);
      const int stack_w = stack - stack_h * params.divide_stack_w.divisor;
      const int in_group = group_tile * params.tile_channels + local;
      Column column{0, -1, -1};
      if (local < params.tile_channels && in_group < params.columns) {
        column.weight = group * params.weight_group + in_group * params.weight_column;
        column.phase_h = stack_h;
        column.phase_w = stack_w;
      }
      shared.column[index] = column;
    }
    for (int index = threadIdx.x; index < params.lines; index += threads) {
      const int local = params.divide_stack_h.quotient(index);
      const int in_group = group_tile * params.tile_channels + local;
      Line line{0, A(0), -1};
      if (in_group < params.columns) {
        const int64_t channel = int64_t(group) * params.columns + in_group;
        line.phase_h = index - local * params.divide_stack_h.divisor;
        line.target = channel * params.destination_c + line.phase_h * h.destination_stride;
        if (params.bias) line.bias = load(static_cast<const T*>(params.bias) + channel);
      }
      shared.line[index] = line;
    }
    __syncthreads();
    locate_loads();
  }

  // Neighbouring threads read weights along the depth or along the columns, whichever is contiguous.
  __device__ void locate_loads() {
    if (few_pixels) own_pixel = shared.source[threadIdx.x % tile.rows];
    int column, column_step = 0;
    if (params.depth_lanes) {
      column = threadIdx.x / depth;
      column_step = threads / depth;
      weight_depth = threadIdx.x % depth;
      weight_stride = column_step * params.weight_column;
      weight_place_step = column_step;
    } else {
      column = threadIdx.x % tile.columns;
      weight_depth = threadIdx.x / tile.columns;
      weight_stride = depths_at_once * params.weight_depth;
      weight_place_step = depths_at_once * weight_pitch;
    }
    const bool idle = !params.depth_lanes && threadIdx.x >= weight_threads;
    weight_place = weight_depth * weight_pitch + column;
    weight_places = weight_limit = 0;
    for (int i = 0; i < thread_weights && !idle && column + i * column_step < tile.columns; ++i) {
      ++weight_places;
      weight_limit += shared.column[column + i * column_step].phase_h >= 0;
    }
    weight_pointer = static_cast<const T*>(params.weight) +
                     (weight_limit > 0 ? shared.column[column].weight : 0) +
                     weight_depth * params.weight_depth;
  }

  // ---- the steps: taps inside, channels outside, so that a tap finds its neighbours in L1 ----

  __device__ void restart() {
    step_h = step_w = channel = 0;
    offset_h = steps_h.offset;
    offset_w = steps_w.offset;
    source_slab = int64_t(group) * params.depth * params.source_c +
                  offset_h * params.h.source_stride + offset_w * params.w.source_stride;
    weight_slab = steps_h.tap * params.h.weight_stride + steps_w.tap * params.w.weight_stride;
    source_step = source_slab;
    weight_step = weight_slab;
  }

  __device__ int step_count() const {
    return (params.depth + depth - 1) / depth * steps_h.count * steps_w.count;
  }

  __device__ void advance() {
    const GatherAxis &h = params.h, &w = params.w;
    if (++step_w < steps_w.count) {
      offset_w += w.offset_step;
      source_step += w.source_delta;
      weight_step += w.weight_delta;
      return;
    }
    step_w = 0;
    offset_w = steps_w.offset;
    if (++step_h < steps_h.count) {
      offset_h += h.offset_step;
    } else {
      step_h = 0;
      offset_h = steps_h.offset;
      channel += depth;
      source_slab += depth * params.source_c;
      weight_slab += depth * params.weight_depth;
    }
    source_step = source_slab + step_h * h.source_delta;
    weight_step = weight_slab + step_h * h.weight_delta;
  }

  __device__ void fetch() {
    fetch_source();
    fetch_weights();
  }

  __device__ void fetch_source() {
    const GatherAxis &h = params.h, &w = params.w;
    const int first = threadIdx.x / tile.rows;
    const int available = (params.depth - channel - first + depth_groups - 1) / depth_groups;
    const T* step_pointer = static_cast<const T*>(params.source) + source_step;
    source_valid = 0;
#pragma unroll
    for (int i = 0; i < thread_pixels; ++i) {
      const Source pixel =
          few_pixels ? own_pixel : shared.source[threadIdx.x % tile.rows + i * threads];
      const bool inside = unsigned(pixel.y + offset_h) < unsigned(h.source_extent) &&
                          unsigned(pixel.x + offset_w) < unsigned(w.source_extent);
      source_valid |= unsigned(inside) << i;
      const int wanted = inside ? available : 0;
      const T* pointer = step_pointer + pixel.offset + first * params.source_c;
#pragma unroll
      for (int j = 0; j < thread_depths; ++j) {
        fetched_source[i][j] = j < wanted ? load(pointer) : A(0);
        pointer += depth_groups * params.source_c;
      }
    }
  }

  __device__ void fetch_weights() {
    const GatherAxis &h = params.h, &w = params.w;
    const T* pointer = weight_pointer + weight_step;
    weight_valid = true;
    if (h.stacked_phases > 1 || w.stacked_phases > 1) {
      const Column& column = shared.column[threadIdx.x % tile.columns];
      int tap_h = 0, tap_w = 0;
      if (h.stacked_phases > 1) tap_h = stacked_tap(h, column.phase_h, offset_h);
      if (w.stacked_phases > 1) tap_w = stacked_tap(w, column.phase_w, offset_w);
      weight_valid = tap_h >= 0 && tap_w >= 0;
      pointer += tap_h * h.weight_stride + tap_w * w.weight_stride;
    }
    const int channels = params.depth - channel - weight_depth;
    int wanted = channels > 0 && weight_valid ? weight_limit : 0;
    if (!params.depth_lanes) wanted = min(wanted, (channels + depths_at_once - 1) / depths_at_once);
#pragma unroll
    for (int i = 0; i < thread_weights; ++i) {
      fetched_weight[i] = i < wanted ? load(pointer) : A(0);
      pointer += weight_stride;
    }
  }

  __device__ void deposit(int slab) {
#pragma unroll
    for (int i = 0; i < thread_pixels; ++i) {
#pragma unroll
      for (int j = 0; j < thread_depths; ++j) {
        shared.slab.source[slab][threadIdx.x / tile.rows + j * depth_groups]
                          [threadIdx.x % tile.rows + i * threads] = fetched_source[i][j];
      }
    }
    A* place = &shared.slab.weight[slab][0][0] + weight_place;
#pragma unroll
    for (int i = 0; i < thread_weights; ++i) {
      if (slab_weights == thread_weights * threads || i < weight_places) *place = fetched_weight[i];
      place += weight_place_step;
    }
  }

  // ---- sums ----

  // Lanes go two columns, all rows, the other columns: a quarter warp reads few distinct vectors.
  __device__ int lane_column() const {
    const int lane = threadIdx.x % 32;
    if (column_lanes == 4) return (lane & 1) | (lane >> 4 << 1);
    return lane % column_lanes;
  }
  __device__ int lane_row() const {
    const int lane = threadIdx.x % 32;
    if (column_lanes == 4) return lane >> 1 & 7;
    return lane / column_lanes;
  }
  // First row (column) of this thread's v-th vector.
  __device__ int first_row(int v) const {
    const int warp = threadIdx.x / 32 % warps_along_rows;
    return (warp * row_vectors + v) * row_lanes * V::size + lane_row() * V::size;
  }
  __device__ int first_column(int v) const {
    const int warp = threadIdx.x / 32 / warps_along_rows;
    return (warp * column_vectors + v) * column_lanes * V::size + lane_column() * V::size;
  }

  __device__ void clear_sums() {
#pragma unroll
    for (int i = 0; i < tile.thread_rows; ++i) {
#pragma unroll
      for (int j = 0; j < tile.thread_columns; ++j) sum[i][j] = A(0);
    }
  }

  __device__ void read_fragments(int slab, int k, A (&rows)[tile.thread_rows],
                                 A (&columns)[tile.thread_columns]) const {
#pragma unroll
    for (int v = 0; v < row_vectors; ++v) {
      const V vector = *reinterpret_cast<const V*>(&shared.slab.source[slab][k][first_row(v)]);
#pragma unroll
      for (int i = 0; i < V::size; ++i) rows[v * V::size + i] = vector.value[i];
    }
#pragma unroll
    for (int v = 0; v < column_vectors; ++v) {
      const V vector = *reinterpret_cast<const V*>(&shared.slab.weight[slab][k][first_column(v)]);
#pragma unroll
      for (int j = 0; j < V::size; ++j) columns[v * V::size + j] = vector.value[j];
    }
  }

  __device__ void multiply_one(int slab, int k) {
    A rows[tile.thread_rows], columns[tile.thread_columns];
    read_fragments(slab, k, rows, columns);
#pragma unroll
    for (int i = 0; i < tile.thread_rows; ++i) {
#pragma unroll
      for (int j = 0; j < tile.thread_columns; ++j) sum[i][j] += rows[i] * columns[j];
    }
  }

  __device__ void multiply(int slab, int channels) {
    if (channels >= depth) {
#pragma unroll
      for (int k = 0; k < depth; ++k) multiply_one(slab, k);
    } else {
#pragma unroll 4
      for (int k = 0; k < channels; ++k) multiply_one(slab, k);
    }
  }

  __device__ void accumulate() {
    clear_sums();
    restart();
    const int count = step_count();
    if (count == 0) return;
    fetch();
    deposit(0);
    __syncthreads();
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      const int channels = params.depth - channel;
      const bool more = step + 1 < count;
      if (more) {
        advance();
        fetch();
      }
      multiply(step & 1, channels);
      if (more) deposit(~step & 1);
      __syncthreads();
    }
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

  // The same sums in the same order, but a product counts only if its tap and its source exist.
  __device__ void accumulate_guarded() {
    clear_sums();
    restart();
    const int count = step_count();
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      const int channels = min(params.depth - channel, depth);
      fetch();
      deposit(0);
      for (int i = 0; i < thread_pixels; ++i) {
        shared.source_valid[threadIdx.x % tile.rows + i * threads] = source_valid >> i & 1;
      }
      shared.weight_valid[threadIdx.x % tile.columns] = weight_valid;
      __syncthreads();
#pragma unroll 1
      for (int k = 0; k < channels; ++k) {
        A rows[tile.thread_rows], columns[tile.thread_columns];
        read_fragments(0, k, rows, columns);
#pragma unroll
        for (int i = 0; i < tile.thread_rows; ++i) {
          const bool row = shared.source_valid[first_row(i / V::size) + i % V::size];
#pragma unroll
          for (int j = 0; j < tile.thread_columns; ++j) {
            const bool column = shared.weight_valid[first_column(j / V::size) + j % V::size];
            if (row && column) sum[i][j] += rows[i] * columns[j];
          }
        }
      }
      __syncthreads();
      advance();
    }
  }

  // ---- results ----

  // The v-th vectors of all threads, as rows of a table [column * row_step + row_first][pitch].
  __device__ void stage(A* table, int pitch, int row_step, int row_first, int v, int place) {
#pragma unroll
    for (int j = 0; j < tile.thread_columns; ++j) {
      V vector;
#pragma unroll
      for (int i = 0; i < V::size; ++i) vector.value[i] = sum[v * V::size + i][j];
      const int column = first_column(j / V::size) + j % V::size;
      *reinterpret_cast<V*>(&table[(column * row_step + row_first) * pitch + place]) = vector;
    }
  }

  // Row of the tile that was staged as row `index` of part v.
  __device__ static int staged_row(int v, int index) {
    constexpr int span = row_lanes * V::size;
    return (index / span * row_vectors + v) * span + index % span;
  }

  // Neighbouring threads take neighbouring pixels, phases of w between them. `part` is the v of a
  // staged part, or -1 for a table of all rows.
  __device__ void store_along_pixels(const A* table, int pitch, int rows, int part) {
    const GatherAxis& w = params.w;
    const int phases = params.divide_line_phases.divisor;
    const int positions = rows * phases;
    const int line_step = positions < threads ? threads / positions : 1;
    for (int item = threadIdx.x; item < positions * line_step; item += threads) {
      const int first_line = line_step == 1 ? 0 : item / positions;
      const int position = item - first_line * positions;
      const int index = params.divide_line_phases.quotient(position);
      const int phase = position - index * phases;
      const Target target = shared.target[part < 0 ? index : staged_row(part, index)];
      if (target.x + phase >= w.destination_extent) continue;
      T* pixel = static_cast<T*>(params.destination) + target.offset + phase * w.destination_stride;
      const A* value = table + (first_line * phases + phase) * pitch + index;
      const int room = max(params.h.destination_extent - target.y, 0);
#pragma unroll 4
      for (int i = first_line; i < params.lines; i += line_step) {
        const Line& line = shared.line[i];
        if (unsigned(line.phase_h) < unsigned(room)) store(pixel + line.target, *value + line.bias);
        value += line_step * phases * pitch;
      }
    }
  }

  // Neighbouring threads take neighbouring channels.
  __device__ void store_along_columns(const A* table, int pitch, int part) {
    const int lane = threadIdx.x % tile.columns;
    const int phase = lane / params.tile_channels;
    if (phase >= int(params.divide_stack.divisor) || threadIdx.x >= store_threads) return;
    const int index = (lane - phase * params.tile_channels) * params.divide_stack.divisor + phase;
    const Column column = shared.column[index];
    if (column.phase_h < 0) return;
    const Line line = shared.line[params.divide_stack_w.quotient(index)];
    T* start = static_cast<T*>(params.destination) + line.target +
               column.phase_w * params.w.destination_stride;
#pragma unroll 4
    for (int row = threadIdx.x / tile.columns; row < staged_rows; row += threads / tile.columns) {
      const Target target = shared.target[staged_row(part, row)];
      if (column.phase_h < params.h.destination_extent - target.y &&
          target.x + column.phase_w < params.w.destination_extent) {
        store(start + target.offset, table[index * pitch + row] + line.bias);
      }
    }
  }

  __device__ void finish() {
    constexpr int pitch = staged_rows + V::size;
    const int place = (threadIdx.x / 32 % warps_along_rows * row_lanes + lane_row()) * V::size;
#pragma unroll
    for (int v = 0; v < row_vectors; ++v) {
      stage(shared.staged, pitch, 1, 0, v, place);
      __syncthreads();
      if (params.column_lanes) {
        store_along_columns(shared.staged, pitch, v);
      } else {
        store_along_pixels(shared.staged, pitch, staged_rows, v);
      }
      __syncthreads();
    }
  }

  // ---- all of it ----

  __device__ void run(int64_t index) {
    locate(index);
    const int phases = params.w.looped_phases;
#pragma unroll 1
    for (int phase = 0; phase < phases; ++phase) {
      if (phases > 1) steps_w = axis_steps(params.w, phase_walk(params.w, phase));
      accumulate();
      if (__syncthreads_or(any_nan())) accumulate_guarded();
      if (phases == 1) return finish();
#pragma unroll
      for (int v = 0; v < row_vectors; ++v) {
        stage(looped_sums, looped_pitch, phases, phase, v, first_row(v));
      }
    }
    __syncthreads();
    store_along_pixels(looped_sums, looped_pitch, tile.rows, -1);
    __syncthreads();
  }
};

template <typename T, int tile_index>
__global__ __launch_bounds__(
    GatherBlock<T, tile_index>::threads,
    GatherBlock<T, tile_index>::tile
        .min_blocks) void convt2d_direct_gather_kernel(const __grid_constant__ GatherParams
                                                           params) {
  using Block = GatherBlock<T, tile_index>;
  __shared__ typename Block::Shared shared;
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  Block block(params, shared, dynamic_shared);
  for (int64_t index = blockIdx.x; index < params.blocks; index += gridDim.x) block.run(index);
}

}  // namespace convt2d::cuda::direct
