// From sums to the result: biases, phases of a row side by side, the NaN rule.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/tensor_store.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/loom/loom_scope.cuh"

namespace convt2d::cuda::loom {

template <int TILE>
using Sums = float[kTiles[TILE].phases][positions(kTiles[TILE]) / 2];

// The channels of a lane, of those of its group: this and the eighth after it.
__device__ __forceinline__ int channel_of_lane(const GatherParams& p, const Scope& at) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  return at.column_tile * p.tile_channels + (p.tile_channels > kRows ? warp / 4 * kRows : 0) +
         warp % (p.halved ? 2 : 4) * 16 + lane / 4;
}
// Where a tile's positions of a lane are, two neighbours of every eight.
template <int TILE>
__device__ __forceinline__ uint32_t positions_of_lane(uint32_t shared) {
  return shared + kPositions +
         (threadIdx.x / 128 * positions(kTiles[TILE]) + threadIdx.x % 4 * 2) * 4;
}

template <class T, int TILE>
__device__ __forceinline__ void repair(const GatherParams& p, const Scope& at, uint32_t shared,
                                       TileOrigin origin) {
  constexpr Tile tile = kTiles[TILE];
  const AxisGroup& gh = p.h.group[at.group_h];
  for (int i = 0; i < positions(tile) / 4; ++i) {
    const int packed =
        load_shared_4(positions_of_lane<TILE>(shared) + (i / 2 * kEight + i % 2) * 4);
    if (packed < 0) continue;
    const TileOrigin here = position_of(origin, packed);
    const int y = here.h * p.h.destination_step + gh.first_phase + row_phase(p);
    if (here.n >= p.batch || y >= p.h.destination_extent) continue;
    for (int row = 0; row < 2; ++row) {
      const int channel = channel_of_lane(p, at) + row * 8;
      if (channel >= p.columns) continue;
      for (int phase = 0; phase < tile.phases; ++phase) {
        const int x = here.w * tile.phases + phase;
        if (x >= p.w.destination_extent) continue;
        T* const element = static_cast<T*>(p.destination) + here.n * p.destination_stride[0] +
                           (at.group * p.columns + channel) * p.destination_stride[1] +
                           y * p.destination_stride[2] + x;
        repair_nan(&p, element, at.group_h, 0, at.group, channel, row_phase(p), phase, here);
      }
    }
  }
}

// What came out NaN of a warp's tiles, when all of them are stored. A lane repairs what it summed, which another may have stored.
template <class T, int TILE>
__device__ __noinline__ void repair_tiles(const GatherParams& p, uint32_t shared, TileWalk walk) {
  __syncwarp();
  const Scope at = known_scope(shared + kScope);
  for (int tile = walk.first; tile < walk.end; tile += walk.step)
    repair<T, TILE>(p, at, shared, tile_origin(p, tile));
}

template <class T>
__device__ __forceinline__ void biases_of_lane(const GatherParams& p, const Scope& at, int channel,
                                               float (&bias)[2]) {
#pragma unroll
  for (int row = 0; row < 2; ++row)
    bias[row] = p.bias && channel + row * 8 < p.columns
                    ? load(static_cast<const T*>(p.bias) + at.group * p.columns + channel + row * 8)
                    : 0;
}
template <class T>
__device__ __forceinline__ auto bits_of(float value) {
  if constexpr (sizeof(T) == 4)
    return __float_as_uint(value);
  else
    return static_cast<unsigned short>(pack<T>(value, 0));
}

// COUNT neighbours at a multiple of their size, if `key` is not negative. Halves of words may trade places (`order`, as
// __byte_perm wants it).
template <class T, int COUNT>
__device__ __forceinline__ void store_together_if(int key, T* to, const float (&value)[COUNT],
                                                  uint32_t order) {
  constexpr int kWordCount = COUNT * int(sizeof(T)) / 4;
  const auto word = [&](int i) -> uint32_t {
    if (i >= kWordCount) return 0;
    if constexpr (sizeof(T) == 4)
      return __float_as_uint(value[i]);
    else
      return __byte_perm(pack<T>(value[2 * i], value[2 * i + 1]), 0, order);
  };
  store_words_if<kWordCount>(key, to, word(0), word(1), word(2), word(3));
}

// Two neighbouring positions of every eight are a lane's, whose outputs start at multiples of as many: where one is, both are.
// This, and those below, return whether the warp has NaN.
template <class T, int TILE>
__device__ __forceinline__ bool store(const GatherParams& p, uint32_t shared, int number,
                                      const Sums<TILE>& sum) {
  constexpr int kPhases = kTiles[TILE].phases, kCount = 2 * kPhases,
                kEights = positions(kTiles[TILE]) / kEight;
  constexpr bool kByTurns = kTiles[TILE].taps > 1 && kPhases > 1;
  const Scope at = known_scope(shared + kScope);
  const TileOrigin origin = tile_origin(p, number);
  const int channel = channel_of_lane(p, at),
            first_y =
                origin.h * p.h.destination_step + p.h.group[at.group_h].first_phase + row_phase(p);
  // Of the tile, what there is.
  const int images = p.batch - origin.n, rows = p.h.destination_extent - first_y,
            columns = p.w.destination_extent / kPhases - origin.w, key = p.columns - 1 - channel;
  const int next_image = p.destination_stride[0],
            next_row = p.h.destination_step * p.destination_stride[2];
  T* const first = static_cast<T*>(p.destination) + origin.n * next_image +
                   (at.group * p.columns + channel) * p.destination_stride[1] +
                   first_y * p.destination_stride[2] + origin.w * kPhases;
  const int next_channels = 8 * p.destination_stride[1];
  float bias[2];
  biases_of_lane<T>(p, at, channel, bias);
  float nan = 0;
  // Sums of phases by turns may begin with the second.
  const bool swapped = kByTurns && p.swapped;
  const uint32_t order = swapped ? 0x1032 : 0x3210;
  const uint32_t table = positions_of_lane<TILE>(shared);
  int next = load_shared_4(table);
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight) {
    const int packed = next;
    if (eight + 1 < kEights) next = load_shared_4(table + (eight + 1) * kEight * 4);
    const int n = packed >> 20, h = packed >> 10 & 1023, w = packed & 1023;
    const bool there =
        uint32_t(n) < uint32_t(images) && h * p.h.destination_step < rows && w < columns;
    T* to = first + (n * next_image + h * next_row + w * kPhases);
#pragma unroll
    for (int row = 0; row < 2; ++row, to += next_channels) {
      const int wanted = there ? key - 8 * row : -1;
      float value[kCount], all = 0;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const int at_phase = k % kPhases, i = 4 * eight + 2 * row + k / kPhases;
        value[k] = sum[at_phase][i];
        if (sizeof(T) == 4 && swapped) value[k] = sum[(at_phase + 1) % kPhases][i];
        value[k] += bias[row];
        all += value[k];
      }
      nan = add_zero_times_if(wanted, all, nan);
      store_together_if<T>(wanted, to, value, order);
    }
  }
  return __any_sync(0xffffffff, nan != nan);
}

// Tiles in columns, of two phases, whose rows of the result are whole 16 bytes: a warp lays its channels out  [row][channel][output]
// and goes on; the copy engine stores them, but for what does not exist.
template <class T, int TILE>
__device__ __forceinline__ bool store_boxes(const GatherParams& p, uint32_t shared, int number,
                                            const Sums<TILE>& sum, const CUtensorMap* map) {
  constexpr int kPhases = kTiles[TILE].phases, kEights = positions(kTiles[TILE]) / kEight;
  static_assert(kPhases == 2 && sizeof(T) == 2 && kEights * kBoxLine == kBoxBytes);
  const Scope at = known_scope(shared + kScope);
  const TileOrigin origin = tile_origin(p, number);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, channel = channel_of_lane(p, at),
            first_channel = uniform(channel - lane / 4);
  if (first_channel >= p.columns) return false;
  float bias[2];
  biases_of_lane<T>(p, at, channel, bias);
  float nan = 0;
  const uint32_t order = kTiles[TILE].taps > 1 && p.swapped ? 0x1032 : 0x3210;
  const uint32_t buffer = shared + p.lines_at + warp * kBoxBytes;
  const uint32_t to = buffer + lane / 4 * kBoxRow + lane % 4 * 8;
  if (lane == 0) stored_boxes_read();
  __syncwarp();
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight) {
    // What is beyond the tile's rows is anything.
    const int wanted = eight < p.tile_h ? 0 : -1;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float value[4], all = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        value[k] = sum[k % 2][4 * eight + 2 * row + k / 2] + bias[row];
        all += value[k];
      }
      nan = add_zero_times_if(wanted, all, nan);
      const uint32_t word[2] = {__byte_perm(pack<T>(value[0], value[1]), 0, order),
                                __byte_perm(pack<T>(value[2], value[3]), 0, order)};
      store_shared(to + eight * kBoxLine + row * 8 * kBoxRow, word);
    }
  }
  fence_for_wgmma();  // and for the copy engine
  const bool is_nan = __any_sync(0xffffffff, nan != nan);
  if (lane == 0)
    store_box(map, buffer, origin.w * 2, at.group * p.columns + first_channel,
              p.h.group[at.group_h].first_phase + row_phase(p), origin.h, origin.n);
  return is_nan;
}
// Before shared memory goes.
__device__ __forceinline__ void finish_boxes(const GatherParams& p) {
  if (p.boxed && threadIdx.x % 32 == 0) stored_boxes_there();
}

// Mostly there are all eight channels of a line, and one condition does for them. Of this tile it is faster (H200, 2026-11-27:
// stylegan2_hi 811 us for 880), of others 1 to 5 %, in 16 bits 12 %, in strict fp32 28 % slower.
template <class T>
__device__ constexpr bool one_condition(Tile tile) {
  return sizeof(T) == 4 && !tile.strict && tile.phases == 2 && tile.taps == 3;
}

// Where rows of the result start anywhere: a warp lays kLine outputs of each of eight channels out as they lie in memory, and
// then lanes store neighbours, of one channel after the other. Eights of positions change places where channels would meet in
// a bank.
template <class T, int TILE>
__device__ __forceinline__ bool store_lines(const GatherParams& p, uint32_t shared, int number,
                                            const Sums<TILE>& sum) {
  constexpr Tile tile = kTiles[TILE];
  constexpr int kPhases = tile.phases, kCount = 2 * kPhases, kOfEight = kEight * kPhases,
                kEights = kLine / kOfEight, kParts = positions(tile) * kPhases / kLine,
                kPlaces = 32 / kOfEight, kLoads = kLine / 32;
  const Scope at = known_scope(shared + kScope);
  const TileOrigin origin = tile_origin(p, number);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, channel = channel_of_lane(p, at),
            first_channel = uniform(channel - lane / 4),
            first_y = p.h.group[at.group_h].first_phase + row_phase(p);
  if (first_channel >= p.columns) return false;
  float bias[2];
  biases_of_lane<T>(p, at, channel, bias);
  const uint32_t lines = shared + p.lines_at + warp * kLineBytes;
  uint32_t to[kPlaces], from[kPlaces];
#pragma unroll
  for (int i = 0; i < kPlaces; ++i) {
    to[i] = lines + lane / 4 * (kLine * 4) + (i ^ lane / 4 % kPlaces) * (kOfEight * 4) +
            lane % 4 * (kCount * 4);
    // Sums of phases by turns may begin with the second.
    from[i] = lines + ((lane ^ i * kOfEight) ^ (kPhases > 1 && tile.taps > 1 ? p.swapped : 0)) * 4;
  }
  const uint32_t table = shared + kPositions + (warp / 4 * positions(tile) + lane / kPhases) * 4;
  T* const plane = static_cast<T*>(p.destination) +
                   (at.group * p.columns + first_channel) * p.destination_stride[1];
  float nan[kLoads] = {};
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    int offset[kLoads];
    bool there[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int packed = load_shared_4(table + (part * kLine + i * 32) / kPhases * 4);
      const TileOrigin here = position_of(origin, packed);
      const int y = here.h * p.h.destination_step + first_y, x = here.w * kPhases + lane % kPhases;
      there[i] = packed >= 0 && here.n < p.batch && y < p.h.destination_extent &&
                 x < p.w.destination_extent;
      offset[i] = here.n * p.destination_stride[0] + y * p.destination_stride[2] + x;
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kEights; ++i) {
        uint32_t word[kCount];
#pragma unroll
        for (int k = 0; k < kCount; ++k)
          word[k] = __float_as_uint(
              sum[k % kPhases][4 * (part * kEights + i) + 2 * row + k / kPhases] + bias[row]);
        store_shared(to[i % kPlaces] + i / kPlaces * 128, word);
      }
      __syncwarp();
      const int channels = p.columns - first_channel - row * kEight;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        T* element = plane + offset[i] + row * kEight * p.destination_stride[1];
        const int left = there[i] ? channels : 0;
        float value[kEight];
#pragma unroll
        for (int c = 0; c < kEight; ++c)
          value[c] = load_shared<float>(from[c % kPlaces] + c * (kLine * 4) + i * 128);
        if (one_condition<T>(tile) && channels >= kEight) {
#pragma unroll
          for (int c = 0; c < kEight; ++c, element += p.destination_stride[1])
            nan[i] = store_and_note_if(0, left, element, bits_of<T>(value[c]), value[c], nan[i]);
        } else {
#pragma unroll
          for (int c = 0; c < kEight; ++c, element += p.destination_stride[1])
            nan[i] = store_and_note_if(c, left, element, bits_of<T>(value[c]), value[c], nan[i]);
        }
      }
    }
  }
  float all = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) all += nan[i];
  return __any_sync(0xffffffff, all != all);
}

}  // namespace convt2d::cuda::loom
