// The epilogue of channel rows: sums to NCHW memory, through a buffer of each warp; or to NHWC memory, where lanes trade.
//
// A thread holds two neighbouring positions of a channel, so eight channels would meet in one store, 8 or
// 16 bytes of each. The warp therefore lays its 16 channels down in shared memory, 128 bytes of each at a
// time, and then stores a channel after the other, lanes side by side.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/hopper/hopper_store.cuh"

namespace convt2d::cuda::hopper {

template <class M, int ROW>
__device__ __forceinline__ void repair_channel_rows(const GatherParams& p, const Scope& at,
                                                    const Tables& tables, TileOrigin origin) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kPositions = tile.operands * tile.width;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  __syncwarp();
  for (int i = lane; i < kPositions; i += 32) {
    const int2 to = tables.destinations[i];
    const TileOrigin position = position_of(origin, tables.positions[warp / 4 * kPositions + i]);
    for (int r = 0; r < kStagedRows; ++r) {
      const ColumnInfo& row = tables.columns[warp % 4 * kStagedRows + r];
      if (row.offset < 0) continue;
      for (int sw = 0; sw < at.phases_w; ++sw)
        if (exists(to, 0, sw))
          repair_nan(
              &p, static_cast<T*>(p.destination) + to.x + row.offset + sw * p.destination_stride[3],
              at.group_h, at.group_w, at.group, row.channel, 0, sw, position);
    }
  }
}

// An output of a staged row: element offset from its channel, or -1.
template <int SLOTS>
__device__ __forceinline__ int output_of(const GatherParams& p, const Scope& at,
                                         const int2* positions, int element) {
  const int2 to = positions[element / SLOTS];
  const int s = element % SLOTS;
  return to.x >= 0 && s < min(to.y & 0xffff, at.phases_w) ? to.x + s * p.destination_stride[3] : -1;
}

// Stores rows of 32 pieces, each lane a piece, and tells whether one of the numbers was not finite.
// Eight rows are under way at once.
template <class Piece, class Watch>
__device__ __forceinline__ void store_rows(uint32_t staging, int pitch, char* to, bool there,
                                           int rows, int64_t row_bytes, Watch&& watch) {
#pragma unroll 1
  for (int first = 0; first < rows; first += 8) {
    Piece piece[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) piece[i] = load_shared<Piece>(staging + (first + i) * pitch);
    if (there) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (first + i >= rows) break;
        *reinterpret_cast<Piece*>(to + i * row_bytes) = piece[i];
        watch(piece[i]);
      }
    }
    to += 8 * row_bytes;
  }
}

template <class M, int ROW>
__device__ __forceinline__ void store_channel_rows(const GatherParams& p, const Scope& at,
                                                   const Sums<ROW>& sum, const Tables& tables,
                                                   TileOrigin origin) {
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kSize = sizeof(T), kElements = kStagedRow / kSize;
  constexpr int kPositions = kElements / tile.slots;  // of a piece
  constexpr int kRun = 2 * tile.slots;                // neighbours that a thread holds
  constexpr int kPitch = staging_pitch(tile, kSize);
  const int lane = threadIdx.x & 31, first_row = (threadIdx.x >> 5) % 4 * kStagedRows;
  const float bias[2] = {tables.columns[first_row + lane / 4].bias,
                         tables.columns[first_row + lane / 4 + 8].bias};
  const int channel = at.column_tile * kChannelRows + first_row;
  const int rows = min(p.columns - channel, kStagedRows);
  T* const base =
      static_cast<T*>(p.destination) + (at.group * p.columns + channel) * p.destination_stride[1];
  const int64_t row_bytes = p.destination_stride[1] * int64_t(kSize);
  const uint32_t deposit = tables.staging + lane / 4 * kPitch + (lane & 3) * (kRun * kSize);
  float nan = 0.f;
  uint32_t nan_pair = 0;
#pragma unroll
  for (int piece = 0; piece < tile.operands * tile.width / kPositions; ++piece) {
#pragma unroll
    for (int j = 0; j < kPositions / 8; ++j) {
      const int position = piece * kPositions + j * 8, o = position / tile.width;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t word[kRun * kSize / 4];
        const auto value = [&](int i) {
          return sum[o][i % tile.slots][position % tile.width / 2 + half * 2 + i / tile.slots] +
                 bias[half];
        };
#pragma unroll
        for (int i = 0; i < kRun * kSize / 4; ++i) {
          if constexpr (kSize == 4) {
            word[i] = __float_as_uint(value(i));
          } else {
            word[i] = pack<T>(value(2 * i), value(2 * i + 1));
          }
        }
        store_shared(deposit + half * 8 * kPitch + j * (8 * tile.slots * kSize), word);
      }
    }
    __syncwarp();
    const int2* const positions = tables.destinations + piece * kPositions;
    if constexpr (kSize == 4) {
      const int to = output_of<tile.slots>(p, at, positions, lane);
      store_rows<float>(tables.staging + lane * 4, kPitch, reinterpret_cast<char*>(base + to),
                        to >= 0, rows, row_bytes,
                        [&](float stored) { nan = fmaf(stored, 0.f, nan); });
    } else {
      const int low = output_of<tile.slots>(p, at, positions, 2 * lane),
                high = output_of<tile.slots>(p, at, positions, 2 * lane + 1);
      const bool whole =
          low < 0 ? high < 0
                  : high == low + 1 && p.destination_stride[1] % 2 == 0 && aligned(base + low, 4);
      if (__all_sync(0xffffffffu, whole)) {
        store_rows<uint32_t>(
            tables.staging + lane * 4, kPitch, reinterpret_cast<char*>(base + low), low >= 0, rows,
            row_bytes, [&](uint32_t pair) { nan_pair = add_zero_times_pair<T>(pair, nan_pair); });
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int element = half * (kElements / 2) + lane;
          const int to = output_of<tile.slots>(p, at, positions, element);
          store_rows<unsigned short>(
              tables.staging + element * 2, kPitch, reinterpret_cast<char*>(base + to), to >= 0,
              rows, row_bytes,
              [&](unsigned short stored) { nan_pair = add_zero_times_pair<T>(stored, nan_pair); });
        }
      }
    }
    __syncwarp();
  }
  if constexpr (kSize == 2) nan = add_pair<T>(nan_pair);
  if (__any_sync(0xffffffffu, nan != nan)) repair_channel_rows<M, ROW>(p, at, tables, origin);
}

// Four lanes, 4 from each other, hold a channel each of two runs of four, at four positions: word [run][position]. Each gets
// all four channels of one run, that of its lower bit, at two positions, from that of its upper bit on every second one, so
// that lanes that store together fill sectors.
__device__ __forceinline__ void trade_runs(const uint32_t (&word)[2][4], uint32_t (&to)[2][4]) {
  const bool second = threadIdx.x & 4, upper = threadIdx.x & 8;
  uint32_t pair[2][4];  // [channel][position]
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, second ? word[0][i] : word[1][i], 4);
    pair[0][i] = second ? got : word[0][i];
    pair[1][i] = second ? word[1][i] : got;
  }
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const uint32_t even = pair[c][2 * k], odd = pair[c][2 * k + 1];
      const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? even : odd, 8);
      to[k][c] = upper ? got : even;
      to[k][2 + c] = upper ? odd : got;
    }
}

// NHWC (fetched columns): four lanes hold neighbouring channels, two runs of four, of four positions each.
template <class M, int ROW>
__device__ __forceinline__ void store_channel_runs(const GatherParams& p, const Scope& at,
                                                   const Sums<ROW>& sum, const Tables& tables,
                                                   TileOrigin origin) {
  constexpr TileRow tile = kTiles[ROW];
  const int lane = threadIdx.x & 31, mine = lane / 4 % 4;  // of the four
  const ColumnInfo* const rows = tables.columns + (threadIdx.x >> 5) % 4 * 16 + lane / 4;
  const float bias[2] = {rows[0].bias, rows[8].bias};
  const int run = rows[mine % 2 * 8 - mine].offset;
  const int2* const destinations = tables.destinations + lane % 4 * 2 + mine / 2;
  float* const base = static_cast<float*>(p.destination) + run;
  float nan = 0.f;
#pragma unroll
  for (int position = 0; position < tile.operands * tile.width; position += 16) {
    const int2 to[2] = {destinations[position], destinations[position + 8]};
    const int o = position / tile.width, first = position % tile.width / 2;
#pragma unroll
    for (int s = 0; s < tile.slots; ++s) {
      uint32_t word[2][4], traded[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float value = sum[o][s][first + i / 2 * 4 + half * 2 + i % 2] + bias[half];
          nan = fmaf(value, 0.f, nan);
          word[half][i] = __float_as_uint(value);
        }
      trade_runs(word, traded);
#pragma unroll
      for (int k = 0; k < 2; ++k)
        if (run >= 0 && s < at.phases_w && exists(to[k], 0, s))
          store_packed(base + (to[k].x + s * p.destination_stride[3]), traded[k]);
    }
  }
  if (__any_sync(0xffffffffu, nan != nan)) repair_channel_rows<M, ROW>(p, at, tables, origin);
}

// Fills the table of this consumer group, between two barriers of its 128 threads: all have stored the tile
// before; all know this one.
template <int ROW>
__device__ __forceinline__ void list_destinations(const GatherParams& p, const Scope& at,
                                                  TileOrigin origin, const int* positions,
                                                  int2* destinations, int group, int barrier) {
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kPositions = tile.operands * tile.width;
  barrier_among(barrier, 128);
  // Lanes go round equally often, or ptxas keeps nothing that a warp has alike in uniform registers.
#pragma unroll 1
  for (int first = 0; first < kPositions; first += 128) {
    const int i = first + threadIdx.x % 128;
    if (i < kPositions)
      destinations[i] =
          destination_of(p, at, position_of(origin, positions[group * kPositions + i]));
  }
  barrier_among(barrier, 128);
}

}  // namespace convt2d::cuda::hopper
