// direct, forward and grad_input with few columns: 1 to 16 (channel, stacked phase) pairs.
//
// With so few columns a source value is used too seldom to pay for its way through shared memory. Here
// a thread holds all columns of `pixels` pixels, reads its sources straight from global memory (the
// lanes of a warp are neighbouring pixels), and the weights of a chunk of channels lie in shared
// memory, where a whole warp reads the same address. No barrier but between chunks.
//
// As in direct_gather.cuh absent sources and weights are zero, and a block that ends with a NaN sum
// repeats its work with every product guarded. Each warp turns its sums in shared memory, so that
// stores run along the pixels of a row and the phases between them.
#pragma once

#include "cuda/direct/direct_gather_params.cuh"

namespace convt2d::cuda::direct {

template <typename T, int strip_index>
struct StripBlock {
  using A = Accumulator<T>;
  using V = Vector<A>;
  static constexpr Strip strip = kStrips[strip_index];
  static constexpr int columns = strip.columns, pixels = strip.pixels, threads = kStripThreads;
  static constexpr int pitch = 33;  // of the turned sums: lanes and columns hit different banks

  using Line = DestinationLine<A>;

  struct Shared {
    union {
      alignas(16) A weight[kStripWeights];  // [step][channel of the chunk][column]
      A turned[threads / 32][columns * pitch];
    };
    Line line[columns];
    Target target[threads / 32][32];
    bool weight_valid[columns];  // in the step at hand; kept by guarded sums only
  };

  const GatherParams& params;
  Shared& shared;
  AxisSteps steps_h, steps_w;
  PhaseWalk walk_h, walk_w;
  int phase_h, phase_w, group, group_tile;
  int64_t first_pixel, all_pixels;
  const T* source[pixels];  // at the offset of no tap
  int source_y[pixels], source_x[pixels];
  A sum[pixels][columns];

  __device__ StripBlock(const GatherParams& params, Shared& shared)
      : params(params), shared(shared) {}

  // The pixel that this thread holds as its i-th; false past the end.
  __device__ bool pixel_position(int i, int64_t& n, int& q_h, int& q_w) const {
    n = first_pixel + i * threads + threadIdx.x;
    if (n >= all_pixels) return false;
    q_w = walk_w.divide_extent.split(n);
    q_h = walk_h.divide_extent.split(n);
    return true;
  }

  __device__ void locate(int64_t block) {
    const GatherAxis &h = params.h, &w = params.w;
    int64_t rest = block;
    int64_t column_tile = params.divide_column_tiles.split(rest);
    phase_w = w.divide_grid_phases.split(rest);
    phase_h = h.divide_grid_phases.split(rest);
    group_tile = params.divide_group_tiles.split(column_tile);
    group = int(column_tile);
    walk_h = phase_walk(h, phase_h);
    walk_w = phase_walk(w, phase_w);
    steps_h = axis_steps(h, walk_h);
    steps_w = axis_steps(w, walk_w);
    all_pixels = params.batch * walk_h.extent * walk_w.extent;
    first_pixel = rest * (threads * pixels);
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      int64_t n = 0;
      int q_h = 0, q_w = 0;
      const bool exists = pixel_position(i, n, q_h, q_w);
      source_y[i] = exists ? q_h * h.source_step : INT32_MIN;
      source_x[i] = q_w * w.source_step;
      source[i] = static_cast<const T*>(params.source);
      if (exists) {
        source[i] += n * params.source_n + int64_t(group) * params.depth * params.source_c +
                     source_y[i] * h.source_stride + source_x[i] * w.source_stride;
      }
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
  }

  // The element of w that a column reads in a step, counted from its first channel; -1: none.
  __device__ int64_t weight_offset(int step_h, int step_w, int column) const {
    const GatherAxis &h = params.h, &w = params.w;
    const int local = params.divide_stack.quotient(column);
    const int stack = column - local * params.divide_stack.divisor;
    const int stack_h = params.divide_stack_w.quotient(stack);
    const int stack_w = stack - stack_h * params.divide_stack_w.divisor;
    const int in_group = group_tile * params.tile_channels + local;
    if (local >= params.tile_channels || in_group >= params.columns) return -1;
    int tap_h = steps_h.tap + step_h * h.tap_step, tap_w = steps_w.tap + step_w * w.tap_step;
    if (h.stacked_phases > 1) tap_h = stacked_tap(h, stack_h, steps_h.offset + step_h);
    if (w.stacked_phases > 1) tap_w = stacked_tap(w, stack_w, steps_w.offset + step_w);
    if (tap_h < 0 || tap_w < 0) return -1;
    return group * params.weight_group + in_group * params.weight_column + tap_h * h.weight_stride +
           tap_w * w.weight_stride;
  }

  // Weights of `channels` channels from `first`, every step and column. A thread keeps to one step and
  // column, so that it works out the place in w once and has many loads under way.
  __device__ void fill_weights(int first, int channels) {
    const int pairs = steps_h.count * steps_w.count * columns;
    const int parts = pairs < threads ? threads / pairs : 1;
    for (int item = threadIdx.x; item < pairs * parts; item += threads) {
      const int part = parts == 1 ? 0 : item / pairs;
      const int pair = item - part * pairs;
      const int step = pair / columns;
      const int step_h = step / steps_w.count;
      const int64_t offset = weight_offset(step_h, step - step_h * steps_w.count, pair % columns);
      const T* from =
          static_cast<const T*>(params.weight) + offset + (first + part) * params.weight_depth;
      A* to = &shared.weight[(step * channels + part) * columns + pair % columns];
#pragma unroll 8
      for (int channel = part; channel < channels; channel += parts) {
        *to = offset < 0 ? A(0) : load(from);
        from += parts * params.weight_depth;
        to += parts * columns;
      }
    }
  }

  __device__ void mark_weights(int step_h, int step_w) {
    __syncthreads();
    if (threadIdx.x < columns) {
      shared.weight_valid[threadIdx.x] = weight_offset(step_h, step_w, threadIdx.x) >= 0;
    }
    __syncthreads();
  }

  template <bool guarded>
  __device__ void add_step(int step_h, int step_w, int first, int channels, const A* weight) {
    if (guarded) mark_weights(step_h, step_w);
    const GatherAxis &h = params.h, &w = params.w;
    const int offset_h = steps_h.offset + step_h * h.offset_step;
    const int offset_w = steps_w.offset + step_w * w.offset_step;
    const int64_t offset =
        offset_h * h.source_stride + offset_w * w.source_stride + first * params.source_c;
    const T* pointer[pixels];
    bool inside[pixels];
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      pointer[i] = source[i] + offset;
      inside[i] = unsigned(source_y[i] + offset_h) < unsigned(h.source_extent) &&
                  unsigned(source_x[i] + offset_w) < unsigned(w.source_extent);
    }
#pragma unroll(guarded ? 1 : strip.unroll)
    for (int channel = 0; channel < channels; ++channel) {
      A value[pixels];
#pragma unroll
      for (int i = 0; i < pixels; ++i) {
        value[i] = inside[i] ? load(pointer[i]) : A(0);
        pointer[i] += params.source_c;
      }
#pragma unroll
      for (int v = 0; v < columns / V::size; ++v) {
        const V vector = reinterpret_cast<const V*>(weight)[v];
#pragma unroll
        for (int j = 0; j < V::size; ++j) {
          const int column = v * V::size + j;
          if (guarded && !shared.weight_valid[column]) continue;
#pragma unroll
          for (int i = 0; i < pixels; ++i) {
            if (!guarded || inside[i]) sum[i][column] += value[i] * vector.value[j];
          }
        }
      }
      weight += columns;
    }
  }

  template <bool guarded>
  __device__ void accumulate() {
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
#pragma unroll
      for (int j = 0; j < columns; ++j) sum[i][j] = A(0);
    }
    const int steps = steps_h.count * steps_w.count;
    if (steps == 0) return;
    const int chunk = min(kStripWeights / (steps * columns), params.depth);
#pragma unroll 1
    for (int first = 0; first < params.depth; first += chunk) {
      const int channels = min(chunk, params.depth - first);
      __syncthreads();
      fill_weights(first, channels);
      __syncthreads();
      const A* weight = shared.weight;
#pragma unroll 1
      for (int step_h = 0; step_h < steps_h.count; ++step_h) {
#pragma unroll 1
        for (int step_w = 0; step_w < steps_w.count; ++step_w) {
          add_step<guarded>(step_h, step_w, first, channels, weight);
          weight += channels * columns;
        }
      }
    }
  }

  __device__ bool any_nan() const {
    bool found = false;
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
#pragma unroll
      for (int j = 0; j < columns; ++j) found |= sum[i][j] != sum[i][j];
    }
    return found;
  }

  // One pixel of every lane: turn, then store lines of 32 pixels with their phases.
  __device__ void store_pixels(int i) {
    const GatherAxis &h = params.h, &w = params.w;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Target target{0, INT32_MAX, 0};
    int64_t n;
    int q_h, q_w;
    if (pixel_position(i, n, q_h, q_w)) {
      target.y = phase_h + q_h * h.destination_step;
      target.x = phase_w + q_w * w.destination_step;
      target.offset = n * params.destination_n + target.y * h.destination_stride +
                      target.x * w.destination_stride;
    }
    shared.target[warp][lane] = target;
    __syncwarp();
    const int phases = w.stacked_phases;
    for (int position = lane; position < 32 * phases; position += 32) {
      const int index = params.divide_stack_w.quotient(position);
      const int phase = position - index * phases;
      const Target place = shared.target[warp][index];
      if (place.x + phase >= w.destination_extent) continue;
      T* pixel = static_cast<T*>(params.destination) + place.offset + phase * w.destination_stride;
      const int room = max(h.destination_extent - place.y, 0);
      const A* value = &shared.turned[warp][phase * pitch + index];
#pragma unroll 4
      for (int l = 0; l < params.lines; ++l) {
        const Line& line = shared.line[l];
        if (unsigned(line.phase_h) < unsigned(room)) store(pixel + line.target, *value + line.bias);
        value += phases * pitch;
      }
    }
    __syncwarp();
  }

  __device__ void run(int64_t index) {
    locate(index);
    accumulate<false>();
    if (__syncthreads_or(any_nan())) accumulate<true>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
#pragma unroll
      for (int j = 0; j < columns; ++j) {
        shared.turned[threadIdx.x / 32][j * pitch + threadIdx.x % 32] = sum[i][j];
      }
      store_pixels(i);
    }
    __syncthreads();
  }
};

template <typename T, int strip_index>
__global__
__launch_bounds__(kStripThreads, kStrips[strip_index].min_blocks) void convt2d_direct_strip_kernel(
    const __grid_constant__ GatherParams params) {
  using Block = StripBlock<T, strip_index>;
  __shared__ typename Block::Shared shared;
  Block block(params, shared);
  for (int64_t index = blockIdx.x; index < params.blocks; index += gridDim.x) block.run(index);
}

}  // namespace convt2d::cuda::direct
