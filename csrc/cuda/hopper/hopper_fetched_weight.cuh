// The hopper kernel of grad_weight whose dY is fetched; hopper_fetched_weight.h draws the tiling,
// hopper_fetched_weight_stage.cuh brings it to shared memory.
//
// A warp, or four by turns, ask the copy engine for a block's K tiles, in a ring of stages, and list where their pixels stand; `full`
// ends a phase when a stage has arrived, `helped` when three warps have turned or split its x, `empty` when every warp
// that multiplies has read it. If a sum came out NaN, all of it once more, with care.
#pragma once

#include "cuda/device/numeric.cuh"
#include "cuda/device/strict_product.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/hopper/hopper_fetched_weight_stage.cuh"

namespace convt2d::cuda::hopper {

// Of a thread: [instruction][input channel 8 i + 2 t or + 1, output channel g or g + 8 of the warp's 16].
template <int ROW>
using FetchedSums =
    float[kFetchedWeightTiles[ROW].instructions][kFetchedWeightTiles[ROW].width / 2];

// The row of the sum that is the thread's first one, of an instruction's 64; the second is eight on.
__device__ __forceinline__ int sum_row() {
  return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
}

// What an instruction of this warp is about; of pairs, one of the thread's two rows of it, `half`.
struct FetchedCell {
  int tap_h, tap_w, y_block;  // of the block
  int channel;                // pairs: of the block
};
template <int ROW>
__device__ __forceinline__ FetchedCell fetched_cell(const FetchedWeightParams& p, int instruction,
                                                    int half = 0) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int of_group = threadIdx.x / 128 * tile.instructions + instruction;
  if constexpr (tile.pairs) {
    const int pair = of_group * 64 + sum_row() + 8 * half;
    const int inside = p.taps_inside ? p.unit_h * p.unit_w : p.columns, outside = pair / inside;
    const int tap = p.taps_inside ? pair % inside : outside;
    const int channel = p.taps_inside ? outside : pair % inside;
    if (channel >= p.columns) return {p.unit_h, 0, 0, 0};  // there is no such cell
    return {tap / p.unit_w, tap % p.unit_w, 0, channel};
  }
  const int cell = tile.channels_last ? of_group * 2 + threadIdx.x % 128 / 64 : of_group;
  const int tap = cell / p.y_blocks;
  return {tap / p.unit_w, tap % p.unit_w, cell % p.y_blocks};
}
template <int ROW>
__device__ __forceinline__ bool cell_exists(const FetchedWeightParams& p,
                                            const FetchedWeightScope& at, const FetchedCell& cell) {
  return cell.tap_h < p.unit_h && at.kernel_h + cell.tap_h < p.kernel_h &&
         at.kernel_w + cell.tap_w < p.kernel_w;
}
// Where its patch starts for the thread, from the start of a stage. What does not exist reads what the first one does.
template <int ROW>
__device__ __forceinline__ uint32_t cell_start(const FetchedWeightParams& p,
                                               const FetchedWeightScope& at,
                                               const FetchedCell& cell) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  uint32_t start = y_at(tile);
  if (!tile.channels_last && !tile.pairs) start += sum_row() * p.channel_bytes;
  if (cell_exists<ROW>(p, at, cell)) {
    start += tile.pairs ? cell.channel * p.channel_bytes : cell.y_block * p.y_block_bytes;
    if (!by_planes(tile))
      start += cell.tap_h * p.tap_lines * p.line_bytes + cell.tap_w * p.tap_bytes;
  }
  return start;
}
// Planes: where its table is, from the first one of a stage. Of words, that of the warpgroup's first cell is for all.
template <int ROW>
__device__ __forceinline__ uint32_t cell_table(const FetchedWeightParams& p,
                                               const FetchedWeightScope& at,
                                               const FetchedCell& cell) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  if (!cell_exists<ROW>(p, at, cell)) return 0;
  const int tap = cell.tap_h * p.unit_w + cell.tap_w;
  return tile.planes == Planes::words ? tap / tile.instructions * table_of_words(tile)
                                      : tap * kTableOfTap;
}

// The thread's first output channel of a cell and, eight rows of the sum on, its second one: in bytes of a channel, of
// which the places of two differ in bits. See far_piece.
struct Lanes {
  uint32_t first, second;
};
template <int ROW>
__device__ __forceinline__ Lanes lanes_of(const FetchedWeightParams& p,
                                          const FetchedWeightScope& at, int instruction) {
  if (kFetchedWeightTiles[ROW].pairs)
    return {0, cell_start<ROW>(p, at, fetched_cell<ROW>(p, instruction, 1)) -
                   cell_start<ROW>(p, at, fetched_cell<ROW>(p, instruction, 0))};
  if (!kFetchedWeightTiles[ROW].channels_last)
    return {0, static_cast<uint32_t>(8 * p.channel_bytes)};
  const int g = threadIdx.x % 32 / 4;
  const int warp_piece = 7 * 16 - p.far_piece - p.next_piece;
  return {
      static_cast<uint32_t>(threadIdx.x / 32 % 2 * warp_piece + g / 4 * p.far_piece + g % 4 * 4),
      static_cast<uint32_t>(p.next_piece)};
}
template <int ROW>
__device__ __forceinline__ int output_column(const FetchedWeightParams& p,
                                             const FetchedWeightScope& at, const FetchedCell& cell,
                                             int half) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  if constexpr (tile.pairs) return cell.channel;
  const Lanes lanes = lanes_of<ROW>(p, at, 0);
  int inside = (lanes.first ^ half * lanes.second) / 4;
  if (!tile.channels_last) {
    const int row = sum_row() + 8 * half;
    inside = (row & (residue_channels(p) - 1)) * p.residues + residue_of(p, row);
  }
  return (at.column_block * p.y_blocks + cell.y_block) * cell_channels(tile) + inside;
}

// Odd rows: where a stage's leads_of() say what its patch has before the first column, in the thread's first channel of a
// cell and, above, in its second one. A cell that does not exist may be of a row that did not come.
template <int ROW>
__device__ __forceinline__ uint32_t leads_at(const FetchedWeightParams& p,
                                             const FetchedCell& cell) {
  const int line =
      by_planes(kFetchedWeightTiles[ROW]) ? 0 : min(cell.tap_h, p.unit_h - 1) * p.residues;
  return (line + residue_of(p, sum_row())) * 4 | (line + residue_of(p, sum_row() + 8)) * 4 << 16;
}
__device__ __forceinline__ void add_leads(const StageRing& ring, uint32_t leads, uint32_t& from,
                                          Lanes& lanes) {
  const uint32_t first = load_shared_4(leads_of(ring) + (leads & 0xffff)),
                 second = load_shared_4(leads_of(ring) + (leads >> 16));
  from += first;
  lanes.second += second - first;
}

// Shared addresses of a pixel in the thread's two channels, `at` bytes on in the first one's patch.
template <int ROW>
__device__ __forceinline__ void places_of(uint32_t (&place)[2], uint32_t at, const Lanes& lanes) {
  if constexpr (kFetchedWeightTiles[ROW].channels_last && !kFetchedWeightTiles[ROW].pairs) {
    place[0] = at + (lanes.first ^ (at >> 3 & 0x70));
    place[1] = place[0] ^ lanes.second;
  } else {
    place[0] = at;
    place[1] = at + lanes.second;
  }
}

// Octets: where 16 bytes at `at` are, since the copy engine permutes them; and where those start, from the start of a
// stage, that a lane shows ldmatrix, of eight rows of the sum of its warp.
template <int ROW>
__device__ __forceinline__ uint32_t in_chunks(const FetchedWeightParams& p, uint32_t at) {
  if constexpr (kFetchedWeightTiles[ROW].octets)
    return at ^ (at >> 3 & (chunk_bytes(p) - 1 & 0x70));
  return at;
}
template <int ROW>
__device__ __forceinline__ uint32_t octet_start(const FetchedWeightParams& p,
                                                const FetchedWeightScope& at, int instruction) {
  const int of_group = threadIdx.x / 128 * kFetchedWeightTiles[ROW].instructions + instruction;
  const int pair = of_group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x / 8 % 2 * 8;
  const int tap = pair / p.columns;
  return cell_start<ROW>(p, at, {tap / p.unit_w, tap % p.unit_w, 0, pair % p.columns});
}
// What a lane holds of a slice, and where the pixel stands that it shows.
template <int ROW>
__device__ __forceinline__ void fetch_octets(const FetchedWeightParams& p, uint32_t (&word)[4],
                                             uint32_t from) {
  ldmatrix_x4_turned(word, in_chunks<ROW>(p, from));
}
__device__ __forceinline__ uint32_t find_octets(uint32_t table, int slice) {
  return load_shared_4(table + (slice * 16 + threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8) * 4);
}

// NCHW, 16 bits: how a lane puts two numbers together, of which it fetches either first.
__device__ __forceinline__ uint32_t order_of_numbers(const FetchedWeightParams& p) {
  return swapped(p, threadIdx.x % 4 * 2) || rows_swapped(p, threadIdx.x) ? 0x1054 : 0x5410;
}
template <int ROW>
__device__ __forceinline__ uint32_t both_numbers(uint32_t first, uint32_t second, uint32_t order) {
  if constexpr (kFetchedWeightTiles[ROW].channels_last) return first | second << 16;
  return __byte_perm(first, second, order);
}
// What a lane holds of a slice of the first operand: pixels at `offset`, of two output channels.
template <class T, int ROW>
__device__ __forceinline__ void fetch_slice(uint32_t (&word)[4], uint32_t from, const Lanes& lanes,
                                            const uint32_t (&offset)[4], uint32_t order) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t place[2], next[2];
    if constexpr (sizeof(T) == 4) {
      places_of<ROW>(place, from + offset[half], lanes);
    } else {
      places_of<ROW>(place, from + offset[half * 2], lanes);
      places_of<ROW>(next, from + offset[half * 2 + 1], lanes);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if constexpr (sizeof(T) == 4) {
        word[half * 2 + row] = load_shared_4(place[row]);
      } else {
        word[half * 2 + row] = both_numbers<ROW>(load_shared<unsigned short>(place[row]),
                                                 load_shared<unsigned short>(next[row]), order);
      }
    }
  }
}

// Where a lane's pixels of a slice stand.
template <class T>
__device__ __forceinline__ void find_slice(uint32_t (&offset)[4], uint32_t table, int slice) {
  const uint32_t t = threadIdx.x % 4;
  if constexpr (sizeof(T) == 4) {
    offset[0] = load_shared_4(table + (slice * 8 + t) * 4);
    offset[1] = load_shared_4(table + (slice * 8 + t + 4) * 4);
  } else {
    uint32_t pair[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      load_shared_8(table + (slice * 16 + half * 8 + 2 * t) * 4, pair);
      offset[half * 2] = pair[0], offset[half * 2 + 1] = pair[1];
    }
  }
}

// Planes, numbers: each tap has a table. A pair's two rows may be of two taps.
template <class T, int ROW>
__device__ __forceinline__ void fetch_by_tap(uint32_t (&word)[4], uint32_t from, uint32_t second,
                                             const uint32_t (&table)[2], int slice,
                                             uint32_t order) {
  constexpr bool kPairs = kFetchedWeightTiles[ROW].pairs;
  if constexpr (sizeof(T) == 4) {
    uint32_t offset[2][2];
    const int listed = (slice * 4 + threadIdx.x % 4) * 8;
    load_shared_8(table[0] + listed, offset[0]);
    if constexpr (kPairs) load_shared_8(table[1] + listed, offset[1]);
#pragma unroll
    for (int w = 0; w < 4; ++w)
      word[w] = load_shared_4((w % 2 ? from + second : from) + offset[kPairs ? w % 2 : 0][w / 2]);
    return;
  }
  uint32_t offset[2][4];
  const int listed = (slice * 4 + threadIdx.x % 4) * 16;
  load_shared_16(table[0] + listed, offset[0]);
  if constexpr (kPairs) load_shared_16(table[1] + listed, offset[1]);
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const int row = w % 2, first = w / 2 * 2;
    const uint32_t* const places = offset[kPairs ? row : 0];
    const uint32_t start = row ? from + second : from;
    word[w] = both_numbers<ROW>(load_shared<unsigned short>(start + places[first]),
                                load_shared<unsigned short>(start + places[first + 1]), order);
  }
}

// Words: which numbers of words j and j + 1 of a kernel row are tap 2 j's of two neighbouring pixels, if the first
// tap's is the `odd` one of word 0. Tap 2 j + 1's are in word j + 1 and the one behind it, or before it.
struct RowWords {
  bool odd;
  uint32_t even_tap, odd_tap;
  // Of a warpgroup's first tap; tiles and rows of x start with an even pixel.
  __device__ __forceinline__ RowWords(const FetchedWeightParams& p, const FetchedWeightScope& at,
                                      const FetchedCell& first)
      : odd((at.kernel_w + first.tap_w - p.pad_w) % 2 != 0) {
    const int next = odd + p.stride_w;
    even_tap = (odd ? 0x32 : 0x10) | (next == 1 ? 0x3200 : next == 2 ? 0x5400 : 0x7600);
    odd_tap = (odd ? 0x10 : 0x76) | (next == 1 ? 0x1000 : next == 2 ? 0x3200 : 0x5400);
  }
};
// Of the words of a kernel row, what each tap's instruction wants.
template <int ROW>
__device__ __forceinline__ void deal_words(
    uint32_t (&word)[kFetchedWeightTiles[ROW].instructions][4], int w,
    const uint32_t (&of_row)[row_words(kFetchedWeightTiles[ROW])], const RowWords& how) {
#pragma unroll
  for (int i = 0; i < kFetchedWeightTiles[ROW].instructions; ++i) {
    const int j = i / 2;
    if (i % 2 == 0) {
      word[i][w] = __byte_perm(of_row[j], of_row[j + 1], how.even_tap);
    } else {
      word[i][w] = __byte_perm(of_row[j + 1], how.odd ? of_row[j + 2] : of_row[j], how.odd_tap);
    }
  }
}
// Planes: a table tells where each of a row's words is.
template <int ROW>
__device__ __forceinline__ void fetch_listed_words(
    uint32_t (&word)[kFetchedWeightTiles[ROW].instructions][4], uint32_t from, uint32_t second,
    uint32_t table, int slice, const RowWords& how) {
  constexpr int kWords = row_words(kFetchedWeightTiles[ROW]);
  uint32_t offset[2 * kWords];
  const uint32_t listed = table + (slice * 4 + threadIdx.x % 4) * 2 * kWords * 4;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    uint32_t two[2];
    load_shared_8(listed + i * 8, two);
    offset[2 * i] = two[0], offset[2 * i + 1] = two[1];
  }
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    uint32_t of_row[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      of_row[i] = load_shared_4((w % 2 ? from + second : from) + offset[w / 2 * kWords + i]);
    deal_words<ROW>(word, w, of_row, how);
  }
}
// Rows: they follow each other, from the word on that holds the first tap's number of a pixel.
template <int ROW>
__device__ __forceinline__ void fetch_row_words(
    uint32_t (&word)[kFetchedWeightTiles[ROW].instructions][4], uint32_t from, uint32_t second,
    uint32_t table, int slice, const RowWords& how) {
  constexpr int kWords = row_words(kFetchedWeightTiles[ROW]);
  const uint32_t listed = table + (slice * 16 + threadIdx.x % 4 * 2) * 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t first = from + load_shared_4(listed + half * 32) & ~3u;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      uint32_t of_row[kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i)
        of_row[i] = load_shared_4((row ? first + second : first) + i * 4);
      deal_words<ROW>(word, half * 2 + row, of_row, how);
    }
  }
}

// A K tile in strict fp32.
template <int ROW>
__device__ __forceinline__ void multiply_strict(
    FetchedSums<ROW>& sum, const uint32_t (&from)[kFetchedWeightTiles[ROW].instructions],
    const Lanes (&lanes)[kFetchedWeightTiles[ROW].instructions], uint32_t table, uint64_t x) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  uint32_t high[kKSlices][tile.instructions][4], low[kKSlices][tile.instructions][4];
#pragma unroll
  for (int s = 0; s < kKSlices; ++s) {
    uint32_t offset[4];
    find_slice<float>(offset, table, s);
#pragma unroll
    for (int i = 0; i < tile.instructions; ++i) {
      fetch_slice<float, ROW>(high[s][i], from[i], lanes[i], offset, 0);
#pragma unroll
      for (int w = 0; w < 4; ++w) MmaF32x3::split(high[s][i][w], high[s][i][w], low[s][i][w]);
    }
  }
  add_strict<tile.width>(sum, high, low, x, kKSlice >> 4, low_bytes(tile) >> 4);
}

// The pixels of a K tile that exist, or more than it has.
__device__ __forceinline__ int pixels_left(const FetchedWeightParams& p, const KTile& start) {
  return p.runs ? p.x_h * p.x_w - plane_pixel(p, start) : p.x_w - start.w;
}

// The same of 16-bit channels-last tensors. Slices beyond the last pixel are left out.
template <class T, int ROW>
__device__ __forceinline__ void multiply_turned(const FetchedWeightParams& p,
                                                const FetchedWeightScope& at, FetchedSums<ROW>& sum,
                                                StageRing& ring) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  constexpr int kAtOnce = tile.instructions * tile.width > 64 ? 2 : kKSlices;  // slices
  uint32_t start[tile.instructions];
  Lanes lanes[tile.instructions];
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) {
    start[i] =
        tile.octets ? octet_start<ROW>(p, at, i) : cell_start<ROW>(p, at, fetched_cell<ROW>(p, i));
    lanes[i] = tile.octets ? Lanes{} : lanes_of<ROW>(p, at, i);
  }
  const uint64_t layout = turned_layout(turned_row(tile), turned_block(tile));
  KTile begin(p, at.begin);
  for (int k = at.begin; k < at.end; ++k, ring.advance(), begin.advance(p)) {
    const int left = pixels_left(p, begin);
    barrier_wait(ring.full(), ring.parity);
    if (p.brought) barrier_wait(helped_barrier(ring), ring.parity);
    const uint64_t x = operand(layout, ring.stage());
#pragma unroll
    for (int first = 0; first < kKSlices; first += kAtOnce) {
      if (first * 16 >= left) break;
      uint32_t word[kAtOnce][tile.instructions][4];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        uint32_t offset[4];
        if constexpr (tile.octets) {
          offset[0] = find_octets(table_of(ring), first + s);
        } else {
          find_slice<T>(offset, table_of(ring), first + s);
        }
#pragma unroll
        for (int i = 0; i < tile.instructions; ++i) {
          if constexpr (tile.octets) {
            fetch_octets<ROW>(p, word[s][i], ring.stage() + start[i] + offset[0]);
          } else {
            fetch_slice<T, ROW>(word[s][i], ring.stage() + start[i], lanes[i], offset, 0);
          }
        }
      }
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s)
#pragma unroll
        for (int i = 0; i < tile.instructions; ++i)
          WgmmaTurned<T, tile.width>::add(sum[i], word[s][i],
                                          advance(x, (first + s) * (16 * turned_row(tile) >> 4)));
      wgmma_commit();
      wgmma_wait<0>();
    }
    __syncwarp();  // all lanes have read the table and the patch
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
  }
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) finished(sum[i]);
}

__device__ __forceinline__ void exchange(uint32_t& one, uint32_t& other, bool truly) {
  const uint32_t was = one;
  one = truly ? other : was;
  other = truly ? was : other;
}

// Multiplies all of a block's K tiles. The words stay until they are multiplied; the other warpgroup multiplies
// meanwhile.
template <class T, int ROW>
__device__ __forceinline__ void multiply_tiles(const FetchedWeightParams& p,
                                               const FetchedWeightScope& at, FetchedSums<ROW>& sum,
                                               StageRing& ring) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  constexpr int kAtOnce = slices_at_once(tile);
  uint32_t start[tile.instructions], leads[tile.instructions];
  Lanes apart[tile.instructions];
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) {
    const FetchedCell cell = fetched_cell<ROW>(p, i);
    start[i] = cell_start<ROW>(p, at, cell);
    leads[i] = leads_at<ROW>(p, cell);
    apart[i] = lanes_of<ROW>(p, at, i);
  }
  const RowWords words(p, at, fetched_cell<ROW>(p, 0));
  const uint32_t order = order_of_numbers(p);
  const bool swap = rows_swapped(p, threadIdx.x);
  const uint64_t layout = swizzled_layout(kKRow, 8 * kKRow);
  for (int k = at.begin; k < at.end; ++k, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    if (helped(p, tile)) barrier_wait(helped_barrier(ring), ring.parity);
    const uint64_t x = operand(layout, ring.stage());
    uint32_t from[tile.instructions];
    Lanes lanes[tile.instructions];
#pragma unroll
    for (int i = 0; i < tile.instructions; ++i) {
      from[i] = ring.stage() + start[i];
      lanes[i] = tile.pairs ? apart[i] : lanes_of<ROW>(p, at, i);
      if (!tile.channels_last && !tile.pairs && p.odd_rows)
        add_leads(ring, leads[i], from[i], lanes[i]);
    }
    if constexpr (tile.strict) {
      multiply_strict<ROW>(sum, from, lanes, table_of(ring), x);
    } else {
#pragma unroll
      for (int first = 0; first < kKSlices; first += kAtOnce) {
        uint32_t word[kAtOnce][tile.instructions][4];
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s) {
          if constexpr (tile.in_words) {
            fetch_row_words<ROW>(word[s], from[0], lanes[0].second, table_of(ring), first + s,
                                 words);
            continue;
          }
          uint32_t offset[4];
          find_slice<T>(offset, table_of(ring), first + s);
          if constexpr (sizeof(T) == 2 && may_start_by_sectors(tile)) {
            exchange(offset[0], offset[1], swap);
            exchange(offset[2], offset[3], swap);
          }
#pragma unroll
          for (int i = 0; i < tile.instructions; ++i) {
            fetch_slice<T, ROW>(word[s][i], from[i], lanes[i], offset, order);
            // The copy engine rounds on its way, threads that bring do not.
            if constexpr (sizeof(T) == 4 && (!tile.channels_last || tile.pairs)) {
              if (p.brought) {
#pragma unroll
                for (int w = 0; w < 4; ++w) word[s][i][w] = MmaTF32::round(word[s][i][w]);
              }
            }
          }
        }
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s)
#pragma unroll
          for (int i = 0; i < tile.instructions; ++i)
            WgmmaFetched<T, tile.width>::add(sum[i], word[s][i],
                                             advance(x, (first + s) * (kKSlice >> 4)));
        wgmma_commit();
        wgmma_wait<0>();
      }
    }
    __syncwarp();  // all lanes have read the table and the patch
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
  }
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) finished(sum[i]);
}

// The same by planes.
template <class T, int ROW>
__device__ __forceinline__ void multiply_planes(const FetchedWeightParams& p,
                                                const FetchedWeightScope& at, FetchedSums<ROW>& sum,
                                                StageRing& ring) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  constexpr int kAtOnce = slices_at_once(tile);
  uint32_t start[tile.instructions], tables[tile.instructions][2];
  Lanes apart[tile.instructions];
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) {
    start[i] = cell_start<ROW>(p, at, fetched_cell<ROW>(p, i));
    apart[i] = lanes_of<ROW>(p, at, i);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      tables[i][half] = cell_table<ROW>(p, at, fetched_cell<ROW>(p, i, half));
  }
  const FetchedCell first_cell = fetched_cell<ROW>(p, 0);
  const uint32_t leads = leads_at<ROW>(p, first_cell);
  const RowWords words(p, at, first_cell);
  const uint32_t order = order_of_numbers(p);
  int left = p.image_tiles - at.begin % p.image_tiles;  // tiles of the image
  const uint64_t layout = swizzled_layout(kKRow, 8 * kKRow);
  uint32_t listed = 0, lead = 0, second = 0;
  // One loop: of two, one in the other, the compiler makes copies of the sums.
  for (int k = at.begin, slice = 0; k < at.end;) {
    if (slice == 0) {
      barrier_wait(ring.full(), ring.parity);
      barrier_wait(helped_barrier(ring), ring.parity);
      listed = tables_of<ROW>(p, ring, p.image_tiles - left);
      Lanes added = {0, 0};
      lead = 0;
      if (!tile.pairs) add_leads(ring, leads, lead, added);
      lead += ring.stage();
      second = added.second;
    }
    uint32_t word[kAtOnce][tile.instructions][4];
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      if constexpr (tile.planes == Planes::words) {
        fetch_listed_words<ROW>(word[s], lead + start[0], second + apart[0].second,
                                listed + tables[0][0], slice + s, words);
      } else {
#pragma unroll
        for (int i = 0; i < tile.instructions; ++i)
          fetch_by_tap<T, ROW>(word[s][i], lead + start[i], second + apart[i].second,
                               {listed + tables[i][0], listed + tables[i][1]}, slice + s, order);
      }
    }
    const uint64_t x = operand(layout, ring.stage());
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s)
#pragma unroll
      for (int i = 0; i < tile.instructions; ++i)
        WgmmaFetched<T, tile.width>::add(sum[i], word[s][i],
                                         advance(x, (slice + s) * (kKSlice >> 4)));
    wgmma_commit();
    wgmma_wait<0>();
    slice += kAtOnce;
    if (slice < (left == 1 ? p.last_slices : p.slices)) continue;
    slice = 0;
    left = left == 1 ? p.image_tiles : left - 1;
    __syncwarp();  // all lanes have read the tables and the planes
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
    ring.advance();
    ++k;
  }
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) finished(sum[i]);
}

template <class T>
__device__ __forceinline__ float read_shared(uint32_t at) {
  if constexpr (sizeof(T) == 4) {
    return load_shared<float>(at);
  } else {
    const unsigned short bits = load_shared<unsigned short>(at);
    return Numeric<T>::widen(*reinterpret_cast<const T*>(&bits));
  }
}

// Where x of a pixel and a channel of the block is, from the start of a stage.
template <class T, int ROW>
__device__ __forceinline__ uint32_t x_place(int pixel, int channel) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  if constexpr (tile.turned) {
    constexpr int kRow = turned_row(tile);
    const uint32_t at = channel * 2 / kRow * turned_block(tile) + pixel * kRow + channel * 2 % kRow;
    return at ^ (at >> 3 & kRow - 1 & 0x70);
  }
  return channel * kKRow + (pixel * int(sizeof(T)) ^ (channel & 7) * 16);
}

// The same on plain multiply-adds, where every product is of two pixels that exist: zeros from outside of dY are
// multiplied above too, and 0 * inf is NaN. Slow, and rare: somewhere is a NaN or an infinity.
template <class T, int ROW>
__device__ __forceinline__ void multiply_tiles_with_care(const FetchedWeightParams& p,
                                                         const FetchedWeightScope& at,
                                                         FetchedSums<ROW>& sum, StageRing& ring) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  constexpr int kTaps = taps_of_thread(tile);
  const int t = threadIdx.x % 4;
  clear(sum);
  KTile begin(p, at.begin);
  for (int k = at.begin; k < at.end; ++k, ring.advance(), begin.advance(p)) {
    barrier_wait(ring.full(), ring.parity);
    if (helped(p, tile)) barrier_wait(helped_barrier(ring), ring.parity);
    const uint32_t stage = ring.stage();
#pragma unroll 1
    for (int pixel = 0; pixel < p.tile_pixels; ++pixel) {
      int h, w;
      begin.pixel(p, pixel, h, w);
      if (h >= p.x_h || w >= p.x_w) continue;
      const uint32_t of_pixel =
          by_planes(tile) ? 0 : load_shared_4(table_of(ring) + place_in_table(p, pixel) * 4);
#pragma unroll
      for (int each = 0; each < tile.instructions * kTaps; ++each) {
        const int i = each / kTaps, first = each % kTaps, end = first + 2 / kTaps;  // rows
        const FetchedCell cell = fetched_cell<ROW>(p, i, first);
        const int y_h = h * p.stride_h - p.pad_h + (at.kernel_h + cell.tap_h) * p.dilation_h;
        const int y_w = w * p.stride_w - p.pad_w + (at.kernel_w + cell.tap_w) * p.dilation_w;
        if (!cell_exists<ROW>(p, at, cell) || y_h < 0 || y_h >= p.y_h || y_w < 0 || y_w >= p.y_w)
          continue;
        uint32_t offset = of_pixel;
        if constexpr (by_planes(tile)) {
          const int first = run_start(p, at, begin);
          offset = sizeof(T) * (y_h * p.y_w + y_w - first + pairs_lead<ROW>(p, first));
        }
        uint32_t from = stage + cell_start<ROW>(p, at, cell) + offset, place[2];
        Lanes lanes = tile.pairs ? Lanes{} : lanes_of<ROW>(p, at, i);
        if (!tile.channels_last && !tile.pairs && p.odd_rows)
          add_leads(ring, leads_at<ROW>(p, cell), from, lanes);
        places_of<ROW>(place, from, lanes);
        const float y[2] = {read_shared<T>(in_chunks<ROW>(p, place[0])),
                            read_shared<T>(in_chunks<ROW>(p, place[1]))};
#pragma unroll
        for (int j = 0; j < tile.width / 8; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int channel = 8 * j + 2 * t + e;
            const float x = read_shared<T>(stage + x_place<T, ROW>(pixel, channel));
#pragma unroll
            for (int half = first; half < end; ++half)
              sum[i][4 * j + 2 * half + e] = fmaf(y[half], x, sum[i][4 * j + 2 * half + e]);
          }
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
  }
}

// To dW, or to this piece's partial sums: eight lanes store neighbouring output channels.
template <class T, int ROW>
__device__ __forceinline__ void store_sums(const FetchedWeightParams& p,
                                           const FetchedWeightScope& at,
                                           const FetchedSums<ROW>& sum) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  const int t = threadIdx.x % 4;
  const int32_t* const stride = p.weight_stride;
  const int64_t dense = int64_t{p.groups} * p.rows * p.columns;  // of partial sums
  float* const partials = p.partials + int64_t{at.piece} * p.piece_floats;
  const int first_row = at.row_block * tile.width + 2 * t;
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const FetchedCell cell = fetched_cell<ROW>(p, i, half);
      if (!cell_exists<ROW>(p, at, cell)) continue;
      const int kernel_h = at.kernel_h + cell.tap_h, kernel_w = at.kernel_w + cell.tap_w;
      const int column = output_column<ROW>(p, at, cell, half);
      if (column >= p.columns) continue;
      const int64_t channel = at.group * p.rows + first_row;
      float* const in_partials = partials + (int64_t{kernel_h} * p.kernel_w + kernel_w) * dense +
                                 channel * p.columns + column;
      T* const in_weight = static_cast<T*>(p.weight) + channel * stride[0] +
                           int64_t{column} * stride[1] + kernel_h * stride[2] +
                           kernel_w * stride[3];
#pragma unroll
      for (int j = 0; j < tile.width / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (first_row + 8 * j + e >= p.rows) continue;
          const float value = sum[i][4 * j + 2 * half + e];
          if (p.partials) {
            in_partials[int64_t{8 * j + e} * p.columns] = value;
          } else {
            store(in_weight + int64_t{8 * j + e} * stride[0], value);
          }
        }
    }
  }
}

// The same from shared memory, as store_together() lays them there: a warp takes an input channel of a tap. Little code, and
// whole lines.
template <int ROW, int NUMBERS>
__device__ __forceinline__ void store_piece(const FetchedWeightParams& p,
                                            const FetchedWeightScope& at, uint32_t shared) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  constexpr int kWarps = consumers(tile) / 32;
  const int first_column = at.column_block * block_columns(p, tile);
  const int columns = min(block_columns(p, tile), p.columns - first_column);
  const int first_row = at.row_block * tile.width, rows = min(tile.width, p.rows - first_row);
  const int row_bytes = together_row(p, tile) * 4, of_tap = together_tap(p, tile) * 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32 * NUMBERS;
  const int step = kWarps * p.columns, from_step = kWarps * row_bytes;
#pragma unroll 1
  for (int tap = 0; tap < p.unit_h * p.unit_w; ++tap) {
    const int tap_h = tap / p.unit_w, tap_w = tap - tap_h * p.unit_w;
    if (!cell_exists<ROW>(p, at, {tap_h, tap_w, 0})) continue;
    const int64_t channel =
        int64_t{(at.kernel_h + tap_h) * p.kernel_w + at.kernel_w + tap_w} * p.groups * p.rows +
        at.group * p.rows + first_row + warp;
    float* const to_tap =
        p.partials + int64_t{at.piece} * p.piece_floats + channel * p.columns + first_column;
    const uint32_t from_tap = shared + tap * of_tap + warp * row_bytes;
#pragma unroll 1
    for (int column = lane; column < columns; column += 32 * NUMBERS) {
      float* to = to_tap + column;
      uint32_t from = from_tap + column * 4;
#pragma unroll 4
      for (int i = warp; i < rows; i += kWarps, to += step, from += from_step) {
        if constexpr (NUMBERS == 2) {
          uint32_t two[2];
          load_shared_8(from, two);
          *reinterpret_cast<float2*>(to) = {__uint_as_float(two[0]), __uint_as_float(two[1])};
        } else {
          *to = load_shared<float>(from);
        }
      }
    }
  }
}

// To dW in one piece, a block's taps of which lie side by side: by way of shared memory, so that neighbouring lanes store
// neighbouring numbers, and a sector is written once by a block, not once a tap. Or partial sums. All who
// multiply.
constexpr int kFetchedStore = 2;  // named barrier
template <class T, int ROW>
__device__ __forceinline__ void store_together(const FetchedWeightParams& p,
                                               const FetchedWeightScope& at,
                                               const FetchedSums<ROW>& sum, uint32_t shared) {
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  constexpr int kWarps = consumers(tile) / 32;
  const int row = together_row(p, tile), of_tap = together_tap(p, tile);
  const int first_column = at.column_block * block_columns(p, tile);
  barrier_among(kFetchedStore, consumers(tile));  // all have read the stages
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const FetchedCell cell = fetched_cell<ROW>(p, i, half);
      if (!cell_exists<ROW>(p, at, cell)) continue;
      const int tap = cell.tap_h * p.unit_w + cell.tap_w;
      const int column = output_column<ROW>(p, at, cell, half) - first_column;
      const uint32_t to = shared + (tap * of_tap + threadIdx.x % 4 * 2 * row + column) * 4;
#pragma unroll
      for (int j = 0; j < tile.width / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          store_shared_4(to + (8 * j + e) * row * 4, __float_as_uint(sum[i][4 * j + 2 * half + e]));
    }
  }
  barrier_among(kFetchedStore, consumers(tile));
  if (p.partials)
    return !tile.pairs && p.columns % 2 == 0 ? store_piece<ROW, 2>(p, at, shared)
                                             : store_piece<ROW, 1>(p, at, shared);
  const int taps = p.unit_h * p.unit_w, warp = threadIdx.x / 32;
  const int columns = min(block_columns(p, tile), p.columns - first_column);
  const int first_row = at.row_block * tile.width, rows = min(tile.width, p.rows - first_row);
  const int32_t* const stride = p.weight_stride;
  for (int number = threadIdx.x % 32; number < columns * taps; number += 32) {
    const int column = number / taps, tap = number - column * taps;
    const int tap_h = tap / p.unit_w, tap_w = tap - tap_h * p.unit_w;
    if (!cell_exists<ROW>(p, at, {tap_h, tap_w, 0})) continue;
    T* to = static_cast<T*>(p.weight) + int64_t{at.group * p.rows + first_row + warp} * stride[0] +
            int64_t{first_column + column} * stride[1] + (at.kernel_h + tap_h) * stride[2] +
            (at.kernel_w + tap_w) * stride[3];
    uint32_t from = shared + (tap * of_tap + warp * row + column) * 4;
#pragma unroll 4
    for (int i = warp; i < rows; i += kWarps, to += kWarps * int64_t{stride[0]}) {
      store(to, load_shared<float>(from));
      from += kWarps * row * 4;
    }
  }
}

// Named barrier: all who multiply, those that ask and those that help, who agree whether the sums are good.
constexpr int kFetchedVerdict = 1;
__device__ __forceinline__ bool fetched_agree(const FetchedWeightParams& p, FetchedWeightTile tile,
                                              bool good) {
  const int others = 32 * asking_warps(p, tile) + (helped(p, tile) ? kHelpers : 0);
  return barrier_all(kFetchedVerdict, consumers(tile) + others, good);
}

template <class T, int ROW>
__global__ void __launch_bounds__(threads(kFetchedWeightTiles[ROW]), 1)
    convt2d_hopper_fetched_grad_weight_kernel(const __grid_constant__ FetchedWeightParams p,
                                              const __grid_constant__ FetchedWeightMaps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  constexpr FetchedWeightTile tile = kFetchedWeightTiles[ROW];
  extern __shared__ __align__(1024) unsigned char smem[];
  const FetchedWeightScope at = fetched_weight_scope(p);
  const uint32_t shared = shared_address(smem);
  StageRing ring{shared, shared + kFetchedStagesAt, p.stages, stage_bytes(p, tile)};
  if (threadIdx.x < p.stages) {
    barrier_init(ring.barriers + threadIdx.x * 16,
                 32 + (p.brought || brings_x(p, tile) ? kHelpers : 0));
    barrier_init(ring.barriers + threadIdx.x * 16 + 8, consumers(tile) / 32);
    barrier_init(ring.barriers + kHelpedAt + threadIdx.x * 8, kHelpers / 32);
  }
  if constexpr (sizeof(T) == 2) {
    if (threadIdx.x == consumers(tile)) prefetch_map(&maps.x);
    if (threadIdx.x == consumers(tile) + 1 && !p.brought) prefetch_map(&maps.y);
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  if (threadIdx.x >= consumers(tile)) {
    fewer_registers<helper_registers(tile)>();
    const int turns = asking_warps(p, tile);
    const bool asks = threadIdx.x < consumers(tile) + 32 * turns;
    if (!asks && !helped(p, tile)) return;
    for (bool again = false;; again = true) {
      if (asks) {
        bring_tiles<ROW>(p, maps, at, ring, turns);
      } else {
        help_tiles<ROW>(p, maps, at, ring);
      }
      if (again || fetched_agree(p, tile, true)) return;
    }
  } else {
    more_registers<consumer_registers(tile)>();
    FetchedSums<ROW> sum;
    clear(sum);
    if constexpr (by_planes(tile)) {
      multiply_planes<T, ROW>(p, at, sum, ring);
    } else if constexpr (tile.turned) {
      multiply_turned<T, ROW>(p, at, sum, ring);
    } else {
      multiply_tiles<T, ROW>(p, at, sum, ring);
    }
    bool good = true;
#pragma unroll
    for (int i = 0; i < tile.instructions; ++i) {
      bool nan[2] = {};
#pragma unroll
      for (int j = 0; j < tile.width / 2; ++j) nan[j / 2 % 2] |= sum[i][j] != sum[i][j];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const FetchedCell cell = fetched_cell<ROW>(p, i, half);
        good &= !nan[half] || !cell_exists<ROW>(p, at, cell) ||
                output_column<ROW>(p, at, cell, half) >= p.columns;
      }
    }
    if (!fetched_agree(p, tile, good)) multiply_tiles_with_care<T, ROW>(p, at, sum, ring);
    if constexpr (!tile.channels_last) {
      if (p.together) return store_together<T, ROW>(p, at, sum, ring.stages);
    }
    store_sums<T, ROW>(p, at, sum);
  }
#endif
}

}  // namespace convt2d::cuda::hopper
