// Even rows of no whole eights.
#pragma once

#include "cuda/device/uniform.cuh"
#include "cuda/pleat/pleat_lane.cuh"
#include "cuda/pleat/pleat_stage.cuh"

namespace convt2d::cuda::pleat {

// A lane of flat rows: the same outputs, of the pairs 4 e + t. Of a row's: the first whose output is one; the one whose second
// product is no other pair's, and the same where it is an output itself, or -1 of other lanes.
struct FlatLane : Lane {
  int t, pairs, shift;  // pairs of a row, what they are beside whole eights
  int first_pair, last_pair, end_pair;
  bool carried;  // who wants the lane's upper products is further on in a row by an eight
  int above;     // whose upper products it wants
  __device__ __forceinline__ explicit FlatLane(const Params& p)
      : Lane(p, p.x_w, p.pad_w),
        t(threadIdx.x % kPairs),
        pairs(p.x_w / kPair),
        shift(pairs % kPairs) {
    const int lane = threadIdx.x % 32;
    column -= kPair * kStride * t;  // of a row's first pair
    first_pair = column < 0;
    last_pair = lane & 8 ? pairs - 1 : -1;
    end_pair = column + kStride * p.x_w - 2 < p.y_w ? last_pair : -1;
    carried = t + shift >= kPairs;
    above = lane - t + (t + kPairs - shift) % kPairs;
  }
};

// Of an image in a flat tile.
template <class T>
struct FlatRun : Run {
  T* y;
  int lead, count;  // numbers
  uint32_t from, behind;
  __device__ __forceinline__ FlatRun(const Params& p, const Run& rows, T* plane, uint32_t out)
      : Run(rows),
        y(plane + first * p.y_w),
        lead(int(reinterpret_cast<uintptr_t>(y) % 16 / sizeof(T))),
        count((end - first) * p.y_w),
        from(out) {
    to = from + lead * 2, behind = to + count * 2;
  }
};

// Where a lane's output of a pair goes, from eight to eight of rows of so many.
template <int EIGHTS>
struct Spot {
  int pair;  // of a row
  uint32_t to;
  // `top`: the first row of the tile's first block.
  __device__ __forceinline__ Spot(const Params& p, const FlatLane& lane, const Run& run, int top) {
    const int row = lane.t / lane.pairs;
    pair = lane.t - row * lane.pairs;
    to = run.to + ((top + lane.row + row * kStride - run.first) * p.y_w + pair * kPair * kStride +
                   lane.column) *
                      2;
  }
  __device__ __forceinline__ void advance(const Params& p, const FlatLane& lane) {
    const int rows = EIGHTS > 0 ? 0 : kPairs / lane.pairs,
              next_row = kStride * (p.y_w - p.x_w) * 2;  // beside its pairs
    pair += kPairs - rows * lane.pairs, to += 8 * kStride * 2 + rows * next_row;
    if (pair >= lane.pairs) pair -= lane.pairs, to += next_row;
  }
};

template <class T, int ROW>
__device__ __forceinline__ void consume_flat(const Params& p, uint32_t shared) {
  // Images of a tile; eights of one, of an image's place; what a pair above is before, at most.
  constexpr FlatTile kTile = flat_tile(ROW);
  constexpr int kImages = flat_images(ROW), kEights = kTile.width / 8, kPlace = kLineNumbers / 8,
                kAbove = kTile.eights + 1;
  const int group = warpgroup_of_block(), warp = warp_of_block();
  const uint32_t out = shared + p.out_at + warp * p.out_bytes;
  const bool several = kImages > 1 && p.images > 1;
  const FlatLane lane(p);
  StageRing ring = ring_of(p, shared);
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of<ROW>(p, i);
    const int channel = item.channel + warp, image = item.image * p.images;
    const bool exists = channel < p.columns;
    const int all = item.group * p.columns + channel;
    const float bias = p.bias && exists ? load(static_cast<const T*>(p.bias) + all) : 0.f;
    const int size = p.y_h * p.y_w, next_image = p.groups * p.columns * size;
    T* const plane = static_cast<T*>(p.y) + (int64_t{image} * p.groups * p.columns + all) * size;
    float above[kAbove][2] = {};  // upper products of the last eights before the tile
    for (int row = item.first; row < item.end_row; row += p.tile_rows) {
      float sum[1][kEights * 4];
      multiply<T>(p, group, ring, sum);
      const int next = row + p.tile_rows;
      if (next >= p.x_h) {  // pixels that do not exist
        const int exist = ((p.x_h - row) * lane.pairs - lane.t + kPairs - 1) / kPairs;
#pragma unroll
        for (int j = 0; j < kEights * 4; ++j)
          if (j / 4 >= (several && j / 4 >= kPlace ? kPlace : 0) + exist) sum[0][j] = 0;
      }
      const int begin = max(row, item.begin), end = next >= item.end_row ? item.end : next;
      const int top = row * kStride - p.pad_h;
      const auto run_of = [&](int number) {
        Run run;
        run.first = max(begin * kStride - p.pad_h, 0);
        run.end = exists && number < p.images && image + number < p.batch
                      ? min(end * kStride - p.pad_h, p.y_h)
                      : run.first;
        return FlatRun<T>(p, run, plane + number * next_image,
                          out + number * (p.out_bytes / kImages));
      };
      if (threadIdx.x % 32 == 0) stored_boxes_read();
      __syncwarp();  // those before have been read
      FlatRun<T> run = run_of(0);
      Spot<kTile.eights> spot(p, lane, run, top);
      const auto store = [&] {
        if (run.count > 0) store_run(run.y, run.from, run.lead, run.count);
      };
      const auto upper = [&](int e, int i) {
        return e < 0 ? above[kAbove + e][i] : e < kEights ? sum[0][4 * e + 2 + i] : 0.f;
      };
      float before = 0;
#pragma unroll
      for (int e = 0; e < kEights + kAbove; ++e) {
        if (e == kEights && next < p.x_h) break;  // the block below the last row
        if (several && e == kPlace) {
          store();
          run = run_of(1), spot = Spot<kTile.eights>(p, lane, run, top);
        }
        float two[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float mine = lane.carried ? upper(e - kAbove, i) : upper(e - kAbove + 1, i);
          two[i] = (e < kEights ? sum[0][4 * e + i] : 0.f) + __shfl_sync(~0u, mine, lane.above);
        }
        const float right = spot.pair == lane.last_pair ? 0.f : two[1];
        const float other = __shfl_sync(~0u, lane.last ? before : right, lane.source);
        before = right;
        const bool stored = spot.to >= run.to && spot.to < run.behind;
        if (stored && spot.pair >= lane.first_pair)
          narrow_to_shared<T>(spot.to, two[0] + other + bias);
        if (stored && spot.pair == lane.end_pair) narrow_to_shared<T>(spot.to + 4, two[1] + bias);
        spot.advance(p, lane);
      }
      store();
#pragma unroll
      for (int shift = 1; shift < kPairs; ++shift) {
        const int pairs = kTile.eights * kPairs + shift,
                  eights = flat_rows(pairs, kTile.width) * pairs / kPairs;
        if (lane.shift != shift || eights < kAbove) continue;
#pragma unroll
        for (int e = 0; e < kAbove; ++e)
#pragma unroll
          for (int i = 0; i < 2; ++i) above[e][i] = sum[0][4 * (eights - kAbove + e) + 2 + i];
      }
    }
  }
  if (threadIdx.x % 32 == 0) stored_boxes_there();
}

}  // namespace convt2d::cuda::pleat
