// Sums of slide's strided tiles to memory, by way of a buffer of each warp, in which eight channels lie as they are summed.
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

// Rows of a warp's buffer: of an image and a channel.
template <class T>
struct ImageRows {
  T* destination;
  int group, channel;  // the first one, of a group
  int n, row, column;  // the first image and column
  int count;           // of outputs

  __device__ __forceinline__ bool there(const StridedParams& p, int index) const {
    return channel + index % kWarpChannels < p.columns && n + index / kWarpChannels < p.batch;
  }
  __device__ __forceinline__ int element(const StridedParams& p, int index) const {
    return (((n + index / kWarpChannels) * p.groups + group) * p.columns + channel +
            index % kWarpChannels) *
               (p.y_h * p.y_w) +
           row * p.y_w + column;
  }
  __device__ __forceinline__ uint32_t staged(const StridedParams& p, uint32_t staging,
                                             int index) const {
    return staging + index % kWarpChannels * kStridedPitch +
           index / kWarpChannels * p.image_pixels * 2;
  }
};

// 16 bytes at a time.
template <class T>
__device__ __forceinline__ void store_vectors(const StridedParams& p, const ImageRows<T>& rows,
                                              uint32_t staging) {
  const int lane = threadIdx.x % 32;
  // Lanes go round loops equally often, as in slide_store.cuh.
#pragma unroll 2
  for (int first = 0; first < kWarpChannels * p.images << p.lanes_shift; first += 32) {
    const int i = first + lane, index = i >> p.lanes_shift,
              at = (i - (index << p.lanes_shift)) * kVector;
    if (index >= kWarpChannels * p.images || !rows.there(p, index) || at >= rows.count) continue;
    uint32_t word[4];
    load_shared_16(rows.staged(p, staging, index) + at * 2, word);
    store_words(rows.destination + rows.element(p, index) + at, word[0], word[1], word[2], word[3]);
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
    const int index = first_index + (threadIdx.x % 32 >> p.lanes_shift);
    const bool there = index < kWarpChannels * p.images && rows.there(p, index);
    const int element = rows.element(p, index), odd = element & 1;
    const uint32_t staged = rows.staged(p, staging, index);
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
__device__ __noinline__ void repair_strided(const StridedParams& p, ImageRows<T> rows,
                                            uint32_t staging) {
  __syncwarp();
  for (int index = 0; index < kWarpChannels * p.images; ++index) {
    if (!rows.there(p, index)) continue;
    for (int at = threadIdx.x % 32; at < rows.count; at += 32) {
      const auto number = load_shared<unsigned short>(rows.staged(p, staging, index) + at * 2);
      if (!is_finite(*reinterpret_cast<const T*>(&number)))
        rows.destination[rows.element(p, index) + at] =
            plain_strided<T>(p, rows.n + index / kWarpChannels, rows.group,
                             rows.channel + index % kWarpChannels, rows.row, rows.column + at);
    }
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
    const uint32_t to = staging + lane / 4 * kStridedPitch + lane % 4 * 4;
    uint32_t nan = 0;
#pragma unroll
    for (int i = 0; i < WIDTH / 8; ++i) {
      const uint32_t word = pack<T>(sum[4 * i + 2 * half], sum[4 * i + 2 * half + 1]);
      nan = add_zero_times_pair<T>(word, nan);
      store_shared_4(to + i * 16, word);
    }
    __syncwarp();
    const ImageRows<T> rows = {static_cast<T*>(p.destination),
                               group,
                               first,
                               stretch.n * p.images,
                               row,
                               stretch.strip * p.strip,
                               min(p.strip, p.y_w - stretch.strip * p.strip)};
    if (p.aligned)
      store_vectors(p, rows, staging);
    else
      store_pairs(p, rows, staging);
    const float all = add_pair<T>(nan);
    if (__any_sync(0xffffffffu, all != all)) repair_strided<T>(p, rows, staging);
    __syncwarp();
  }
}

}  // namespace convt2d::cuda::slide
