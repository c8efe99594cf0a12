// From sums to the destination: bias, one rounding, the NaN rule, wide stores.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/hopper/hopper_scope.cuh"

namespace convt2d::cuda::hopper {

template <int ROW>
using Sums = float[kTiles[ROW].operands][kTiles[ROW].slots][kTiles[ROW].width / 2];

// The places of this block that an epilogue looks at.
struct Tables {
  const ColumnInfo* columns;
  const int* positions;  // of the block: see build_positions
  bool pairs;  // pixel rows: columns 2 i and 2 i + 1 are neighbours in memory, or both absent
  bool even;   // pixel rows: columns 2 i are an even number of elements from the first
  const int2* destinations;  // channel rows: of this consumer group's positions
  uint32_t staging;          // channel rows: this warp's buffer, by address
};

__device__ __forceinline__ bool aligned(const void* pointer, int bytes) {
  return (reinterpret_cast<uintptr_t>(pointer) & (bytes - 1)) == 0;
}

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
        position_of(origin, tables.positions[first_position + row / 2 * 64 + row % 2 * 8]);
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
  uint32_t nan_pair = 0;
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
      uint32_t word[2 * kRun * int(sizeof(T)) / 4];
      pack_run<T>(value, word);
      store_packed(base + (to[row].x + first.offset), word);
      if constexpr (sizeof(T) == 4) {
        watch(nan, value);
      } else {
#pragma unroll
        for (uint32_t pair : word) nan_pair = add_zero_times_pair<T>(pair, nan_pair);
      }
    }
  }
  if constexpr (sizeof(T) == 2) nan = add_pair<T>(nan_pair);
  return nan;
}

// The same of one phase without bias. No branch: what is looked up and added otherwise takes as long as the rest, and no
// instruction of a run waits for the one before.
template <class M, int ROW>
__device__ __forceinline__ float store_lone_vectors(const GatherParams& p, const Sums<ROW>& sum,
                                                    const ColumnInfo* columns, const int2* to) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kRun = 8 / int(sizeof(T)), kRuns = tile.width / 8 / kRun,
                kPositions = tile.operands * 2;
  int offset[kRuns];
#pragma unroll
  for (int v = 0; v < kRuns; ++v) offset[v] = columns[v * kRun * 8].offset;
  float nan = 0.f;
#pragma unroll
  for (int row = 0; row < kPositions; ++row) {
    T* const base = static_cast<T*>(p.destination) + to[row].x;
    float of_row = 0.f;
    uint32_t of_pairs = 0;
#pragma unroll
    for (int v = 0; v < kRuns; ++v) {
      float value[2 * kRun];
#pragma unroll
      for (int i = 0; i < 2 * kRun; ++i)
        value[i] = sum[row / 2][0][(v * kRun + i / 2) * 4 + row % 2 * 2 + i % 2];
      uint32_t word[4];
      pack_run<T>(value, word);
      store_words_if<4>(to[row].x | offset[v], base + offset[v], word[0], word[1], word[2],
                        word[3]);
      if constexpr (sizeof(T) == 4) {
        watch(of_row, value);
      } else {
#pragma unroll
        for (uint32_t pair : word) of_pairs = add_zero_times_pair<T>(pair, of_pairs);
      }
    }
    if constexpr (sizeof(T) == 2) of_row = add_pair<T>(of_pairs);
    nan = add_zero_times_if(to[row].x, of_row, nan);
  }
  return nan;
}

// Word j of lane i of four, `APART` from each other, trades places with word i of lane j.
template <int APART = 1>
__device__ __forceinline__ void trade(uint32_t (&word)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = threadIdx.x & bit * APART;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int low = k * (3 - bit), high = low + bit;
      const uint32_t got =
          __shfl_xor_sync(0xffffffffu, upper ? word[low] : word[high], bit * APART);
      (upper ? word[low] : word[high]) = got;
    }
  }
}

// The same where columns have the order of the channels, in 16 bit: a thread holds pairs of four runs.
template <class M, int ROW>
__device__ __forceinline__ float store_traded_runs(const GatherParams& p, const Sums<ROW>& sum,
                                                   const ColumnInfo* columns, const int2* to) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kPairs = 4;
  // From this lane's columns to the first one of the run that it stores.
  const ColumnInfo* const runs = columns + (threadIdx.x & 3) * (8 - 2);
  T* const base = static_cast<T*>(p.destination);
  uint32_t nan = 0;
#pragma unroll
  for (int v = 0; v < tile.width / 8; v += kPairs) {
    const ColumnInfo first = runs[v * 8];
    float bias[2 * kPairs];
#pragma unroll
    for (int i = 0; i < 2 * kPairs; ++i) bias[i] = columns[(v + i / 2) * 8 + i % 2].bias;
#pragma unroll
    for (int row = 0; row < tile.operands * 2; ++row) {
      float value[2 * kPairs];
#pragma unroll
      for (int i = 0; i < 2 * kPairs; ++i)
        value[i] = sum[row / 2][0][(v + i / 2) * 4 + row % 2 * 2 + i % 2] + bias[i];
      uint32_t word[kPairs];
      pack_run<T>(value, word);
      // Where the position exists, or a thread's columns, only.
#pragma unroll
      for (uint32_t pair : word) nan = add_zero_times_pair<T>(pair, nan);
      trade(word);
      if (first.offset >= 0 && exists(to[row], first.phase_h, first.phase_w))
        store_packed(base + (to[row].x + first.offset), word);
    }
  }
  return add_pair<T>(nan);
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

// Fetched pixels in NCHW, where four positions are neighbours in memory and start at a multiple of four: so many lanes
// trade what they hold of them, and each stores all four of a column, or of two. There is no bias.
template <class M, int ROW>
__device__ __forceinline__ float store_fours(const GatherParams& p, const Scope& at,
                                             const Sums<ROW>& sum, const Tables& tables,
                                             TileOrigin origin) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kColumns = 4 / int(sizeof(T));  // of a lane, neighbours for each position
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, mine = lane >> 2 & 3;
  // Words 2 i and 2 i + 1 of a lane are of its two positions; it gets word `mine` of four lanes.
  const int first_position =
      warp / 4 * (tile.operands * 64) + warp % 4 * 16 + (lane >> 4) * 4 + mine % 2 * 8;
  const ColumnInfo* const columns =
      tables.columns + (lane & 3) * 2 + mine / 2 * (kColumns == 2 ? 8 : 1);
  T* const base = static_cast<T*>(p.destination);
  int to[tile.operands];
#pragma unroll
  for (int o = 0; o < tile.operands; ++o)
    to[o] = destination_of(p, at, position_of(origin, tables.positions[first_position + o * 64])).x;
  float nan = 0.f;
  uint32_t nan_pair = 0;
#pragma unroll
  for (int j = 0; j < tile.width / 8; j += kColumns) {
    int column[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) column[i] = columns[j * 8 + i].offset;
#pragma unroll
    for (int o = 0; o < tile.operands; ++o) {
      const float (&sums)[tile.width / 2] = sum[o][0];
      uint32_t word[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if constexpr (kColumns == 2) {
          const int first = (j + k / 2) * 4 + k % 2 * 2;
          word[k] = pack<T>(sums[first], sums[first + 1]);
          nan_pair = add_zero_times_pair<T>(word[k], nan_pair);
        } else {
          word[k] = __float_as_uint(sums[j * 4 + k % 2 * 2 + k / 2]);
          nan = fmaf(__uint_as_float(word[k]), 0.f, nan);
        }
      }
      trade<4>(word);
      if constexpr (kColumns == 2) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t half = i ? 0x7632 : 0x5410;
          store_words_if<2>(to[o] | column[i], base + (to[o] + column[i]),
                            __byte_perm(word[0], word[1], half),
                            __byte_perm(word[2], word[3], half), 0, 0);
        }
      } else {
        store_words_if<4>(to[o] | column[0], base + (to[o] + column[0]), word[0], word[1], word[2],
                          word[3]);
      }
    }
  }
  if constexpr (kColumns == 2) nan = add_pair<T>(nan_pair);
  return nan;
}

// NHWC, channels that are no whole vectors: what a thread holds of them would go to memory as halves of sectors. The warp
// lays down its 16 positions in shared memory, 128 bytes of each, and stores one after the other, lanes side by side.
// There is no bias.
template <class M, int ROW>
__device__ __forceinline__ float store_lines(const GatherParams& p, const Sums<ROW>& sum,
                                             const Tables& tables, const int2* to) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kSize = sizeof(T), kNumbers = 4 / kSize;  // of a word
  constexpr int kWords = tile.width / kNumbers < 32 ? tile.width / kNumbers : 32,
                kColumns = kWords * kNumbers, kAtOnce = 32 / kWords;  // positions
  constexpr int kPitch = staging_pitch(tile, kSize);
  const int lane = threadIdx.x & 31, word_of_line = lane % kWords, line = lane / kWords;
  const uint32_t deposit = tables.staging + lane / 4 * kPitch + (lane & 3) * (2 * kSize),
                 collect = tables.staging + line * kPitch + word_of_line * 4;
  float nan = 0.f;
#pragma unroll
  for (int first = 0; first < tile.width; first += kColumns) {
    const int offset = tables.columns[first + word_of_line * kNumbers].offset;
    T* const base = static_cast<T*>(p.destination) + offset;
#pragma unroll
    for (int o = 0; o < tile.operands; ++o) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float of_row = 0.f;
        uint32_t of_pairs = 0;
#pragma unroll
        for (int j = 0; j < kColumns / 8; ++j) {
          const int at = (first / 8 + j) * 4 + half * 2;
          const float value[2] = {sum[o][0][at], sum[o][0][at + 1]};
          uint32_t word[2 / kNumbers];
          pack_run<T>(value, word);
          store_shared(deposit + half * 8 * kPitch + j * (8 * kSize), word);
          if constexpr (kSize == 4) {
            watch(of_row, value);
          } else {
            of_pairs = add_zero_times_pair<T>(word[0], of_pairs);
          }
        }
        if constexpr (kSize == 2) of_row = add_pair<T>(of_pairs);
        nan = add_zero_times_if(to[o * 2 + half].x, of_row, nan);
      }
      __syncwarp();
#pragma unroll
      for (int row = 0; row < kStagedRows; row += kAtOnce) {
        const int destination =
            __shfl_sync(0xffffffffu, to[o * 2 + row / 8].x, (row % 8 + line) * 4);
        store_words_if<1>(destination | offset, base + destination,
                          load_shared_4(collect + row * kPitch), 0, 0, 0);
      }
      __syncwarp();
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

// Pairs if the columns or the positions lie so, else one by one.
template <class M, int ROW>
__device__ __forceinline__ float store_words_or_singles(const GatherParams& p, const Scope& at,
                                                        const Sums<ROW>& sum, const Tables& tables,
                                                        const ColumnInfo* columns, const int2* to) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = threadIdx.x & 31;
  bool whole = true, neighbours = p.destination_stride[3] == 1 && p.w.destination_step == 1 &&
                                  stacked(p, tile) == 1;
#pragma unroll
  for (int row = 0; row < tile.operands * 2; ++row) {
    whole &= to[row].x < 0 || exists(to[row], at.phases_h - 1, at.phases_w - 1);
    const int other = __shfl_xor_sync(kAll, to[row].x, 4);
    neighbours &= to[row].x < 0 ? other < 0 : other == to[row].x + (lane & 4 ? -1 : 1);
  }
  const bool pairs = tables.pairs && __all_sync(kAll, whole);
  const bool traded = !pairs && __all_sync(kAll, neighbours);
  // Whether all pairs lie on whole pairs.
  bool even = reinterpret_cast<uintptr_t>(p.destination) % (2 * sizeof(T)) == 0;
#pragma unroll
  for (int row = 0; row < tile.operands * 2; ++row)
    even &= to[row].x < 0 || (to[row].x - (traded && lane & 4 ? 1 : 0)) % 2 == 0;
  even = tables.even && __all_sync(kAll, even);
  if (pairs)
    return even ? store_pairs<M, ROW, 2>(p, sum, columns, to)
                : store_pairs<M, ROW, 1>(p, sum, columns, to);
  if (traded)
    return even ? store_traded<M, ROW, 2>(p, sum, columns, to)
                : store_traded<M, ROW, 1>(p, sum, columns, to);
  return store_singles<M, ROW>(p, sum, columns, to);
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
  // Where the tile is wide enough for runs.
  constexpr bool kLone =
      by_steps(tile) && !tile.columns_copied && tile.width * int(sizeof(typename M::Element)) >= 64;
  float nan;
  if (tile.fetched && p.store_mode == kFours) {
    nan = store_fours<M, ROW>(p, at, sum, tables, origin);
  } else {
    int2 to[tile.operands * 2];
#pragma unroll
    for (int row = 0; row < tile.operands * 2; ++row)
      to[row] = destination_of(
          p, at,
          position_of(origin, tables.positions[first_position + row / 2 * 64 + row % 2 * 8]));
    if constexpr (tile.columns_copied) {
      nan = store_traded_runs<M, ROW>(p, sum, columns, to);
    } else if constexpr (lean(tile) && !tile.fetched) {  // grad_input
      nan = store_lone_vectors<M, ROW>(p, sum, columns, to);
    } else if (kLone && p.store_mode == kDealt && !p.bias && stacked(p, tile) == 1) {
      if constexpr (kLone) nan = store_lone_vectors<M, ROW>(p, sum, columns, to);
    } else if (p.store_mode == kDealt) {
      nan = store_vectors<M, ROW>(p, sum, columns, to);
    } else if (has_lines(tile) && p.store_mode == kLines) {
      if constexpr (has_lines(tile)) nan = store_lines<M, ROW>(p, sum, tables, to);
    } else if constexpr (tile.fetched && wide(tile)) {
      nan = store_traded<M, ROW, 2>(p, sum, columns, to);
    } else if constexpr (tile.fetched) {
      nan = p.store_mode == kTwos ? store_traded<M, ROW, 2>(p, sum, columns, to)
                                  : store_singles<M, ROW>(p, sum, columns, to);
    } else {
      nan = store_words_or_singles<M, ROW>(p, at, sum, tables, columns, to);
    }
  }
  // A lane repairs what it summed, which another may have stored.
  if (__any_sync(kAll, nan != nan)) {
    __syncwarp();
    repair_pixel_rows<M, ROW>(p, at, tables, first_position, origin);
  }
}

}  // namespace convt2d::cuda::hopper
