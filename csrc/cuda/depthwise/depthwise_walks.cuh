// NHWC along rows of y, or dY.
#pragma once

#include "cuda/depthwise/depthwise_common.cuh"
#include "cuda/depthwise/depthwise_walks.h"
#include "cuda/device/memory.cuh"
#include "cuda/device/successor.cuh"

namespace convt2d::cuda::depthwise::walks {

// Neighbouring channels as floats.
template <typename T>
__device__ __forceinline__ void widen(const Pack<T, walk_vector(sizeof(T))>& pack,
                                      float (&value)[walk_vector(sizeof(T))]) {
  if constexpr (sizeof(T) == 4) {
    value[0] = pack.value[0], value[1] = pack.value[1];
  } else {
    uint2 bits;
    __builtin_memcpy(&bits, &pack, sizeof bits);
    const float2 low = Pair<T>{bits.x}.widen(), high = Pair<T>{bits.y}.widen();
    value[0] = low.x, value[1] = low.y, value[2] = high.x, value[3] = high.y;
  }
}

// A pixel of dY. Those around it in the row are read soon, by the same thread.
template <typename T>
__device__ __forceinline__ Pack<T, walk_vector(sizeof(T))> load_pixel(const void* from,
                                                                      bool inside) {
  uint2 bits = make_uint2(0, 0);
  if (inside) bits = load_8_and_around(from);
  Pack<T, walk_vector(sizeof(T))> pack;
  __builtin_memcpy(&pack, &bits, sizeof bits);
  return pack;
}

// As many floats of shared memory as neighbouring channels: one access.
template <int kVector>
struct Floats {
  float value[kVector];

  __device__ __forceinline__ void read(const float* from) {
    if constexpr (kVector == 4) {
      const float4 quad = *reinterpret_cast<const float4*>(from);
      value[0] = quad.x, value[1] = quad.y, value[2] = quad.z, value[3] = quad.w;
    } else {
      const float2 pair = *reinterpret_cast<const float2*>(from);
      value[0] = pair.x, value[1] = pair.y;
    }
  }
  __device__ __forceinline__ void write(float* to) const {
    if constexpr (kVector == 4) {
      *reinterpret_cast<float4*>(to) = make_float4(value[0], value[1], value[2], value[3]);
    } else {
      *reinterpret_cast<float2*>(to) = make_float2(value[0], value[1]);
    }
  }
};

struct InputParams {
  Geometry g;
  WalkInputTile t;
  // In bytes, so that what comes next is one addition away: a pixel of dY, and a row of the next phase.
  int64_t y_pixel, y_row;
  bool
      whole_weights;  // the kernels of a channel are whole 16 bytes, and all taps of the table exist
};

inline InputParams input_params(const Problem& problem, const Geometry& g) {
  InputParams p{g, walk_input_tile(problem)};
  const int64_t taps = int64_t{p.t.kernel} * p.t.kernel;
  p.whole_weights = g.h.kernel == p.t.kernel && g.v.kernel == p.t.kernel && g.w_stride[3] == 1 &&
                    g.w_stride[2] == p.t.kernel && g.w_stride[0] == taps &&
                    taps * element_size(problem.dtype) % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(g.w) % 16 == 0;
  p.y_pixel = g.out_channels * int64_t(element_size(problem.dtype));
  p.y_row = g.v.out * p.y_pixel * p.t.spread;
  return p;
}

// Neighbouring channels of x that are not finite are computed again.
template <typename T>
__device__ __noinline__ void repair(const Geometry& g, int64_t n, int c, int iy, int ix, T* x) {
#pragma unroll 1
  for (int i = 0; i < walk_vector(sizeof(T)); ++i) {
    if (!is_finite(Numeric<T>::widen(x[i]))) store(x + i, exact_input<T>(g, n, c + i, iy, ix));
  }
}

// Fills the table of weights, [tap][channel]. Neighbouring threads read neighbouring taps, of kGroup channels.
template <typename T, int kGroup>
__device__ __forceinline__ void load_weights(const Geometry& g, const WalkInputTile& t,
                                             int channel0, float* table) {
  for (int index = threadIdx.x; index < t.kernel * t.kernel * t.channels; index += blockDim.x) {
    const int above = index / kGroup, lines = t.by_kernel.quotient(above);
    const int column = above - lines * t.kernel, group = t.by_kernel.quotient(lines);
    const int row = lines - group * t.kernel, local = group * kGroup + index % kGroup;
    const bool exists = row < g.h.kernel && column < g.v.kernel && channel0 + local < g.in_channels;
    table[(row * t.kernel + column) * t.pitch + local] =
        exists ? load(static_cast<const T*>(g.w) + (channel0 + local) * g.w_stride[0] +
                      row * g.w_stride[2] + column * g.w_stride[3])
               : 0.f;
  }
}

// The same by 16 bytes of a channel, some of them under way at once; neighbouring threads have neighbouring channels.
template <typename T>
__device__ __forceinline__ void load_whole_weights(const Geometry& g, const WalkInputTile& t,
                                                   int channel0, float* table) {
  constexpr int kVector = walk_vector(sizeof(T)), kTapsOfPiece = 16 / sizeof(T),
                kAtOnce = sizeof(T) == 4 ? 4 : 2;
  const int taps = t.kernel * t.kernel, pieces = taps / kTapsOfPiece * t.channels;
  // Where piece `index` goes in the table, and what it is.
  const auto local_of = [&](int index) {
    const int above = index / kVector;
    return (above - int(t.by_lanes.quotient(above)) * t.lanes) * kVector + index % kVector;
  };
  const auto tap_of = [&](int index) {
    return int(t.by_lanes.quotient(index / kVector)) * kTapsOfPiece;
  };
#pragma unroll 1
  for (int first = threadIdx.x; first < pieces; first += kAtOnce * blockDim.x) {
    Pack<T, kTapsOfPiece> piece[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = first + i * blockDim.x, channel = channel0 + local_of(index);
      piece[i] = load_pack<T, kTapsOfPiece>(
          static_cast<const T*>(g.w) + int64_t{channel} * taps + tap_of(index),
          index < pieces && channel < g.in_channels);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = first + i * blockDim.x;
      if (index >= pieces) continue;
      float* to = table + tap_of(index) * t.pitch + local_of(index);
#pragma unroll
      for (int tap = 0; tap < kTapsOfPiece; ++tap, to += t.pitch)
        *to = Numeric<T>::widen(piece[i].value[tap]);
    }
  }
}

// A block owns a slice of channels, some runs of kRows rows of x and some columns of an image. Reads dY
// once, but for what kernels that overlap read beyond these rows and columns; writes x. Where threads share
// the row phases, shared memory adds up what they have of a column of x, in the order of the phases.
// What is not finite is computed again by definition.
template <typename T, int kTaps, int kPhases>
__global__ void __launch_bounds__(kWalkThreads, 2)
    convt2d_depthwise_grad_input_walk_kernel(const __grid_constant__ InputParams p) {
  constexpr int kVector = walk_vector(sizeof(T)), kRows = walk_rows(kTaps);
  constexpr int kSources = kRows + kTaps - 1;   // rows of dY of a phase
  constexpr int kDepth = kPhases == 2 ? 2 : 4;  // columns that loads are ahead of sums
  const Geometry& g = p.g;
  const WalkInputTile& t = p.t;
  const int stride = kPhases == 2 ? 2 : g.h.stride;
  extern __shared__ float4 shared[];
  float* table = reinterpret_cast<float*>(shared);        // [row][column of w][channel]
  float* shares = table + t.kernel * t.kernel * t.pitch;  // [row][phase][item][lane]

  unsigned rest = blockIdx.x;
  unsigned next = t.by_column_runs.quotient(rest);
  const int column0 = int(rest - next * t.by_column_runs.divisor) * t.columns;
  rest = next, next = t.by_row_groups.quotient(rest);
  const int group0 = int(rest - next * t.by_row_groups.divisor) * t.items * kRows;
  rest = next, next = t.by_slices.quotient(rest);
  const int channel0 = int(rest - next * t.by_slices.divisor) * t.channels;
  const int64_t n = next;

  const int line = t.by_lanes.quotient(threadIdx.x), lane = threadIdx.x - line * t.lanes;
  const int item = t.by_spread.quotient(line), phase = line - item * t.spread;
  const int channel = channel0 + lane * kVector;
  const int row0 = group0 + item * kRows;
  const bool active = item < t.items && channel < g.in_channels && row0 < g.h.in;

  // The walk: from the first column of dY that reaches column0 to the last one that reaches the last.
  const int columns = min(t.columns, g.v.in - column0);
  const int first_y = row0 * stride - g.h.near_pad + phase;
  int y_column = column0 * stride - g.v.near_pad;
  const int y_end = max(0, min(y_column + (columns + kTaps - 1) * stride, g.v.out));
  unsigned y_rows = 0;  // bit: exists
#pragma unroll
  for (int a = 0; a < kSources * kPhases; ++a) {
    const int row = first_y + a / kPhases * stride + a % kPhases;
    y_rows |= unsigned(active && unsigned(row) < unsigned(g.h.out)) << a;
  }
  const char* y = reinterpret_cast<const char*>(
      static_cast<const T*>(g.y) + ((n * g.h.out + first_y) * g.v.out + y_column) * g.out_channels +
      channel);
  Pack<T, kVector> pixels[kDepth][kSources][kPhases];
  const auto fetch = [&](int slot) {
    const unsigned rows = unsigned(y_column) < unsigned(y_end) ? y_rows : 0;
    const char* from = y;
#pragma unroll
    for (int a = 0; a < kSources * kPhases; ++a) {
      pixels[slot][a / kPhases][a % kPhases] = load_pixel<T>(from, rows & 1u << a);
      from += p.y_row;
    }
    y += p.y_pixel, ++y_column;
  };
#pragma unroll
  for (int slot = 0; slot < kDepth; ++slot) fetch(slot);

  if (p.whole_weights) {
    load_whole_weights<T>(g, t, channel0, table);
  } else {
    // Of some channels where pitches may be whole banks.
    load_weights<T, kPhases == 2 ? 1 : kVector>(g, t, channel0, table);
  }
  __syncthreads();

  T* x = static_cast<T*>(g.result) + n * g.h.in * g.v.in * g.in_channels;
  const auto x_at = [&](int row, int column, int c) {
    return x + (int64_t{row} * g.v.in + column) * g.in_channels + c;
  };
  const int places = t.items * t.lanes;
  const int w_row = t.kernel * t.pitch;  // of the table
  uint32_t weights_at = phase * w_row + lane * kVector;
  bool spoiled = false;
  const auto put = [&](int row, int column, int c, const float (&sum)[kVector]) {
    Pack<T, kVector> narrow;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      narrow.value[i] = Numeric<T>::narrow(sum[i]);
      spoiled |= !is_finite(sum[i]);
    }
    *reinterpret_cast<Pack<T, kVector>*>(x_at(row, column, c)) = narrow;
  };
  // What this thread adds up of a column that all phases have summed.
  const auto shared_sums = [&](auto&& visit) {
#pragma unroll 1
    for (int index = threadIdx.x; index < kRows * places; index += blockDim.x) {
      const int m = t.by_places.quotient(index), place = index - m * places;
      const int of_item = t.by_lanes.quotient(place);
      const int row = group0 + of_item * kRows + m;
      const int c = channel0 + (place - of_item * t.lanes) * kVector;
      if (row < g.h.in && c < g.in_channels) visit(m, place, row, c);
    }
  };

  float acc[kRows][kTaps][kVector] = {};  // of a column of x and those before it
  for (int column = 1 - kTaps; column < columns; ++column) {
    keep_in_register(weights_at);  // else weights would fill registers
    const float* weights = table + weights_at;
#pragma unroll 1
    for (int first = 0; first < stride; first += kDepth) {
#pragma unroll
      for (int slot = 0; slot < kDepth; ++slot) {
        const float* tap_weights = weights + (first + slot) * t.pitch;
#pragma unroll
        for (int f = 0; f < kPhases; ++f) {
          float value[kSources][kVector];
#pragma unroll
          for (int a = 0; a < kSources; ++a) widen<T>(pixels[slot][a][f], value[a]);
#pragma unroll
          for (int j = 0; j < kTaps; ++j) {
#pragma unroll
            for (int l = 0; l < kTaps; ++l) {
              Floats<kVector> weight;
              weight.read(tap_weights + (f + j * stride) * w_row + l * stride * t.pitch);
#pragma unroll
              for (int m = 0; m < kRows; ++m) {
#pragma unroll
                for (int i = 0; i < kVector; ++i) {
                  acc[m][l][i] = fmaf(value[m + j][i], weight.value[i], acc[m][l][i]);
                }
              }
            }
          }
        }
        fetch(slot);
      }
    }

    if (column >= 0) {
      if constexpr (kPhases == 2) {
#pragma unroll
        for (int m = 0; m < kRows; ++m) {
          if (active && row0 + m < g.h.in)
            put(row0 + m, column0 + column, channel, acc[m][kTaps - 1]);
        }
      } else {
        if (item < t.items) {
#pragma unroll
          for (int m = 0; m < kRows; ++m) {
            Floats<kVector> sum;
#pragma unroll
            for (int i = 0; i < kVector; ++i) sum.value[i] = acc[m][kTaps - 1][i];
            sum.write(shares + ((m * t.spread + phase) * places + item * t.lanes + lane) * kVector);
          }
        }
        __syncthreads();
        shared_sums([&](int m, int place, int row, int c) {
          float sum[kVector] = {};
          const float* from = shares + (m * t.spread * places + place) * kVector;
#pragma unroll 2
          for (int other = 0; other < t.spread; ++other) {
            Floats<kVector> part;
            part.read(from + other * places * kVector);
#pragma unroll
            for (int i = 0; i < kVector; ++i) sum[i] += part.value[i];
          }
          put(row, column0 + column, c, sum);
        });
        __syncthreads();
      }
    }
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
#pragma unroll
        for (int l = kTaps - 1; l > 0; --l) acc[m][l][i] = acc[m][l - 1][i];
        acc[m][0][i] = 0;
      }
    }
  }

  if (!spoiled) return;
#pragma unroll 1
  for (int column = column0; column < column0 + columns; ++column) {
    if constexpr (kPhases == 2) {
#pragma unroll 1
      for (int row = row0; row < min(row0 + kRows, g.h.in) && active; ++row) {
        repair<T>(g, n, channel, row, column, x_at(row, column, channel));
      }
    } else {
      shared_sums(
          [&](int, int, int row, int c) { repair<T>(g, n, c, row, column, x_at(row, column, c)); });
    }
  }
}

struct SquareParams {
  Geometry g;
  WalkSquareTile t;
  float* bias_parts;                                 // [pieces][C_out] or null
  int64_t x_pixel, x_row, y_pixel, y_row, y_pixels;  // in bytes; y_pixels: a stride of them
};

inline SquareParams square_params(const Problem& problem, const Geometry& g, float* bias_parts) {
  const int64_t bytes = element_size(problem.dtype);
  SquareParams p{g, walk_square_tile(problem), bias_parts};
  p.x_pixel = g.in_channels * bytes, p.x_row = g.v.in * p.x_pixel;
  p.y_pixel = g.out_channels * bytes, p.y_row = g.v.out * p.y_pixel;
  p.y_pixels = g.v.stride * p.y_pixel;
  return p;
}

// What a thread and its block work on: phases of rows and columns, from which on two each; channels; the
// first of its slot's positions.
struct SquarePlace {
  unsigned piece;
  int channel0, channel, slot, phase_h, phase_v, first;

  __device__ __forceinline__ explicit SquarePlace(const WalkSquareTile& t) {
    piece = t.by_slices.quotient(blockIdx.x);
    channel0 = int(blockIdx.x - piece * t.by_slices.divisor) * t.channels;
    const int line = t.by_lanes.quotient(threadIdx.x), lane = threadIdx.x - line * t.lanes;
    channel = channel0 + lane * (t.channels / t.lanes);
    slot = t.by_classes.quotient(line);
    const int of_class = line - slot * t.classes;
    const int half_row = t.by_half_stride.quotient(of_class);
    phase_h = 2 * half_row;
    phase_v = 2 * (of_class - half_row * int(t.by_half_stride.divisor));
    first = (int(piece) * t.slots + slot) * t.run;
  }
};

// Neighbouring channels of y that are not finite are computed again.
template <typename T>
__device__ __noinline__ void repair_outputs(const Geometry& g, int64_t n, int co, int oy, int ox,
                                            T* y) {
#pragma unroll 1
  for (int i = 0; i < walk_vector(sizeof(T)); ++i) {
    if (!is_finite(Numeric<T>::widen(y[i]))) store(y + i, exact_output<T>(g, n, co + i, oy, ox));
  }
}

// A thread's slot walks its share of the positions; at each it computes a square of 2 x 2 pixels of y from
// kTaps x kTaps pixels of x, of which it fetches a column. Reads x once a class, from the cache but for
// the first time, and w; writes y. No barrier: x and weights are looked at, and where one is not finite,
// so are the thread's results.
template <typename T, int kTaps>
__global__ void __launch_bounds__(kSquareWalkThreads, 1)
    convt2d_depthwise_fwd_walk_kernel(const __grid_constant__ SquareParams p) {
  constexpr int kVector = walk_vector(sizeof(T));
  constexpr int kDepth = sizeof(T) == 4 ? 4 : 3;  // positions that loads are ahead of sums
  const Geometry& g = p.g;
  const WalkSquareTile& t = p.t;
  const int stride = g.h.stride;
  const SquarePlace at(t);
  const bool active = at.slot < t.slots && at.channel < g.out_channels;
  const int last = active ? min(at.first + t.run, t.positions) : 0;

  // The position to be fetched next: its column, its row of all images, and how many are left.
  int row_of_all = t.by_columns.quotient(at.first);
  int m = at.first - row_of_all * t.columns;
  int left = last - at.first;
  const char* x = nullptr;
  char* y = nullptr;
  // Bits: rows i - j of x exist, then the two of y; of what was fetched also the two columns of y, and
  // whether a row begins.
  unsigned rows_there = 0;
  const auto aim = [&] {
    const int n = t.by_rows.quotient(row_of_all), i = row_of_all - n * t.rows;
    const int row = i * stride - g.h.near_pad + at.phase_h;
    x = reinterpret_cast<const char*>(static_cast<const T*>(g.x) + at.channel) +
        (int64_t{n} * g.h.in + i) * p.x_row + m * p.x_pixel;
    y = reinterpret_cast<char*>(static_cast<T*>(g.result) + at.channel) +
        (int64_t{n} * g.h.out + row) * p.y_row +
        (int64_t{m} * stride - g.v.near_pad + at.phase_v) * p.y_pixel;
    rows_there = 0;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      rows_there |= unsigned(unsigned(i - j) < unsigned(g.h.in)) << j;
    }
#pragma unroll
    for (int f = 0; f < 2; ++f) {
      rows_there |= unsigned(unsigned(row + f) < unsigned(g.h.out)) << (kTaps + f);
    }
  };
  constexpr unsigned kYColumn = 1u << (kTaps + 2), kRowBegins = kYColumn << 2;
  struct Loaded {
    Pack<T, kVector> x[kTaps];
    char* y;
    unsigned there;
  };
  Loaded loaded[kDepth];
  const auto fetch = [&](Loaded& to) {
    const int column = m * stride - g.v.near_pad + at.phase_v;
    unsigned there = rows_there;
    if (unsigned(column) < unsigned(g.v.out)) there |= kYColumn;
    if (unsigned(column + 1) < unsigned(g.v.out)) there |= kYColumn << 1;
    if (m == 0) there |= kRowBegins;
    if (left <= 0) there = 0;
    const char* from = x;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      to.x[j] =
          load_pack<T, kVector>(reinterpret_cast<const T*>(from), (there & 1u << j) && m < g.v.in);
      from -= p.x_row;
    }
    to.y = y, to.there = there;
    --left;
    x += p.x_pixel, y += p.y_pixels;
    if (++m == t.columns) {
      m = 0, ++row_of_all;
      aim();
    }
  };
  aim();

  float weights[2][2][kTaps][kTaps][kVector], bias[kVector];
  float spoiled = 0;                                     // NaN once something is not finite
  float window[kTaps][kTaps][kVector] = {};              // rows i - j, columns m - l of x
  if (kTaps == 2 && left > 0 && m > 0 && m <= g.v.in) {  // comes before the first position
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      widen<T>(load_pack<T, kVector>(reinterpret_cast<const T*>(x - p.x_pixel - j * p.x_row),
                                     rows_there & 1u << j),
               window[j][0]);
#pragma unroll
      for (int i = 0; i < kVector; ++i) spoiled = fmaf(window[j][0][i], 0.f, spoiled);
    }
  }
#pragma unroll
  for (int d = 0; d < kDepth; ++d) fetch(loaded[d]);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const int co = min(at.channel, g.out_channels - kVector) + i;
    const T* w = static_cast<const T*>(g.w) + co * g.w_stride[0];
#pragma unroll
    for (int f = 0; f < 4; ++f) {
#pragma unroll
      for (int j = 0; j < kTaps * kTaps; ++j) {
        const int row = at.phase_h + f / 2 + j / kTaps * stride;
        const int column = at.phase_v + f % 2 + j % kTaps * stride;
        const bool exists = row < g.h.kernel && column < g.v.kernel;
        const float value = exists ? load(w + row * g.w_stride[2] + column * g.w_stride[3]) : 0.f;
        spoiled = fmaf(value, 0.f, spoiled);
        weights[f / 2][f % 2][j / kTaps][j % kTaps][i] = value;
      }
    }
    bias[i] = g.bias ? load(static_cast<const T*>(g.bias) + co) : 0.f;
  }

  while (left > -kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const unsigned there = loaded[d].there;
      const bool row_begins = there & kRowBegins;
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
#pragma unroll
          for (int l = kTaps - 1; l > 0; --l) {
            window[j][l][i] = row_begins ? 0.f : window[j][l - 1][i];
          }
        }
        widen<T>(loaded[d].x[j], window[j][0]);
#pragma unroll
        for (int i = 0; i < kVector; ++i) spoiled = fmaf(window[j][0][i], 0.f, spoiled);
      }
#pragma unroll
      for (int f = 0; f < 2; ++f) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float sum[kVector];
          Pack<T, kVector> narrow;
#pragma unroll
          for (int i = 0; i < kVector; ++i) {
            sum[i] = bias[i];
#pragma unroll
            for (int j = 0; j < kTaps; ++j) {
#pragma unroll
              for (int l = 0; l < kTaps; ++l) {
                sum[i] = fmaf(window[j][l][i], weights[f][e][j][l][i], sum[i]);
              }
            }
            narrow.value[i] = Numeric<T>::narrow(sum[i]);
          }
          if ((there & 1u << (kTaps + f)) && (there & kYColumn << e)) {
            *reinterpret_cast<Pack<T, kVector>*>(loaded[d].y + f * p.y_row + e * p.y_pixel) =
                narrow;
          }
        }
      }
      fetch(loaded[d]);
    }
  }

  if (spoiled == 0) return;
#pragma unroll 1
  for (int index = at.first * 4; index < last * 4; ++index) {
    const int line = t.by_columns.quotient(index / 4), n = t.by_rows.quotient(line);
    const int row = (line - n * t.rows) * stride - g.h.near_pad + at.phase_h + index / 2 % 2;
    const int column =
        (index / 4 - line * t.columns) * stride - g.v.near_pad + at.phase_v + index % 2;
    if (unsigned(row) >= unsigned(g.h.out) || unsigned(column) >= unsigned(g.v.out)) continue;
    repair_outputs(g, n, at.channel, row, column,
                   static_cast<T*>(g.result) +
                       ((int64_t{n} * g.h.out + row) * g.v.out + column) * g.out_channels +
                       at.channel);
  }
}

// A thread's slot walks its share of the positions; at each it multiplies a square of 2 x 2 pixels of dY
// with kTaps x kTaps pixels of x, of which it fetches a column. Reads dY once, x once a class, from the
// cache; writes a piece's sums, [tap][C_out]. Only what exists is multiplied.
template <typename T, int kTaps>
__global__ void __launch_bounds__(kSquareWalkThreads, 1)
    convt2d_depthwise_grad_weight_walk_kernel(const __grid_constant__ SquareParams p) {
  constexpr int kVector = walk_vector(sizeof(T));
  constexpr int kDepth = sizeof(T) == 4 ? 4 : 3;  // positions that loads are ahead of sums
  const Geometry& g = p.g;
  const WalkSquareTile& t = p.t;
  const int stride = g.h.stride;
  extern __shared__ float4 shared[];
  float* sums = reinterpret_cast<float*>(shared);  // [value][thread], and one more

  const SquarePlace at(t);
  const bool active = at.slot < t.slots && at.channel < g.out_channels;
  const int last = active ? min(at.first + t.run, t.positions) : 0;
  // A position has a column, a row and an image, in strides of dY: those of the one to be fetched next.
  int row_of_all = t.by_columns.quotient(at.first);
  int m = at.first - row_of_all * t.columns;
  int left = last - at.first;
  const char *x = nullptr, *y = nullptr;
  // Bits: rows i - j of x exist, then the two of dY; of what was fetched also column m of x, then the two of dY.
  unsigned rows_there = 0;
  const auto aim = [&] {
    const int n = t.by_rows.quotient(row_of_all), i = row_of_all - n * t.rows;
    const int row = i * stride - g.h.near_pad + at.phase_h;
    x = reinterpret_cast<const char*>(static_cast<const T*>(g.x) + at.channel) +
        (int64_t{n} * g.h.in + i) * p.x_row + m * p.x_pixel;
    y = reinterpret_cast<const char*>(static_cast<const T*>(g.y) + at.channel) +
        (int64_t{n} * g.h.out + row) * p.y_row +
        (int64_t{m} * stride - g.v.near_pad + at.phase_v) * p.y_pixel;
    rows_there = 0;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      rows_there |= unsigned(unsigned(i - j) < unsigned(g.h.in)) << j;
    }
#pragma unroll
    for (int f = 0; f < 2; ++f) {
      rows_there |= unsigned(unsigned(row + f) < unsigned(g.h.out)) << (kTaps + f);
    }
  };
  constexpr unsigned kXColumn = 1u << (kTaps + 2);
  struct Loaded {
    Pack<T, kVector> x[kTaps], y[2][2];
    unsigned there;
  };
  Loaded loaded[kDepth];
  const auto fetch = [&](Loaded& to) {
    const int column = m * stride - g.v.near_pad + at.phase_v;
    unsigned there = rows_there;
    if (unsigned(m) < unsigned(g.v.in)) there |= kXColumn;
    if (unsigned(column) < unsigned(g.v.out)) there |= kXColumn << 1;
    if (unsigned(column + 1) < unsigned(g.v.out)) there |= kXColumn << 2;
    if (left <= 0) there = 0;
    const char* from = x;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      to.x[j] = load_pack<T, kVector>(reinterpret_cast<const T*>(from),
                                      (there & 1u << j) && (there & kXColumn));
      from -= p.x_row;
    }
    from = y;
#pragma unroll
    for (int f = 0; f < 2; ++f) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        to.y[f][e] = load_pixel<T>(from + e * p.y_pixel,
                                   (there & 1u << (kTaps + f)) && (there & kXColumn << (1 + e)));
      }
      from += p.y_row;
    }
    to.there = there;
    --left;
    x += p.x_pixel, y += p.y_pixels;
    if (++m == t.columns) {
      m = 0, ++row_of_all;
      aim();
    }
  };
  aim();
  // Rows i - j, columns m - l of x. Before the first position comes one of which only x is wanted.
  float window[kTaps][kTaps][kVector] = {};
  unsigned columns_there = 0;  // bits: columns m - l
  if (kTaps == 2 && left > 0 && m > 0 && m <= g.v.in) {
    columns_there = 1;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      widen<T>(load_pack<T, kVector>(reinterpret_cast<const T*>(x - p.x_pixel - j * p.x_row),
                                     rows_there & 1u << j),
               window[j][0]);
    }
  }
#pragma unroll
  for (int d = 0; d < kDepth; ++d) fetch(loaded[d]);

  float acc[2][2][kTaps][kTaps][kVector] = {};
  float bias[kVector] = {};
  const bool wants_bias = p.bias_parts != nullptr;
  constexpr unsigned kEverything = (1u << (kTaps + 5)) - 1, kColumns = (1u << kTaps) - 1;
  while (left > -kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const Loaded& now = loaded[d];
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
#pragma unroll
          for (int l = kTaps - 1; l > 0; --l) window[j][l][i] = window[j][l - 1][i];
        }
        widen<T>(now.x[j], window[j][0]);
      }
      const unsigned there = now.there;
      columns_there = (columns_there << 1 | unsigned((there & kXColumn) != 0)) & kColumns;
      const auto multiply = [&](auto guarded) {
#pragma unroll
        for (int f = 0; f < 2; ++f) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (guarded.value && !((there & 1u << (kTaps + f)) && (there & kXColumn << (1 + e)))) {
              continue;
            }
            float value[kVector];
            widen<T>(now.y[f][e], value);
            if (wants_bias) {
#pragma unroll
              for (int i = 0; i < kVector; ++i) bias[i] += value[i];
            }
#pragma unroll
            for (int j = 0; j < kTaps; ++j) {
#pragma unroll
              for (int l = 0; l < kTaps; ++l) {
                if (guarded.value && !((there & 1u << j) && (columns_there & 1u << l))) continue;
#pragma unroll
                for (int i = 0; i < kVector; ++i) {
                  acc[f][e][j][l][i] = fmaf(value[i], window[j][l][i], acc[f][e][j][l][i]);
                }
              }
            }
          }
        }
      };
      if (there == kEverything && columns_there == kColumns) {
        multiply(std::false_type());
      } else {
        multiply(std::true_type());
      }
      fetch(loaded[d]);
    }
  }

  // Two row phases by two column phases after each other, the bias with the last: threads of the same
  // class and channels are added up in the order of their slots.
  let_successor_start();
  const int pitch = blockDim.x + 1, step = t.classes * t.lanes;
  constexpr int kValues = kTaps * kTaps * kVector;
  float* parts = static_cast<float*>(g.result) + at.piece * t.part_floats + at.channel0;
#pragma unroll
  for (int f = 0; f < 2; ++f) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      __syncthreads();
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
#pragma unroll
        for (int l = 0; l < kTaps; ++l) {
#pragma unroll
          for (int i = 0; i < kVector; ++i) {
            sums[((j * kTaps + l) * kVector + i) * pitch + threadIdx.x] = acc[f][e][j][l][i];
          }
        }
      }
      if (f + e == 2) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) sums[(kValues + i) * pitch + threadIdx.x] = bias[i];
      }
      __syncthreads();
      // Neighbouring threads write neighbouring channels.
      for (int index = threadIdx.x; index < kValues * step; index += blockDim.x) {
        const int above = index / kVector, i = index - above * kVector;
        const int above_lanes = t.by_lanes.quotient(above), lane = above - above_lanes * t.lanes;
        const int tap = t.by_classes.quotient(above_lanes);
        const int its_class = above_lanes - tap * t.classes;
        const int upper = t.by_half_stride.quotient(its_class);
        const int row = 2 * upper + f + tap / kTaps * stride;
        const int column =
            2 * (its_class - upper * int(t.by_half_stride.divisor)) + e + tap % kTaps * stride;
        if (row >= g.h.kernel || column >= g.v.kernel) continue;
        if (at.channel0 + lane * kVector + i >= g.out_channels) continue;
        float sum = 0;
        const float* from = sums + (tap * kVector + i) * pitch + its_class * t.lanes + lane;
        for (int other = 0; other < t.slots; ++other) sum += from[other * step];
        parts[int64_t{row * g.v.kernel + column} * g.out_channels + lane * kVector + i] = sum;
      }
    }
  }
  if (!wants_bias) return;
  for (int local = threadIdx.x; local < t.channels; local += blockDim.x) {
    if (at.channel0 + local >= g.out_channels) continue;
    const int lane = local / kVector, i = local - lane * kVector;
    float sum = 0;
    for (int other = 0; other < t.slots * t.classes; ++other) {
      sum += sums[(kValues + i) * pitch + other * t.lanes + lane];
    }
    p.bias_parts[int64_t{at.piece} * g.out_channels + at.channel0 + local] = sum;
  }
}

}  // namespace convt2d::cuda::depthwise::walks
