// The kernel of rows: pixels and weights to shared memory, then row after row of y: products, a buffer in which outputs lie
// as they will lie in memory, stores of whole 16 bytes.
#pragma once

#include <type_traits>

#include "cuda/rows/rows_strict.cuh"

namespace convt2d::cuda::rows {

// What of y a tile is: where its first output is in memory (32 bits will do: the planner refuses others), rows, and outputs of
// each that exist, of so many channels.
struct Rows {
  int element;
  int first_row, end_row;
  int outputs, channels;
};
__device__ __forceinline__ Rows rows_of(const Params& p, const Place& at) {
  const int plane = (at.n * p.groups + at.group) * p.columns + at.column;
  const int row = at.h * p.h.stride, output = at.w * p.w.stride;
  return {(plane * p.h.out + row) * p.w.out + output, row,
          min(row + p.tile_rows * p.h.stride, p.h.out),
          min(p.tile_width * p.w.stride, p.w.out - output), at.channels};
}

// Pixels: rows of [unit][pixel], a unit of a row a warp. Those beside x are zeros. Tells whether one is not finite.
template <class M>
__device__ __forceinline__ bool fill_patch(const Params& p, const Place& at, uint32_t shared) {
  using T = typename M::Element;
  constexpr int kVec = kVector<T>, kAtOnce = 32 / kVec;
  const int plane = p.h.in * p.w.in, lane = threadIdx.x % 32;
  const int first_pixel = at.w + p.w.first_offset;
  const T* const source = static_cast<const T*>(p.source) +
                          (int64_t{at.n} * p.groups + at.group) * p.reduce * plane + first_pixel;
  uint32_t nan = 0;
#pragma unroll 1
  for (int line = threadIdx.x / 32; line < p.patch_rows * p.units; line += kThreads / 32) {
    const int row = p.divide_units.quotient(line), channel = (line - row * p.units) * kVec;
    const int y = at.h + p.h.first_offset + row;
    const int left = unsigned(y) < unsigned(p.h.in) ? p.reduce - channel : 0;
    const T* const from = source + int64_t{channel} * plane + y * p.w.in;
    const auto fill = [&](auto all) {
#pragma unroll 1
      for (int first = lane; first < p.patch_width; first += 32 * kAtOnce) {
        uint32_t bits[kAtOnce][kVec];
#pragma unroll
        for (int c = 0; c < kVec; ++c) {
          const T* const pixel = from + int64_t{c} * plane + first;
          const bool exists = decltype(all)::value || c < left;
#pragma unroll
          for (int k = 0; k < kAtOnce; ++k) {
            const bool there = unsigned(first_pixel + first + 32 * k) < unsigned(p.w.in) && exists;
            bits[k][c] = there ? bits_of(pixel + 32 * k) : 0;
          }
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
          if (first + 32 * k < p.patch_width)
            store_unit<M>(bits[k],
                          shared + p.patch_at + (line * p.patch_width + first + 32 * k) * kUnit,
                          nan);
      }
    };
    if (left >= kVec) {
      fill(std::true_type());
    } else {
      fill(std::false_type());
    }
  }
  return saw_nan<T>(nan);
}

template <class T>
__device__ __forceinline__ void fill_bias(const Params& p, const Place& at, uint32_t shared) {
  if (threadIdx.x >= kChannels) return;
  const T* const bias = static_cast<const T*>(p.bias) + at.group * p.columns + at.column;
  const float value = p.bias && threadIdx.x < at.channels ? float(load(bias + threadIdx.x)) : 0.f;
  store_shared_4(shared + p.bias_at + threadIdx.x * 4, __float_as_uint(value));
}

// 16 channels x 32 positions x PHASES phases on tensor cores, the latter's steps one after the other.
template <class M, int PHASES>
__device__ __forceinline__ void multiply(const Params& p, uint32_t shared, const Work& work) {
  const int lane = threadIdx.x % 32;
  const float bias[2] = {bias_of(p, shared, lane / 4), bias_of(p, shared, lane / 4 + 8)};
  float sum[PHASES][kTiles][4];
  // Matrices of weights: both halves of the channels of a step, then of the next; of pixels: both steps of eight
  // positions, then of the next eight.
  const int step = p.first_step[work.pair];
  uint32_t weights = shared + p.weights_at + step * (kChannels * kUnit) + lane * kUnit;
  uint32_t table = shared + p.steps_at + (step + lane / 8 % 2) * 4;
  const uint32_t pixels = work.pixels + (lane / 16 * 8 + lane % 8) * kUnit;
#pragma unroll
  for (int phase = 0; phase < PHASES; ++phase) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k) sum[phase][i][k] = bias[k / 2];
    const auto add = [&] {
      const uint32_t from = pixels + load_shared_4(table);
      uint32_t a[4];
      ldmatrix_x4(a, weights);
#pragma unroll
      for (int i = 0; i < kTiles; i += 2) {
        uint32_t b[4];
        ldmatrix_x4(b, from + i * 8 * kUnit);
        M::mma(sum[phase][i], a, b[0], b[1]);
        M::mma(sum[phase][i + 1], a, b[2], b[3]);
      }
      weights += 2 * kChannels * kUnit;
      table += 2 * 4;
    };
    // There is one, and apart from the others it takes the bias as it is.
    add();
    const uint32_t end = shared + p.steps_at + p.first_step[work.pair + phase + 1] * 4;
#pragma unroll 1
    while (table < end) add();
  }
  stage_sums<typename M::Element, PHASES>(p, work, sum);
}

// All phases of w of a row of positions, to its buffer.
template <class M>
__device__ __forceinline__ void compute_row(const Params& p, const Rows& rows, uint32_t shared,
                                            int r, int phase_h, uint32_t element,
                                            uint32_t staging) {
  const uint32_t patch = shared + p.patch_at + r * p.units * p.patch_width * kUnit;
  for (int item = threadIdx.x / 32;; item += kWarps) {
    const int part = p.divide_chunks.quotient(item);
    if (part >= p.row_parts) break;
    const int position = item * kChunk - part * p.tile_width;
    const int phase_w = part * p.phases_at_once;
    const int output = position * p.w.stride + phase_w;
    if (output >= rows.outputs) continue;
    const int phases = min(p.phases_at_once, p.w.phases - phase_w);
    Work work{phase_h * p.row_parts + part, patch + position * kUnit, element, staging, output};
    if constexpr (M::kSplit) {
      multiply_strict(p, shared, work, phases);
    } else {
      work.pair = phase_h * p.w.phases + phase_w;
      visit_count<most_phases(sizeof(typename M::Element))>(
          phases, [&](auto count) { multiply<M, decltype(count)::value>(p, shared, work); });
    }
  }
}

// Whether a block has whole rows of y that follow each other in memory.
template <class T>
__device__ __forceinline__ bool rows_are_joined(const Params& p) {
  return line_bytes(sizeof(T)) == kLineBytes && p.joined;
}

// What a block stores of a channel's row, in numbers from the line on in which it begins: outputs, of which those
// before `begin` are another block's, those from `finish` on wait for the next row, or the next row's bias is known. What the
// row before left lies before `first`.
struct Stretch {
  int element, first, end;
  int begin, finish;
};
template <class T>
__device__ __forceinline__ Stretch stretch_of(const Params& p, const Rows& rows, int element,
                                              int channel, int row, bool first) {
  constexpr int kRest = kLine<T> - 1;
  element += channel * (p.h.out * p.w.out);
  Stretch result;
  result.first = element & kRest;
  result.element = element - result.first;
  result.begin = result.first;
  result.finish = result.end = result.first + rows.outputs;
  if (!rows_are_joined<T>(p)) return result;
  const int up = p.h.taps[0] == 0 ? kRest : 0;
  if (!first) {
    result.begin = 0;
  } else if (row > 0) {
    result.begin = result.first + up & ~up;
  }
  if (row + 1 < rows.end_row) {
    result.finish = result.end & ~kRest;
  } else if (row + 1 < p.h.out) {
    result.finish = result.end + up & ~up;
  }
  return result;
}

// From a buffer to memory, or where no tap reaches, the bias: whole 16 bytes, and up to 7 outputs at both ends. Where rows
// are joined, a block's lines of 128 bytes are written at once, whichever rows they are part of; what is left over goes to
// the buffer of the next row.
template <class T, bool EMPTY>
__device__ __forceinline__ void store_row(const Params& p, const Rows& rows, uint32_t shared,
                                          uint32_t staging, uint32_t next, int element, int row,
                                          bool first) {
  constexpr int kVec = kVector<T>, kLanes = kThreads / kChannels;
  T* const y = static_cast<T*>(p.destination);
  const int channel = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const Stretch stretch = stretch_of<T>(p, rows, element, channel, row, first);
  const bool joined = rows_are_joined<T>(p);
  T* const to = y + stretch.element;
  const uint32_t from = staging + channel * p.staging_pitch;
  const float bias = bias_of(p, shared, channel);
  uint32_t same = __float_as_uint(bias);
  if constexpr (sizeof(T) == 2) same = pack<T>(bias, bias);
  const auto put = [](uint32_t place, uint32_t bits) {
    if constexpr (sizeof(T) == 2) {
      store_shared_2(place, static_cast<unsigned short>(bits));
    } else {
      store_shared_4(place, bits);
    }
  };
  const auto get = [](uint32_t place) -> uint32_t {
    if constexpr (sizeof(T) == 2) {
      return load_shared<unsigned short>(place);
    } else {
      return load_shared_4(place);
    }
  };
  // Before a channel's own outputs, where its row is empty, and behind them the bias completes what is stored at once.
  const int held =
      EMPTY ? stretch.begin < stretch.first ? (stretch.first + kVec - 1) / kVec * kVec : 0
            : stretch.finish;
  if (joined) {
    __syncwarp();  // what the row before left is there
    if constexpr (EMPTY) {
      if (stretch.first + lane < held) put(from + (stretch.first + lane) * sizeof(T), same);
    } else {
      for (int i = stretch.end + lane; i < stretch.finish; i += kLanes)
        put(from + i * sizeof(T), same);
    }
    __syncwarp();
  }
  const auto store_end = [&](int i) {
    const uint32_t bits = i < held ? get(from + i * sizeof(T)) : same;
    if constexpr (sizeof(T) == 2) {
      reinterpret_cast<unsigned short*>(to)[i] = static_cast<unsigned short>(bits);
    } else {
      to[i] = __uint_as_float(bits);
    }
  };
  const int first_whole = (stretch.begin + kVec - 1) / kVec;
  const int end_whole = max(first_whole, stretch.finish / kVec);
  const bool exists = channel < rows.channels;
  // Lanes begin at a multiple of 128 bytes, so that a sector is not written in pieces.
  constexpr int kAtOnce = 4;
  int piece = lane - (stretch.element / kVec & kLineBytes / kUnit - 1);
  if (piece < first_whole) piece += kLanes;
  uint32_t word[kAtOnce][4];
  if constexpr (EMPTY) {
    // A lane's first piece alone may be one that the row before began.
    if (exists && piece * kVec < min(held, end_whole * kVec)) {
      load_shared_16(from + piece * kUnit, word[0]);
      store_words(to + piece * kVec, word[0][0], word[0][1], word[0][2], word[0][3]);
      piece += kLanes;
    }
  }
  T* place = to + piece * kVec;
  uint32_t staged = from + piece * kUnit;
#pragma unroll 1
  for (int left = exists ? end_whole - piece : 0; left > 0; left -= kAtOnce * kLanes) {
    if constexpr (!EMPTY) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (left > i * kLanes) load_shared_16(staged + i * kLanes * kUnit, word[i]);
      staged += kAtOnce * kLanes * kUnit;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (left <= i * kLanes) continue;
      if constexpr (EMPTY) {
        store_words(place + i * kLanes * kVec, same, same, same, same);
      } else {
        store_words(place + i * kLanes * kVec, word[i][0], word[i][1], word[i][2], word[i][3]);
      }
    }
    place += kAtOnce * kLanes * kVec;
  }
  if (exists) {
    const int left = stretch.begin + lane, right = end_whole * kVec + lane;
    if (left < min(first_whole * kVec, stretch.finish)) store_end(left);
    if (right < stretch.finish) store_end(right);
  }
  if (joined && row + 1 < rows.end_row) {
    const uint32_t rest = next + channel * p.staging_pitch;
    __syncwarp();  // a buffer may be its own next one
    for (int i = lane; i < stretch.end - stretch.finish; i += kLanes)
      put(rest + i * sizeof(T), EMPTY ? same : get(from + (stretch.finish + i) * sizeof(T)));
  }
}

template <class T>
__device__ __noinline__ void repair_row(const Params& p, Rows rows, uint32_t staging, int element,
                                        int row) {
  Digits number{element};
  const int first = number.next(p.w.out);
  number.next(p.h.out);
  const int column = number.next(p.columns), group = number.next(p.groups);
  for (int i = threadIdx.x; i < rows.channels * rows.outputs; i += kThreads) {
    const int channel = i / rows.outputs, output = i - channel * rows.outputs;
    repair_output<T>(p, staged_row<T>(p, staging, element, channel) + output * sizeof(T),
                     number.rest, group, column + channel, row, first + output);
  }
}

// Row after row of y of a tile.
template <class M>
__device__ __forceinline__ void compute_tile(const Params& p, const Rows& rows, uint32_t shared,
                                             bool repairs) {
  using T = typename M::Element;
  uint32_t staging = shared + p.staging_at;
  uint32_t other = staging + (p.buffers - 1) * kChannels * p.staging_pitch;
#pragma unroll 1
  for (int row = rows.first_row, element = rows.element, r = 0, phase_h = 0; row < rows.end_row;
       ++row, element += p.w.out) {
    const bool first = r == 0 && phase_h == 0;
    if (p.h.taps[phase_h] == 0) {
      store_row<T, true>(p, rows, shared, staging, staging, element, row, first);
    } else {
      // An empty row's left-over lies in this row's buffer, and is read until all are here.
      const bool empty_before = rows_are_joined<T>(p) && !first &&
                                p.h.taps[(phase_h == 0 ? p.h.phases : phase_h) - 1] == 0;
      if (p.buffers == 1 || empty_before) __syncthreads();
      compute_row<M>(p, rows, shared, r, phase_h, element, staging);
      if (repairs) {
        __syncthreads();
        repair_row<T>(p, rows, staging, element, row);
      }
      // When all threads are here, the other buffer has been read and is free for the next row, as pixels are for the
      // next tile's after the last one.
      __syncthreads();
      store_row<T, false>(p, rows, shared, staging, other, element, row, first);
      const uint32_t next = other;
      other = staging;
      staging = next;
    }
    if (++phase_h == p.h.phases) {
      phase_h = 0;
      ++r;
    }
  }
}

// Blocks stay, and walk tiles of their channels: weights come once.
template <class M>
__global__ __launch_bounds__(kThreads,
                             kBlocks) void convt2d_rows_kernel(const __grid_constant__ Params p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900  // others: declined by the planner
  using T = typename M::Element;
  extern __shared__ __align__(128) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  // Whether a number has been seen that is not finite: what then comes out NaN is looked for.
  bool bad;
  {
    const Place at = place_of(p, blockIdx.x);
    fill_bias<T>(p, at, shared);
    if constexpr (M::kSplit) {
      bad = fill_blocks(p, at.group, at.column, shared);
    } else {
      bad = fill_steps<M>(p, at.group, at.column, {0, 0}, shared);
    }
  }
#pragma unroll 1
  for (int tile = blockIdx.x; tile < p.tiles * p.parts; tile += p.walkers) {
    const Place at = place_of(p, tile);
    bool bad_pixels;
    if constexpr (M::kSplit) {
      start_patch(p, at, shared);
      bad_pixels = finish_patch(p, shared);
    } else {
      bad_pixels = fill_patch<M>(p, at, shared);
    }
    bad = __syncthreads_or(bad || bad_pixels);
    compute_tile<M>(p, rows_of(p, at), shared, bad);
  }
#endif
}

}  // namespace convt2d::cuda::rows
