// The sums of a block's teams and of a cluster's ranks, added in a fixed order, and where they go: team by team in shared
// memory, which the chunks have left, then rank by rank. Each rank adds and stores some of the tile; who does has no
// effect on the result. What came out NaN is summed again, of products that exist: zeros from beside dY are multiplied
// too, and 0 * inf is NaN.
#pragma once

#include "cuda/device/as_multiplied.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/gather_device.cuh"
#include "cuda/strand/strand_stage.cuh"

namespace convt2d::cuda::strand {

// Of a thread: [16 rows][8 positions][row g or g + 8, position 2 t or the next].
template <int ROW>
using Sums = float[kWarpRows / 16][kTiles[ROW].warp_positions / 8][4];

template <int ROW>
__device__ __forceinline__ int warp_row() {
  return threadIdx.x / 32 % row_warps(kTiles[ROW]) * kWarpRows;
}
template <int ROW>
__device__ __forceinline__ int warp_position() {
  return threadIdx.x / 32 / row_warps(kTiles[ROW]) % position_warps(kTiles[ROW]) *
         kTiles[ROW].warp_positions;
}
template <int ROW>
__device__ __forceinline__ int team_of_warp() {
  return threadIdx.x / 32 / (kWarps / teams(kTiles[ROW]));
}

// A tile of sums in shared memory: lines of neighbours in dX, which are positions in NCHW and channels channels last.
template <int ROW>
struct Lines {
  static constexpr Tile tile = kTiles[ROW];
  static constexpr int kBytes =
      (tile.rows * tile.positions + 4 * (tile.rows > tile.positions ? tile.rows : tile.positions)) *
      4;
  static constexpr int kItems = tile.rows * tile.positions / kTogether;
  static_assert(teams(tile) * kBytes <= tile.stages * stage_bytes(tile));
  uint32_t sums;
  bool channels_last;
  int row_bytes, position_bytes;  // from one to the next

  __device__ __forceinline__ Lines(const Params& p, uint32_t shared)
      : sums(shared),
        channels_last(p.x_channel == 1),
        row_bytes(channels_last ? 4 : (tile.positions + 4) * 4),
        position_bytes(channels_last ? (tile.rows + 4) * 4 : 4) {}
  __device__ __forceinline__ uint32_t place(int row, int position) const {
    return sums + row * row_bytes + position * position_bytes;
  }
  // The first of an item's numbers.
  __device__ __forceinline__ void item(int i, int& row, int& position) const {
    const int of_line = (channels_last ? tile.rows : tile.positions) / kTogether;
    const int line = i / of_line, number = i % of_line * kTogether;
    row = channels_last ? number : line;
    position = channels_last ? line : number;
  }
};

// One output, of the products that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M>
__device__ __noinline__ float sum_with_care(const Params& p, const Scope& at, int row,
                                            int position) {
  const Place place = place_of(p, at, position);
  const int64_t weights = int64_t{at.group * p.rows + row} * p.reduce;
  float sum = 0;
  for (int k = 0; k < p.reduce; ++k) {
    const Place here = along(p, k);
    if (!exists(p, place, here)) continue;
    sum = fmaf(as_multiplied<M>(p.weight, weights + k),
               as_multiplied<M>(p.source, place.number + here.number), sum);
  }
  return sum;
}

// Four neighbours of dX from `row` and `position` of the tile on.
template <class M, int ROW>
__device__ __forceinline__ void store_item(const Params& p, const Scope& at, int row, int position,
                                           float (&value)[kTogether]) {
  using T = typename M::Element;
  T* const to = static_cast<T*>(p.destination);
  const bool channels_last = p.x_channel == 1;
  row += at.row, position += at.position;
  int there = channels_last ? p.rows - row : p.positions - position;
  if (row >= p.rows || position >= p.positions) there = 0;
  const auto number = [&](int position) {  // of the group's channel `row`
    const int image = p.by_plane.quotient(position);
    return int64_t{image} * p.x_image +
           (position - image * static_cast<int>(p.by_plane.divisor)) * p.x_pixel +
           (at.group * p.rows + row) * p.x_channel;
  };
#pragma unroll
  for (int i = 0; i < kTogether; ++i)
    if (value[i] != value[i] && i < there)
      value[i] = sum_with_care<M>(p, at, row + (channels_last ? i : 0),
                                  position + (channels_last ? 0 : i));
  if (there >= kTogether && p.vectors) {
    store_run(to + number(position), value);
  } else {
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      if (i < there)
        store(to + (channels_last ? number(position) + i : number(position + i)), value[i]);
  }
}

// All threads of all blocks come here, when nothing is under way to shared memory any more.
template <class M, int ROW>
__device__ __forceinline__ void add_and_store(const Params& p, const Scope& at,
                                              const Sums<ROW>& sum, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  const Lines<ROW> lines(p, shared);
  const int lane = threadIdx.x % 32;
  const uint32_t first =
      team_of_warp<ROW>() * Lines<ROW>::kBytes +
      lines.place(warp_row<ROW>() + lane / 4, warp_position<ROW>() + lane % 4 * 2);
#pragma unroll
  for (int i = 0; i < kWarpRows / 16; ++i)
#pragma unroll
    for (int j = 0; j < tile.warp_positions / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        store_shared_sum(
            first + (i * 16 + e / 2 * 8) * lines.row_bytes + (j * 8 + e % 2) * lines.position_bytes,
            sum[i][j][e]);
  __syncthreads();
  if constexpr (teams(tile) > 1) {
#pragma unroll 1
    for (int i = threadIdx.x; i < Lines<ROW>::kItems; i += kThreads) {
      int row, position;
      lines.item(i, row, position);
      const uint32_t place = lines.place(row, position);
      uint32_t all[kTogether];
      load_shared_16(place, all);
#pragma unroll
      for (int t = 1; t < teams(tile); ++t) {
        uint32_t word[kTogether];
        load_shared_16(place + t * Lines<ROW>::kBytes, word);
#pragma unroll
        for (int n = 0; n < kTogether; ++n)
          all[n] = __float_as_uint(__uint_as_float(all[n]) + __uint_as_float(word[n]));
      }
      store_shared_16(place, all);
    }
  }
  if (p.ranks > 1) {
    cluster_arrive();
    cluster_wait();
  }
  // Alone, a thread has what it added itself.
  const int rank = blockIdx.y, end = Lines<ROW>::kItems * (rank + 1) / p.ranks;
#pragma unroll 1
  for (int i = Lines<ROW>::kItems * rank / p.ranks + threadIdx.x; i < end; i += kThreads) {
    int row, position;
    lines.item(i, row, position);
    const uint32_t place = lines.place(row, position);
    float value[kTogether] = {};
    if (p.ranks > 1) {
#pragma unroll 4
      for (int r = 0; r < p.ranks; ++r) {
        const float4 some = load_of_rank(place_of_rank(place, r));
        value[0] += some.x, value[1] += some.y, value[2] += some.z, value[3] += some.w;
      }
    } else {
      uint32_t word[kTogether];
      load_shared_16(place, word);
#pragma unroll
      for (int n = 0; n < kTogether; ++n) value[n] = __uint_as_float(word[n]);
    }
    store_item<M, ROW>(p, at, row, position, value);
  }
  if (p.ranks > 1) {  // this block has read; it leaves when all have
    cluster_arrive_as_reader();
    cluster_wait();
  }
}

}  // namespace convt2d::cuda::strand
