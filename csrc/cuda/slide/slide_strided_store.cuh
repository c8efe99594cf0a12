// Sums of slide's strided tiles to memory: rows of whole 16 bytes out of registers; others by way of a buffer of each warp, in which
// eight channels lie as they are summed.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/slide/slide_plain.cuh"
#include "cuda/slide/slide_scope.cuh"
#include "cuda/slide/slide_strided.h"

namespace convt2d::cuda::slide {

template <int WIDTH>
using StridedSums = float[WIDTH / 2];

// An output in ordinary arithmetic, from global memory.
template <class T>
__device__ __noinline__ T plain_strided(const StridedParams& p, int n, int group, int channel,
                                        int row, int column) {
  const int plane = p.x_h * p.x_w;
  const T* const y = static_cast<const T*>(p.source) + (n * p.groups + group) * p.reduce * plane;
  const T* const weight = static_cast<const T*>(p.weight) + int64_t{group} * p.weight_group +
                          int64_t{channel} * p.weight_column;
  float sum = 0;
  for (int i = 0; i < p.kernel_h; ++i) {
    const int from_row = row * p.step_h + p.low_h + i * p.tap_rows;
    if (from_row < 0 || from_row >= p.x_h) continue;
    for (int j = 0; j < p.kernel_w; ++j) {
      const int from_column = column * p.step_w + p.low_w + j * p.tap_columns;
      if (from_column < 0 || from_column >= p.x_w) continue;
      for (int c = 0; c < p.reduce; ++c)
        sum = fmaf(load(y + (c * plane + from_row * p.x_w + from_column)),
                   load(weight + (int64_t{c} * p.weight_reduce + i * p.weight_h + j * p.weight_w)),
                   sum);
    }
  }
  return Numeric<T>::narrow(sum);
}

// Eight channels of a row of the result, of a strip of so many images: rows of an image and a channel.
template <class T>
struct ImageRows {
  T* destination;
  int group, channel;  // the first one, of a group
  int n, row, column;  // the first image and column
  int count;           // of outputs

  __device__ __forceinline__ bool there(const StridedParams& p, int image, int inside) const {
    return channel + inside < p.columns && n + image < p.batch;
  }
  __device__ __forceinline__ int element(const StridedParams& p, int image, int inside) const {
    return (((n + image) * p.groups + group) * p.columns + channel + inside) * (p.y_h * p.y_w) +
           row * p.y_w + column;
  }
};

// Four lanes have two positions each of four eights; then each has one eight.
__device__ __forceinline__ void exchange(uint32_t (&word)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  const uint32_t a = __shfl_xor_sync(0xffffffffu, odd ? word[0] : word[1], 1),
                 b = __shfl_xor_sync(0xffffffffu, odd ? word[2] : word[3], 1);
  (odd ? word[0] : word[1]) = a;
  (odd ? word[2] : word[3]) = b;
  const uint32_t c = __shfl_xor_sync(0xffffffffu, high ? word[0] : word[2], 2),
                 d = __shfl_xor_sync(0xffffffffu, high ? word[1] : word[3], 2);
  (high ? word[0] : word[2]) = c;
  (high ? word[1] : word[3]) = d;
}

// 16 bytes at a time. `words`: of eights of positions, two of a lane.
template <class T, int EIGHTS>
__device__ __forceinline__ void store_vectors(const StridedParams& p, const ImageRows<T>& rows,
                                              const uint32_t (&words)[EIGHTS]) {
  const int lane = threadIdx.x % 32, inside = lane / 4;
#pragma unroll
  for (int first = 0; first < EIGHTS; first += 4) {
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = first + i < EIGHTS ? words[first + i] : 0;
    exchange(word);
    const int eight = first + lane % 4,
              image = int(uint32_t(eight * kVector) * uint32_t(p.image_magic) >> 16),
              at = eight * kVector - image * p.image_pixels;
    if (eight < EIGHTS && image < p.images && at < rows.count && rows.there(p, image, inside))
      store_words(rows.destination + rows.element(p, image, inside) + at, word[0], word[1], word[2],
                  word[3]);
  }
}

// Words of memory, whose halves may be of two words of the buffer; at the ends halves.
template <class T>
__device__ __forceinline__ void store_pairs(const StridedParams& p, const ImageRows<T>& rows,
                                            uint32_t staging) {
  const int lanes = 1 << p.lanes_shift, lane = threadIdx.x & lanes - 1;
#pragma unroll 1
  for (int first_index = 0; first_index < kWarpChannels * p.images;
       first_index += 32 >> p.lanes_shift) {
    const int index = first_index + (threadIdx.x % 32 >> p.lanes_shift),
              image = index / kWarpChannels, inside = index % kWarpChannels;
    const bool there = image < p.images && rows.there(p, image, inside);
    const int element = rows.element(p, image, inside), odd = element & 1;
    const uint32_t staged = staging + inside * kStridedPitch + image * p.image_pixels * 2;
    T* const to = rows.destination + element;
#pragma unroll 2
    for (int asked = 0; asked <= rows.count; asked += 2 * lanes) {
      const int at = asked + 2 * lane - odd;
      const bool first = there && at >= 0 && at < rows.count, second = there && at + 1 < rows.count;
      if (!first && !second) continue;
      const uint32_t from = staged + at * 2;
      uint32_t word;
      if (from & 2) {
        const uint32_t low = first ? load_shared<unsigned short>(from) : 0;
        word = low | uint32_t(load_shared<unsigned short>(from + 2)) << 16;
      } else {
        word = load_shared_4(from);
      }
      if (first && second)
        *reinterpret_cast<uint32_t*>(to + at) = word;
      else if (first)
        *reinterpret_cast<unsigned short*>(to + at) = static_cast<unsigned short>(word);
      else if (second)
        *reinterpret_cast<unsigned short*>(to + at + 1) = static_cast<unsigned short>(word >> 16);
    }
  }
}

// What is not finite, again.
template <class T>
__device__ __noinline__ void repair_strided(const StridedParams& p, ImageRows<T> rows) {
  __syncwarp();
  for (int image = 0; image < p.images; ++image)
    for (int inside = 0; inside < kWarpChannels; ++inside) {
      if (!rows.there(p, image, inside)) continue;
      T* const outputs = rows.destination + rows.element(p, image, inside);
      for (int at = threadIdx.x % 32; at < rows.count; at += 32)
        if (!is_finite(outputs[at]))
          outputs[at] = plain_strided<T>(p, rows.n + image, rows.group, rows.channel + inside,
                                         rows.row, rows.column + at);
    }
}

// `channel`: the first of a warp's sixteen; `row`: of the result.
template <class T, int WIDTH>
__device__ __forceinline__ void store_strided(const StridedParams& p, int group, int channel,
                                              const Stretch& stretch, int row,
                                              const StridedSums<WIDTH>& sum, uint32_t staging) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int first = uniform(channel + half * kWarpChannels);
    if (first >= p.columns) continue;
    const ImageRows<T> rows = {static_cast<T*>(p.destination),
                               group,
                               first,
                               stretch.n * p.images,
                               row,
                               stretch.strip * p.strip,
                               min(p.strip, p.y_w - stretch.strip * p.strip)};
    uint32_t word[WIDTH / 8], nan = 0;
#pragma unroll
    for (int i = 0; i < WIDTH / 8; ++i) {
      word[i] = pack<T>(sum[4 * i + 2 * half], sum[4 * i + 2 * half + 1]);
      nan = add_zero_times_pair<T>(word[i], nan);
    }
    if (p.aligned) {
      store_vectors(p, rows, word);
    } else {
      const uint32_t to = staging + lane / 4 * kStridedPitch + lane % 4 * 4;
#pragma unroll
      for (int i = 0; i < WIDTH / 8; ++i) store_shared_4(to + i * 16, word[i]);
      __syncwarp();
      store_pairs(p, rows, staging);
      __syncwarp();
    }
    const float all = add_pair<T>(nan);
    if (__any_sync(0xffffffffu, all != all)) repair_strided<T>(p, rows);
  }
}

}  // namespace convt2d::cuda::slide
