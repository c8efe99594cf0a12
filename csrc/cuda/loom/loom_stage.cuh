// The producers: one thread asks the copy engine for patches of the source and for weights, three warps turn patches.
#pragma once

#include <type_traits>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/strict_product.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/loom/loom_halves.cuh"
#include "cuda/loom/loom_scope.cuh"

namespace convt2d::cuda::loom {

struct Rings {
  StageRing x, turned, weights;
};
__device__ __forceinline__ Rings rings_of(const GatherParams& p, uint32_t shared) {
  return {{shared + kXBarriers, shared + p.x_at, p.x_stages, p.x_bytes},
          {shared + kTurnedBarriers, shared + p.turned_at, p.turned_stages, p.turned_bytes},
          {shared + kWeightBarriers, shared + p.weights_at, p.weight_stages, p.weight_bytes}};
}

// What is turned, pixel by pixel: where it is in a copied channel, in words, how much farther than the first row's its row
// starts into 16 bytes, and where it belongs in a half, in units of 16 bytes; its row and its column, where lines are copied.
// Or, if patches are brought, its row and its column instead of the first two.
constexpr int kLeadShift = 16, kUnitShift = 18;
__device__ __forceinline__ void build_items(const GatherParams& p, uint32_t shared) {
  for (int i = threadIdx.x; i < p.row_sets * p.items; i += kThreads) {
    const int rows = p.brought ? p.load_h : p.copied_h, set = i / p.items,
              line = (i - set * p.items) / p.load_w, x = i - set * p.items - line * p.load_w,
              n = line / rows;
    int of_set = line - n * rows;
    // A set may have a row less than others: then it is its last one that is turned again.
    if (set + of_set * p.row_sets >= p.load_h) --of_set;
    const int y = set + of_set * p.row_sets;
    const uint32_t unit = uint32_t(unit_of_pixel(p, n, y, x)) << kUnitShift;
    if (p.brought) {
      store_shared_4(shared + p.items_at + i * 4, unit | uint32_t(y << 8 | x));
      continue;
    }
    const int row = y * p.parts, from = n * p.slices * (p.word_far / 2) + of_set * p.copied_w + x;
    const uint32_t lead = row * p.w.source_extent & 3;
    store_shared_4(shared + p.items_at + i * (p.lines ? 8 : 4),
                   unit | lead << kLeadShift | uint32_t(from));
    if (p.lines) store_shared_4(shared + p.items_at + i * 8 + 4, uint32_t(row) << 16 | uint32_t(x));
  }
}

// The weights of a chunk: boxes of channels of the result, or of slices, or of kernel rows.
template <class T>
__device__ __forceinline__ void copy_weights(const GatherParams& p, const Scope& at,
                                             const CUtensorMap* map, const StageRing& ring,
                                             int chunk) {
  const int number = chunk * p.slices * slice_of(sizeof(T)),
            first = at.column_tile * p.tile_channels;
  const uint32_t full = ring.full();
  uint32_t to = ring.stage();
  if (p.own_rows) {
    const AxisGroup& rows = p.h.group[at.group_h];
    barrier_expect(full, rows.taps[0] * p.box_bytes);
    for (int i = 0; i < rows.taps[0]; ++i, to += p.box_bytes)
      copy_box(to, map, full, 0, at.group * p.reduce + number, first,
               rows.first_tap[0] + i * p.h.tap_step);
    return;
  }
  barrier_expect(full, p.weight_bytes);
  if (p.segment_bytes) {
    copy_box(to, map, full, 0, at.group * p.reduce + number,
             first * p.taps * p.element_bytes >> kSegmentShift, 0);
  } else if (p.woven) {
    copy_box(to, map, full, 0, at.group * p.reduce + number, first / 2, 0);
  } else if (p.forward) {
    for (int i = 0; i < p.tile_channels; i += p.box_rows, to += p.box_bytes)
      copy_box(to, map, full, (first + i) / kEight * p.box_step, at.group * p.reduce + number, 0,
               0);
  } else {
    for (int i = 0; i < p.slices; ++i, to += p.box_bytes)
      copy_box(to, map, full, (chunk * p.slices + i) * p.box_step, at.group * p.columns + first, 0,
               0);
  }
}

// A patch of 16 bits, row by row.
__device__ __forceinline__ void copy_lines(const GatherParams& p, const Scope& at,
                                           const CUtensorMap* map, const StageRing& ring,
                                           TileOrigin origin, int chunk) {
  const int channel = (at.group * p.reduce + chunk * p.slices * slice_of(2)) / p.lines;
  uint32_t to = ring.stage();
  for (int plane = 0; plane < p.lines; ++plane)
    for (int row = 0; row < p.load_h; ++row, to += p.tile_n * p.line_bytes)
      copy_box(to, map, ring.full(),
               (pixel_of_line(p, plane, first_row(p, at, origin) + row, first_column(p, origin)) &
                -kEight) /
                   2,
               channel, origin.n, 0);
}

// A set of rows of a patch of words, which start equally far into 16 bytes in each plane of those that are neighbours.
__device__ __forceinline__ void copy_set(const GatherParams& p, const Scope& at,
                                         const CUtensorMap* map, const StageRing& ring,
                                         TileOrigin origin, int chunk, int first) {
  const int planes = p.lines ? p.lines : 1, column = first_column(p, origin),
            channel = (at.group * p.reduce + chunk * p.slices * slice_of(4)) / planes;
  uint32_t to = ring.stage();
  int row = first_row(p, at, origin) + first;
  for (int plane = 0; plane < planes; ++plane, to += p.set_bytes, row += p.h.source_extent)
    copy_box(to, map, ring.full(),
             ((row & (p.period - 1)) * p.w.source_extent + column) & -p.row_start,
             row >> p.period_shift, channel, origin.n);
}

template <class T, bool LAID>
__device__ __forceinline__ void copy(const GatherParams& p, const Scope& at, uint32_t shared,
                                     const TensorMaps& maps, Rings& rings) {
  bool weights = true;
  for_tiles(p, shared, [&](TileOrigin origin) {
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      for (int part = 0; part < p.parts; ++part) {
        for (int set = 0; set < p.row_sets && !p.brought; ++set) {
          barrier_wait(rings.x.empty(), rings.x.parity ^ 1);
          barrier_expect(rings.x.full(), p.copied_bytes);
          if constexpr (sizeof(T) == 4)
            copy_set(p, at, &maps.source, rings.x, origin, chunk, part + set * p.parts);
          else if (p.lines)
            copy_lines(p, at, &maps.source, rings.x, origin, chunk);
          else
            copy_box(rings.x.stage(), &maps.source, rings.x.full(),
                     (first_column(p, origin) & -kEight) / 2, first_row(p, at, origin),
                     at.group * p.reduce + chunk * p.slices * slice_of(2), origin.n);
          rings.x.advance();
        }
        if (LAID || part > 0 || !weights || (p.weight_barrier == 0 && chunk > 0)) continue;
        barrier_wait(rings.weights.empty(), rings.weights.parity ^ 1);
        copy_weights<T>(p, at, &maps.weight, rings.weights, chunk);
        rings.weights.advance();
      }
    }
    weights = !p.resident;
  });
}

__device__ __forceinline__ int turner_of_block() { return threadIdx.x / 32 - kConsumers / 32 - 1; }
__device__ __forceinline__ uint32_t item_of_patch(const GatherParams& p, uint32_t shared,
                                                  int number) {
  // Lanes beyond the last pixel do it again.
  return load_shared_4(shared + p.items_at + min(number, p.items - 1) * 4);
}

constexpr int kWords = slice_of(4);  // of a slice, for each pixel
// A pixel's channels of a slice, to both halves of it; in strict fp32 behind these what is left of them.
template <bool STRICT>
__device__ __forceinline__ void store_pixel(const GatherParams& p, uint32_t to,
                                            uint32_t (&word)[2][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half, to += p.half_bytes) {
    if constexpr (STRICT) {
      uint32_t rest[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) split_in_two(word[half][k], word[half][k], rest[k]);
      store_shared_16(to + 2 * p.half_bytes, rest);
    }
    store_shared_16(to, word[half]);
  }
}

// Runs of 32 pixels of a slice, whose eight channels a lane brings together; two runs at a time, since what is loaded is
// some 30 cycles on its way. `items`: the set's. `row` and `column`: of the source, where the part starts. Rows that all start
// alike need fewer instructions. EDGES: what is beside the source, which lines have from their neighbours, becomes zeros.
enum class Rows { alike, lines, lines_at_edges };
template <bool STRICT, Rows ROWS>
__device__ __forceinline__ void turn_set(const GatherParams& p, uint32_t items, int row, int column,
                                         uint32_t from, uint32_t to) {
  constexpr bool ALIKE = ROWS == Rows::alike, EDGES = ROWS == Rows::lines_at_edges;
  constexpr int item_bytes = ALIKE ? 4 : 8;
  const int lane = threadIdx.x % 32, turner = turner_of_block();
  const uint32_t channel = p.channel_words * 4;
  if constexpr (ALIKE) from += (column & (p.row_start - 1)) * 4;
  // How much too early the copied row of a channel starts, bytes.
  const int first_lead = row * p.w.source_extent + column,
            plane = p.h.source_extent * p.w.source_extent;
  uint32_t lead[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) lead[k] = (first_lead + k * plane) * 4;
  for (int slice = 0; slice < p.slices; ++slice) {
    for (int first = turner * 32 + lane; first - lane < p.items; first += 2 * kTurners * 32) {
      uint32_t word[2][2][4], there[2];
#pragma unroll
      for (int two = 0; two < 2; ++two) {
        // Lanes beyond the last pixel do it again.
        const uint32_t at = items + min(first + two * kTurners * 32, p.items - 1) * item_bytes;
        uint32_t item[2];
        if constexpr (EDGES)
          load_shared_8(at, item);
        else
          item[0] = load_shared_4(at);
        const uint32_t mine = from + (item[0] & 0xffff) * 4, more = item[0] >> (kLeadShift - 2);
        there[two] = to + (item[0] >> kUnitShift) * 16;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if constexpr (ALIKE) {
            word[two][0][k] = load_shared_4(mine + k * channel);
            word[two][1][k] = load_shared_4(mine + (k + 4) * channel);
          } else {
            const uint32_t place = mine + p.word_place[k] + (lead[k] + more & 12);
            word[two][0][k] = load_shared_4(place);
            word[two][1][k] = load_shared_4(place + p.word_far);
          }
        }
        if constexpr (EDGES) {
          const int y = row + int(item[1] >> 16), x = column + int(item[1] & 0xffff);
          const bool outside = uint32_t(y) >= uint32_t(p.h.source_extent) ||
                               uint32_t(x) >= uint32_t(p.w.source_extent);
#pragma unroll
          for (int k = 0; k < kWords; ++k)
            word[two][k / 4][k % 4] = outside ? 0 : word[two][k / 4][k % 4];
        }
      }
#pragma unroll
      for (int two = 0; two < 2; ++two)
        if (first - lane + two * kTurners * 32 < p.items)
          store_pixel<STRICT>(p, there[two], word[two]);
    }
    from += 2 * p.word_far;
    to += p.turned_slice;
  }
}
template <bool STRICT>
__device__ __forceinline__ void turn_set(const GatherParams& p, const Scope& at, uint32_t shared,
                                         TileOrigin origin, int part, int set, uint32_t from,
                                         uint32_t to) {
  const uint32_t items = shared + p.items_at + set * p.items * (p.lines ? 8 : 4);
  const int row = first_row(p, at, origin) + part, column = first_column(p, origin);
  if (!p.lines) return turn_set<STRICT, Rows::alike>(p, items, row, column, from, to);
  const bool inside = row >= 0 && row + (p.load_h - 1) * p.parts < p.h.source_extent &&
                      column >= 0 && column + p.load_w <= p.w.source_extent;
  if (inside)
    turn_set<STRICT, Rows::lines>(p, items, row, column, from, to);
  else
    turn_set<STRICT, Rows::lines_at_edges>(p, items, row, column, from, to);
}

// Turns parts of chunks, from some stages to a stage: turn_set(), or turn_octets() of loom_halves.cuh.
template <class T, bool STRICT>
__device__ __forceinline__ void turn(const GatherParams& p, const Scope& at, uint32_t shared,
                                     Rings& rings) {
  for_tiles(p, shared, [&](TileOrigin origin) {
    for (int i = 0, part = 0; i < p.chunks * p.parts; ++i) {
      barrier_wait(rings.turned.empty(), rings.turned.parity ^ 1);
      for (int set = 0; set < p.row_sets; ++set, rings.x.advance()) {
        barrier_wait(rings.x.full(), rings.x.parity);
        if constexpr (sizeof(T) == 4)
          turn_set<STRICT>(p, at, shared, origin, part, set, rings.x.stage(), rings.turned.stage());
        else
          turn_octets(p, at, shared, origin, rings.x.stage(), rings.turned.stage());
        fence_for_wgmma();
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(rings.x.empty());
      }
      if (threadIdx.x % 32 == 0) barrier_arrive(rings.turned.full());
      rings.turned.advance();
      if (++part == p.parts) part = 0;
    }
  });
}

// Patches whose rows are no whole 16 bytes, a slice at a time: each lane brings the pixels that it turns, two batches of
// runs ahead, so that it waits for nobody but itself. Here is what it brings next.
struct Ahead {
  Walk walk;
  int tile, chunk, first;
  __device__ __forceinline__ bool there(const GatherParams& p) const {
    return tile < walk.end() && turner_of_block() * 32 < p.items;
  }
  __device__ __forceinline__ void advance(const GatherParams& p) {
    if ((first += kTurners * 32) < p.items) return;
    first = turner_of_block() * 32;
    if (++chunk < p.chunks) return;
    chunk = 0;
    tile += walk.step();
  }
};

// A run, to [channel][lane].
template <class T>
__device__ __forceinline__ void bring(const GatherParams& p, const Scope& at, const Ahead& run,
                                      uint32_t shared, uint32_t to) {
  const TileOrigin origin = tile_origin(p, run.tile);
  const uint32_t item = item_of_patch(p, shared, run.first + threadIdx.x % 32);
  const int y = first_row(p, at, origin) + int(item >> 8 & 255),
            x = first_column(p, origin) + int(item & 255), channel = run.chunk * kWords;
  const bool inside = y >= 0 && y < p.h.source_extent && x >= 0 && x < p.w.source_extent;
  const T* const source = static_cast<const T*>(p.source);
  const T* from = source + origin.n * p.source_stride[0] +
                  (at.group * p.reduce + channel) * p.source_stride[1] + y * p.source_stride[2] + x;
#pragma unroll
  for (int k = 0; k < kWords; ++k, from += p.source_stride[1]) {
    const bool valid = inside && channel + k < p.reduce;
    copy_async<4>(to + k * 128, valid ? from : source, valid);
  }
}

template <class T, bool STRICT>
__device__ __forceinline__ void bring_and_turn(const GatherParams& p, const Scope& at,
                                               uint32_t shared, StageRing& ring) {
  const int lane = threadIdx.x % 32;
  const uint32_t mine = shared + p.x_at + turner_of_block() * (kBatches * kBatchBytes) + lane * 4;
  const auto next = [](uint32_t run) {
    return run + 32 * kSliceBytes == kBatches * kBatchBytes ? 0 : run + 32 * kSliceBytes;
  };
  const Walk walk{shared};
  Ahead ahead{walk, walk.first(), 0, turner_of_block() * 32};
  uint32_t to = 0, from = 0;
  const auto bring_batch = [&] {
    for (int i = 0; i < kBatch; ++i, to = next(to)) {
      if (!ahead.there(p)) continue;
      bring<T>(p, at, ahead, shared, mine + to);
      ahead.advance(p);
    }
    copy_async_commit();
  };
  for (int i = 1; i < kBatches; ++i) bring_batch();
  int left = 0;  // of a batch that is there
  for_tiles(p, shared, [&](TileOrigin) {
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      for (int first = turner_of_block() * 32; first < p.items; first += kTurners * 32) {
        if (left == 0) {
          bring_batch();
          copy_async_wait(kBatches - 1);
          left = kBatch;
        }
        const uint32_t there =
            ring.stage() + (item_of_patch(p, shared, first + lane) >> kUnitShift) * 16;
        uint32_t word[2][4];
#pragma unroll
        for (int k = 0; k < kWords; ++k)
          word[k / 4][k % 4] = std::conditional_t<STRICT, MmaF32x3, MmaTF32>::round(
              load_shared_4(mine + from + k * 128));
        store_pixel<STRICT>(p, there, word);
        from = next(from);
        --left;
      }
      fence_for_wgmma();
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.full());
      ring.advance();
    }
  });
}

}  // namespace convt2d::cuda::loom
