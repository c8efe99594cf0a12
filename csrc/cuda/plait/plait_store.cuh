// Sums of plait's tiles to memory. What came out NaN is summed again: what is beside dY was multiplied as zeros.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/plait/plait_scope.cuh"

namespace convt2d::cuda::plait {

using Sums = float[kColumns / 2];

// An output in ordinary arithmetic, from global memory.
template <class T>
__device__ __noinline__ T plain(const Params& p, int group, int channel, const Eight& at) {
  const int plane = p.y_h * p.y_w;
  const T* const y = static_cast<const T*>(p.source) + (at.n * p.groups + group) * p.reduce * plane;
  const T* const weight = static_cast<const T*>(p.weight) + int64_t{group} * p.weight_group +
                          int64_t{channel} * p.weight_column;
  float sum = 0;
  for (int c = 0; c < p.reduce; ++c)
    for (int i = 0; i < p.kernel_h; ++i) {
      const int row = at.h * p.stride_h - p.pad_h + i * p.dilation_h;
      if (row < 0 || row >= p.y_h) continue;
      for (int j = 0; j < p.kernel_w; ++j) {
        const int column = at.w * p.stride_w - p.pad_w + j;
        if (column < 0 || column >= p.y_w) continue;
        sum = fmaf(load(y + (c * plane + row * p.y_w + column)),
                   load(weight + (int64_t{c} * p.weight_reduce + i * p.weight_h + j * p.weight_w)),
                   sum);
      }
    }
  return Numeric<T>::narrow(sum);
}

// The outputs of an eight of a channel again, as far as they are NaN. This thread stored them, or some of them.
template <class T>
__device__ __noinline__ void repair(const Params& p, int group, int channel, Eight at, int first,
                                    int count, T* to) {
  at.w += first;
  for (int i = first; i < count; ++i, ++at.w) {
    const float was = Numeric<T>::widen(to[i]);
    if (was != was) to[i] = plain<T>(p, group, channel, at);
  }
}

// What the lanes of a four hold of four eights, two outputs of each: each lane gets one eight.
__device__ __forceinline__ void trade(uint32_t (&word)[4]) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? word[i] : word[i + 1], 1);
    if (odd)
      word[i] = got;
    else
      word[i + 1] = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? word[i] : word[i + 2], 2);
    if (upper)
      word[i] = got;
    else
      word[i + 2] = got;
  }
}

// Sums of 64 channels from `channel` of the group on, at the eights from `number` on.
template <class T>
__device__ __forceinline__ void store_sums(const Params& p, int group, int channel, int number,
                                           const Sums& sum) {
  const int lane = threadIdx.x % 32, plane = p.x_h * p.x_w;
  channel += threadIdx.x % 128 / 32 * 16 + lane / 4;
  // Each lane knows one eight: where it is, and how many outputs it has.
  const bool there = number + lane < p.eights;
  const Eight mine = eight_of(p, there ? number + lane : 0);
  const int offset = mine.n * p.groups * p.columns * plane + mine.h * p.x_w + mine.w,
            count = there ? min(kEight, p.x_w - mine.w) : 0;
  T* const destination = static_cast<T*>(p.destination) + (group * p.columns + channel) * plane;
  const bool first = channel < p.columns, second = channel + 8 < p.columns;
  uint32_t note = 0;
#pragma unroll
  for (int i = 0; i < kEights; i += 4) {
    uint32_t low[4], high[4];  // of the channel, and of that eight further on
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      low[j] = pack<T>(sum[4 * (i + j)], sum[4 * (i + j) + 1]);
      high[j] = pack<T>(sum[4 * (i + j) + 2], sum[4 * (i + j) + 3]);
      note = add_zero_times_pair<T>(high[j], add_zero_times_pair<T>(low[j], note));
    }
    if (p.store_vectors) {
      trade(low);
      trade(high);
      const int from = i + lane % 4;
      const int to = __shfl_sync(0xffffffffu, offset, from),
                left = __shfl_sync(0xffffffffu, count, from);
      T* const at = destination + to;
      if (left > 0 && first) store_words(at, low[0], low[1], low[2], low[3]);
      if (left > 0 && second) store_words(at + 8 * plane, high[0], high[1], high[2], high[3]);
      continue;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int to = __shfl_sync(0xffffffffu, offset, i + j),
                left = __shfl_sync(0xffffffffu, count, i + j) - lane % 4 * 2;
      T* const at = destination + to + lane % 4 * 2;
      if (p.store_words) {
        store_words_if<1>(first && left > 0 ? 0 : -1, at, low[j], 0, 0, 0);
        store_words_if<1>(second && left > 0 ? 0 : -1, at + 8 * plane, high[j], 0, 0, 0);
      } else {
        const auto store = [&](bool wanted, T* here, uint32_t word) {
          store_half_if(wanted && left > 0 ? 0 : -1, here, static_cast<unsigned short>(word));
          store_half_if(wanted && left > 1 ? 0 : -1, here + 1,
                        static_cast<unsigned short>(word >> 16));
        };
        store(first, at, low[j]);
        store(second, at + 8 * plane, high[j]);
      }
    }
  }
  const float all = add_pair<T>(note);
  if (!__any_sync(0xffffffffu, all != all)) return;
  for (int i = 0; i < kEights; ++i) {
    if (number + i >= p.eights || (p.store_vectors && i % 4 != lane % 4)) continue;
    const Eight eight = eight_of(p, number + i);
    T* const to = destination + eight.n * p.groups * p.columns * plane + eight.h * p.x_w + eight.w;
    const int have = min(kEight, p.x_w - eight.w), from = p.store_vectors ? 0 : lane % 4 * 2,
              end = p.store_vectors ? have : min(have, from + 2);
    if (first) repair<T>(p, group, channel, eight, from, end, to);
    if (second) repair<T>(p, group, channel + 8, eight, from, end, to + 8 * plane);
  }
}

}  // namespace convt2d::cuda::plait
