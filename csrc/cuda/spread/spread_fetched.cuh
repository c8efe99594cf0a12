// spread where warps that multiply fetch pixels to registers.
//
// Planes: x comes to shared memory as it lies in NCHW, rows of a tile side by side with zeros for what there is not. So rows
// may have any length, and a shift is an address all the same. Channels lie so far apart that lanes meet no bank twice. In 16
// bits a word is two neighbouring pixels of a channel, and two channels' words are two words of two channels: rows l and
// l + 8 of an instruction are neighbours.
//
// Sets: a warp's 16 rows of an instruction are pixels of one place, so lanes meet no bank twice. Behind the last channel there
// are those of the next pixel, which are multiplied by zeros.
#pragma once

#include <type_traits>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/spread/spread_scope.cuh"

namespace convt2d::cuda::spread {

// What the copies of a channel's pieces start at, from the tensor's first number on, in a table for all chunks of an item.
// Each copy is a few instructions that depend on each other, and a chunk has hundreds: they are what those who bring take long
// over.
constexpr int kZeros = -1, kNoPiece = -2;
template <class T>
__device__ __forceinline__ void find_pieces(const Params& p, const Item& item, uint32_t shared) {
  const int first = item.row - (p.shifts - 1), rows = p.tile_rows + p.shifts - 1;
  barrier_among(1 + kGroups, 32 * kBringers);  // all have asked for what the item before has
#pragma unroll 1
  for (int i = threadIdx.x - kConsumers; i < p.units * 32; i += 32 * kBringers) {
    const int row = i >> p.row_shift;
    const int pixel = item.pixel + (i - (row << p.row_shift)) * p.piece / int(sizeof(T));
    const Row at = row_of(p, first + row);
    const bool there = at.n >= 0 && at.n < p.batch && at.row < p.x_h && pixel >= 0 && pixel < p.x_w;
    const int from = there ? at.n * p.x_image + at.row * p.x_w + pixel : kZeros;
    store_shared_4(shared + p.pieces_at + i * 4, row < rows ? from : kNoPiece);
  }
  barrier_among(1 + kGroups, 32 * kBringers);
}

// Of a chunk's channels warps have every eighth one.
template <class T, int BYTES>
__device__ __forceinline__ void ask_for_pieces(const Params& p, int chunk, uint32_t shared,
                                               uint32_t to) {
  constexpr int kChannels = line_numbers(sizeof(T)) / kBringers;
  const int lane = threadIdx.x % 32, warp = (threadIdx.x - kConsumers) / 32;
  const int channel = chunk * line_numbers(sizeof(T)) + warp;
  const int count = (p.reduce - channel + kBringers - 1) / kBringers;  // that there are
  const T* const source = static_cast<const T*>(p.source) + (count > 0 ? channel * p.x_channel : 0);
  const int step = kBringers * p.x_channel, step_bytes = kBringers * p.plane_bytes;
  to += p.plane_lead + warp * p.plane_bytes + lane * BYTES;
  const auto ask = [&](auto all) {
#pragma unroll 1
    for (int unit = 0; unit < p.units; ++unit) {
      const int piece =
          static_cast<int>(load_shared_4(shared + p.pieces_at + (unit * 32 + lane) * 4));
      if (piece == kNoPiece) continue;
      const T* from = source + static_cast<uint32_t>(max(piece, 0));
      uint32_t place = to + unit * 32 * BYTES;
#pragma unroll
      for (int c = 0; c < kChannels; ++c, place += step_bytes) {
        const bool is = decltype(all)::value || c < count;
        copy_async<BYTES>(place, from, is && piece >= 0);
        if (decltype(all)::value || c + 1 < count) from += step;
      }
    }
  };
  if (count >= kChannels) {
    ask(std::true_type());
  } else {
    ask(std::false_type());
  }
}

// Tells L2 of a later chunk's rows, since memory is further away than what is in the other stage lasts. Of a warp, which has
// some neighbouring channels, a lane has one; rows of an image lie together.
template <class T>
__device__ __forceinline__ void announce_planes(const Params& p, const Item& item, int chunk) {
  constexpr int kChannels = line_numbers(sizeof(T)) / kBringers;
  const int lane = threadIdx.x % 32, warp = (threadIdx.x - kConsumers) / 32;
  const int channel = chunk * line_numbers(sizeof(T)) + warp * kChannels + lane;
  if (lane >= kChannels || channel >= p.reduce) return;
  const int first = max(item.row - (p.shifts - 1), 0), end = min(item.row + p.tile_rows, p.rows);
  const T* const plane = static_cast<const T*>(p.source) + channel * p.x_channel;
#pragma unroll 1
  for (int row = first; row < end;) {
    const Row at = row_of(p, row);
    const int rows = min(p.x_h - at.row, end - row);
    if (rows > 0) announce(plane + (at.n * p.x_image + at.row * p.x_w), rows * p.x_w * sizeof(T));
    row += p.image_rows - at.row;
  }
}
template <class T>
__device__ __forceinline__ void ask_for_planes(const Params& p, int chunk, uint32_t shared,
                                               uint32_t to) {
  if (sizeof(T) == 4 && p.piece == 16) {
    ask_for_pieces<T, 16>(p, chunk, shared, to);
  } else if (p.piece == 8) {
    ask_for_pieces<T, 8>(p, chunk, shared, to);
  } else {
    ask_for_pieces<T, 4>(p, chunk, shared, to);
  }
}

// Sets of pixels by the copy engine, whose boxes start at multiples of 16 bytes: so a place's channels start up to 12 bytes
// late. Each warp asks for some rows of some places.
template <class T>
__device__ __forceinline__ void ask_for_sets(const Params& p, const CUtensorMap& map,
                                             const Item& item, int chunk, uint32_t to,
                                             uint32_t full) {
  const int warp = (threadIdx.x - kConsumers) / 32, rows = p.tile_rows + p.shifts - 1;
  const uint32_t bytes = (p.run >> p.place_shift) * kSetLine;
  const int boxes = rows << p.place_shift;
  barrier_expect(full, (boxes - warp + kBringers - 1) / kBringers * bytes);
#pragma unroll 1
  for (int box = warp; box < boxes; box += kBringers) {
    const int row = box >> p.place_shift, place = box - (row << p.place_shift);
    const int first = item.row - (p.shifts - 1) + row;
    const Row at = first < 0 ? Row{0, p.x_h} : row_of(p, first);
    const int from = place * p.reduce * int(sizeof(T)) / 16 * 16 + chunk * kLine;
    copy_box(to + place * p.place_bytes + row * bytes, &map, full, from / int(sizeof(T)),
             item.pixel >> p.place_shift, at.row, at.n);
    if (chunk + 1 < p.chunks)
      announce_box(&map, (from + kLine) / int(sizeof(T)), item.pixel >> p.place_shift, at.row,
                   at.n);
  }
}

template <int ROW>
using Sums = float[kBlocks][kTiles[ROW].width / 2];
using PixelWords = uint32_t[kBlocks][4];

// What a lane holds of a slice. `from`: of its first channel and pixel. `plane`: bytes from a channel to the next; of sets, from
// a block's pixels of a place to those of the next block.
template <class T, Source SOURCE>
__device__ __forceinline__ void fetch_pixels(uint32_t from, uint32_t plane, PixelWords& word) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    if constexpr (SOURCE == kSets) {
      const uint32_t at = from + b * plane;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        word[b][i] = load_shared_4(at + i / 2 * 16 + i % 2 * 8 * kSetLine);
    } else if constexpr (sizeof(T) == 4) {
      const uint32_t at = from + b * kRows * 4;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        word[b][i] = MmaTF32::round(load_shared_4(at + i / 2 * 4 * plane + i % 2 * 32));
    } else {
      const uint32_t at = from + b * kRows * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t even = load_shared_4(at + half * 8 * plane),
                       odd = load_shared_4(at + (half * 8 + 1) * plane);
        word[b][2 * half] = __byte_perm(even, odd, 0x5410);
        word[b][2 * half + 1] = __byte_perm(even, odd, 0x7632);
      }
    }
  }
}

// The same place so many slices further on.
template <class T, Source SOURCE>
__device__ __forceinline__ uint32_t slices_on(uint32_t from, uint32_t plane, int slices) {
  return from + slices * (SOURCE == kSets ? 32 : 32 / int(sizeof(T)) * plane);
}

// Multiplies SLICES of a chunk, for one shift. Words of a slice stay until it is multiplied, two slices later. `issued`: once
// what was issued before is finished.
template <class T, int ROW, int SLICES, class Issued>
__device__ __forceinline__ void multiply_words(Sums<ROW>& sum, uint32_t from, uint32_t plane,
                                               uint64_t w, uint32_t step, Issued&& issued) {
  constexpr Source kSource = kTiles[ROW].source;
  PixelWords word[2];
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
    fetch_pixels<T, kSource>(slices_on<T, kSource>(from, plane, slice), plane, word[slice % 2]);
    wgmma_fence();
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if constexpr (sizeof(T) == 4) {
        WgmmaFetched<T, kTiles[ROW].width>::add(sum[b], word[slice % 2][b],
                                                advance(w, slice * step));
      } else {
        WgmmaTurned<T, kTiles[ROW].width>::add(sum[b], word[slice % 2][b],
                                               advance(w, slice * step));
      }
    }
    wgmma_commit();
    if constexpr (SLICES == 1) {
      wgmma_wait<0>();
    } else {
      wgmma_wait<1>();
    }
    if (slice == 0) issued();
  }
}

// The products of a warpgroup's pixels.
template <class T, int ROW>
__device__ __forceinline__ void multiply_fetched(const Params& p, int group, StageRing& ring,
                                                 Sums<ROW>& sum) {
  constexpr int kWidth = kTiles[ROW].width, kNumbers = line_numbers(sizeof(T)), kSize = sizeof(T);
  constexpr Source kSource = kTiles[ROW].source;
  const int count = p.shifts * kWidth;
  const uint64_t weights =
      kSize == 4 ? operand_layout(count * 16, 128) : operand_layout(128, kNumbers * 16);
  const uint32_t step = kSize == 4 ? count * 2 : 16,
                 shift_step = kSize == 4 ? kWidth : kWidth / 8 * kNumbers;
  const uint32_t row = kSource == kSets ? (p.run >> p.place_shift) * kSetLine : p.run * kSize,
                 plane = kSource == kSets ? (kRows >> p.place_shift) * kSetLine : p.plane_bytes;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  // Of planes of 16 bits two neighbouring rows are a word, and two numbers of K two channels; else a word is one row's.
  uint32_t mine = (p.shifts - 1) * row;
  if constexpr (kSource == kSets) {
    const int place = warp & ((1 << p.place_shift) - 1);
    mine += place * p.place_bytes + place * p.reduce * kSize % 16 + group * kBlocks * plane +
            ((warp >> p.place_shift) * 16 + lane / 4) * kSetLine + lane % 4 * 4;
  } else {
    mine += lane % 4 * (4 / kSize) * plane + lane / 4 * 4 +
            (group * kBlocks * kRows + warp * 16) * kSize;
  }
  clear(sum);
  uint32_t previous = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    uint32_t from = ring.stage() + mine;
    uint64_t w = operand(weights, ring.stage() + p.x_bytes);
    const int slices = chunk == p.chunks - 1 ? p.last_slices : kSlices;
#pragma unroll 1
    for (int shift = 0; shift < p.shifts; ++shift, from -= row, w = advance(w, shift_step)) {
      const auto issued = [&] {
        if (shift == 0 && chunk > 0 && lane == 0) barrier_arrive(previous);
      };
      const auto nothing = [] {};
      if (slices == kSlices) {
        multiply_words<T, ROW, kSlices>(sum, from, plane, w, step, issued);
      } else {
        if (slices & 2) multiply_words<T, ROW, 2>(sum, from, plane, w, step, issued);
        if (slices & 1) {
          const int done = slices & 2;
          const uint32_t rest = slices_on<T, kSource>(from, plane, done);
          const uint64_t w_rest = advance(w, done * step);
          if (done) {
            multiply_words<T, ROW, 1>(sum, rest, plane, w_rest, step, nothing);
          } else {
            multiply_words<T, ROW, 1>(sum, rest, plane, w_rest, step, issued);
          }
        }
      }
    }
    previous = ring.empty();
  }
  wgmma_wait<0>();
  if (lane == 0) barrier_arrive(previous);
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) finished(sum[b]);
}

}  // namespace convt2d::cuda::spread
