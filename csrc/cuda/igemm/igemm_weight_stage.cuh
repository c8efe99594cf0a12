// Bringing a K tile of x and of dY into shared memory: the work of the producer warps.
//
// Contiguous channels are copied asynchronously. What must be turned on the way goes through registers as
// parcels: eight channels of one pixel or of a run of them, many at once, since it is the wait for them that
// takes the time.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/igemm/igemm_weight_scope.cuh"

namespace convt2d::cuda::igemm {

// One operand of one tile.
template <class T>
struct Operand {
  const T* base;    // the block's first channel at the tile's first pixel
  int stride;       // from channel to channel
  int channels;     // that exist
  int octets, run;  // of a block; pixels of a load
  bool vectors;     // contiguous channels
  uint32_t plane;   // bytes of one octet (16 bits) or quad (32 bits)
  uint32_t stage;   // shared address
  const WeightLoad* loads;
  int count, inside;  // loads; those of images that exist
  int h, w;           // of the tile's first pixel
  int extent_h, extent_w;
  bool whole;  // all of the tile lies inside the image

  __device__ __forceinline__ WeightLoad load(int index) const {  // at once
    const int4 all = reinterpret_cast<const int4*>(loads)[index];
    return {all.x, all.y, static_cast<uint32_t>(all.z), static_cast<uint32_t>(all.w)};
  }
  __device__ __forceinline__ bool exists(int index, const WeightLoad& load) const {
    if (whole) return index < inside;
    const unsigned row = h + (load.place >> 16), column = w + static_cast<int16_t>(load.place);
    return index < inside && row < static_cast<unsigned>(extent_h) &&
           column < static_cast<unsigned>(extent_w);
  }
};

template <class T>
__device__ __forceinline__ Operand<T> x_operand(const WeightParams& p, const WeightScope& at,
                                                const WeightTables& tables, TileOrigin o,
                                                uint32_t stage) {
  const int first = at.row_block * p.row_octets * 8, run = x_run(p);
  const int64_t offset =
      int64_t{o.n} * p.x_stride[0] + int64_t{o.h} * p.x_stride[2] + int64_t{o.w} * p.x_stride[3];
  return {static_cast<const T*>(p.x) + (at.group * p.rows + first) * p.x_stride[1] + offset,
          p.x_stride[1],
          p.rows - first,
          p.row_octets,
          run,
          p.x_vectors != 0,
          static_cast<uint32_t>(plane_rows(p.pixels, sizeof(T)) * 16),
          stage,
          tables.x_loads,
          at.x_loads,
          min(p.tile_n, p.batch - o.n) * p.tile_h * p.tile_w / run,
          o.h,
          o.w,
          p.h.x_extent,
          p.w.x_extent,
          o.h + p.tile_h <= p.h.x_extent && o.w + p.tile_w <= p.w.x_extent};
}

template <class T>
__device__ __forceinline__ Operand<T> y_operand(const WeightParams& p, const WeightScope& at,
                                                const WeightTables& tables, TileOrigin o,
                                                uint32_t stage) {
  const int first = at.octet_block * p.octets * 8;
  const int h = o.h * p.h.stride, w = o.w * p.w.stride;
  // A tile may start past the end of dY, where nothing of it exists.
  const int64_t offset =
      int64_t{o.n} * p.y_stride[0] + int64_t{h} * p.y_stride[2] + int64_t{w} * p.y_stride[3];
  return {static_cast<const T*>(p.y) + (at.group * p.columns + first) * p.y_stride[1] + offset,
          p.y_stride[1],
          p.columns - first,
          p.octets,
          y_run(p),
          p.y_vectors != 0,
          static_cast<uint32_t>(plane_rows(p.patch_pixels, sizeof(T)) * 16),
          stage,
          tables.y_loads,
          at.y_loads,
          min(p.tile_n, p.batch - o.n) * at.patch_h * at.row_loads,
          h,
          w,
          p.h.y_extent,
          p.w.y_extent,
          h + at.low_h >= 0 && h + at.high_h < p.h.y_extent && w + at.low_w >= 0 &&
              w + at.high_w < p.w.y_extent};
}

// Field by field, so that neither has to lie in memory.
template <class T>
__device__ __forceinline__ Operand<T> one_of(bool first, const Operand<T>& a, const Operand<T>& b) {
  return {
      first ? a.base : b.base,     first ? a.stride : b.stride,     first ? a.channels : b.channels,
      first ? a.octets : b.octets, first ? a.run : b.run,           first ? a.vectors : b.vectors,
      first ? a.plane : b.plane,   first ? a.stage : b.stage,       first ? a.loads : b.loads,
      first ? a.count : b.count,   first ? a.inside : b.inside,     first ? a.h : b.h,
      first ? a.w : b.w,           first ? a.extent_h : b.extent_h, first ? a.extent_w : b.extent_w,
      first ? a.whole : b.whole};
}

// Eight channels of RUN pixels on their way.
template <class M, int RUN>
struct WeightParcel {
  static constexpr int kBytes = sizeof(typename M::Element) * RUN;
  static constexpr int kWords = kBytes <= 4 ? 1 : kBytes / 4;
  uint32_t word[8][kWords];
  uint32_t to;         // shared address of the octet
  uint32_t low, high;  // see WeightLoad

  __device__ __forceinline__ uint32_t pixel(int i) const {
    return (i < 2 ? low : high) >> 16 * (i & 1) & 0xffff;
  }
};

template <class M, int RUN>
__device__ __forceinline__ void pick_channels(const Operand<typename M::Element>& from,
                                              uint32_t magic, int unit,
                                              WeightParcel<M, RUN>& parcel) {
  using T = typename M::Element;
  const int octet = divide(unit, magic), index = unit - octet * from.count;
  parcel.low = parcel.high = ~0u;
  int left = 0;
  const T* pointer = from.base;
  if (octet < from.octets) {
    const WeightLoad load = from.load(index);
    parcel.low = load.low, parcel.high = load.high;
    parcel.to = from.stage + octet * from.plane * (sizeof(T) / 2);
    left = from.exists(index, load) ? from.channels - octet * 8 : 0;
    pointer += load.offset + octet * 8 * from.stride;
  }
  // One multiply-add an address: the compiler is not to take the stride from constant memory again.
  uint32_t stride = from.stride * sizeof(T);
  keep_in_register(stride);
  const char* const first = reinterpret_cast<const char*>(pointer);
  constexpr int kBytes = WeightParcel<M, RUN>::kBytes;
  if (left >= 8) {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      load_words<kBytes>(first + static_cast<uint64_t>(stride) * j, parcel.word[j]);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      parcel.word[j][0] = 0;
      if constexpr (kBytes == 8) parcel.word[j][1] = 0;
      if (j < left) load_words<kBytes>(first + static_cast<uint64_t>(stride) * j, parcel.word[j]);
    }
  }
}

template <class M, int RUN>
__device__ __forceinline__ void deliver_channels(const WeightParcel<M, RUN>& parcel,
                                                 uint32_t plane) {
#pragma unroll
  for (int i = 0; i < RUN; ++i) {
    if (parcel.pixel(i) == kNoPixel) continue;
    const uint32_t to = parcel.to + parcel.pixel(i) * 16;
    uint32_t low[4], high[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (sizeof(typename M::Element) == 4) {
        low[j] = M::round(parcel.word[j][i]);
        high[j] = M::round(parcel.word[j + 4][i]);
      } else {
        low[j] = __byte_perm(parcel.word[2 * j][i / 2], parcel.word[2 * j + 1][i / 2],
                             i % 2 ? 0x7632 : 0x5410);
      }
    }
    store_shared_16(to, low);
    if constexpr (sizeof(typename M::Element) == 4) store_shared_16(to + plane, high);
  }
}

// All parcels of an operand, in batches: as many as the registers hold, since a parcel that is spilled is
// waited for at once.
template <class M, int RUN>
__device__ __forceinline__ void carry_channels(const Operand<typename M::Element>& from, int thread,
                                               int threads) {
  constexpr int kBatch = WeightParcel<M, RUN>::kWords == 2 ? 4 : 8;
  if (from.vectors) return;
  const uint32_t magic = magic_of(from.count);
  const int parcels = from.octets * from.count;
#pragma unroll 1
  for (int unit = thread; unit < parcels; unit += kBatch * threads) {
    WeightParcel<M, RUN> parcel[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      pick_channels<M, RUN>(from, magic, unit + i * threads, parcel[i]);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) deliver_channels<M, RUN>(parcel[i], from.plane);
  }
}

// The 16-byte pieces of an operand that a thread copies. Eight lanes in a row take eight planes of a pixel (16
// bits), or four planes of two: whole sectors of global memory, and most banks of shared memory. Calls
// visit(shared addresses, loads, their indices, which are new, first channel) for a few pieces at a time; those that
// are not new repeat the first of them.
constexpr int kPieces = 4;

template <class T, class Visit>
__device__ __forceinline__ void visit_pieces(const Operand<T>& from, int producer, int producers,
                                             Visit&& visit) {
  const int planes = from.octets * (int(sizeof(T)) / 2);
  const int lane = threadIdx.x & 31, bits = planes > 4 ? 3 : planes > 2 ? 2 : planes - 1;
  const bool mixed = sizeof(T) == 4 && bits == 3;
  const int lane_plane = mixed ? (lane & 3) | (lane >> 1 & 4) : lane & ((1 << bits) - 1);
  const int lane_index = mixed ? (lane >> 2 & 1) | (lane >> 3 & 2) : lane >> bits;
  const int across = 32 >> bits, step = across * producers;
  for (int first = 0; first < planes; first += 1 << bits) {
    const int plane = first + lane_plane;
    if (plane >= planes) continue;
    const uint32_t to = from.stage + plane * from.plane;
    for (int index = producer * across + lane_index; index < from.count; index += kPieces * step) {
      uint32_t address[kPieces];
      WeightLoad load[kPieces];
      int indices[kPieces];
      bool fresh[kPieces];
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        fresh[i] = index + i * step < from.count;
        indices[i] = index + i * step < from.count ? index + i * step : index;
        load[i] = from.load(indices[i]);
        address[i] = to + (load[i].low & 0xffff) * 16;
      }
      visit(address, load, indices, fresh, plane * int(16 / sizeof(T)));
    }
  }
}

template <class T>
__device__ __forceinline__ void copy_pieces(const Operand<T>& from, int producer, int producers) {
  if (!from.vectors) return;
  visit_pieces(from, producer, producers,
               [&](const uint32_t (&to)[kPieces], const WeightLoad(&load)[kPieces],
                   const int (&indices)[kPieces], const bool (&fresh)[kPieces], int channel) {
#pragma unroll
                 for (int i = 0; i < kPieces; ++i) {
                   const bool there = from.exists(indices[i], load[i]) && channel < from.channels;
                   if (fresh[i])
                     copy_async_16_of_many(
                         to[i], there ? from.base + channel + load[i].offset : from.base, there);
                 }
               });
}

// Rounds what this thread copied, once it has arrived, where it lies, if the arithmetic wants that.
template <class M>
__device__ __forceinline__ void round_pieces(const Operand<typename M::Element>& from, int producer,
                                             int producers) {
  if constexpr (M::kRounds) {
    if (!from.vectors) return;
    visit_pieces(from, producer, producers,
                 [&](const uint32_t (&to)[kPieces], const WeightLoad(&)[kPieces],
                     const int (&)[kPieces], const bool (&fresh)[kPieces], int) {
                   uint32_t word[kPieces][4];
#pragma unroll
                   for (int i = 0; i < kPieces; ++i) load_shared_16(to[i], word[i]);
#pragma unroll
                   for (int i = 0; i < kPieces; ++i) {
#pragma unroll
                     for (int j = 0; j < 4; ++j) word[i][j] = M::round(word[i][j]);
                     if (fresh[i]) store_shared_16(to[i], word[i]);
                   }
                 });
  }
}

// Starts on a K tile, all producers together. What goes through registers is there when it returns.
template <class M>
__device__ __forceinline__ void start_tile(const WeightParams& p,
                                           const Operand<typename M::Element>& x,
                                           const Operand<typename M::Element>& y, int thread) {
  constexpr bool kHalf = sizeof(typename M::Element) == 2;
  const int producer = thread >> 5, threads = p.producers * 32;
  copy_pieces(x, producer, p.producers);
  copy_pieces(y, producer, p.producers);
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    const Operand<typename M::Element> from = one_of(i == 0, y, x);
    if (kHalf && p.run == 4) {
      carry_channels<M, kHalf ? 4 : 2>(from, thread, threads);
    } else if (p.run == 2) {
      carry_channels<M, 2>(from, thread, threads);
    } else {
      carry_channels<M, 1>(from, thread, threads);
    }
  }
}

// Waits for this thread's copies of all tiles but the last `open` and rounds those of one tile.
template <class M>
__device__ __forceinline__ void finish_tile(const WeightParams& p,
                                            const Operand<typename M::Element>& x,
                                            const Operand<typename M::Element>& y, int thread,
                                            int open) {
  copy_async_wait(open);
  round_pieces<M>(x, thread >> 5, p.producers);
  round_pieces<M>(y, thread >> 5, p.producers);
}

}  // namespace convt2d::cuda::igemm
