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

// The outputs of an eight of a channel again, as far as they are NaN.
template <class T>
__device__ __noinline__ void repair(const Params& p, int group, int channel, Eight at, int first,
                                    int count, T* to) {
  at.w += first;
  for (int i = first; i < count; ++i, ++at.w) {
    const float was = Numeric<T>::widen(to[i]);
    if (was != was) to[i] = plain<T>(p, group, channel, at);
  }
}

// Of WORDS lanes that are APART from each other, lane j's word i trades places with lane i's word j.
template <int APART, int WORDS>
__device__ __forceinline__ void trade(uint32_t (&word)[WORDS]) {
#pragma unroll
  for (int bit = 1; bit < WORDS; bit *= 2) {
    const bool upper = threadIdx.x & bit * APART;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
      if (i & bit) continue;
      const uint32_t got =
          __shfl_xor_sync(0xffffffffu, upper ? word[i] : word[i + bit], bit * APART);
      if (upper)
        word[i] = got;
      else
        word[i + bit] = got;
    }
  }
}

// Where a warp's outputs go: each lane knows one of its eights.
template <class T>
struct Target {
  T* destination;
  int plane;     // from channel to channel
  int channels;  // how many there are from the warp's first on
  int offset;    // of this lane's eight, in the warp's first channel
  int count;     // of its outputs
};

// Rows of whole 16 bytes: four lanes trade what they hold of four eights, two outputs of each, so that each has one.
template <class T>
__device__ __forceinline__ uint32_t store_eights(const Target<T>& target, const Sums& sum) {
  const int lane = threadIdx.x % 32;
  uint32_t note = 0;
#pragma unroll
  for (int i = 0; i < kEights; i += 4) {
    const int from = i + lane % 4, to = __shfl_sync(0xffffffffu, target.offset, from),
              left = __shfl_sync(0xffffffffu, target.count, from);
#pragma unroll
    for (int second = 0; second < 2; ++second) {  // of the channels eight further on
      const int channel = lane / 4 + second * 8;
      uint32_t word[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        word[j] = pack<T>(sum[4 * (i + j) + 2 * second], sum[4 * (i + j) + 2 * second + 1]);
        note = add_zero_times_pair<T>(word[j], note);
      }
      trade<1>(word);
      store_words_if<4>(channel < target.channels && left > 0 ? 0 : -1,
                        target.destination + (channel * target.plane + to), word[0], word[1],
                        word[2], word[3]);
    }
  }
  return note;
}

// Any rows: what a warp stores at once are eight eights of a channel, neighbours in memory but for the ends of rows, since
// eight channels of one are eight pieces of sectors, each of which takes as long as a whole one.
template <class T>
__device__ __forceinline__ uint32_t store_lines(const Target<T>& target, const Sums& sum,
                                                bool words) {
  const int lane = threadIdx.x % 32;
  uint32_t note = 0;
#pragma unroll
  for (int i = 0; i < kEights; i += 8) {
    const int from = i + lane / 4, first = lane % 4 * 2,
              left = __shfl_sync(0xffffffffu, target.count, from) - first;
    int at = __shfl_sync(0xffffffffu, target.offset, from) + first;
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      uint32_t word[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        word[j] = pack<T>(sum[4 * (i + j) + 2 * second], sum[4 * (i + j) + 2 * second + 1]);
        note = add_zero_times_pair<T>(word[j], note);
      }
      trade<4>(word);
#pragma unroll
      for (int j = 0; j < 8; ++j, at += target.plane) {
        const int here = j + second * 8 < target.channels ? left : 0;
        if (words) {
          store_words_if<1>(here > 0 ? 0 : -1, target.destination + at, word[j], 0, 0, 0);
        } else {
          store_half_if(here > 0 ? 0 : -1, target.destination + at,
                        static_cast<unsigned short>(word[j]));
          store_half_if(here > 1 ? 0 : -1, target.destination + at + 1,
                        static_cast<unsigned short>(word[j] >> 16));
        }
      }
    }
  }
  return note;
}

// Sums of 64 channels from `channel` of the group on, at the eights from `number` on.
template <class T>
__device__ __forceinline__ void store_sums(const Params& p, int group, int channel, int number,
                                           const Sums& sum) {
  const int lane = threadIdx.x % 32, plane = p.x_h * p.x_w;
  channel += threadIdx.x % 128 / 32 * 16;
  const Eight mine = eight_of(p, min(number + lane, p.eights - 1));
  const bool there = number + lane < p.eights && mine.there(p);
  T* const destination = static_cast<T*>(p.destination);
  const int first = (group * p.columns + channel) * plane;
  const Target<T> target = {destination, plane, p.columns - channel,
                            first + mine.n * p.groups * p.columns * plane + mine.h * p.x_w + mine.w,
                            there ? min(kEight, p.x_w - mine.w) : 0};
  const uint32_t note = p.store_vectors ? store_eights(target, sum)
                        : p.store_words ? store_lines(target, sum, true)
                                        : store_lines(target, sum, false);
  const float all = add_pair<T>(note);
  if (!__any_sync(0xffffffffu, all != all)) return;
  // A lane repairs what it summed, which another stored.
  __syncwarp();
  for (int i = 0; i < kEights && number + i < p.eights; ++i) {
    const Eight eight = eight_of(p, number + i);
    if (!eight.there(p)) continue;
    const int from = lane % 4 * 2, end = min(min(kEight, p.x_w - eight.w), from + 2);
    for (int row = lane / 4; row < min(16, target.channels); row += 8)
      repair<T>(p, group, channel + row, eight, from, end,
                destination + first + eight.n * p.groups * p.columns * plane + row * plane +
                    eight.h * p.x_w + eight.w);
  }
}

}  // namespace convt2d::cuda::plait
