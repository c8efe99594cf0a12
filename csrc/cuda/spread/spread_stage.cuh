// Warps that bring: weights, which come as they lie, through registers, in the order the tensor core wants; and pixels, if
// their channels are no whole 16 bytes, so that the copy engine cannot. What is loaded first is on its way while others wait.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/spread/spread_fetched.cuh"
#include "cuda/spread/spread_scope.cuh"
#include "cuda/spread/spread_whole.cuh"

namespace convt2d::cuda::spread {

// Where a column's weights are from a channel's first on, and which of the block's output channels it belongs to; negative:
// nowhere. Columns of all shifts.
template <int ROW>
__device__ __forceinline__ void find_columns(const Params& p, uint32_t shared) {
  constexpr int kWidth = kTiles[ROW].width;
  constexpr bool kMeshes = meshes(kTiles[ROW].source);
#pragma unroll 1
  for (int i = threadIdx.x; i < p.parts * kTiles[ROW].width; i += kThreads) {
    const int part = i / kWidth, n = i - part * kWidth, shift = kMeshes ? part / kMeshed : part;
    const int slow = n / (p.by_channel ? p.column_channel : p.block_channels),
              fast = n - slow * (p.by_channel ? p.column_channel : p.block_channels);
    const int channel = p.by_channel ? slow : fast, tap = p.by_channel ? fast : slow;
    const int taps = kMeshes ? p.stride_w : p.kernel_w, phase = tap / taps;
    const int kw = tap - phase * taps + (kMeshes ? part % kMeshed * p.stride_w : 0),
              kh = shift * p.stride_h + phase;
    const int at = channel * p.weight_column + kh * p.weight_h + kw * p.weight_w;
    const bool there =
        channel < p.block_channels && phase < p.stride_h && kh < p.kernel_h && kw < p.kernel_w;
    store_shared_4(shared + p.table_at + i * 4, there ? channel << kOffsetBits | at : ~0u);
  }
}

// Of a column: where its weights are from a channel's first one of the item on, or a negative number.
__device__ __forceinline__ int entry_of(const Params& p, const Item& item, uint32_t shared,
                                        int column, int columns) {
  const uint32_t entry = column < columns ? load_shared_4(shared + p.table_at + column * 4) : ~0u;
  return int(entry >> kOffsetBits) < item.channels ? int(entry & ((1 << kOffsetBits) - 1)) : -1;
}

// Eights of columns in the order of memory: where kernel rows of a channel are side by side, its eights of all shifts, so that
// both halves of a sector are asked for at once.
template <int ROW>
__device__ __forceinline__ int eight_of(const Params& p, int i) {
  constexpr int kEights = kTiles[ROW].width / 8;
  if (!p.by_channel) return i;
  const int slow = p.by_shifts.quotient(i);
  return i < p.shifts * kEights ? (i - slow * p.shifts) * kEights + slow : i;
}

// A warp that brings has 16 bytes of a chunk's channels, and, where there are more warps than these, every so many-th unit of
// columns: the rows of K before a warp's, of kSize, and its units.
template <class T, int ROW>
struct Share {
  static constexpr int kSharers = sharers(kTiles[ROW]), kWarps = kBringers / kSharers;
  static constexpr int kNumbers = chunk_numbers(kTiles[ROW], sizeof(T)), kSize = 16 / sizeof(T);
  int first_unit, first;

  __device__ __forceinline__ Share() {
    const int warp = (threadIdx.x - kConsumers) / 32;
    first_unit = warp / kWarps;
    first = warp % kWarps * kSize;
  }
  __device__ __forceinline__ int unit(int i) const { return i * kSharers + first_unit; }
};

// Which of a chunk's channels is row `place` of K.
template <class T, int ROW>
__device__ __forceinline__ int channel_of(int place) {
  return kTiles[ROW].source == kWholeMesh ? whole_channel<T>(place) : place;
}

// The column of a lane's words in a unit: of a mesh, one of the same eight of all parts, which are neighbours in memory.
template <int ROW>
__device__ __forceinline__ int column_of(int unit) {
  const int lane = threadIdx.x % 32;
  return meshes(kTiles[ROW].source) ? lane / 8 * kTiles[ROW].width + unit * 8 + lane % 8
                                    : unit * 32 + lane;
}

// Of a mesh's 16 bits a unit has two channels' rows of taps in each of two shifts, 4 x 4 kernels of stride 2 being the only ones
// whose weights are vectors: the column of the first tap of a lane's row.
template <int ROW>
__device__ __forceinline__ int first_column(const Params& p, int unit) {
  const int fourth = threadIdx.x % 32 / 8;
  return meshes(kTiles[ROW].source)
             ? fourth / 2 * kMeshed * kTiles[ROW].width + unit * 8 + fourth % 2 * 4
             : eight_of<ROW>(p, unit * 4 + fourth) * 8;
}

// Columns that units of weights cover: the last ones may have none.
template <int ROW>
__device__ __forceinline__ bool is_unit(int unit) {
  return sharers(kTiles[ROW]) == 1 || unit * 8 < kTiles[ROW].width;
}

// A thread's part of a chunk's weights: so many times 16 bytes, from unit `first` on. Words: a column of four channels,
// which warps have for themselves. 16 bits: eight columns of a channel, of which warps have eight.
//
// What there is not is loaded from elsewhere: of channels, what is multiplied by zeros; of columns, what is not stored.
template <int ROW>
struct Weights {
  uint32_t word[batch(kTiles[ROW])][4], there;  // a bit for each unit
};
template <class T, int ROW>
__device__ __forceinline__ void load_weights(const Params& p, const Item& item, uint32_t shared,
                                             int chunk, int first, Weights<ROW>& weights) {
  using Mine = Share<T, ROW>;
  constexpr int kRows = is_word<T> ? 4 : 1;  // of weights, channels
  const Mine mine;
  const T* const weight = static_cast<const T*>(p.weight) + item.channel * p.weight_column;
  const int before = chunk * Mine::kNumbers,
            place = mine.first + (is_word<T> ? 0 : threadIdx.x % 8);
  const int count = p.parts * kTiles[ROW].width;
  weights.there = 0;
  int row[kRows];
#pragma unroll
  for (int k = 0; k < kRows; ++k)
    row[k] = min(before + channel_of<T, ROW>(place + k), p.reduce - 1) * p.weight_reduce;
  const bool is = is_word<T> || before + channel_of<T, ROW>(place) < p.reduce;
#pragma unroll
  for (int i = 0; i < batch(kTiles[ROW]); ++i) {
    const int unit = mine.unit(first + i);
    const int column = is_word<T> ? column_of<ROW>(unit) : first_column<ROW>(p, unit);
    const int at = is_unit<ROW>(unit) ? entry_of(p, item, shared, column, count) : -1;
    const int from = max(at, 0);
    // Sets have other numbers than zeros behind the last channel.
    weights.there |= (at >= 0 && is) << i;
    if constexpr (is_word<T>) {
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        uint32_t one[1];
        load_words<4>(weight + (row[k] + from), one);
        weights.word[i][k] = one[0];
      }
    } else {
      load_words<16>(weight + (row[0] + from), weights.word[i]);
    }
  }
}

template <class T, int ROW>
__device__ __forceinline__ void store_weights(const Params& p, int chunk, uint32_t to, int first,
                                              const Weights<ROW>& weights) {
  using Mine = Share<T, ROW>;
  const Mine mine;
  const int count = p.parts * kTiles[ROW].width, place = mine.first + threadIdx.x % 8;
  const int left = is_word<T> && kTiles[ROW].source == kSets
                       ? p.reduce - chunk * Mine::kNumbers - mine.first
                       : 4;
#pragma unroll
  for (int i = 0; i < batch(kTiles[ROW]); ++i) {
    const int unit = mine.unit(first + i);
    uint32_t number[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t bits = weights.there >> i & 1 && k < left ? weights.word[i][k] : 0;
      number[k] = is_word<T> ? MmaTF32::round(bits) : bits;
    }
    if (!is_unit<ROW>(unit)) continue;
    if constexpr (is_word<T>) {
      const int column = column_of<ROW>(unit);
      if (column < count) store_shared_16(to + (mine.first / 4 * count + column) * 16, number);
    } else if constexpr (meshes(kTiles[ROW].source)) {
      // The two parts of a shift trade their words of four taps.
      const int column = first_column<ROW>(p, 0);
      const uint32_t at = to + ((column / 8 + unit) * Mine::kNumbers + place) * 16 + column % 8 * 2;
#pragma unroll
      for (int part = 0; part < kMeshed; ++part)
        store_shared<2>(at + part * kTiles[ROW].width / 8 * Mine::kNumbers * 16,
                        {number[part], number[part + 2]});
    } else {
      const int eight = eight_of<ROW>(p, unit * 4 + threadIdx.x % 32 / 8);
      if (eight * 8 < count) store_shared_16(to + (eight * Mine::kNumbers + place) * 16, number);
    }
  }
}

// The same of 16 bits, number by number, where eight columns are no 16 bytes of memory.
template <class T, int ROW>
__device__ __forceinline__ void bring_numbers(const Params& p, const Item& item, uint32_t shared,
                                              int chunk, uint32_t to) {
  using Mine = Share<T, ROW>;
  constexpr int kBatch = number_batch(kTiles[ROW]), kStep = 4 * Mine::kSharers;
  const Mine mine;
  const int count = p.parts * kTiles[ROW].width, place = mine.first + threadIdx.x % 8;
  const T* const weight = static_cast<const T*>(p.weight) + item.channel * p.weight_column;
  const int c = chunk * Mine::kNumbers + channel_of<T, ROW>(place);
  const int from = c * p.weight_reduce;
#pragma unroll 1
  for (int first = mine.first_unit * 4 + threadIdx.x % 32 / 8; first * 8 < count;
       first += kBatch * kStep) {
    uint32_t number[kBatch][8];
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int at = entry_of(p, item, shared, (first + i * kStep) * 8 + j, count);
        number[i][j] = load_if<2>(weight + (from + at), c, at >= 0 ? p.reduce : 0);
      }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      uint32_t word[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) word[j] = number[i][2 * j] | number[i][2 * j + 1] << 16;
      const int eight = first + i * kStep;
      if (eight * 8 < count) store_shared_16(to + (eight * Mine::kNumbers + place) * 16, word);
    }
  }
}

// The rows of pixels of a chunk, BATCH times eight pixels at once: a lane has 4 bytes of channels of each. PAIRS: two
// numbers that may start between words.
template <class T, int BATCH, bool PAIRS>
__device__ __forceinline__ void bring_pixels(const Params& p, const Item& item, int chunk,
                                             uint32_t to) {
  const int lane = threadIdx.x % 32, warp = (threadIdx.x - kConsumers) / 32;
  const int eights = p.x_bytes / (8 * kLine), first = item.row - (p.shifts - 1);
  const int c = chunk * line_numbers(sizeof(T)) + lane * (4 / int(sizeof(T)));
#pragma unroll 1
  for (int i = warp; i < eights; i += BATCH * kBringers) {
    uint32_t word[BATCH][8], high[PAIRS ? BATCH : 1][8];
#pragma unroll
    for (int j = 0; j < BATCH; ++j) {
      const int eight = i + j * kBringers, row = eight * 8 >> p.run_shift,
                pixel = eight * 8 & (p.run - 1);
      const Row at = row_of(p, first + row);
      const bool there =
          eight < eights && at.n >= 0 && at.n < p.batch && at.row < p.x_h && c < p.reduce;
      const int left = there ? p.x_w - item.pixel - pixel : 0;
      const T* const from = static_cast<const T*>(p.source) +
                            (((at.n * p.x_h + at.row) * p.x_w + item.pixel + pixel) * p.reduce + c);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        word[j][k] = load_if<PAIRS ? 2 : 4>(from + k * p.reduce, k, left);
        if constexpr (PAIRS)
          high[j][k] = load_if<2>(from + (k * p.reduce + 1), k, c + 1 < p.reduce ? left : 0);
      }
    }
#pragma unroll
    for (int j = 0; j < BATCH; ++j) {
      const int eight = i + j * kBringers;
      if (eight >= eights) continue;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        if constexpr (PAIRS) word[j][k] |= high[j][k] << 16;
        store_shared_4(to + (eight * 8 + k) * kLine + ((lane / 4 ^ k) << 4) + lane % 4 * 4,
                       is_word<T> ? MmaTF32::round(word[j][k]) : word[j][k]);
      }
    }
  }
}

// The same by the copy engine, which brings zeros for what there is not; each warp asks for some rows. L2 is told of the next
// chunk's, since memory is further away than what is in the other stage lasts.
template <class T>
__device__ __forceinline__ void ask_for_pixels(const Params& p, const CUtensorMap& map,
                                               const Item& item, int chunk, uint32_t to,
                                               uint32_t full) {
  const int channel = chunk * line_numbers(sizeof(T)), next = channel + line_numbers(sizeof(T));
  const int warp = (threadIdx.x - kConsumers) / 32, rows = p.tile_rows + p.shifts - 1;
  const uint32_t bytes = p.run * kLine;
  barrier_expect(full, (rows - warp + kBringers - 1) / kBringers * bytes);
#pragma unroll 1
  for (int row = warp; row < rows; row += kBringers) {
    const int first = item.row - (p.shifts - 1) + row;
    // Before the first image there are only zeros, as behind the last row of any.
    const Row at = first < 0 ? Row{0, p.x_h} : row_of(p, first);
    copy_box(to + row * bytes, &map, full, channel, item.pixel, at.row, at.n);
    if (next < p.reduce) announce_box(&map, next, item.pixel, at.row, at.n);
  }
}

template <class T, int ROW>
__device__ __forceinline__ void bring(const Params& p, const CUtensorMap& map, uint32_t shared,
                                      StageRing& ring) {
  constexpr int kUnit = is_word<T> ? 32 : 4 * 8;  // columns
  constexpr int kBatch = batch(kTiles[ROW]);
  constexpr Source kSource = kTiles[ROW].source;
  constexpr int kSharers = sharers(kTiles[ROW]);
  static_assert(kSource != kMesh || kTiles[ROW].width / 8 % kBatch == 0);
  static_assert(kSharers == 1 || kBatch * kSharers * 8 >= kTiles[ROW].width);
  constexpr bool kFetched = fetched(kTiles[ROW]);
  // Of a warp. Where a batch has all of them, words have no registers for a loop; in 16 bits ptxas would keep all addresses
  // without one, and has none for these.
  const int units = is_word<T> && kSharers > 1
                        ? kBatch
                        : (p.parts * kTiles[ROW].width + kUnit * kSharers - 1) / (kUnit * kSharers);
  const bool vectors = is_word<T> || p.weight_vectors;
  for_items(p, [&](const Item& item) {
    Weights<ROW> weights = {};
    if constexpr (by_pieces(kSource)) find_pieces<T>(p, item, shared);
    if constexpr (kFetched) {
      if (vectors) load_weights<T, ROW>(p, item, shared, 0, 0, weights);
    }
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
      const uint32_t to = ring.stage();
      const auto ready = [&] {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        if (p.copied && threadIdx.x % 32 == 0)
          ask_for_pixels<T>(p, map, item, chunk, to, ring.full());
      };
      const auto ask = [&] {
        if constexpr (kSource == kWholeMesh) {
          if (threadIdx.x == kConsumers)
            ask_for_whole<T>(p, images_of(p, item), chunk, to, ring.full());
        } else if constexpr (by_pieces(kSource)) {
          ask_for_planes<T>(p, chunk, shared, to);
          if (p.announced) announce_planes<T>(p, item, chunk + 1);
          copy_async_arrive(ring.full());
        } else if (threadIdx.x % 32 == 0) {
          ask_for_sets<T>(p, map, item, chunk, to, ring.full());
        }
      };
      if constexpr (kFetched) {
        // The first weights have come during the chunk before, others come while pixels do, which are further away.
        barrier_wait(ring.empty(), ring.parity ^ 1);
        ask();
#pragma unroll 1
        for (int first = 0; first < units && vectors; first += kBatch) {
          if (first > 0) load_weights<T, ROW>(p, item, shared, chunk, first, weights);
          store_weights<T, ROW>(p, chunk, to + p.x_bytes, first, weights);
        }
        if constexpr (!is_word<T>)
          if (!vectors) bring_numbers<T, ROW>(p, item, shared, chunk, to + p.x_bytes);
      } else {
        if (vectors) {
#pragma unroll 1
          for (int first = 0; first < units; first += kBatch) {
            load_weights<T, ROW>(p, item, shared, chunk, first, weights);
            if (first == 0) ready();
            store_weights<T, ROW>(p, chunk, to + p.x_bytes, first, weights);
          }
        } else if constexpr (!is_word<T>) {
          ready();
          bring_numbers<T, ROW>(p, item, shared, chunk, to + p.x_bytes);
        }
        if (!p.copied) {
          if constexpr (!is_word<T>) {
            if (p.reduce % 2 != 0) {
              bring_pixels<T, 1, true>(p, item, chunk, to);
            } else {
              bring_pixels<T, kPixelBatch, false>(p, item, chunk, to);
            }
          } else {
            bring_pixels<T, kPixelBatch, false>(p, item, chunk, to);
          }
        }
      }
      fence_for_wgmma();
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(ring.full());
      if constexpr (kFetched)
        if (vectors)
          load_weights<T, ROW>(p, item, shared, min(chunk + 1, p.chunks - 1), 0, weights);
    }
  });
}

}  // namespace convt2d::cuda::spread
