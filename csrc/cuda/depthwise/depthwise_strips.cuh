// NCHW forward through registers.
#pragma once

#include <climits>

#include "cuda/depthwise/depthwise_common.cuh"
#include "cuda/depthwise/depthwise_strips.h"

namespace convt2d::cuda::depthwise::strips {

struct ForwardParams {
  Geometry g;
  StripTile t;
  int classes;   // of rows: stride * reach
  bool centred;  // see Window
  bool padded;   // some phases have fewer taps; never where span is 1 and centred
  // In bytes, so that the next row is one addition away: image, plane, and from a row to the next.
  int64_t x_image, x_plane, x_row, y_image, y_plane, y_row;
};

// The columns of x that one run reads, in one row: kWide that continue the neighbour's, and what its
// taps need on both sides. Centred means that the pad is about half a kernel less half a stride, as in
// most layers: then the middle columns are one aligned access, and which output of a run is fed from
// which column on is known here. Otherwise an output may be fed from one column further, and has one
// tap more, one of the two outer ones being zero.
template <typename T, int kRun, int kSpan, int kTaps, bool kCentred>
struct Window {
  static constexpr int kWide = kRun / kSpan;
  static constexpr int kPast = kCentred ? strip_past(kSpan, kTaps) : kSpan - 1;
  static constexpr int kColumns = kTaps + (kRun - 1 + kPast) / kSpan;
  static constexpr int kLead = kWide > 1 ? kTaps / 2 : 0;
  static constexpr int kRest = kColumns - kWide;
  static constexpr bool kPacked = kCentred && kWide > 1;
  // Row classes of a thread, which share its windows.
  static constexpr int kClasses = kCentred && kSpan == 2 ? 2 : 1;

  // Output k of the first `span`: its taps, and the column of the first.
  static constexpr CONVT2D_HOST_DEVICE int taps(int k) { return kTaps + (!kCentred && k > 0); }
  static constexpr CONVT2D_HOST_DEVICE int last(int i) {
    return kTaps - 1 + (i % kSpan + kPast) / kSpan + i / kSpan;
  }

  Pack<T, kWide> middle;
  Pack<T, 1> rest[kRest > 0 ? kRest : 1];

  // `x` is the first column; `columns` tells which exist.
  __device__ __forceinline__ void fetch(const T* x, bool row, const bool (&columns)[kColumns],
                                        int step) {
    if constexpr (kPacked) {
      middle = load_pack<T, kWide>(x + kLead, row && columns[kLead]);
    } else {
#pragma unroll
      for (int e = 0; e < kWide; ++e) {
        middle.value[e] =
            load_pack<T, 1>(x + (kLead + e) * step, row && columns[kLead + e]).value[0];
      }
    }
#pragma unroll
    for (int e = 0; e < kRest; ++e) {
      const int column = e < kLead ? e : e + kWide;
      rest[e] = load_pack<T, 1>(x + column * step, row && columns[column]);
    }
  }

  __device__ __forceinline__ void widen(float (&value)[kColumns]) const {
#pragma unroll
    for (int e = 0; e < kWide; ++e) value[kLead + e] = Numeric<T>::widen(middle.value[e]);
#pragma unroll
    for (int e = 0; e < kRest; ++e) {
      value[e < kLead ? e : e + kWide] = Numeric<T>::widen(rest[e].value[0]);
    }
  }
};

template <typename T, int kRun, int kRows>
__device__ __noinline__ void exact_strip(const ForwardParams& p, int64_t n, int co, int row,
                                         int column) {
  const Geometry& g = p.g;
  T* y = static_cast<T*>(g.result) + (n * g.out_channels + co) * (int64_t{g.h.out} * g.v.out);
#pragma unroll 1
  for (int m = 0; m < kRows && row < g.h.out; ++m, row += g.h.period) {
#pragma unroll 1
    for (int i = 0; i < kRun; ++i) {
      store(y + row * g.v.out + column + i, exact_output<T>(g, n, co, row, column + i));
    }
  }
}

// Weights of the block's row classes, [class][row tap][phase][0, taps, 0]: a run takes kTaps or
// kTaps + 1 of them from the first or the second on. Taps that do not exist are zero. Returns whether
// this thread saw only finite weights.
template <typename T, int kTaps>
__device__ __forceinline__ bool stage_table(const ForwardParams& p, int co, int class0, int classes,
                                            float* table) {
  const Geometry& g = p.g;
  const int c = g.by_multiplier.quotient(co);
  const T* w =
      static_cast<const T*>(g.w) + c * g.w_stride[0] + (co - c * g.multiplier) * g.w_stride[1];
  bool finite = true;
  for (int index = threadIdx.x; index < classes * p.t.table_pitch; index += blockDim.x) {
    const int line = index / (kTaps + 2), tap = index - line * (kTaps + 2) - 1;
    const int lines = g.v.by_stride.quotient(line), phase = line - lines * g.v.stride;
    const int local = lines / kTaps, j = lines - local * kTaps;
    const int row_class = min(class0 + local, p.classes - 1);
    const Phase row = g.h.phases[row_class - g.h.by_stride.quotient(row_class) * g.h.stride];
    const Phase column = g.v.phases[phase];
    float value = 0;
    if (tap >= 0 && tap < column.taps && j < row.taps) {
      value = load(w + (row.first + j * g.h.step) * g.w_stride[2] +
                   (column.first + tap * g.v.step) * g.w_stride[3]);
      finite &= is_finite(value);
    }
    table[index] = value;
  }
  return finite;
}

// A block owns one output channel, a tile of columns, some row classes and some strips of all images.
// Reads x once from memory, windows and row classes again from the cache, w; writes y. One barrier,
// behind the weights. Where a tap may be padded with zero, inputs are looked at: what is not finite would
// spoil its product, so the thread's outputs are then computed again by definition.
template <typename T, int kRun, int kSpan, int kTaps, bool kCentred>
__device__ __forceinline__ void walk(const ForwardParams& p, float* table) {
  using Row = Window<T, kRun, kSpan, kTaps, kCentred>;
  constexpr int kColumns = Row::kColumns, kClasses = Row::kClasses;
  constexpr int kRows = strip_rows(kRun);
  constexpr int kFurther = kClasses > 1 ? Row::kPast : 0;  // rows that the second class is ahead
  constexpr int kSources = kRows + kTaps - 1 + kFurther;
  // With long windows the next x is fetched as soon as a row has been used. Measured: elsewhere the
  // registers that this takes cost more than the wait.
  constexpr bool kAhead = kSpan == 1 && kRun > 1 && kTaps <= 3;
  const Geometry& g = p.g;
  const StripTile& t = p.t;

  unsigned rest = blockIdx.x;
  unsigned next = t.by_columns.quotient(rest);
  const int group0 = int(rest - next * t.by_columns.divisor) * t.groups;
  rest = next, next = t.by_class_groups.quotient(rest);
  const int class0 = int(rest - next * t.by_class_groups.divisor) * t.classes;
  rest = next, next = t.by_channels.quotient(rest);
  const int co = int(rest - next * t.by_channels.divisor);
  const int unit0 = int(next) * t.units_a_block;

  const int line = t.by_groups.quotient(threadIdx.x);
  const int column0 = (group0 + int(threadIdx.x) - line * t.groups) * kRun;
  const int slot = t.by_classes.quotient(line), local = line - slot * t.classes;
  const int row_class = min((class0 + local) * kClasses, p.classes - kClasses);
  const bool active =
      slot < t.slots && (class0 + local) * kClasses < p.classes && column0 < g.v.out;
  const int first_unit = unit0 + slot;
  const int last_unit = active ? min(unit0 + t.units_a_block, t.units) : 0;

  // Columns. `past` is how far the first output is into its input's phases: output k of the run is fed
  // from the next input on when past + k reaches the stride.
  const int start = g.v.by_stride.quotient(column0), phase0 = column0 - start * g.v.stride;
  int input, past = 0;
  if constexpr (kRun == 1) {
    input = start + g.v.phases[phase0].offset;
  } else {
    input = floor_quotient(column0 + g.v.near_pad, g.v.stride);
    past = column0 + g.v.near_pad - input * g.v.stride;
  }
  const int reach = kRun == 1 ? g.v.reach : 1;
  const int first_column = input - (kTaps - 1) * reach;
  bool columns[kColumns];
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    columns[e] = unsigned(first_column + e * reach) < unsigned(g.v.in);
  }
  // A class without taps has no offset of its own; the one it would have serves its neighbour.
  const int row_start = g.h.by_stride.quotient(row_class);
  const int row_input = g.h.reach == 1
                            ? floor_quotient(row_class + g.h.near_pad, g.h.stride)
                            : row_start + g.h.phases[row_class - row_start * g.h.stride].offset;
  const int x_row0 = row_input - (kTaps - 1) * g.h.reach;
  const int64_t x_pitch = g.v.in * int64_t(sizeof(T)), y_pitch = g.v.out * int64_t(sizeof(T));
  const char* x_plane = static_cast<const char*>(g.x) +
                        int(g.by_multiplier.quotient(co)) * p.x_plane +
                        first_column * int64_t(sizeof(T));
  char* y_plane = static_cast<char*>(g.result) + co * p.y_plane + column0 * int64_t(sizeof(T));

  Row rows[kSources];
  const char* x = x_plane;
  int x_row = 0;
  const auto aim = [&](int unit) {  // at the x of a unit; beyond the last one nothing is read
    const int n = t.by_strips.quotient(unit), first_i = (unit - n * t.strips) * kRows;
    x_row = unit < last_unit ? x_row0 + first_i * g.h.reach : INT_MIN / 2;
    x = x_plane + n * p.x_image + x_row * x_pitch;
  };
  const auto fetch = [&](int u) {
    const bool inside = unsigned(x_row + u * g.h.reach) < unsigned(g.h.in);
    rows[u].fetch(reinterpret_cast<const T*>(x), inside, columns, reach);
    x += p.x_row;
  };
  if (kAhead) {
    aim(first_unit);
#pragma unroll
    for (int u = 0; u < kSources; ++u) fetch(u);
  }

  const bool all_exact = __syncthreads_or(
      !stage_table<T, kTaps>(p, co, class0 * kClasses, t.classes * kClasses, table));
  if (first_unit >= last_unit) return;

  float weights[kClasses][kTaps][kSpan][kTaps + 1];
  table += local * kClasses * t.table_pitch;
#pragma unroll
  for (int k = 0; k < kSpan; ++k) {
    const int phase = phase0 + k - (phase0 + k >= g.v.stride ? g.v.stride : 0);
    const bool all_taps = kCentred || k == 0 || past + k >= g.v.stride;
    const float* from = table + phase * (kTaps + 2) + all_taps;
#pragma unroll
    for (int j = 0; j < kClasses * kTaps; ++j) {
#pragma unroll
      for (int tap = 0; tap < Row::taps(k); ++tap) {
        weights[j / kTaps][j % kTaps][k][tap] = from[j * g.v.stride * (kTaps + 2) + tap];
      }
    }
  }
  const float bias = g.bias ? load(static_cast<const T*>(g.bias) + co) : 0.f;

  float spoiled = 0;  // NaN once an input is not finite
  for (int unit = first_unit; unit < last_unit; unit += t.slots) {
    const int n = t.by_strips.quotient(unit), first_i = (unit - n * t.strips) * kRows;
    const int row0 = row_class + first_i * g.h.period;
    char* y = y_plane + n * p.y_image + row0 * y_pitch;
    aim(kAhead ? unit + t.slots : unit);
    if (!kAhead) {
#pragma unroll
      for (int u = 0; u < kSources; ++u) fetch(u);
    }
    float acc[kRows][kClasses][kRun];
#pragma unroll
    for (int u = 0; u < kSources; ++u) {
      float value[kColumns];
      rows[u].widen(value);
      if (kAhead) fetch(u);
      if (!kCentred || (kSpan > 1 && p.padded)) {
#pragma unroll
        for (int e = 0; e < kColumns; ++e) spoiled = fmaf(value[e], 0.f, spoiled);
      }
#pragma unroll
      for (int row = 0; row < kRows * kClasses; ++row) {
        const int m = row / kClasses, c = row % kClasses;
        const int j = m + kTaps - 1 + c * kFurther - u;
        if (j < 0 || j >= kTaps) continue;
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
          float sum = j == kTaps - 1 ? bias : acc[m][c][i];
#pragma unroll
          for (int tap = 0; tap < Row::taps(i % kSpan); ++tap) {
            sum = fmaf(value[Row::last(i) - tap], weights[c][j][i % kSpan][tap], sum);
          }
          acc[m][c][i] = sum;
        }
        if (j > 0) continue;
        Pack<T, kRun> narrow;
#pragma unroll
        for (int i = 0; i < kRun; ++i) narrow.value[i] = Numeric<T>::narrow(acc[m][c][i]);
        if (row0 + m * g.h.period + c < g.h.out) {
          *reinterpret_cast<Pack<T, kRun>*>(y + m * p.y_row + c * y_pitch) = narrow;
        }
      }
    }
  }
  if (!all_exact && spoiled == 0) return;
#pragma unroll 1
  for (int unit = first_unit; unit < last_unit; unit += t.slots) {
    const int n = t.by_strips.quotient(unit), first_i = (unit - n * t.strips) * kRows;
#pragma unroll 1
    for (int c = 0; c < kClasses; ++c) {
      exact_strip<T, kRun, kRows>(p, n, co, row_class + c + first_i * g.h.period, column0);
    }
  }
}

template <typename T, int kRun, int kSpan, int kTaps>
__global__ void __launch_bounds__(kStripThreads, strip_blocks(kRun, kSpan, kTaps))
    convt2d_depthwise_fwd_strip_kernel(const __grid_constant__ ForwardParams p) {
  extern __shared__ float4 shared[];
  float* table = reinterpret_cast<float*>(shared);
  if constexpr (kRun > 1) {
    if (p.centred) return walk<T, kRun, kSpan, kTaps, true>(p, table);
  }
  walk<T, kRun, kSpan, kTaps, false>(p, table);
}

}  // namespace convt2d::cuda::depthwise::strips
