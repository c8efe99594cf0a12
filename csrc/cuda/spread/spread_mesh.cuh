// spread where sums are whole outputs, of planes under kernels of two taps a phase on both axes and two phases of rows.
//
// A warpgroup has 4 x 64 pixels, dealt to its blocks by twos along rows and columns: block (r, c) has those of rows 2 s + r and
// columns 2 i + c. So what one block multiplies for one shift another does for the next one, and of a slice 3 x 3 operands,
// the blocks and their neighbours before, serve all 16 products:
//
//   sum[r][c] += operand[r - shift of rows][c - shift of columns] * weights of both shifts
//
// and each is fetched once. There are no products to collect: a thread has two outputs of two neighbouring pixels side by side,
// which it stores.
#pragma once

#include "cuda/spread/spread_collect.cuh"
#include "cuda/spread/spread_fetched.cuh"

namespace convt2d::cuda::spread {

// Pixels of a block that a row has, and a lane's row and column among blocks' pixels.
struct MeshPlace {
  int row, column;
};
__device__ __forceinline__ MeshPlace mesh_place(const Params& p, int half) {
  const int i = threadIdx.x / 32 % 4 * 16 + half * 8 + threadIdx.x % 32 / 4,
            row = i >> (p.run_shift - 1);
  return {row * kMeshed, (i - (row << (p.run_shift - 1))) * kMeshed};
}

using Operand = uint32_t[4];

// Of a lane's pixels, fetched from rows side by side with zeros around them.
template <class T>
struct PiecePixels {
  uint32_t mine, row, plane, eight;  // eight: bytes from a lane's pixel to its second
  uint32_t from;

  __device__ __forceinline__ PiecePixels(const Params& p, const Item&, int group)
      : row(p.run * sizeof(T)), plane(p.plane_bytes), eight((p.run >= 32 ? 16 : 32) * sizeof(T)) {
    const MeshPlace place = mesh_place(p, 0);
    mine = p.plane_lead + threadIdx.x % 4 * (4 / sizeof(T)) * plane +
           (group * (p.tile_rows / kGroups) + place.row) * row + place.column * sizeof(T);
  }

  __device__ __forceinline__ void start(uint32_t stage) { from = stage + mine; }
  __device__ __forceinline__ void next_slice() { from += 32 / sizeof(T) * plane; }
  __device__ __forceinline__ uint32_t at(int r, int i) const {
    return from + r * row + i / 2 * (16 / sizeof(T)) * plane + i % 2 * eight;
  }

  // The operands of both columns of a row: of a pixel and its neighbour.
  __device__ __forceinline__ void pairs(int r, Operand& even, Operand& odd) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t word[2];
      if constexpr (is_word<T>) {
        load_shared_8(at(r, i), word);
        even[i] = MmaTF32::round(word[0]);
        odd[i] = MmaTF32::round(word[1]);
      } else {
        word[0] = load_shared_4(at(r, i));
        word[1] = load_shared_4(at(r, i) + plane);
        even[i] = __byte_perm(word[0], word[1], 0x5410);
        odd[i] = __byte_perm(word[0], word[1], 0x7632);
      }
    }
  }
  // That of the pixel before.
  __device__ __forceinline__ void before(int r, const Operand&, Operand& before) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t from = at(r, i) - 4;
      if constexpr (is_word<T>) {
        before[i] = MmaTF32::round(load_shared_4(from));
      } else {
        before[i] = __byte_perm(load_shared_4(from), load_shared_4(from + plane), 0x7632);
      }
    }
  }
};

template <class T, int WIDTH>
__device__ __forceinline__ void add_fetched(float (&sum)[WIDTH / 2], const Operand& x, uint64_t w) {
  if constexpr (is_word<T>) {
    WgmmaFetched<T, WIDTH>::add(sum, x, w);
  } else {
    WgmmaTurned<T, WIDTH>::add(sum, x, w);
  }
}

template <int ROW>
using MeshSums = float[kMeshed * kMeshed][kTiles[ROW].width / 2];

// The sums of a warpgroup's pixels, which `pixels` fetches.
template <class T, int ROW, class Pixels>
__device__ __forceinline__ void multiply_mesh(const Params& p, Pixels pixels, StageRing& ring,
                                              MeshSums<ROW>& sum) {
  constexpr Tile kTile = kTiles[ROW];
  constexpr int kWidth = kTile.width, kNumbers = chunk_numbers(kTile, sizeof(T));
  constexpr int kParts = kMeshed * kMeshed, kCount = kParts * kWidth, kFetched = kMeshed + 1;
  const uint64_t weights =
      is_word<T> ? operand_layout(kCount * 16, 128) : operand_layout(128, kNumbers * 16);
  constexpr uint32_t kStep = is_word<T> ? kCount * 2 : 16,
                     kPart = is_word<T> ? kWidth : kWidth / 8 * kNumbers;
  const int lane = threadIdx.x % 32;
  clear(sum);
  uint32_t previous = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    pixels.start(ring.stage());
    uint64_t w = operand(weights, ring.stage() + p.x_bytes);
    const int slices = chunk == p.chunks - 1 ? p.last_slices : slices_of(kTile);
#pragma unroll 1
    for (int slice = 0; slice < slices; ++slice, pixels.next_slice(), w = advance(w, kStep)) {
      Operand pair[kFetched][kMeshed], before[kFetched];
#pragma unroll
      for (int r = 0; r < kFetched; ++r) {
        pixels.pairs(r, pair[r][0], pair[r][1]);
        computed(pair[r][0]);
        computed(pair[r][1]);
      }
      wgmma_fence();
#pragma unroll
      for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int b = 0; b < kParts; ++b) {
          const int r = b / kMeshed - part / kMeshed + 1, c = b % kMeshed - part % kMeshed;
          if (c >= 0) add_fetched<T, kWidth>(sum[b], pair[r][c], advance(w, part * kPart));
        }
      wgmma_commit();
      // While these are multiplied, and those of the slice before are no longer.
      wgmma_wait<1>();
      if (slice == 0 && chunk > 0 && lane == 0) barrier_arrive(previous);
#pragma unroll
      for (int r = 0; r < kFetched; ++r) {
        pixels.before(r, pair[r][1], before[r]);
        computed(before[r]);
      }
      wgmma_fence();
#pragma unroll
      for (int part = 1; part < kParts; part += kMeshed)
#pragma unroll
        for (int b = 0; b < kParts; b += kMeshed)
          add_fetched<T, kWidth>(sum[b], before[b / kMeshed - part / kMeshed + 1],
                                 advance(w, part * kPart));
      wgmma_commit();
      wgmma_wait<1>();
    }
    previous = ring.empty();
  }
  wgmma_wait<0>();
  if (lane == 0) barrier_arrive(previous);
#pragma unroll
  for (int b = 0; b < kParts; ++b) finished(sum[b]);
}

// Columns of the destination that a stretch has.
__device__ __forceinline__ Reached mesh_reached(const Params& p, const Item& item) {
  const int first = max(0, (item.pixel + p.lead) * kMeshed - p.pad_w);
  return {first, min(p.y_w, (item.pixel + p.run) * kMeshed - p.pad_w) - first};
}

// Four neighbouring outputs, the first of which is in column `column`.
template <class T>
__device__ __forceinline__ void store_four(const Params& p, T* to, int column, const Reached& all,
                                           const float (&sum)[4]) {
  const bool whole = column >= all.first && column + 4 <= all.first + all.count;
  if (whole && p.y_w % 4 == 0 && column % 4 == 0) {
    if constexpr (is_word<T>)
      store_words(to, __float_as_uint(sum[0]), __float_as_uint(sum[1]), __float_as_uint(sum[2]),
                  __float_as_uint(sum[3]));
    else
      store_words(to, pack<T>(sum[0], sum[1]), pack<T>(sum[2], sum[3]));
  } else if (whole && p.paired && column % 2 == 0) {
    store_pair(to, sum[0], sum[1]);
    store_pair(to + 2, sum[2], sum[3]);
  } else if (whole && p.paired) {
    to[0] = Numeric<T>::narrow(sum[0]);
    store_pair(to + 1, sum[1], sum[2]);
    to[3] = Numeric<T>::narrow(sum[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (static_cast<unsigned>(column + i - all.first) < static_cast<unsigned>(all.count))
        to[i] = Numeric<T>::narrow(sum[i]);
  }
}

// Of a lane's pair of columns of an eight: the channel of the block and the phase.
struct MeshColumn {
  int channel, phase;
};
__device__ __forceinline__ MeshColumn mesh_column(const Params& p, int eight) {
  const int pair = eight * 4 + threadIdx.x % 4, channel = p.by_stride_h.quotient(pair);
  return {channel, pair - channel * p.stride_h};
}

// The outputs of a warpgroup. Under an odd padding a lane's four start in an odd column: where rows are those of lanes side by side,
// it stores the last three, and the first of the pixels behind its own. Returns whether all that it summed are finite.
template <class T, int ROW>
__device__ __forceinline__ bool store_mesh(const Params& p, const Item& item, int first,
                                           const MeshSums<ROW>& sum) {
  const Reached all = mesh_reached(p, item);
  // Of a lane's rows: the destination's row of the first phase, and where that starts.
  int y_row[kMeshed][2], start[kMeshed][2], column[2];
  const bool moved = p.pad_w % 2 != 0 && p.run <= 2 * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const MeshPlace place = mesh_place(p, half);
    column[half] = (item.pixel + place.column) * kMeshed - p.pad_w + moved;
#pragma unroll
    for (int r = 0; r < kMeshed; ++r) {
      const Row at = row_of(p, first + place.row + r);
      y_row[r][half] = at.n < p.batch ? at.row * p.stride_h - p.pad_h : p.y_h;
      start[r][half] = at.n * p.y_image + (at.row * p.stride_h - p.pad_h) * p.y_line + column[half];
    }
  }
  constexpr int kEights = kTiles[ROW].width / 8;
  const auto bias_of = [&](int eight) {
    const int channel = mesh_column(p, eight).channel;
    return p.bias && channel < item.channels
               ? load(static_cast<const T*>(p.bias) + item.channel + channel)
               : 0.f;
  };
  float next_bias = bias_of(0);  // a load ahead
  float check = 0;               // what is not finite is not zero times zero
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const auto [channel, phase] = mesh_column(p, i);
    const float bias = next_bias;
    if (i + 1 < kEights) next_bias = bias_of(i + 1);
    T* const to = static_cast<T*>(p.destination) +
                  ((item.channel + channel) * p.y_channel + phase * p.y_line);
#pragma unroll
    for (int r = 0; r < kMeshed; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float four[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          four[j] = sum[r * kMeshed + j / 2][4 * i + 2 * half + j % 2] + bias;
          if (channel < item.channels) check = fmaf(four[j], 0.f, check);
        }
        const float next = __shfl_sync(~0u, four[0], (threadIdx.x + 4) % 32);
        if (moved) four[0] = four[1], four[1] = four[2], four[2] = four[3], four[3] = next;
        if (channel < item.channels &&
            static_cast<unsigned>(y_row[r][half] + phase) < static_cast<unsigned>(p.y_h))
          store_four(p, to + start[r][half], column[half], all, four);
      }
  }
  __syncwarp();  // what is not finite another lane may have stored
  return check == 0;
}

// What a thread has stored and is not finite, once more.
template <class T, int ROW>
__device__ __noinline__ void mend_mesh(const Params& p, const Item& item, int first) {
  const Reached all = mesh_reached(p, item);
  for (int i = 0; i < kTiles[ROW].width / 8; ++i) {
    const auto [channel, phase] = mesh_column(p, i);
    if (channel >= item.channels) continue;
    for (int half = 0; half < 2; ++half) {
      const MeshPlace place = mesh_place(p, half);
      const int before = (item.pixel + place.column) * kMeshed - p.pad_w;
      for (int r = 0; r < kMeshed; ++r) {
        const Row at = row_of(p, first + place.row + r);
        const int y_row = at.row * p.stride_h - p.pad_h + phase;
        if (at.n >= p.batch || y_row < 0 || y_row >= p.y_h) continue;
        for (int column = max(before, all.first); column < min(before + 4, all.first + all.count);
             ++column) {
          T* const to = static_cast<T*>(p.destination) +
                        (at.n * p.y_image + (item.channel + channel) * p.y_channel +
                         y_row * p.y_line + column);
          if (!is_finite(*to))
            *to = plain_output<T>(p, at.n, item.channel + channel, y_row, column);
        }
      }
    }
  }
}

}  // namespace convt2d::cuda::spread
