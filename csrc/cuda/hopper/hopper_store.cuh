// From sums to the destination: bias, one rounding, the NaN rule, wide stores.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/hopper/hopper_scope.cuh"

namespace convt2d::cuda::hopper {

template <int ROW>
using Sums = float[kTiles[ROW].operands][kTiles[ROW].slots][kTiles[ROW].width / 2];

// Channel rows: what is true of all positions of a group. Positions 2 i and 2 i + 1, with all their phases, are
// neighbours in memory or absent (kLoose); and start on whole pieces (kPairs); so do 4 i to 4 i + 3.
enum Runs { kBroken, kLoose, kPairs, kQuads };

// The places of this block that an epilogue looks at.
struct Tables {
  const ColumnInfo* columns;
  bool pairs;  // pixel rows: columns 2 i and 2 i + 1 are neighbours in memory, or both absent
  bool even;   // pixel rows: columns 2 i are an even number of elements from the first
  const int2* destinations;  // channel rows: of this consumer group's positions
  Runs runs;
};

__device__ __forceinline__ bool aligned(const void* pointer, int bytes) {
  return (reinterpret_cast<uintptr_t>(pointer) & (bytes - 1)) == 0;
}

// How wide the pieces are in which a run of values is stored.
template <int COUNT, int SIZE>
constexpr int kWidest = 16 / SIZE < COUNT ? 16 / SIZE : COUNT;

// Stores a run in pieces of PIECE elements if `key` is not negative, and makes `nan` NaN if one of the values
// is not finite. No branch: an epilogue that is one straight line has many stores on their way, while
// one with a branch for each waits for each.
template <int PIECE, class T, int COUNT>
__device__ __forceinline__ void store_if(int key, T* to, const float (&value)[COUNT], float& nan) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) nan = add_zero_times_if(key, value[i], nan);
  constexpr int kBytes = PIECE * int(sizeof(T));
#pragma unroll
  for (int i = 0; i < COUNT; i += PIECE) {
    if constexpr (PIECE == 1) {
      const T narrow = Numeric<T>::narrow(value[i]);
      if constexpr (sizeof(T) == 4) {
        store_words_if<1>(key, to + i, __float_as_uint(narrow), 0, 0, 0);
      } else {
        store_half_if(key, to + i, *reinterpret_cast<const unsigned short*>(&narrow));
      }
    } else {
      uint32_t word[4] = {};
#pragma unroll
      for (int k = 0; k < kBytes / 4; ++k) {
        if constexpr (sizeof(T) == 4) {
          word[k] = __float_as_uint(value[i + k]);
        } else {
          word[k] = pack<T>(value[i + 2 * k], value[i + 2 * k + 1]);
        }
      }
      store_words_if<kBytes / 4>(key, to + i, word[0], word[1], word[2], word[3]);
    }
  }
}

// NaN once any of the values is not finite.
template <int COUNT>
__device__ __forceinline__ void watch(float& nan, const float (&value)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) nan = fmaf(value[i], 0.f, nan);
}

// ---- pixel rows: a thread holds, for each of its positions, pairs of neighbouring columns

template <class M, int ROW>
__device__ __forceinline__ void repair_pixel_rows(const GatherParams& p, const Scope& at,
                                                  const Tables& tables, int first_position,
                                                  TileOrigin origin) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  const int lane = threadIdx.x & 31;
  for (int row = 0; row < tile.operands * 2; ++row) {
    const TileOrigin position =
        position_of(p, tile, origin, first_position + row / 2 * 64 + row % 2 * 8);
    const int2 to = destination_of(p, at, position);
    for (int i = 0; i < tile.width / 4; ++i) {
      const ColumnInfo& column = tables.columns[i / 2 * 8 + (lane & 3) * 2 + i % 2];
      if (column.offset >= 0 && exists(to, column.phase_h, column.phase_w))
        repair_nan(&p, static_cast<T*>(p.destination) + to.x + column.offset, at.group_h,
                   at.group_w, at.group, column.channel, column.phase_h, column.phase_w, position);
    }
  }
}

// NHWC: runs of neighbouring channels, 16 bytes where the tile is wide enough. All of a run's channels exist,
// or none does.
template <class M, int ROW>
__device__ __forceinline__ float store_vectors(const GatherParams& p, const Sums<ROW>& sum,
                                               const ColumnInfo* columns, const int2* to) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kColumnTiles = tile.width / 8;
  constexpr int kRun = kColumnTiles < 8 / int(sizeof(T)) ? kColumnTiles : 8 / int(sizeof(T));
  T* const base = static_cast<T*>(p.destination);
  float nan = 0.f;
#pragma unroll
  for (int v = 0; v < kColumnTiles; v += kRun) {
    const ColumnInfo first = columns[v * 8];
    if (first.offset < 0) continue;
    float bias[2 * kRun];
#pragma unroll
    for (int i = 0; i < 2 * kRun; ++i) bias[i] = columns[(v + i / 2) * 8 + i % 2].bias;
#pragma unroll
    for (int row = 0; row < tile.operands * 2; ++row) {
      if (!exists(to[row], first.phase_h, first.phase_w)) continue;
      float value[2 * kRun];
#pragma unroll
      for (int i = 0; i < 2 * kRun; ++i)
        value[i] = sum[row / 2][0][(v + i / 2) * 4 + row % 2 * 2 + i % 2] + bias[i];
      watch(nan, value);
      store_run(base + (to[row].x + first.offset), value);
    }
  }
  return nan;
}

// Pairs of columns that are neighbours in memory (column phases), for positions that have all their phases
// or none.
template <class M, int ROW, int PIECE>
__device__ __forceinline__ float store_pairs(const GatherParams& p, const Sums<ROW>& sum,
                                             const ColumnInfo* columns, const int2* to) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  T* const base = static_cast<T*>(p.destination);
  float nan = 0.f;
#pragma unroll
  for (int j = 0; j < tile.width / 8; ++j) {
    const ColumnInfo first = columns[j * 8];
    const float bias = columns[j * 8 + 1].bias;
#pragma unroll
    for (int row = 0; row < tile.operands * 2; ++row) {
      const int key = to[row].x | first.offset;
      const float value[2] = {sum[row / 2][0][j * 4 + row % 2 * 2] + first.bias,
                              sum[row / 2][0][j * 4 + row % 2 * 2 + 1] + bias};
      store_if<PIECE>(key, base + (to[row].x + first.offset), value, nan);
    }
  }
  return nan;
}

// Single phases whose positions are neighbours in memory: two lanes with neighbouring positions trade, so
// that each stores both positions of one column.
template <class M, int ROW, int PIECE>
__device__ __forceinline__ float store_traded(const GatherParams& p, const Sums<ROW>& sum,
                                              const ColumnInfo* columns, const int2* to) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  const bool odd = threadIdx.x & 4;
  T* const base = static_cast<T*>(p.destination);
  float nan = 0.f;
#pragma unroll
  for (int j = 0; j < tile.width / 8; ++j) {
    const ColumnInfo mine = columns[j * 8 + odd];
#pragma unroll
    for (int row = 0; row < tile.operands * 2; ++row) {
      const float a = sum[row / 2][0][j * 4 + row % 2 * 2],
                  b = sum[row / 2][0][j * 4 + row % 2 * 2 + 1];
      const float got = __shfl_xor_sync(0xffffffffu, odd ? a : b, 4);
      const int key = mine.offset | to[row].x;
      const float value[2] = {(odd ? got : a) + mine.bias, (odd ? b : got) + mine.bias};
      store_if<PIECE>(key, base + (to[row].x - odd + mine.offset), value, nan);
    }
  }
  return nan;
}

// Anything, one by one.
template <class M, int ROW>
__device__ __forceinline__ float store_singles(const GatherParams& p, const Sums<ROW>& sum,
                                               const ColumnInfo* columns, const int2* to) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  T* const base = static_cast<T*>(p.destination);
  float nan = 0.f;
#pragma unroll
  for (int i = 0; i < tile.width / 4; ++i) {
    const ColumnInfo column = columns[i / 2 * 8 + i % 2];
#pragma unroll
    for (int row = 0; row < tile.operands * 2; ++row) {
      const int key = column.offset | (exists(to[row], column.phase_h, column.phase_w) ? 0 : -1);
      const float value[1] = {sum[row / 2][0][i / 2 * 4 + row % 2 * 2 + i % 2] + column.bias};
      store_if<1>(key, base + (to[row].x + column.offset), value, nan);
    }
  }
  return nan;
}

template <class M, int ROW>
__device__ __forceinline__ void store_pixel_rows(const GatherParams& p, const Scope& at,
                                                 const Sums<ROW>& sum, const Tables& tables,
                                                 TileOrigin origin) {
  constexpr TileRow tile = kTiles[ROW];
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first_position = warp / 4 * (tile.operands * 64) + warp % 4 * 16 + (lane >> 2);
  const ColumnInfo* const columns = tables.columns + (lane & 3) * 2;
  int2 to[tile.operands * 2];
  bool whole = true, neighbours = p.destination_stride[3] == 1 && p.w.destination_step == 1 &&
                                  stacked(p, tile) == 1;
#pragma unroll
  for (int row = 0; row < tile.operands * 2; ++row) {
    to[row] = destination_of(
        p, at, position_of(p, tile, origin, first_position + row / 2 * 64 + row % 2 * 8));
    whole &= to[row].x < 0 || exists(to[row], at.phases_h - 1, at.phases_w - 1);
    const int other = __shfl_xor_sync(kAll, to[row].x, 4);
    neighbours &= to[row].x < 0 ? other < 0 : other == to[row].x + (lane & 4 ? -1 : 1);
  }
  using T = typename M::Element;
  const bool pairs = tables.pairs && __all_sync(kAll, whole);
  const bool traded = !pairs && __all_sync(kAll, neighbours);
  // Whether all pairs lie on whole pairs.
  bool even = reinterpret_cast<uintptr_t>(p.destination) % (2 * sizeof(T)) == 0;
#pragma unroll
  for (int row = 0; row < tile.operands * 2; ++row)
    even &= to[row].x < 0 || (to[row].x - (traded && lane & 4 ? 1 : 0)) % 2 == 0;
  even = tables.even && __all_sync(kAll, even);
  float nan;
  if (p.vector_stores) {
    nan = store_vectors<M, ROW>(p, sum, columns, to);
  } else if (pairs) {
    nan = even ? store_pairs<M, ROW, 2>(p, sum, columns, to)
               : store_pairs<M, ROW, 1>(p, sum, columns, to);
  } else if (traded) {
    nan = even ? store_traded<M, ROW, 2>(p, sum, columns, to)
               : store_traded<M, ROW, 1>(p, sum, columns, to);
  } else {
    nan = store_singles<M, ROW>(p, sum, columns, to);
  }
  if (nan != nan) repair_pixel_rows<M, ROW>(p, at, tables, first_position, origin);
}

// ---- channel rows: a thread holds, for two channels, pairs of neighbouring positions in every phase

template <class M, int ROW>
__device__ __forceinline__ void repair_channel_rows(const GatherParams& p, const Scope& at,
                                                    const Tables& tables, TileOrigin origin) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kPositions = tile.operands * tile.width;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (int i = 0; i < kPositions / 4; ++i) {
    const int here = i / 2 * 8 + (lane & 3) * 2 + i % 2;
    const int2 to = tables.destinations[here];
    const TileOrigin position = position_of(p, tile, origin, warp / 4 * kPositions + here);
    for (int half = 0; half < 2; ++half) {
      const ColumnInfo& row = tables.columns[warp % 4 * 16 + (lane >> 2) + half * 8];
      if (row.offset < 0) continue;
      for (int sw = 0; sw < at.phases_w; ++sw)
        if (exists(to, 0, sw))
          repair_nan(
              &p, static_cast<T*>(p.destination) + to.x + row.offset + sw * p.destination_stride[3],
              at.group_h, at.group_w, at.group, row.channel, 0, sw, position);
    }
  }
}

// The positions of the pair of a lane in eight of them; destinations come in pairs.
template <int ROW>
__device__ __forceinline__ int pair_of(int operand, int eight) {
  return (operand * kTiles[ROW].width + eight * 8) / 2 + (threadIdx.x & 3);
}

// Slots are column phases of one row phase, so that a pair's outputs are a run.
template <class M, int ROW, int PIECE>
__device__ __forceinline__ float store_runs(const GatherParams& p, const Sums<ROW>& sum,
                                            const ColumnInfo (&rows)[2], const Tables& tables) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kRun = 2 * tile.slots;
  T* const base[2] = {static_cast<T*>(p.destination) + rows[0].offset,
                      static_cast<T*>(p.destination) + rows[1].offset};
  float nan = 0.f;
#pragma unroll
  for (int o = 0; o < tile.operands; ++o)
#pragma unroll
    for (int j = 0; j < tile.width / 8; ++j) {
      const int to = tables.destinations[pair_of<ROW>(o, j) * 2].x;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = rows[half].offset | to;
        float value[kRun];
#pragma unroll
        for (int i = 0; i < kRun; ++i)
          value[i] = sum[o][i % tile.slots][j * 4 + half * 2 + i / tile.slots] + rows[half].bias;
        store_if<PIECE>(key, base[half] + to, value, nan);
      }
    }
  return nan;
}

// Four neighbouring positions at once: two lanes with neighbouring pairs trade, so that one stores both
// pairs of eight positions and the other both of the next eight.
template <class M, int ROW, int PIECE>
__device__ __forceinline__ float store_quads(const GatherParams& p, const Sums<ROW>& sum,
                                             const ColumnInfo (&rows)[2], const Tables& tables) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kRun = 2 * tile.slots;
  const bool odd = threadIdx.x & 1;
  T* const base[2] = {static_cast<T*>(p.destination) + rows[0].offset,
                      static_cast<T*>(p.destination) + rows[1].offset};
  float nan = 0.f;
#pragma unroll
  for (int o = 0; o < tile.operands; ++o)
#pragma unroll
    for (int j = 0; j < tile.width / 8; j += 2) {
      const int to = tables.destinations[(pair_of<ROW>(o, j) + (odd ? 4 - 1 : 0)) * 2].x;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = rows[half].offset | to;
        float value[2 * kRun];
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
          const int at = half * 2 + i / tile.slots;
          const float here = sum[o][i % tile.slots][j * 4 + at],
                      next = sum[o][i % tile.slots][j * 4 + 4 + at];
          const float got = __shfl_xor_sync(0xffffffffu, odd ? here : next, 1);
          value[i] = (odd ? got : here) + rows[half].bias;
          value[kRun + i] = (odd ? next : got) + rows[half].bias;
        }
        store_if<PIECE>(key, base[half] + to, value, nan);
      }
    }
  return nan;
}

// Anything, one by one.
template <class M, int ROW>
__device__ __forceinline__ float store_positions(const GatherParams& p, const Scope& at,
                                                 const Sums<ROW>& sum, const ColumnInfo (&rows)[2],
                                                 const Tables& tables) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  float nan = 0.f;
#pragma unroll
  for (int o = 0; o < tile.operands; ++o)
#pragma unroll
    for (int j = 0; j < tile.width / 8; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int2 to = tables.destinations[pair_of<ROW>(o, j) * 2 + i];
        const int phases = to.x < 0 ? 0 : min(to.y & 0xffff, at.phases_w);
#pragma unroll
        for (int s = 0; s < tile.slots; ++s)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int key = rows[half].offset | (s < phases ? 0 : -1);
            const float value[1] = {sum[o][s][j * 4 + half * 2 + i] + rows[half].bias};
            store_if<1>(key,
                        static_cast<T*>(p.destination) +
                            (rows[half].offset + to.x + s * p.destination_stride[3]),
                        value, nan);
          }
      }
  return nan;
}

template <class M, int ROW>
__device__ __forceinline__ void store_channel_rows(const GatherParams& p, const Scope& at,
                                                   const Sums<ROW>& sum, const Tables& tables,
                                                   TileOrigin origin) {
  const int row = (threadIdx.x >> 5) % 4 * 16 + (threadIdx.x & 31) / 4;
  const ColumnInfo rows[2] = {tables.columns[row], tables.columns[row + 8]};
  using T = typename M::Element;
  constexpr int kRun = 2 * kTiles[ROW].slots;
  float nan;
  if (kTiles[ROW].slots < 4 && tables.runs == kQuads) {
    nan = store_quads<M, ROW, kWidest<2 * kRun, sizeof(T)>>(p, sum, rows, tables);
  } else if (tables.runs >= kPairs) {
    nan = store_runs<M, ROW, kWidest<kRun, sizeof(T)>>(p, sum, rows, tables);
  } else if (tables.runs == kLoose) {
    nan = store_runs<M, ROW, 1>(p, sum, rows, tables);
  } else {
    nan = store_positions<M, ROW>(p, at, sum, rows, tables);
  }
  if (nan != nan) repair_channel_rows<M, ROW>(p, at, tables, origin);
}

// Fills the table of this consumer group and tells how long its runs are. A barrier of the group's 128
// threads before it keeps the tile before from being overwritten.
template <class T, int ROW>
__device__ __forceinline__ Runs list_destinations(const GatherParams& p, const Scope& at,
                                                  TileOrigin origin, int2* destinations, int group,
                                                  int barrier) {
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kPositions = tile.operands * tile.width, kRun = 2 * tile.slots;
  const int away = static_cast<int>(reinterpret_cast<uintptr_t>(p.destination) / sizeof(T) & 15) |
                   p.destination_stride[1];
  bool loose = p.destination_stride[3] == 1 && at.phases_w == tile.slots;
  bool pairs = loose && away % kWidest<kRun, sizeof(T)> == 0,
       quads = loose && away % kWidest<2 * kRun, sizeof(T)> == 0;
  for (int i = threadIdx.x % 128; i < kPositions / 4; i += 128) {
    int2 to[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      to[k] = destination_of(p, at, position_of(p, tile, origin, group * kPositions + 4 * i + k));
    const auto run = [&](int a, int b) {
      return to[a].x < 0 ? to[b].x < 0
                         : to[b].x == to[a].x + (b - a) * tile.slots &&
                               exists(to[a], 0, tile.slots - 1) && exists(to[b], 0, tile.slots - 1);
    };
    const auto starts = [&](int a, int piece) { return to[a].x < 0 || to[a].x % piece == 0; };
    loose &= run(0, 1) && run(2, 3);
    pairs &= loose && starts(0, kWidest<kRun, sizeof(T)>) && starts(2, kWidest<kRun, sizeof(T)>);
    quads &= loose && run(0, 2) && starts(0, kWidest<2 * kRun, sizeof(T)>);
    int4* const table = reinterpret_cast<int4*>(destinations) + i * 2;
    table[0] = make_int4(to[0].x, to[0].y, to[1].x, to[1].y);
    table[1] = make_int4(to[2].x, to[2].y, to[3].x, to[3].y);
  }
  if (barrier_all(barrier, 128, quads)) return kQuads;
  if (barrier_all(barrier, 128, pairs)) return kPairs;
  return barrier_all(barrier, 128, loose) ? kLoose : kBroken;
}

}  // namespace convt2d::cuda::hopper
