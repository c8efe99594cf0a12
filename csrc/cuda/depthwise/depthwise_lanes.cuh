// NCHW with y, or dY, in registers.
#pragma once

#include <climits>

#include "cuda/depthwise/depthwise_common.cuh"
#include "cuda/depthwise/depthwise_lanes.h"
#include "cuda/device/successor.cuh"

namespace convt2d::cuda::depthwise::lanes {

struct LaneParams {
  Geometry g;
  LaneTile t;
  float* bias_parts;  // of grad_weight: [pieces][C_out] or null
};

// One lane's piece of a row of dY, and the columns of x that its taps reach: kOwn of its own and, with
// more than one tap, one on either side, which are the neighbours'.
template <typename T, int kStride, int kTaps>
struct Piece {
  static constexpr int kColumns = lane_columns(kStride, sizeof(T));
  static constexpr int kOwn = kColumns / kStride;
  static constexpr int kEdge = kTaps > 1;
  static constexpr int kReached = kOwn + 2 * kEdge;
  static constexpr int kKernel =
      kTaps * kStride;  // taps of a row, counting those that may not exist
  static constexpr int kPhases = lane_phases(kStride), kSpread = kStride / kPhases;
  static constexpr int kDepth = lane_depth(kStride, sizeof(T));
  static constexpr int kLoads = kColumns * int(sizeof(T)) / 16;

  // The tap through which column `e` of the piece meets reached column `v`; others than [0, kKernel) none.
  static constexpr CONVT2D_HOST_DEVICE int tap(int e, int v) {
    return e + (kTaps - 1) * kStride / 2 - (v - kEdge) * kStride;
  }
  static constexpr CONVT2D_HOST_DEVICE bool meets(int e, int v) {
    return tap(e, v) >= 0 && tap(e, v) < kKernel;
  }

  uint4 bits[kLoads];

  // Where not `inside`, zeros, or whatever was there.
  template <bool kZeros>
  __device__ __forceinline__ void fetch(const T* from, bool inside) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (kZeros) bits[i] = make_uint4(0, 0, 0, 0);
      if (inside) bits[i] = __ldg(reinterpret_cast<const uint4*>(from) + i);
    }
  }

  static __device__ __forceinline__ void store(T* to, const float (&value)[kColumns]) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      uint32_t word[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if constexpr (sizeof(T) == 4) {
          word[k] = __float_as_uint(value[i * 4 + k]);
        } else {
          word[k] = Pair<T>::narrow(value[i * 8 + k * 2], value[i * 8 + k * 2 + 1]).bits;
        }
      }
      reinterpret_cast<uint4*>(to)[i] = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }

  __device__ __forceinline__ void widen(float (&value)[kColumns]) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint32_t word[4] = {bits[i].x, bits[i].y, bits[i].z, bits[i].w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if constexpr (sizeof(T) == 4) {
          value[i * 4 + k] = __uint_as_float(word[k]);
        } else {
          const float2 both = Pair<T>{word[k]}.widen();
          value[i * 8 + k * 2] = both.x, value[i * 8 + k * 2 + 1] = both.y;
        }
      }
    }
  }
};

// What a thread and its block work on.
struct Place {
  int lane;   // of its segment
  int piece;  // of the row
  int phase;  // the first of its row phases
  int slot, first_unit, last_unit;
  int channel, part;
  bool active;  // has a piece and rows
  bool own;     // which are not there for another tile
};

template <int kPhases, int kSpread>
__device__ __forceinline__ Place place_of(const Geometry& g, const LaneTile& t, int pieces) {
  Place at;
  unsigned rest = blockIdx.x;
  unsigned next = t.by_tiles.quotient(rest);
  const int tile = int(rest - next * t.by_tiles.divisor);
  rest = next, next = t.by_channels.quotient(rest);
  at.channel = int(rest - next * t.by_channels.divisor);
  at.part = int(next) * t.tiles + tile;

  const int in_warp = threadIdx.x % 32, of_warp = t.by_lanes.quotient(in_warp);
  const int segment = int(threadIdx.x / 32) * t.segments + of_warp;
  at.lane = in_warp - of_warp * t.lanes;
  at.slot = segment / kSpread;
  at.phase = segment % kSpread * kPhases;
  at.piece = tile * t.step - t.lead + at.lane;
  at.active = of_warp < t.segments && at.slot < t.slots && unsigned(at.piece) < unsigned(pieces);
  at.own = at.active && unsigned(at.lane - t.lead) < unsigned(t.step);
  const int unit0 = int(next) * t.rounds * t.slots;
  at.first_unit = unit0 + at.slot;
  at.last_unit = min(unit0 + t.rounds * t.slots, t.units);
  return at;
}

// Walks the steps of a slot's units, one after the other: step `step` of a unit is its row
// row0 + step - (kTaps - 1), in strides.
template <int kTaps>
struct Walk {
  const LaneTile& t;
  int unit, last_unit, step, steps;
  int n, row;  // image; row, far below 0 where there is no such unit

  __device__ __forceinline__ Walk(const LaneTile& tile, const Place& at)
      : t(tile),
        unit(at.first_unit),
        last_unit(at.last_unit),
        step(0),
        steps(tile.rows + kTaps - 1) {
    aim();
  }
  __device__ __forceinline__ void aim() {
    n = t.by_strips.quotient(unit);
    row = unit < last_unit ? (unit - n * t.strips) * t.rows - (kTaps - 1) : INT_MIN / 32;
  }
  // Returns whether another unit begins.
  __device__ __forceinline__ bool advance() {
    ++row;
    if (++step < steps) return false;
    step = 0, unit += t.slots;
    aim();
    return true;
  }
};

// Neighbouring elements of y that are not finite are computed again.
template <typename T, int kColumns>
__device__ __noinline__ void repair_outputs(const Geometry& g, int64_t n, int co, int oy, int ox,
                                            T* y) {
#pragma unroll 1
  for (int e = 0; e < kColumns; ++e) {
    if (!is_finite(Numeric<T>::widen(y[e]))) store(y + e, exact_output<T>(g, n, co, oy, ox + e));
  }
}

// A block owns an output channel, a tile of columns and some strips of rows of all images. Reads x once a
// row phase, from the cache but for the first time, and w; writes y. No barrier: x and weights are looked
// at, and where one is not finite, so are the thread's results.
template <typename T, int kStride, int kTaps>
__global__ void __launch_bounds__(kLaneThreads, 2)
    convt2d_depthwise_fwd_lanes_kernel(const __grid_constant__ LaneParams p) {
  using Row = Piece<T, kStride, kTaps>;
  constexpr int kColumns = Row::kColumns, kOwn = Row::kOwn, kEdge = Row::kEdge;
  constexpr int kPhases = Row::kPhases, kSpread = Row::kSpread;
  constexpr int kDepth = 4;  // steps that loads are ahead of sums
  const Geometry& g = p.g;
  const LaneTile& t = p.t;

  const int pieces = g.v.out / kColumns;
  const Place at = place_of<kPhases, kSpread>(g, t, pieces);
  const bool left_exists = at.piece > 0, right_exists = at.piece + 1 < pieces;
  const int c = g.by_multiplier.quotient(at.channel);

  // What is fetched next: a row of x.
  Walk<kTaps> ahead(t, at);
  const T* x = nullptr;
  const auto aim = [&] {
    x = static_cast<const T*>(g.x) +
        (int64_t{ahead.n} * g.in_channels + c) * (int64_t{g.h.in} * g.v.in) +
        int64_t{ahead.row} * g.v.in + at.piece * kOwn;
  };
  Pack<T, kOwn> x_rows[kDepth];
  const auto fetch = [&](int slot) {
    x_rows[slot] = load_pack<T, kOwn>(x, at.active && unsigned(ahead.row) < unsigned(g.h.in));
    x += g.v.in;
    if (ahead.advance()) aim();
  };
  aim();
#pragma unroll
  for (int slot = 0; slot < kDepth; ++slot) fetch(slot);

  float weights[kPhases][kTaps][Row::kKernel];
  float spoiled = 0;  // NaN once something is not finite
  const T* w = static_cast<const T*>(g.w) + c * g.w_stride[0] +
               (at.channel - c * g.multiplier) * g.w_stride[1];
#pragma unroll
  for (int f = 0; f < kPhases; ++f) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
#pragma unroll
      for (int tap = 0; tap < Row::kKernel; ++tap) {
        const int row = at.phase + f + j * kStride;
        const bool exists = row < g.h.kernel && tap < g.v.kernel;
        const float value = exists ? load(w + row * g.w_stride[2] + tap * g.w_stride[3]) : 0.f;
        spoiled = fmaf(value, 0.f, spoiled);
        weights[f][j][tap] = value;
      }
    }
  }
  const float bias = g.bias ? load(static_cast<const T*>(g.bias) + at.channel) : 0.f;

  float window[kTaps][Row::kReached] = {};  // rows of x, the latest first
  const auto row_of = [&](const Walk<kTaps>& walk, int f) {
    return walk.row * kStride - g.h.near_pad + at.phase + f;
  };
  const auto y_at = [&](const Walk<kTaps>& walk, int row) {
    return static_cast<T*>(g.result) +
           (int64_t{walk.n} * g.out_channels + at.channel) * (int64_t{g.h.out} * g.v.out) +
           int64_t{row} * g.v.out + at.piece * kColumns;
  };
  const auto row_exists = [&](const Walk<kTaps>& walk, int f) {
    return at.own && walk.step >= kTaps - 1 && unsigned(row_of(walk, f)) < unsigned(g.h.out);
  };
  Walk<kTaps> here(t, at);
  const int steps = t.rounds * here.steps;
  for (int first = 0; first < steps; first += kDepth) {
#pragma unroll
    for (int slot = 0; slot < kDepth; ++slot) {
#pragma unroll
      for (int v = 0; v < Row::kReached; ++v) {
#pragma unroll
        for (int j = kTaps - 1; j > 0; --j) window[j][v] = window[j - 1][v];
      }
#pragma unroll
      for (int v = 0; v < kOwn; ++v) {
        window[0][v + kEdge] = Numeric<T>::widen(x_rows[slot].value[v]);
      }
      if constexpr (kEdge > 0) {
        const int in_warp = threadIdx.x % 32;
        const float left = __shfl_sync(~0u, window[0][kOwn], max(in_warp - 1, 0));
        const float right = __shfl_sync(~0u, window[0][kEdge], min(in_warp + 1, 31));
        window[0][0] = left_exists ? left : 0.f;
        window[0][kOwn + 1] = right_exists ? right : 0.f;
      }
#pragma unroll
      for (int v = 0; v < Row::kReached; ++v) spoiled = fmaf(window[0][v], 0.f, spoiled);
      fetch(slot);
#pragma unroll
      for (int f = 0; f < kPhases; ++f) {
        if (!row_exists(here, f)) continue;
        float sum[kColumns];
#pragma unroll
        for (int e = 0; e < kColumns; ++e) {
          sum[e] = bias;
#pragma unroll
          for (int j = 0; j < kTaps; ++j) {
#pragma unroll
            for (int v = 0; v < Row::kReached; ++v) {
              if (!Row::meets(e, v)) continue;
              sum[e] = fmaf(window[j][v], weights[f][j][Row::tap(e, v)], sum[e]);
            }
          }
        }
        Row::store(y_at(here, row_of(here, f)), sum);
      }
      here.advance();
    }
  }

  if (spoiled == 0) return;
  Walk<kTaps> again(t, at);
#pragma unroll 1
  for (int step = 0; step < steps; ++step, again.advance()) {
#pragma unroll 1
    for (int f = 0; f < kPhases; ++f) {
      if (!row_exists(again, f)) continue;
      const int row = row_of(again, f);
      repair_outputs<T, kColumns>(g, again.n, at.channel, row, at.piece * kColumns,
                                  y_at(again, row));
    }
  }
}

// Neighbouring elements of x that are not finite are computed again.
template <typename T, int kOwn>
__device__ __noinline__ void repair(const Geometry& g, int64_t n, int c, int iy, int ix, T* x) {
#pragma unroll 1
  for (int v = 0; v < kOwn; ++v) {
    if (!is_finite(Numeric<T>::widen(x[v]))) store(x + v, exact_input<T>(g, n, c, iy, ix + v));
  }
}

// A block owns a channel, a tile of columns and some strips of rows of all images. Reads dY once, but
// for the first rows of a strip; writes x. With a stride of more than 2 the phases of a row are the sums
// of kSpread threads, added in the order of the phases; one barrier every kDepth rows. What is not
// finite is computed again by definition.
template <typename T, int kStride, int kTaps>
__global__ void __launch_bounds__(kLaneThreads, 2)
    convt2d_depthwise_grad_input_lanes_kernel(const __grid_constant__ LaneParams p) {
  using Row = Piece<T, kStride, kTaps>;
  constexpr int kColumns = Row::kColumns, kOwn = Row::kOwn, kEdge = Row::kEdge;
  constexpr int kPhases = Row::kPhases, kSpread = Row::kSpread, kDepth = Row::kDepth;
  const Geometry& g = p.g;
  const LaneTile& t = p.t;
  extern __shared__ float4 shared[];
  float* shares = reinterpret_cast<float*>(shared);  // [2][kDepth][phase][slot][lane][own]

  const Place at = place_of<kPhases, kSpread>(g, t, g.v.out / kColumns);
  const int x_column = at.piece * kOwn;
  T* x = static_cast<T*>(g.result);
  const auto x_at = [&](int n, int row, int column) {
    return x + (int64_t{n} * g.in_channels + at.channel) * (int64_t{g.h.in} * g.v.in) +
           int64_t{row} * g.v.in + column;
  };

  // What is fetched next.
  Walk<kTaps> ahead(t, at);
  const T* y = nullptr;
  const int64_t y_step = int64_t{kStride} * g.v.out;
  const auto aim = [&] {
    y = static_cast<const T*>(g.y) +
        (int64_t{ahead.n} * g.out_channels + at.channel) * (int64_t{g.h.out} * g.v.out) +
        ((int64_t{ahead.row} + kTaps - 1) * kStride - g.h.near_pad + at.phase) * g.v.out +
        at.piece * kColumns;
  };
  Row rows[kDepth][kPhases];
  const auto fetch =
      [&](int slot) {  // step s brings the rows that x's row `ahead.row` begins to read
#pragma unroll
        for (int f = 0; f < kPhases; ++f) {
          const int row = (ahead.row + kTaps - 1) * kStride - g.h.near_pad + at.phase + f;
          rows[slot][f].template fetch<true>(y + int64_t{f} * g.v.out,
                                             at.active && unsigned(row) < unsigned(g.h.out));
        }
        y += y_step;
        if (ahead.advance()) aim();
      };
  aim();
#pragma unroll
  for (int slot = 0; slot < kDepth; ++slot) fetch(slot);

  float weights[kPhases][kTaps][Row::kKernel];
  const T* w = static_cast<const T*>(g.w) + at.channel * g.w_stride[0];
#pragma unroll
  for (int f = 0; f < kPhases; ++f) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
#pragma unroll
      for (int tap = 0; tap < Row::kKernel; ++tap) {
        const int row = at.phase + f + j * kStride;
        const bool exists = row < g.h.kernel && tap < g.v.kernel;
        weights[f][j][tap] = exists ? load(w + row * g.w_stride[2] + tap * g.w_stride[3]) : 0.f;
      }
    }
  }

  float acc[kTaps][Row::kReached] = {};
  bool spoiled = false;
  Walk<kTaps> here(t, at);
  const int steps = t.rounds * here.steps;
  const int width = t.slots * t.lanes;  // pieces whose sums the block adds up at once
  float* mine = shares + ((at.phase / kPhases) * width + at.slot * t.lanes + at.lane) * kOwn;
  // What this thread adds up of the block's sums of kDepth steps from `first` on.
  const auto shared_sums = [&](int first, auto&& visit) {
#pragma unroll 1
    for (int item = threadIdx.x; item < kDepth * width; item += blockDim.x) {
      const int slot = t.by_places.quotient(item), place = item - slot * width;
      const int unit_slot = t.by_lanes.quotient(place), lane = place - unit_slot * t.lanes;
      const int round = t.by_steps.quotient(first + slot);
      const int step = first + slot - round * here.steps;
      const int unit = at.first_unit - at.slot + unit_slot + round * t.slots;
      const int n = t.by_strips.quotient(unit);
      const int row = (unit - n * t.strips) * t.rows + step - (kTaps - 1);
      const int column = (at.piece - at.lane + lane) * kOwn;
      if (step >= kTaps - 1 && unit < at.last_unit && row < g.h.in &&
          unsigned(lane - t.lead) < unsigned(t.step) && column < g.v.in) {
        visit(slot, place, n, row, column);
      }
    }
  };
  for (int first = 0, parity = 0; first < steps; first += kDepth, parity ^= 1) {
#pragma unroll
    for (int slot = 0; slot < kDepth; ++slot) {
#pragma unroll
      for (int f = 0; f < kPhases; ++f) {
        float value[kColumns];
        rows[slot][f].widen(value);
#pragma unroll
        for (int j = 0; j < kTaps; ++j) {
#pragma unroll
          for (int v = 0; v < Row::kReached; ++v) {
#pragma unroll
            for (int e = 0; e < kColumns; ++e) {
              if (!Row::meets(e, v)) continue;
              acc[j][v] = fmaf(value[e], weights[f][j][Row::tap(e, v)], acc[j][v]);
            }
          }
        }
      }
      fetch(slot);

      // The row of x that has met all of its rows: its neighbours' columns are handed over.
      float sums[kOwn];
#pragma unroll
      for (int v = 0; v < kOwn; ++v) sums[v] = acc[kTaps - 1][v + kEdge];
      if constexpr (kEdge > 0) {
        const int in_warp = threadIdx.x % 32;
        const float left = __shfl_sync(~0u, acc[kTaps - 1][Row::kReached - 1], max(in_warp - 1, 0));
        const float right = __shfl_sync(~0u, acc[kTaps - 1][0], min(in_warp + 1, 31));
        if (at.lane > 0) sums[0] += left;
        if (at.lane + 1 < t.lanes) sums[kOwn - 1] += right;
      }
      if constexpr (kSpread == 1) {
        if (at.own && here.step >= kTaps - 1 && unsigned(here.row) < unsigned(g.h.in)) {
          Pack<T, kOwn> narrow;
#pragma unroll
          for (int v = 0; v < kOwn; ++v) {
            narrow.value[v] = Numeric<T>::narrow(sums[v]);
            spoiled |= !is_finite(sums[v]);
          }
          *reinterpret_cast<Pack<T, kOwn>*>(x_at(here.n, here.row, x_column)) = narrow;
        }
      } else if (at.active) {
        float* to = mine + (parity * kDepth + slot) * kSpread * width * kOwn;
#pragma unroll
        for (int v = 0; v < kOwn; ++v) to[v] = sums[v];
      }
#pragma unroll
      for (int v = 0; v < Row::kReached; ++v) {
#pragma unroll
        for (int j = kTaps - 1; j > 0; --j) acc[j][v] = acc[j - 1][v];
        acc[0][v] = 0;
      }
      if (here.advance()) {
#pragma unroll
        for (int j = 0; j < kTaps; ++j) {
#pragma unroll
          for (int v = 0; v < Row::kReached; ++v) acc[j][v] = 0;
        }
      }
    }

    if constexpr (kSpread > 1) {
      __syncthreads();  // the buffer of two rounds ago has been read: everybody was here since
      shared_sums(first, [&](int slot, int place, int n, int row, int column) {
        const float* from = shares + ((parity * kDepth + slot) * kSpread * width + place) * kOwn;
        Pack<T, kOwn> narrow;
#pragma unroll
        for (int v = 0; v < kOwn; ++v) {
          float sum = 0;
#pragma unroll
          for (int phase = 0; phase < kSpread; ++phase) sum += from[phase * width * kOwn + v];
          narrow.value[v] = Numeric<T>::narrow(sum);
          spoiled |= !is_finite(sum);
        }
        *reinterpret_cast<Pack<T, kOwn>*>(x_at(n, row, column)) = narrow;
      });
    }
  }

  if (!spoiled) return;
  if constexpr (kSpread == 1) {
    Walk<kTaps> again(t, at);
#pragma unroll 1
    for (int step = 0; step < steps; ++step, again.advance()) {
      if (again.step < kTaps - 1 || unsigned(again.row) >= unsigned(g.h.in)) continue;
      repair<T, kOwn>(g, again.n, at.channel, again.row, x_column,
                      x_at(again.n, again.row, x_column));
    }
  } else {
#pragma unroll 1
    for (int first = 0; first < steps; first += kDepth) {
      shared_sums(first, [&](int, int, int n, int row, int column) {
        repair<T, kOwn>(g, n, at.channel, row, column, x_at(n, row, column));
      });
    }
  }
}

// Threads that add up one of `weights` sums together: what 128 have time for, a power of two.
CONVT2D_HOST_DEVICE constexpr int sharers(int weights) {
  int count = 1;
  while (count < 32 && 2 * count * weights <= 128) count *= 2;
  return count;
}

// A block owns what a block of grad_input does, but each row of dY once, and reads x as well. The
// weights' sums stay in registers until all units are done; then the block adds up its lanes, and writes
// a piece's sums, [tap][C_out]. Only what exists is multiplied: rows and columns beside x or dY are
// left out.
template <typename T, int kStride, int kTaps>
__global__ void __launch_bounds__(kLaneThreads, 2)
    convt2d_depthwise_grad_weight_lanes_kernel(const __grid_constant__ LaneParams p) {
  using Row = Piece<T, kStride, kTaps>;
  constexpr int kColumns = Row::kColumns, kOwn = Row::kOwn, kEdge = Row::kEdge;
  constexpr int kPhases = Row::kPhases, kSpread = Row::kSpread, kDepth = Row::kDepth;
  const Geometry& g = p.g;
  const LaneTile& t = p.t;
  extern __shared__ float4 shared[];
  float* sums = reinterpret_cast<float*>(shared);  // [value][thread], and one more

  const int pieces = g.v.out / kColumns;
  const Place at = place_of<kPhases, kSpread>(g, t, pieces);
  const bool left_exists = at.piece > 0, right_exists = at.piece + 1 < pieces;

  // What is fetched next: a row of x, and the rows of dY that begin to read it.
  Walk<kTaps> ahead(t, at);
  const T *x = nullptr, *y = nullptr;
  const auto aim = [&] {
    const int c = g.by_multiplier.quotient(at.channel);
    x = static_cast<const T*>(g.x) +
        (int64_t{ahead.n} * g.in_channels + c) * (int64_t{g.h.in} * g.v.in) +
        int64_t{ahead.row} * g.v.in + at.piece * kOwn;
    y = static_cast<const T*>(g.y) +
        (int64_t{ahead.n} * g.out_channels + at.channel) * (int64_t{g.h.out} * g.v.out) +
        (int64_t{ahead.row} * kStride - g.h.near_pad + at.phase) * g.v.out + at.piece * kColumns;
  };
  Row y_rows[kDepth][kPhases];
  Pack<T, kOwn> x_rows[kDepth];
  const auto row_exists = [&](const Walk<kTaps>& walk, int f) {
    const int row = walk.row * kStride - g.h.near_pad + at.phase + f;
    return at.own && walk.step >= kTaps - 1 && unsigned(row) < unsigned(g.h.out);
  };
  const auto fetch = [&](int slot) {
    x_rows[slot] = load_pack<T, kOwn>(x, at.active && unsigned(ahead.row) < unsigned(g.h.in));
#pragma unroll
    for (int f = 0; f < kPhases; ++f) {
      y_rows[slot][f].template fetch<false>(y + int64_t{f} * g.v.out, row_exists(ahead, f));
    }
    x += g.v.in, y += int64_t{kStride} * g.v.out;
    if (ahead.advance()) aim();
  };
  aim();
#pragma unroll
  for (int slot = 0; slot < kDepth; ++slot) fetch(slot);

  float acc[kPhases][kTaps][Row::kKernel] = {};
  float bias = 0;
  float window[kTaps][Row::kReached] = {};  // rows of x, the latest first
  Walk<kTaps> here(t, at);
  const int steps = t.rounds * here.steps;
  const bool wants_bias = p.bias_parts != nullptr;
  for (int first = 0; first < steps; first += kDepth) {
#pragma unroll
    for (int slot = 0; slot < kDepth; ++slot) {
#pragma unroll
      for (int v = 0; v < Row::kReached; ++v) {
#pragma unroll
        for (int j = kTaps - 1; j > 0; --j) window[j][v] = window[j - 1][v];
      }
#pragma unroll
      for (int v = 0; v < kOwn; ++v) {
        window[0][v + kEdge] = Numeric<T>::widen(x_rows[slot].value[v]);
      }
      if constexpr (kEdge > 0) {
        const int in_warp = threadIdx.x % 32;
        window[0][0] = __shfl_sync(~0u, window[0][kOwn], max(in_warp - 1, 0));
        window[0][kOwn + 1] = __shfl_sync(~0u, window[0][kEdge], min(in_warp + 1, 31));
      }
#pragma unroll
      for (int f = 0; f < kPhases; ++f) {
        if (!row_exists(here, f)) continue;
        float value[kColumns];
        y_rows[slot][f].widen(value);
        if (wants_bias) {
#pragma unroll
          for (int e = 0; e < kColumns; ++e) bias += value[e];
        }
#pragma unroll
        for (int j = 0; j < kTaps; ++j) {
          if (unsigned(here.row - j) >= unsigned(g.h.in)) continue;
#pragma unroll
          for (int v = 0; v < Row::kReached; ++v) {
            if (kEdge > 0 && v == 0 && !left_exists) continue;
            if (kEdge > 0 && v == Row::kReached - 1 && !right_exists) continue;
#pragma unroll
            for (int e = 0; e < kColumns; ++e) {
              if (!Row::meets(e, v)) continue;
              float& sum = acc[f][j][Row::tap(e, v)];
              sum = fmaf(value[e], window[j][v], sum);
            }
          }
        }
      }
      fetch(slot);
      here.advance();
    }
  }

  let_successor_start();
  const int pitch = blockDim.x + 1;
  constexpr int kSums = kPhases * kTaps * Row::kKernel;
#pragma unroll
  for (int f = 0; f < kPhases; ++f) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
#pragma unroll
      for (int tap = 0; tap < Row::kKernel; ++tap) {
        sums[((f * kTaps + j) * Row::kKernel + tap) * pitch + threadIdx.x] = acc[f][j][tap];
      }
    }
  }
  sums[kSums * pitch + threadIdx.x] = bias;
  __syncthreads();

  // kShare threads add up the lanes of a weight. Lanes that were given nothing have sums of zero.
  constexpr int kWeights = kSums * kSpread, kShare = sharers(kWeights);
  const int share = threadIdx.x % kShare, terms = t.slots * t.lanes;
  const auto total = [&](int value, int first_phase, int phases) {
    float sum = 0;
    for (int term = share; term < terms * phases; term += kShare) {
      const int slot = t.by_lanes.quotient(term), lane = term - slot * t.lanes;
      const int segment = phases > 1 ? slot : slot * kSpread + first_phase;
      const int warp = segment / t.segments;
      sum += sums[value * pitch + warp * 32 + (segment - warp * t.segments) * t.lanes + lane];
    }
#pragma unroll
    for (int other = 1; other < kShare; other *= 2) sum += __shfl_xor_sync(~0u, sum, other);
    return sum;
  };
  float* parts = static_cast<float*>(g.result) + at.part * t.part_floats + at.channel;
  for (int first = 0; first < kWeights * kShare; first += blockDim.x) {
    const int weight = (first + int(threadIdx.x)) / kShare;
    const int value = min(weight, kWeights - 1) / kSpread, phase = weight % kSpread;
    const float sum = total(value, phase, 1);
    const int tap = value % Row::kKernel, line = value / Row::kKernel;
    const int row = phase * kPhases + line / kTaps + line % kTaps * kStride;
    if (share == 0 && weight < kWeights && row < g.h.kernel && tap < g.v.kernel) {
      parts[int64_t{row * g.v.kernel + tap} * g.out_channels] = sum;
    }
  }
  if (wants_bias && threadIdx.x < 32) {
    const float sum = total(kSums, 0, kSpread);
    if (threadIdx.x == 0) p.bias_parts[int64_t{at.part} * g.out_channels + at.channel] = sum;
  }
}

}  // namespace convt2d::cuda::depthwise::lanes
