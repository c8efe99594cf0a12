// Bringing a K tile of x and of dY into shared memory: the work of the producer warps.
//
// Whatever lies in memory as it is to lie in shared memory is copied asynchronously, so that it costs neither
// registers nor waiting. What must be turned on the way goes through registers as parcels: eight channels of one
// pixel or of a run of them, many at once, since it is the wait for them that takes the time.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/igemm/igemm_weight_scope.cuh"

namespace convt2d::cuda::igemm {

// One operand, as the producers that bring it in keep it in registers: what lasts, and what a tile changes.
template <class T>
struct Operand {
  const T* first;                 // the block's first channel
  int stride;                     // from channel to channel
  int image_stride, row, column;  // from x pixel to x pixel
  int step_h, step_w;             // this operand's pixels, ditto
  int channels;                   // that exist
  int octets, run;                // of a block; pixels of a load
  int mode;                       // WeightMode
  uint32_t plane;                 // see plane_bytes()
  const WeightLoad* loads;
  int count, image_loads;            // of a tile; of one image of it
  uint32_t magic;                    // of count
  int low_h, high_h, low_w, high_w;  // pixels that loads meet, from the tile's first
  int extent_h, extent_w;

  const T* base;   // at the tile's first pixel
  uint32_t stage;  // shared address
  int inside;      // loads of images that exist
  int h, w;        // of the tile's first pixel
  bool whole;      // all of the tile lies inside the tensor

  // A tile may start past the end of dY, where nothing of it exists.
  __device__ __forceinline__ void move(TileOrigin o, int images, uint32_t to) {
    h = o.h * step_h, w = o.w * step_w;
    base = first + int64_t{o.n} * image_stride + int64_t{o.h} * row + int64_t{o.w} * column;
    stage = to;
    inside = images * image_loads;
    whole = inside >= count && h + low_h >= 0 && h + high_h < extent_h && w + low_w >= 0 &&
            w + high_w < extent_w;
  }
  __device__ __forceinline__ WeightLoad load(int index) const {  // at once
    const int4 all = reinterpret_cast<const int4*>(loads)[index];
    return {all.x, all.y, static_cast<uint32_t>(all.z), static_cast<uint32_t>(all.w)};
  }
  __device__ __forceinline__ bool exists(int index, const WeightLoad& load) const {
    const unsigned at_h = h + (load.place >> 16), at_w = w + static_cast<int16_t>(load.place);
    return index < inside && at_h < static_cast<unsigned>(extent_h) &&
           at_w < static_cast<unsigned>(extent_w);
  }
};

template <class T>
__device__ __forceinline__ Operand<T> operand_of(bool is_x, const WeightParams& p,
                                                 const WeightScope& at,
                                                 const WeightTables& tables) {
  const int first = is_x ? at.row_block * p.row_octets * 8 : at.octet_block * p.octets * 8;
  const int channels = is_x ? p.rows : p.columns, stride = is_x ? p.x_stride[1] : p.y_stride[1];
  const int step_h = is_x ? 1 : p.h.stride, step_w = is_x ? 1 : p.w.stride;
  const int mode = is_x ? p.x_mode : p.y_mode;
  const int raw_w = p.y_mode == kByPlanes ? at.first_column + at.patch_w - 1 : at.high_w;
  Operand<T> of;
  of.first = static_cast<const T*>(is_x ? p.x : p.y) + (at.group * channels + first) * stride;
  of.stride = stride;
  of.image_stride = is_x ? p.x_stride[0] : p.y_stride[0];
  of.row = step_h * (is_x ? p.x_stride[2] : p.y_stride[2]);
  of.column = step_w * (is_x ? p.x_stride[3] : p.y_stride[3]);
  of.step_h = step_h, of.step_w = step_w;
  of.channels = channels - first;
  of.octets = is_x ? p.row_octets : p.octets;
  of.run = is_x ? p.x_run : p.y_run;
  of.mode = mode;
  of.plane = plane_bytes(mode, is_x ? p.pixels : p.patch_pixels, sizeof(T));
  of.loads = is_x ? tables.x_loads : tables.y_loads;
  of.count = is_x ? at.x_loads : at.y_loads;
  of.image_loads = is_x ? p.tile_h * p.tile_w / p.x_run : at.patch_h * at.row_loads;
  of.magic = is_x ? at.x_magic : at.y_magic;
  of.low_h = is_x ? 0 : at.low_h, of.high_h = is_x ? p.tile_h - 1 : at.high_h;
  of.low_w = is_x ? 0 : at.first_column, of.high_w = is_x ? p.tile_w - 1 : raw_w;
  of.extent_h = is_x ? p.h.x_extent : p.h.y_extent;
  of.extent_w = is_x ? p.w.x_extent : p.w.y_extent;
  return of;
}

// Eight channels of RUN pixels on their way.
template <class M, int RUN>
struct WeightParcel {
  static constexpr int kBytes = 2 * RUN;
  static constexpr int kWords = kBytes <= 4 ? 1 : kBytes / 4;
  uint32_t word[8][kWords];
  uint32_t to;         // shared address of the octet
  uint32_t low, high;  // see WeightLoad

  __device__ __forceinline__ uint32_t pixel(int i) const {
    return (i < 2 ? low : high) >> 16 * (i & 1) & 0xffff;
  }
};

template <class M, int RUN>
__device__ __forceinline__ void pick_channels(const Operand<typename M::Element>& from, int unit,
                                              WeightParcel<M, RUN>& parcel) {
  using T = typename M::Element;
  const int octet = divide(unit, from.magic), index = unit - octet * from.count;
  parcel.low = parcel.high = ~0u;
  int left = 0;
  const T* pointer = from.base;
  if (octet < from.octets) {
    const WeightLoad load = from.load(index);
    parcel.low = load.low, parcel.high = load.high;
    parcel.to = from.stage + octet * from.plane;
    left = from.whole || from.exists(index, load) ? from.channels - octet * 8 : 0;
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
__device__ __forceinline__ void deliver_channels(const WeightParcel<M, RUN>& parcel) {
#pragma unroll
  for (int i = 0; i < RUN; ++i) {
    if (parcel.pixel(i) == kNoPixel) continue;
    uint32_t row[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      row[j] = __byte_perm(parcel.word[2 * j][i / 2], parcel.word[2 * j + 1][i / 2],
                           i % 2 ? 0x7632 : 0x5410);
    store_shared_16(parcel.to + parcel.pixel(i) * 16, row);
  }
}

template <class M, int RUN, int BATCH>
__device__ __forceinline__ void carry_batch(const Operand<typename M::Element>& from, int unit,
                                            int threads) {
  WeightParcel<M, RUN> parcel[BATCH];
#pragma unroll
  for (int i = 0; i < BATCH; ++i) pick_channels<M, RUN>(from, unit + i * threads, parcel[i]);
#pragma unroll
  for (int i = 0; i < BATCH; ++i) deliver_channels<M, RUN>(parcel[i]);
}

// All parcels of an operand, in batches: as many as the registers hold, since a parcel that is spilled is waited
// for at once, and half as many where that is enough.
template <class M, int RUN, int BATCH>
__device__ __forceinline__ void carry_channels(const Operand<typename M::Element>& from, int thread,
                                               int threads) {
  constexpr int kBatch = WeightParcel<M, RUN>::kWords == 2 ? BATCH : 2 * BATCH;
  const int parcels = from.octets * from.count;
#pragma unroll 1
  for (int first = 0; first < parcels;) {
    if (parcels - first > kBatch / 2 * threads) {
      carry_batch<M, RUN, kBatch>(from, first + thread, threads);
      first += kBatch * threads;
    } else {
      carry_batch<M, RUN, kBatch / 2>(from, first + thread, threads);
      first += kBatch / 2 * threads;
    }
  }
}

// Contiguous channels. Eight lanes in a row take eight planes of a pixel (16 bits), or four planes of two: whole
// sectors of global memory, and most banks of shared memory. A few pixels at a time, so that their table entries
// are read side by side.
template <class T>
__device__ __forceinline__ void copy_vectors(const Operand<T>& from, int producer, int producers) {
  constexpr int kVector = 16 / sizeof(T), kPixels = 4;
  const int planes = plane_count(kByVectors, from.octets, sizeof(T)),
            there = from.channels / kVector;
  const int lane = threadIdx.x & 31, bits = planes > 4 ? 3 : planes > 2 ? 2 : planes - 1;
  const bool mixed = sizeof(T) == 4 && bits == 3;
  const int lane_plane = mixed ? (lane & 3) | (lane >> 1 & 4) : lane & ((1 << bits) - 1);
  const int lane_index = mixed ? (lane >> 2 & 1) | (lane >> 3 & 2) : lane >> bits;
  const int across = 32 >> bits, step = across * producers;
  const T* const base = from.base + lane_plane * kVector;
  const uint32_t stage = from.stage + lane_plane * from.plane;
  for (int index = producer * across + lane_index; index < from.count; index += kPixels * step) {
    WeightLoad load[kPixels];
    bool exists[kPixels];
#pragma unroll
    for (int i = 0; i < kPixels; ++i) load[i] = from.load(min(index + i * step, from.count - 1));
    if (from.whole) {
#pragma unroll
      for (int i = 0; i < kPixels; ++i) exists[i] = true;
    } else {
#pragma unroll
      for (int i = 0; i < kPixels; ++i) exists[i] = from.exists(index + i * step, load[i]);
    }
    for (int first = 0; first + lane_plane < planes; first += 1 << bits) {
      const T* const channel = base + first * kVector;
      const uint32_t to = stage + first * from.plane;
#pragma unroll
      for (int i = 0; i < kPixels; ++i) {
        if (index + i * step >= from.count) continue;
        const bool valid = exists[i] && first + lane_plane < there;
        copy_async_16_of_many(to + load[i].low, valid ? channel + load[i].offset : from.base,
                              valid);
      }
    }
  }
}

// Contiguous pixels to planes, or words to where they lie in rows. Eight lanes in a row take eight loads of a
// channel; a warp four channels. The warps share out loads where there are enough of these, since a load costs more
// than its channels, else channels.
template <class T, int BYTES, bool PLANES>
__device__ __forceinline__ void copy_pixels(const Operand<T>& from, int producer, int producers) {
  const int lane = threadIdx.x & 31, channels = from.octets * 8;
  const bool by_loads = shares_loads(from.count, producers);
  const int warp = by_loads ? 0 : producer, warps = by_loads ? 1 : producers;
  const int first = warp * 4 + (lane >> 3), step = warps * 4;
  const int64_t stride = static_cast<int64_t>(from.stride) * step;
  const uint32_t plane_step = (PLANES ? step : warps) * from.plane;
  const uint32_t stage =
      from.stage + (PLANES ? first * from.plane : warp * from.plane + (lane >> 3) * 4);
  const T* const base = from.base + static_cast<int64_t>(from.stride) * first;
  const int index_step = by_loads ? 8 * producers : 8;
  for (int index = (by_loads ? 8 * producer : 0) + (lane & 7); index < from.count;
       index += index_step) {
    const WeightLoad load = from.load(index);
    const int there = from.whole || from.exists(index, load) ? from.channels : 0;
    const T* source = base + load.offset;
    uint32_t to = stage + load.low;
#pragma unroll 4
    for (int channel = first; channel < channels; channel += step) {
      const bool valid = channel < there;
      copy_async<BYTES>(to, valid ? source : from.base, valid);
      source += stride, to += plane_step;
    }
  }
}

// Rounds a whole operand where it lies: once the copies of all that bring it in have arrived.
template <class M>
__device__ __forceinline__ void round_operand(const Operand<typename M::Element>& of,
                                              uint32_t stage, int thread, int threads) {
  constexpr int kRows = 4;
  const int bytes = plane_count(of.mode, of.octets, sizeof(typename M::Element)) * of.plane;
  for (int at = thread * 16; at < bytes; at += kRows * threads * 16) {
    uint32_t word[kRows][4];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (at + i * threads * 16 < bytes) load_shared_16(stage + at + i * threads * 16, word[i]);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) word[i][j] = M::round(word[i][j]);
      if (at + i * threads * 16 < bytes) store_shared_16(stage + at + i * threads * 16, word[i]);
    }
  }
}

// Starts on an operand of a K tile, all its producers together. What goes through registers is there when it
// returns.
template <class M, int BATCH>
__device__ __forceinline__ void start_operand(const Operand<typename M::Element>& of, int producer,
                                              int producers) {
  using T = typename M::Element;
  const int bytes = of.run * sizeof(T);
  if (of.mode == kByVectors) {
    copy_vectors(of, producer, producers);
  } else if (of.mode == kByPlanes) {
    if (bytes == 16) {
      copy_pixels<T, 16, true>(of, producer, producers);
    } else if (bytes == 8) {
      copy_pixels<T, 8, true>(of, producer, producers);
    } else if (sizeof(T) == 2) {
      copy_pixels<T, 4, true>(of, producer, producers);
    }
  } else if constexpr (sizeof(T) == 4) {
    copy_pixels<T, 4, false>(of, producer, producers);
  } else {
    const int thread = producer * 32 + (threadIdx.x & 31), threads = producers * 32;
    if (of.run == 4) {
      carry_channels<M, 4, BATCH>(of, thread, threads);
    } else if (of.run == 2) {
      carry_channels<M, 2, BATCH>(of, thread, threads);
    } else {
      carry_channels<M, 1, BATCH>(of, thread, threads);
    }
  }
}

// Waits for this thread's copies of all tiles but the last `open` and rounds those of one tile, once all who bring
// the operand in are there.
template <class M>
__device__ __forceinline__ void finish_operand(const Operand<typename M::Element>& of, bool is_x,
                                               uint32_t stage, int thread, int threads, int open) {
  copy_async_wait(open);
  if constexpr (M::kRounds) {
    if (is_x) {
      barrier_among(2, threads);
    } else {
      barrier_among(3, threads);
    }
    round_operand<M>(of, stage, thread, threads);
  }
}

}  // namespace convt2d::cuda::igemm
