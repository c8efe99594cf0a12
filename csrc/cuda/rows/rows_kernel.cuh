// The kernel of rows: weights and pixels to shared memory, then row after row of y: products, a buffer in which outputs lie
// as they will lie in memory, stores of whole lines.
#pragma once

#include "cuda/rows/rows_operands.cuh"

namespace convt2d::cuda::rows {

struct Place {
  int n, h, w;        // image, first position
  int group, column;  // first channel within the group
  int channels;       // that exist
};

__device__ __forceinline__ Place place_of(const Params& p) {
  int rest = blockIdx.x;
  Place at;
  at.column = rest % p.column_tiles * kChannels;
  rest /= p.column_tiles;
  at.w = rest % p.tiles_w * p.tile_width;
  rest /= p.tiles_w;
  at.h = rest % p.tiles_h * p.block_rows;
  rest /= p.tiles_h;
  at.group = rest % p.groups;
  at.n = rest / p.groups;
  at.channels = min(kChannels, p.columns - at.column);
  return at;
}

// Of a row of y: some or all of a block's positions, the number of the first of those, and outputs.
struct Stretch {
  int64_t element;  // of the first channel's first output
  int position, outputs;
};
__device__ __forceinline__ Stretch stretch_of(const Params& p, const Place& at, int row,
                                              int position, int positions) {
  const int64_t plane = (int64_t{at.n} * p.groups + at.group) * p.columns + at.column;
  const int first = (at.w + position) * p.w.stride;
  return {(plane * p.h.out + row) * p.w.out + first, position,
          min(min(positions, p.tile_width - position) * p.w.stride, p.w.out - first)};
}

// Pixels of the positions from row `h` on: rows of [unit][pixel], of which the first `kept` are among the last ones of those
// that are there. Those beside x are zeros. Tells whether one is not finite.
template <class M>
__device__ __forceinline__ bool fill_patch(const Params& p, const Place& at, int h, int kept,
                                           uint32_t shared) {
  using T = typename M::Element;
  constexpr int kVec = kUnitChannels<M>, kAtOnce = 32 / kVec;
  const int plane = p.h.in * p.w.in, row_pieces = p.divide_row_pieces.divisor;
  const uint32_t patch = shared + p.patch_at;
  if (kept > 0) {
    // A thread has the same places in all rows: what it takes away nobody else writes.
    const int way = (p.patch_rows - kept) * row_pieces * kUnit;
#pragma unroll 1
    for (int i = threadIdx.x; i < kParts<M> * row_pieces; i += kThreads) {
      const int part = kSplit<M> ? p.divide_row_pieces.quotient(i) : 0;
      uint32_t to = patch + part * p.patch_part + (i - part * row_pieces) * kUnit;
#pragma unroll 2
      for (int row = 0; row < kept; ++row, to += row_pieces * kUnit) {
        uint32_t word[4];
        load_shared_16(to + way, word);
        store_shared_16(to, word);
      }
    }
    __syncthreads();
  }
  const int first_pixel = at.w + p.w.first_offset, first_row = h + p.h.first_offset;
  const T* const source =
      static_cast<const T*>(p.source) + (int64_t{at.n} * p.groups + at.group) * p.reduce * plane;
  const int count = p.patch_rows * row_pieces;
  uint32_t nan = 0;
#pragma unroll 1
  for (int first = kept * row_pieces + threadIdx.x; first < count; first += kAtOnce * kThreads) {
    uint32_t bits[kAtOnce][kVec];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * kThreads;
      const int row = p.divide_row_pieces.quotient(i), place = i - row * row_pieces;
      const int unit = p.divide_patch_width.quotient(place);
      const int x = first_pixel + place - unit * p.patch_width, y = first_row + row;
      const bool there =
          i < count && unsigned(y) < unsigned(p.h.in) && unsigned(x) < unsigned(p.w.in);
      const T* const from = source + int64_t{unit * kVec} * plane + y * p.w.in + x;
      const int left = there ? p.reduce - unit * kVec : 0;
#pragma unroll
      for (int c = 0; c < kVec; ++c) bits[k][c] = c < left ? bits_of(from + int64_t{c} * plane) : 0;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * kThreads;
      if (i < count) store_unit<M>(bits[k], patch + i * kUnit, p.patch_part, nan);
    }
  }
  return saw_nan<Watched<M>>(nan);
}

// To L2, the pixels that fill_patch brings for the positions from row `h` on.
template <class T>
__device__ __forceinline__ void prefetch_patch(const Params& p, const Place& at, int h) {
  constexpr int kNumbers = kLine / int(sizeof(T));
  const int first = max(0, at.w + p.w.first_offset);
  const int end = min(p.w.in, at.w + p.w.first_offset + p.patch_width);
  const int lines = (end - first + kNumbers - 1) / kNumbers;
  const int first_row = h + p.h.first_offset + p.h.reach;
  const T* const source = static_cast<const T*>(p.source) +
                          (int64_t{at.n} * p.groups + at.group) * p.reduce * p.h.in * p.w.in;
  for (int channel = threadIdx.x / 32; channel < p.reduce; channel += kWarps)
    for (int row = max(0, first_row); row < min(p.h.in, first_row + p.tile_rows); ++row)
      for (int line = threadIdx.x % 32; line < lines; line += 32)
        prefetch_line(source + (int64_t{channel} * p.h.in + row) * p.w.in + first +
                      line * kNumbers);
}

__device__ __forceinline__ float bias_of(const Params& p, uint32_t shared, int channel) {
  return load_shared<float>(shared + p.bias_at + channel * 4);
}
template <class T>
__device__ __forceinline__ void fill_bias(const Params& p, const Place& at, uint32_t shared) {
  if (threadIdx.x >= kChannels) return;
  const T* const bias = static_cast<const T*>(p.bias) + at.group * p.columns + at.column;
  const float value = p.bias && threadIdx.x < at.channels ? float(load(bias + threadIdx.x)) : 0.f;
  store_shared_4(shared + p.bias_at + threadIdx.x * 4, __float_as_uint(value));
}
// How far behind a multiple of 128 bytes a channel of a row begins, in numbers, if its first channel begins at `element`; and
// where a buffer has its first output: as far.
template <class T>
__device__ __forceinline__ int skew_of(const Params& p, uint32_t element, int channel) {
  constexpr int kNumbers = kLine / int(sizeof(T));
  return int((element + channel * uint32_t(p.h.out * p.w.out)) % kNumbers);
}
template <class T>
__device__ __forceinline__ uint32_t staged_row(const Params& p, uint32_t staging, uint32_t element,
                                               int channel) {
  return staging + channel * p.staging_pitch + skew_of<T>(p, element, channel) * int(sizeof(T));
}

// What a warp multiplies: steps of a pair of phases, for pixels from its first position's on. Where the row that it is
// part of begins in memory, its buffer, and the place of the first position's output there.
struct Work {
  int first, end;
  uint32_t pixels;
  uint32_t element, staging;
  int output;
};

// Two steps of 16 channels x 32 positions. Matrices of weights: both halves of the channels of a step, then of the next; of
// pixels: both steps of eight positions, then of the next eight.
template <class M>
__device__ __forceinline__ void add_steps(const Params& p, float (&sum)[kChunk / 8][4],
                                          uint32_t weights, uint32_t pixels) {
  if constexpr (kSplit<M>) {
    uint32_t a[kParts<M>][4], b[kParts<M>][kChunk / 16][4];
#pragma unroll
    for (int part = 0; part < kParts<M>; ++part) {
      ldmatrix_x4(a[part], weights + part * p.weights_part);
#pragma unroll
      for (int i = 0; i < kChunk / 16; ++i)
        ldmatrix_x4(b[part][i], pixels + part * p.patch_part + i * 16 * kUnit);
    }
    // The tensor core cuts digits off where it adds: the lesser products come first, while there is little to cut them off
    // from, and ordinary additions join what is multiplied at once.
    float products[kChunk / 8][4] = {};
#pragma unroll
    for (int less = kParts<M> - 1; less >= 0; --less)
#pragma unroll
      for (int of_a = 0; of_a <= less; ++of_a)
#pragma unroll
        for (int i = 0; i < kChunk / 8; ++i)
          MmaBF16::mma(products[i], a[of_a], b[less - of_a][i / 2][i % 2 * 2],
                       b[less - of_a][i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int i = 0; i < kChunk / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[i][j] += products[i][j];
  } else {
    uint32_t a[4];
    ldmatrix_x4(a, weights);
#pragma unroll
    for (int i = 0; i < kChunk / 8; i += 2) {
      uint32_t b[4];
      ldmatrix_x4(b, pixels + i * 8 * kUnit);
      M::mma(sum[i], a, b[0], b[1]);
      M::mma(sum[i + 1], a, b[2], b[3]);
    }
  }
}

// 16 channels x 32 positions. A lane has channels lane / 4 and 8 more, and of eight positions those at lane % 4 * 2. In
// strict fp32 the bias comes last, so that short sums are not rounded as it would be.
template <class M>
__device__ __forceinline__ void multiply(const Params& p, uint32_t shared, const Work& work) {
  using T = typename M::Element;
  const int lane = threadIdx.x % 32;
  float sum[kChunk / 8][4], bias[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    bias[half] = bias_of(p, shared, lane / 4 + half * 8);
#pragma unroll
    for (int i = 0; i < kChunk / 8; ++i)
      sum[i][2 * half] = sum[i][2 * half + 1] = kSplit<M> ? 0.f : bias[half];
  }
  uint32_t weights = shared + p.weights_at + work.first * (kChannels * kUnit) + lane * kUnit;
  uint32_t table = shared + p.steps_at + (work.first + lane / 8 % 2) * 4;
  const uint32_t pixels = work.pixels + (lane / 16 * 8 + lane % 8) * kUnit;
#pragma unroll 1
  for (int step = work.first; step < work.end; step += 2) {
    add_steps<M>(p, sum, weights, pixels + load_shared_4(table));
    weights += 2 * kChannels * kUnit;
    table += 2 * 4;
  }
  const int stride = p.w.stride * int(sizeof(T));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t to = staged_row<T>(p, work.staging, work.element, lane / 4 + half * 8) +
                        (work.output + lane % 4 * 2 * p.w.stride) * sizeof(T);
#pragma unroll
    for (int i = 0; i < kChunk / 8; ++i) {
      const float add = kSplit<M> ? bias[half] : 0.f;
      const float low = kSplit<M> ? sum[i][2 * half] + add : sum[i][2 * half];
      const float high = kSplit<M> ? sum[i][2 * half + 1] + add : sum[i][2 * half + 1];
      if constexpr (sizeof(T) == 2) {
        const uint32_t both = pack<T>(low, high);
        store_shared_2(to + 8 * i * stride, static_cast<unsigned short>(both));
        store_shared_2(to + (8 * i + 1) * stride, static_cast<unsigned short>(both >> 16));
      } else {
        store_shared_4(to + 8 * i * stride, __float_as_uint(low));
        store_shared_4(to + (8 * i + 1) * stride, __float_as_uint(high));
      }
    }
  }
}

// All phases of w of a stretch, to its buffer.
template <class M>
__device__ __forceinline__ void compute_row(const Params& p, const Stretch& stretch,
                                            uint32_t shared, int r, int phase_h, uint32_t staging) {
  const uint32_t patch =
      shared + p.patch_at + (r * p.units * p.patch_width + stretch.position) * kUnit;
  int phase_w = 0;
  for (int position = int(threadIdx.x) / 32 * kChunk;; position += kWarps * kChunk) {
    for (; position >= p.segment; position -= p.segment) ++phase_w;
    if (phase_w >= p.w.phases) break;
    const int output = position * p.w.stride + phase_w;
    if (output >= stretch.outputs) continue;
    const int pair = phase_h * p.w.phases + phase_w;
    multiply<M>(p, shared,
                {p.first_step[pair], p.first_step[pair + 1], patch + position * kUnit,
                 uint32_t(stretch.element), staging, output});
  }
}

// What is written of a stretch: from its first output on, or with what the one before has left; all of it, or whole lines,
// of which there is one at least, and the others are left to the next one.
struct Ends {
  bool first, last;
};

// From a buffer to memory, or where no tap reaches, the bias: whole 16 bytes, and up to 7 outputs at both ends. Half a warp
// has a channel. Numbers of pieces and outputs are those from a multiple of 128 bytes on.
template <class T, bool EMPTY>
__device__ __forceinline__ void store_row(const Params& p, const Stretch& stretch, int channels,
                                          uint32_t shared, uint32_t staging, const Ends& ends) {
  constexpr int kVec = kVector<T>, kNumbers = kLine / int(sizeof(T)), kPieces = kLine / kUnit;
  constexpr int kLanes = kThreads / kChannels, kAtOnce = 4;
  static_assert(kLanes >= kPieces && 32 % kLanes == 0);
  const int channel = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int skew = skew_of<T>(p, uint32_t(stretch.element), channel),
            carried = ends.first ? 0 : skew;
  const int first = skew - carried;
  int end = skew + stretch.outputs;
  if (!ends.last) end = end / kNumbers * kNumbers;
  if (channel >= channels) end = 0;
  const int first_whole = (first + kVec - 1) / kVec, end_whole = max(first_whole, end / kVec);
  T* const to = static_cast<T*>(p.destination) + stretch.element +
                int64_t{channel} * (p.h.out * p.w.out) - skew;
  const uint32_t from = staging + channel * p.staging_pitch;
  const uint32_t carry = shared + p.carry_at + channel * kLine;
  const float bias = bias_of(p, shared, channel);
  uint32_t same = __float_as_uint(bias);
  if constexpr (sizeof(T) == 2) same = pack<T>(bias, bias);
  const auto read = [&](int piece, uint32_t (&word)[4]) {
    if constexpr (EMPTY) {
      word[0] = word[1] = word[2] = word[3] = same;
    } else {
      load_shared_16(from + piece * kUnit, word);
    }
  };
  const auto store = [&](int piece, const uint32_t (&word)[4]) {
    store_words(to + piece * kVec, word[0], word[1], word[2], word[3]);
  };
  // The first line, of which the row before may have left a part, and what is left to the next row.
  uint32_t line[4], left[4];
  if (lane < kPieces) {
    read(lane, line);
    const int others = carried - lane * kVec;
    if (others > 0) {
      uint32_t word[4];
      load_shared_16(carry + lane * kUnit, word);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == 2) {
          const uint32_t mask = others > 2 * i + 1 ? ~0u : others > 2 * i ? 0xffffu : 0u;
          line[i] = (word[i] & mask) | (line[i] & ~mask);
        } else if (others > i) {
          line[i] = word[i];
        }
      }
    }
    if (lane >= first_whole && lane < end_whole) store(lane, line);
    if (!ends.last) read(end / kVec + lane, left);
  }
  for (int base = kPieces + lane; base < end_whole; base += kAtOnce * kLanes) {
    uint32_t word[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (base + i * kLanes < end_whole) read(base + i * kLanes, word[i]);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (base + i * kLanes < end_whole) store(base + i * kLanes, word[i]);
  }
  const auto store_end = [&](int i) {
    if constexpr (EMPTY) {
      to[i] = Numeric<T>::narrow(bias);
    } else if constexpr (sizeof(T) == 2) {
      reinterpret_cast<unsigned short*>(to)[i] = load_shared<unsigned short>(from + i * 2);
    } else {
      to[i] = load_shared<float>(from + i * 4);
    }
  };
  const int before = first + lane, behind = end_whole * kVec + lane;
  if (before < min(first_whole * kVec, end)) store_end(before);
  if (behind < end) store_end(behind);
  // The lane that reads it next: nobody has to wait.
  if (!ends.last && lane < kPieces) store_shared_16(carry + lane * kUnit, left);
}

template <class T>
__device__ __noinline__ void repair_row(const Params& p, Place at, Stretch stretch,
                                        uint32_t staging, int row) {
  const int run = stretch.outputs;
  for (int i = threadIdx.x; i < at.channels * run; i += kThreads) {
    const int channel = i / run, output = i - channel * run;
    repair_output<T>(
        p, staged_row<T>(p, staging, uint32_t(stretch.element), channel) + output * sizeof(T), at.n,
        at.group, at.column + channel, row, (at.w + stretch.position) * p.w.stride + output);
  }
}

template <class M>
__global__ __launch_bounds__(kThreads,
                             kBlocks) void convt2d_rows_kernel(const __grid_constant__ Params p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900  // others: declined by the planner
  using T = typename M::Element;
  extern __shared__ __align__(128) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Place at = place_of(p);
  fill_bias<T>(p, at, shared);
  bool repairs = fill_steps<M>(p, at.group, at.column, {0, 0}, shared);
  uint32_t staging = shared + p.staging_at;
  uint32_t other = staging + (p.buffers - 1) * kChannels * p.staging_pitch;
  const int first_row = at.h * p.h.stride,
            end_row = min((at.h + p.block_rows) * p.h.stride, p.h.out);
  // Positions of a row that have outputs.
  const int positions = min(p.tile_width, (p.w.out - 1) / p.w.stride + 1 - at.w);
  int row = first_row;
#pragma unroll 1
  for (int h = at.h; row < end_row; h += p.tile_rows) {
    // Where rows of y have taps, whoever computed them has met the others since.
    const bool bad = fill_patch<M>(p, at, h, h == at.h ? 0 : p.h.reach, shared);
    repairs = __syncthreads_or(repairs || bad);
    if (h + p.tile_rows < at.h + p.block_rows) prefetch_patch<T>(p, at, h + p.tile_rows);
    const int end_tile = min((h + p.tile_rows) * p.h.stride, end_row);
    int r = 0, phase_h = 0;
#pragma unroll 1
    for (; row < end_tile; ++row) {
      const bool first = !p.joined || row == first_row, last = !p.joined || row + 1 == end_row;
      if (p.h.taps[phase_h] == 0) {
        store_row<T, true>(p, stretch_of(p, at, row, 0, p.tile_width), at.channels, shared, 0,
                           {first, last});
      } else {
#pragma unroll 1
        for (int position = 0; position < positions; position += p.segment) {
          const Stretch stretch = stretch_of(p, at, row, position, p.segment);
          if (p.buffers == 1) __syncthreads();
          compute_row<M>(p, stretch, shared, r, phase_h, staging);
          if (repairs) {
            __syncthreads();
            repair_row<T>(p, at, stretch, staging, row);
          }
          // When all threads are here, the other buffer has been read and is free for the next stretch.
          __syncthreads();
          store_row<T, false>(p, stretch, at.channels, shared, staging,
                              {first && position == 0, last && position + p.segment >= positions});
          const uint32_t next = other;
          other = staging;
          staging = next;
        }
      }
      if (++phase_h == p.h.phases) {
        phase_h = 0;
        ++r;
      }
    }
  }
#endif
}

}  // namespace convt2d::cuda::rows
