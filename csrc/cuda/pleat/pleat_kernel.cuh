// The pleat kernel; pleat_config.h draws the GEMM.
//
// One thread asks the copy engine for the chunks of a block's tiles, in a ring of stages: `full` ends a phase when a stage has
// arrived, `empty` when all warpgroups have multiplied it. These add up and store on their own; the ring lets one be ahead of others.
// Nothing is multiplied that does not exist but for pixels below an image, whose products are left out.
#pragma once

#include <type_traits>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/tensor_store.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/pleat/pleat_config.h"

namespace convt2d::cuda::pleat {

// 16 output channels, and blocks of rows of an image.
struct Item {
  int image, group, channel;  // the first channel, of the group's
  int begin, end;             // blocks whose outputs are the item's
  int first, end_row;         // rows of x
};
// Items side by side have the same pixels.
template <int ROW>
__device__ __forceinline__ Item item_of(const Params& p, int index) {
  unsigned rest = index, next = p.by_row_tiles.quotient(rest);
  Item item;
  item.channel = int(rest - next * p.by_row_tiles.divisor) * kBlockChannels;
  rest = next, next = p.by_groups.quotient(rest);
  item.group = int(rest - next * p.by_groups.divisor);
  rest = next, next = p.by_segments.quotient(rest);
  const int segment = int(rest - next * p.by_segments.divisor);
  item.image = int(next);
  item.begin = segment * p.segment_rows;
  item.end_row = min(item.begin + p.segment_rows, p.x_h);
  item.end = item.end_row == p.x_h ? p.x_h + 1 : item.end_row;
  item.first = max(item.begin - (is_flat(ROW) ? p.early_rows : 1), 0);
  return item;
}

// Where a strip starts in x, and which columns of y are its own, from its first pixel's first one on.
struct Strip {
  int pixel, begin, end;
};
__device__ __forceinline__ Strip strip_of(const Params& p, int index) {
  const int first = index * kStrip;
  Strip strip;
  strip.pixel = min(first, p.x_w - kStrip);
  strip.begin = index == 0 ? p.pad_w : (first - strip.pixel) * kStride;
  strip.end = index + 1 == p.strips ? p.y_w + p.pad_w - strip.pixel * kStride : kStrip * kStride;
  return strip;
}

__device__ __forceinline__ StageRing ring_of(const Params& p, uint32_t shared) {
  return {shared, shared + kStagesAt, p.stages, p.stage_bytes};
}

template <int ROW>
__device__ __forceinline__ void bring(const Params& p, const Maps& maps, uint32_t shared) {
  constexpr bool kStrips = has_strips(ROW);
  StageRing ring = ring_of(p, shared);
  const int depth = p.slices * kSlice, line = depth * kLine;
  const int tile = is_flat(ROW) ? p.tile_rows : tile_rows(eights_of(ROW));
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of<ROW>(p, i);
    int filled = 0;  // stages, by the item
    for (int strip = 0; strip < (kStrips ? p.strips : 1); ++strip)
      for (int row = item.first; row < item.end_row; row += tile)
        for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
          const bool weights = !kStrips || filled++ < p.fresh;
          barrier_wait(ring.empty(), ring.parity ^ 1);
          barrier_expect(ring.full(), weights ? p.stage_bytes : p.x_bytes);
          uint32_t to = ring.stage();
#pragma unroll
          for (int box = 0; box < kPixels / kLineNumbers; ++box, to += line)
            if constexpr (kStrips) {
              copy_box(to, &maps.x, ring.full(), strip_of(p, strip).pixel, row + box, chunk * depth,
                       item.image * p.groups + item.group);
            } else if constexpr (is_flat(ROW)) {
              const bool second = box > 0 && p.images > 1;
              copy_box(to, &maps.x, ring.full(), row * p.x_w + (second ? 0 : box * kLineNumbers),
                       chunk * depth, item.group, item.image * p.images + second);
            } else {
              copy_box(to, &maps.x, ring.full(), row * eights_of(ROW) * 8 + box * kLineNumbers,
                       chunk * depth, item.group, item.image);
            }
          if (!weights) continue;
#pragma unroll
          for (int group = 0; group < kGroups; ++group, to += line)
            copy_box(to, &maps.w, ring.full(), (item.channel + group * kGroupChannels) * kTaps,
                     chunk * depth, item.group, 0);
        }
  }
}

template <class T, int SLICES, int NUMBERS>
__device__ __forceinline__ void multiply_slices(float (&sum)[1][NUMBERS], uint64_t w, uint64_t x) {
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
    WgmmaTurned<T, NUMBERS * 2>::add(sum[0], advance(w, slice * (kSlice * kLine >> 4)),
                                     advance(x, slice * (kSlice * kLine >> 4)));
  wgmma_commit();
}

// The products of a tile.
template <class T, int NUMBERS>
__device__ __forceinline__ void multiply(const Params& p, int group, StageRing& ring,
                                         float (&sum)[1][NUMBERS]) {
  const int line = p.slices * kSlice * kLine;
  const uint64_t layout = turned_layout(kLine, line);
  clear(sum);
  uint32_t before = 0;  // `empty` of the stage whose products are under way
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    const uint64_t x = operand(layout, ring.stage()),
                   w = operand(layout, ring.stage() + p.x_bytes + group * line);
    // Each branch commits: behind them the compiler would add an empty instruction, and wait for that.
    if (p.slices == kMostSlices) {
      multiply_slices<T, kMostSlices>(sum, w, x);
    } else if (p.slices == 2) {
      multiply_slices<T, 2>(sum, w, x);
    } else {
      multiply_slices<T, 1>(sum, w, x);
    }
    if (before) {
      wgmma_wait<1>();
      if (threadIdx.x % 32 == 0) barrier_arrive(before);
    }
    before = ring.empty();
  }
  wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) barrier_arrive(before);
  finished(sum[0]);
}

// What a lane adds up: outputs of one row of a block and one column of two, of every second pair of columns.
struct Lane {
  int row, column;  // of its outputs, in a block; the first one, but for `pad` before it
  int source;       // whose products it wants
  bool last;        // it has tap columns 2 and 3 of the last two pixels of eight;
  bool inside,
      ends;  // its first output of a row is one; so is one right of the row's last pixel, which is its own
  __device__ __forceinline__ Lane(const Params& p, int width, int pad) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const bool upper = g & 2;
    row = g / 4;
    last = upper && t == 3;
    column = 4 * t + (upper ? 2 : 0) + (g & 1) - pad;
    inside = column >= 0;
    ends = last && column + kStride * (width - 8) + 2 < p.y_w;
    // An output of the lower lanes has a product of the pixel before theirs; one of the upper lanes of that before their second.
    source = (g ^ 2) * 4 + (upper ? t : (t + 3) % 4);
  }
};

template <class T>
__device__ __forceinline__ void put(uint32_t place, float value) {
  const T narrow = Numeric<T>::narrow(value);
  store_shared_2(place, *reinterpret_cast<const unsigned short*>(&narrow));
}

// A block's outputs, from the products of a row of x and `above`, what the row above has for it, with the bias; then the row's own. HERE:
// there is such a row. `before`: a last lane's of the pixel before the row; returns that of the row's last one. give(e, output).
template <int EIGHTS, bool HERE, class Give>
__device__ __forceinline__ float add_block(const Lane& lane, const float* sum,
                                           float (&above)[EIGHTS][2], float bias, float before,
                                           Give&& give) {
#pragma unroll
  for (int e = 0; e < EIGHTS; ++e) {
    float two[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) two[i] = HERE ? above[e][i] + sum[4 * e + i] : above[e][i];
    if (HERE) above[e][0] = sum[4 * e + 2] + bias, above[e][1] = sum[4 * e + 3];
    const float other = __shfl_sync(~0u, lane.last ? before : two[1], lane.source);
    before = two[1];
    give(e, two[0] + other);
  }
  return before;
}

// Where a warp's outputs of a tile go: rows `first` to `end` of y, which follow each other in memory.
struct Run {
  int first, end;
  uint32_t to;  // shared address of the row `first`
};

// A block's outputs to a run. `y`, `to`: the lane's row of outputs, and where its first one goes.
template <class T, int EIGHTS, bool HERE>
__device__ __forceinline__ void add_to_run(const Lane& lane, const Run& run, int y, uint32_t to,
                                           const float* sum, float (&above)[EIGHTS][2],
                                           float bias) {
  const bool stored = y >= run.first && y < run.end;
  const float last = add_block<EIGHTS, HERE>(lane, sum, above, bias, 0, [&](int e, float output) {
    if (stored && (e > 0 || lane.inside)) put<T>(to + e * 32, output);
  });
  if (stored && lane.ends) put<T>(to + (EIGHTS - 1) * 32 + 4, last + bias);
}

// A run to memory, which starts `lead` numbers behind `from` and a multiple of 16 bytes: whole ones by the copy engine, what is before
// and behind them a number a lane.
template <class T>
__device__ __forceinline__ void store_run(T* y, uint32_t from, int lead, int count) {
  constexpr int kUnit = 8;
  T* const aligned = y - lead;
  const int lane = threadIdx.x % 32, end = lead + count, first = lead > 0, last = end / kUnit;
  fence_for_wgmma();  // and for the copy engine
  __syncwarp();
  if (lane == 0 && last > first)
    store_bytes(aligned + first * kUnit, from + first * kUnit * 2, (last - first) * kUnit * 2);
  const int at = lane < kUnit ? lane : last * kUnit + lane - kUnit;
  const bool edge = lane < kUnit ? first > 0 && at >= lead : at >= max(lead, first * kUnit);
  if (lane < 2 * kUnit && edge && at < end)
    reinterpret_cast<unsigned short*>(aligned)[at] = load_shared<unsigned short>(from + at * 2);
}

// Rows of y in a strip: where the first column of its first pixel is in row 0, and which columns from there on are its own. All of a
// tile's are put into shared memory, for it has room for them; of those that are its own each row is a run.
template <class T>
struct Pieces {
  T* y;
  int begin, end;
  __device__ __forceinline__ Pieces(const Params& p, T* plane, const Strip& strip)
      : y(plane + strip.pixel * kStride - p.pad_w), begin(strip.begin), end(strip.end) {}

  // A row's first column, among 16 bytes.
  static __device__ __forceinline__ int lead(const T* row) {
    return int(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
  }

  // A block's outputs to its rows, of which `row` is the lane's. What its last pixel adds to the next strip takes the place, `left`, of
  // what that before it has left, if there is one: it `follows`.
  template <int EIGHTS, bool HERE>
  __device__ __forceinline__ void add(const Lane& lane, const T* row, uint32_t out, uint32_t left,
                                      bool follows, const float* sum, float (&above)[EIGHTS][2],
                                      float bias) const {
    const uint32_t to = out + lane.row * kPiece + (lead(row) + lane.column) * 2;
    const float before = follows && lane.last ? load_shared<float>(left) : 0.f;
    const float last = add_block<EIGHTS, HERE>(
        lane, sum, above, bias, before, [&](int e, float output) { put<T>(to + e * 32, output); });
    if (lane.last) {
      put<T>(to + (EIGHTS - 1) * 32 + 4, last + bias);
      store_shared_sum(left, last);
    }
  }

  // Those rows from `at` on that are from `first` to `last` to memory, by 16 lanes each: whole 16 bytes, and what is before and behind
  // them a number a lane. In bytes from the 16 on in which a row starts.
  __device__ __forceinline__ void store(const Params& p, uint32_t out, int at, int first,
                                        int last) const {
    constexpr int kLanes = 16, kAtOnce = 32 / kLanes;
    const int number = threadIdx.x % kLanes, mine = threadIdx.x % 32 / kLanes;
    __syncwarp();
#pragma unroll 1
    for (out += mine * kPiece; at < last; at += kAtOnce, out += kAtOnce * kPiece) {
      const int line = at + mine;
      T* const row = y + line * p.y_w;
      const uint32_t before = lead(row) * 2, start = before + begin * 2, stop = before + end * 2;
      const uint32_t whole = (start + 15) / 16 * 16, behind = stop / 16 * 16;
      const uint32_t unit = whole + number * 16,
                     edge = (number < 8 ? whole : behind) + (number - 8) * 2;
      uint32_t word[4];
      load_shared_16(out + unit, word);
      const auto one = load_shared<unsigned short>(out + edge);
      const bool stored = line >= first && line < last;
      unsigned char* const to = reinterpret_cast<unsigned char*>(row) - before;
      if (stored && unit < behind) store_words(to + unit, word[0], word[1], word[2], word[3]);
      if (stored && edge >= start && edge < stop)
        *reinterpret_cast<unsigned short*>(to + edge) = one;
    }
  }
};

template <class T, int ROW>
__device__ __forceinline__ void consume(const Params& p, uint32_t shared) {
  constexpr int kEights = eights_of(ROW), kTileRows = tile_rows(kEights);
  constexpr bool kStrips = has_strips(ROW);
  const int group = warpgroup_of_block(), warp = warp_of_block(), lane_number = threadIdx.x % 32;
  const uint32_t out = shared + p.out_at + warp * p.out_bytes, step = kStride * p.y_w * 2;
  const Lane lane(p, kEights * 8, kStrips ? 0 : p.pad_w);
  const uint32_t left_at =
      shared + p.left_at + warp * p.left_bytes + (lane.row * kStride + lane.column % kStride) * 4;
  StageRing ring = ring_of(p, shared);
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of<ROW>(p, i);
    const int channel = item.channel + warp, all = item.group * p.columns + channel;
    const bool exists = channel < p.columns;
    const float bias = p.bias && exists ? load(static_cast<const T*>(p.bias) + all) : 0.f;
    T* const plane =
        static_cast<T*>(p.y) + (int64_t{item.image} * p.groups * p.columns + all) * (p.y_h * p.y_w);
    for (int strip = 0; strip < (kStrips ? p.strips : 1); ++strip) {
      const Pieces<T> pieces(p, plane, strip_of(p, strip));
      float above[kEights][2];
#pragma unroll
      for (int e = 0; e < kEights; ++e) above[e][0] = bias, above[e][1] = 0;
      for (int row = item.first; row < item.end_row; row += kTileRows) {
        float sum[1][tile_width(kEights) / 2];
        multiply<T>(p, group, ring, sum);
        const int next = row + kTileRows;
        if (next > p.x_h) {  // rows that do not exist
#pragma unroll
          for (int j = 0; j < kTileRows * kEights * 4; ++j)
            if (row + j / (4 * kEights) >= p.x_h) sum[0][j] = 0;
        }
        // The block below the last row of x is the tile's too.
        const int begin = max(row, item.begin), end = next >= item.end_row ? item.end : next;
        Run run;
        run.first = max(begin * kStride - p.pad_h, 0);
        run.end = exists ? min(end * kStride - p.pad_h, p.y_h) : run.first;
        const int top = row * kStride - p.pad_h;
        if (!kStrips && lane_number == 0) stored_boxes_read();
        __syncwarp();  // those before have been read
        if constexpr (kStrips) {
          const T* y = pieces.y + (top + lane.row) * p.y_w;
          uint32_t to = out, left = left_at + (row - item.first) * kLeft;
          const auto add = [&](auto here, const float* sums) {
            pieces.template add<kEights, decltype(here)::value>(lane, y, to, left, strip > 0, sums,
                                                                above, bias);
            y += kStride * p.y_w, to += kStride * kPiece, left += kLeft;
          };
#pragma unroll
          for (int r = 0; r < kTileRows; ++r) add(std::true_type(), sum[0] + r * kEights * 4);
          if (next == p.x_h) add(std::false_type(), nullptr);
          pieces.store(p, out, top, run.first, run.end);
        } else {
          T* const y = plane + run.first * p.y_w;
          const int lead = int(reinterpret_cast<uintptr_t>(y) % 16 / sizeof(T));
          run.to = out + lead * 2;
          int at = top + lane.row;
          uint32_t to = run.to + ((at - run.first) * p.y_w + lane.column) * 2;
#pragma unroll
          for (int r = 0; r < kTileRows; ++r, at += kStride, to += step)
            add_to_run<T, kEights, true>(lane, run, at, to, sum[0] + r * kEights * 4, above, bias);
          if (next == p.x_h) add_to_run<T, kEights, false>(lane, run, at, to, nullptr, above, bias);
          if (run.end > run.first) store_run(y, out, lead, (run.end - run.first) * p.y_w);
        }
      }
    }
  }
  if (!kStrips && lane_number == 0) stored_boxes_there();
}

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
        if (stored && spot.pair >= lane.first_pair) put<T>(spot.to, two[0] + other + bias);
        if (stored && spot.pair == lane.end_pair) put<T>(spot.to + 4, two[1] + bias);
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

template <class T, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_pleat_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  if (threadIdx.x < p.stages) {
    barrier_init(shared + threadIdx.x * 16, 1);
    barrier_init(shared + threadIdx.x * 16 + 8, kConsumers / 32);
  }
  if (threadIdx.x == kConsumers) {
    prefetch_map(&maps.x);
    prefetch_map(&maps.w);
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= kConsumers / 32) {
    if (threadIdx.x == kConsumers) bring<ROW>(p, maps, shared);
  } else if constexpr (is_flat(ROW)) {
    consume_flat<T, ROW>(p, shared);
  } else {
    consume<T, ROW>(p, shared);
  }
#endif
}

}  // namespace convt2d::cuda::pleat
