// Bringing a K tile of x and of dY into shared memory.
//
// Contiguous channels are copied asynchronously. What must be turned on the way goes through registers as
// parcels: the main loop picks some up, multiplies for two steps, and delivers them.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/igemm/igemm_weight_scope.cuh"

namespace convt2d::cuda::igemm {

// One operand of a tile.
template <class T>
struct Operand {
  const T* base;  // the block's first channel
  int stride;     // from channel to channel
  int channels;   // that exist
  int octets, entries;
  uint32_t magic;  // of entries
  OperandMode mode;
  uint32_t plane;            // bytes of one octet (16 bits) or quad (32 bits)
  const uint32_t* rows;      // patch pixels of every load; null: in order
  const int* sources;        // of the tile that is brought in
  uint32_t stage;            // shared address
};

// Up to 32 bytes on their way: eight channels of one pixel, or (16 bits) of two.
struct WeightParcel {
  uint32_t word[8];
  uint32_t first, second;  // shared addresses of 16 bytes each; 0: none
};

template <class T>
__device__ __forceinline__ uint32_t pixel_of(const Operand<T>& from, int entry) {
  if (from.rows) return from.rows[entry];
  return from.mode == kPixelTwins ? (2 * entry) | (2 * entry + 1) << 16 : 0xffff0000u | entry;
}

template <class M>
__device__ __forceinline__ void pick_channels(const Operand<typename M::Element>& from, int unit,
                                              WeightParcel& parcel) {
  using T = typename M::Element;
  const int octet = divide(unit, from.magic), entry = unit - octet * from.entries;
  const uint32_t pixel = pixel_of(from, entry);
  const int offset = from.sources[entry];
  const uint32_t to = from.stage + octet * from.plane * (sizeof(T) / 2);
  const uint32_t first = pixel & 0xffff, second = pixel >> 16;
  parcel.first = first == 0xffff ? 0 : to + first * 16;
  if constexpr (sizeof(T) == 4) {
    parcel.second = parcel.first + from.plane;
  } else {
    parcel.second = second == 0xffff ? 0 : to + second * 16;
  }
  const int left = offset < 0 ? 0 : from.channels - octet * 8;
  const T* pointer = from.base + offset + octet * 8 * from.stride;
  const bool twins = sizeof(T) == 2 && from.mode == kPixelTwins;
  const auto load_one = [&](const T* here) {
    if (sizeof(T) == 4 || twins) return uint32_t{__ldg(reinterpret_cast<const unsigned*>(here))};
    return uint32_t{__ldg(reinterpret_cast<const unsigned short*>(here))};
  };
  if (left >= 8) {
#pragma unroll
    for (int j = 0; j < 8; ++j) parcel.word[j] = load_one(pointer + j * from.stride);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) parcel.word[j] = j < left ? load_one(pointer + j * from.stride) : 0;
  }
}

template <class M>
__device__ __forceinline__ void deliver_channels(const WeightParcel& parcel) {
  uint32_t first[4], second[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if constexpr (sizeof(typename M::Element) == 4) {
      first[j] = M::round(parcel.word[j]);
      second[j] = M::round(parcel.word[j + 4]);
    } else {
      first[j] = __byte_perm(parcel.word[2 * j], parcel.word[2 * j + 1], 0x5410);
      second[j] = __byte_perm(parcel.word[2 * j], parcel.word[2 * j + 1], 0x7632);
    }
  }
  if (parcel.first) store_shared_16(parcel.first, first);
  if (parcel.second) store_shared_16(parcel.second, second);
}

// Calls visit(shared address, entry, first channel) for all 16-byte pieces this thread copies. Eight lanes
// in a row take two planes of four pixels: whole sectors of global memory, all banks of shared memory.
template <class T, class Visit>
__device__ __forceinline__ void visit_pieces(const Operand<T>& from, Visit&& visit) {
  constexpr int kVector = 16 / sizeof(T);
  const int planes = from.octets * (8 / kVector);
  const int bits = planes > 4 ? 3 : planes > 2 ? 2 : planes - 1;  // of a lane, for the plane
  const int lane = threadIdx.x & 31;
  const int lane_plane = bits == 0 ? 0 : (lane & 1) | (lane >> 3 & ((1 << (bits - 1)) - 1)) << 1;
  const int lane_entry = bits == 0 ? lane : (lane >> 1 & 3) | lane >> (bits + 2) << 2;
  const int columns = (planes + (1 << bits) - 1) >> bits;
  const int rows = (from.entries + (32 >> bits) - 1) >> (5 - bits);
  int row = 0, column = threadIdx.x >> 5;
  while (column >= columns) column -= columns, ++row;
  while (row < rows) {
    const int plane = (column << bits) + lane_plane, entry = (row << (5 - bits)) + lane_entry;
    if (plane < planes && entry < from.entries)
      visit(from.stage + plane * from.plane + (pixel_of(from, entry) & 0xffff) * 16, entry,
            plane * kVector);
    column += blockDim.x >> 5;
    while (column >= columns) column -= columns, ++row;
  }
}

template <class T>
__device__ __forceinline__ void copy_rows(const Operand<T>& from) {
  if (from.mode != kRows) return;
  visit_pieces(from, [&](uint32_t to, int entry, int channel) {
    const int offset = from.sources[entry];
    const bool there = offset >= 0 && channel < from.channels;
    copy_async_16(to, there ? from.base + offset + channel : from.base, there);
  });
}

// Rounds what this thread copied, once it has arrived, where it lies, if the arithmetic wants that.
template <class M>
__device__ __forceinline__ void round_rows(const Operand<typename M::Element>& from) {
  if constexpr (M::kRounds) {
    if (from.mode != kRows) return;
    visit_pieces(from, [&](uint32_t to, int, int) {
      uint32_t word[4];
      load_shared_16(to, word);
#pragma unroll
      for (int i = 0; i < 4; ++i) word[i] = M::round(word[i]);
      store_shared_16(to, word);
    });
  }
}

template <class T>
__device__ __forceinline__ Operand<T> x_operand(const WeightParams& p, const WeightScope& at,
                                                const WeightTables& tables, int tile,
                                                uint32_t stage) {
  const int first = at.row_block * p.row_octets * 8;
  return {static_cast<const T*>(p.x) + (at.group * p.rows + first) * p.x_stride[1],
          p.x_stride[1],
          p.rows - first,
          p.row_octets,
          at.x_entries,
          at.x_magic,
          static_cast<OperandMode>(p.x_mode),
          static_cast<uint32_t>(plane_rows(p.pixels) * 16),
          nullptr,
          tables.x_sources + (tile & 1) * p.pixels,
          stage};
}

template <class T>
__device__ __forceinline__ Operand<T> y_operand(const WeightParams& p, const WeightScope& at,
                                                const WeightTables& tables, int tile,
                                                uint32_t stage) {
  const int first = at.octet_block * p.octets * 8;
  return {static_cast<const T*>(p.y) + (at.group * p.columns + first) * p.y_stride[1],
          p.y_stride[1],
          p.columns - first,
          p.octets,
          at.y_entries,
          at.y_magic,
          static_cast<OperandMode>(p.y_mode),
          static_cast<uint32_t>(plane_rows(p.patch_pixels) * 16),
          tables.y_rows,
          tables.y_sources + (tile & 1) * p.y_entries,
          stage};
}

// What goes through registers.
template <class T>
__device__ __forceinline__ int parcels_of(const Operand<T>& from) {
  return from.mode == kRows ? 0 : from.octets * from.entries;
}

}  // namespace convt2d::cuda::igemm
