// From sums to rows of y: tap columns added up, boxes or runs, the NaN rule.
#pragma once

#include <type_traits>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/shared_number.cuh"
#include "cuda/device/tensor_store.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/twill/twill_config.h"

namespace convt2d::cuda::twill {

template <int PIXELS>
using Sums = float[kKernel][PIXELS / 2];

// 64 output channels, and rows of an image or a part of one.
struct Item {
  int image, group, channel;  // the first channel, of the group's
  int row, start;             // of x: the first row, which may be the one above, and pixel of a row
};
// Items side by side have the same pixels.
__device__ __forceinline__ Item item_of(const Params& p, int index) {
  unsigned rest = index, next = p.by_row_tiles.quotient(rest);
  Item item;
  item.channel = int(rest - next * p.by_row_tiles.divisor) * kChannels;
  rest = next, next = p.by_strips.quotient(rest);
  item.start = int(rest - next * p.by_strips.divisor) * p.own;
  rest = next, next = p.by_blocks.quotient(rest);
  item.row = int(rest - next * p.by_blocks.divisor) * p.rows + p.first_row;
  item.image = int(p.by_groups.quotient(next));
  item.group = int(next - item.image * p.by_groups.divisor);
  return item;
}

// A bit for each eight of a tile's pixels: a row of x ends with it.
__device__ __forceinline__ uint32_t row_ends(const Params& p, const Item& item) {
  const int left = p.x_w - item.start;
  return left <= kMostPixels ? p.row_starts << (left / kEight - 1) : 0;
}

// What a lane has of the pixel behind two: the next lane's first, which the last of four finds in the next eight.
struct Behind {
  int lane;
  bool first;
  uint32_t ends;  // eights whose last pixel, which is the lane's, has none in its row
  __device__ __forceinline__ Behind(const Params& p, const Item& item) {
    const int t = threadIdx.x % 4;
    lane = threadIdx.x % 32 / 4 * 4 + (t + 1) % 4;
    first = t == 0;
    ends = t == 3 ? row_ends(p, item) : 0;
  }
  template <int COUNT>
  __device__ __forceinline__ float of(const float (&sum)[kKernel][COUNT], int e,
                                      int channel) const {
    const int i = 4 * e + 2 * channel;
    const float own = sum[0][i], later = i + 4 < COUNT ? sum[0][i + 4] : 0.f;
    const float right = __shfl_sync(~0u, first ? later : own, lane);
    return ends >> e & 1 ? 0.f : right;
  }
};

// A warp's outputs of a tile to `staging`, and from there to memory, in boxes; whether there may be a NaN among them.
template <class T, int PIXELS, bool TWO>
__device__ __forceinline__ bool store_boxes(const Params& p, const Sums<PIXELS>& sum,
                                            const Item& item, const CUtensorMap* y,
                                            uint32_t staging) {
  const int lane = threadIdx.x % 32, t = lane % 4, pair = lane / 4, warp = warp_of_block();
  const Behind behind(p, item);
  // Where a lane's two channels are, and what their 16 bytes are swizzled by.
  const int line = p.box * kEightBytes;
  uint32_t to[2], swizzle[2], probe = 0;
#pragma unroll
  for (int channel = 0; channel < 2; ++channel) {
    const int at = (pair * 2 + channel) * line;
    to[channel] = staging + at / 128 * 128;
    swizzle[channel] = (at % 128 + t * 8) ^ (at / 128 & (p.box * 2 - 1)) * 16;
  }
  if (lane == 0) stored_boxes_read();
  __syncwarp();  // the outputs before have been read
#pragma unroll
  for (int e = 0; e < PIXELS / kEight; ++e)
#pragma unroll
    for (int channel = 0; channel < 2; ++channel) {
      const int i = 4 * e + 2 * channel;
      const uint32_t word[2] = {pack<T>(sum[1][i], sum[2][i] + sum[0][i + 1]),
                                pack<T>(sum[1][i + 1], sum[2][i + 1] + behind.of(sum, e, channel))};
      store_shared(to[channel] + (p.place[e] ^ swizzle[channel]), word);
      if (TWO) probe = add_zero_times_pair<T>(word[0], add_zero_times_pair<T>(word[1], probe));
    }
  fence_for_wgmma();  // and for the copy engine
  __syncwarp();
  if (lane == 0) {
    const int columns = p.box * kEight, bytes = p.rows * kOutChannels * p.box * kEightBytes;
    const int channel = item.channel + warp % 4 * kOutChannels,
              end = min(item.start + p.own, p.x_w);
    uint32_t from = staging;
    for (int column = item.start; column < end; column += columns, from += bytes)
      store_box(y, from, column * kStride, channel, item.row, item.group, item.image);
  }
  const float all = add_pair<T>(probe);
  return all != all;
}

// A run of y to memory, from where it is aligned likewise: whole 16 bytes by the copy engine, what is beside them a number at a time.
template <class T>
__device__ __forceinline__ void store_run(T* to, uint32_t from, int count) {
  const int first = min(int(-(from / 2) % kUnit), count), units = (count - first) / kUnit,
            rest = first + units * kUnit;
  if (units) store_bytes(to + first, from + first * 2, units * kUnit * 2);
  const auto copy = [&](int i) {
    reinterpret_cast<unsigned short*>(to)[i] = load_shared<unsigned short>(from + i * 2);
  };
#pragma unroll
  for (int i = 0; i < kUnit - 1; ++i) {
    if (i < first) copy(i);
    if (rest + i < count) copy(rest + i);
  }
}

// The same as store_boxes() of rows of y that start anywhere: each is a run of its own, and a lane's.
template <class T, int PIXELS, bool TWO>
__device__ __forceinline__ bool store_runs(const Params& p, const Sums<PIXELS>& sum,
                                           const Item& item, uint32_t staging) {
  const int lane = threadIdx.x % 32, t = lane % 4, pair = lane / 4,
            first = item.channel + warp_of_block() % 4 * kOutChannels;
  const Behind behind(p, item);
  const int h = item.row * kStride + TWO + 1 - p.pad_h;  // the first row of y
  // Columns of a run. Without padding a row starts with one that only its first pixel's tap column 0 reaches.
  const int lead = p.pad_w == 0 && item.start == 0, shift = 1 - p.pad_w,
            begin = item.start * kStride + shift - lead,
            end = min(min(item.start + p.own, p.x_w) * kStride + shift, p.y_w);
  T* const runs =
      static_cast<T*>(p.y) +
      ((int64_t{item.image} * p.groups + item.group) * p.columns + first) * p.y_h * p.y_w +
      h * p.y_w + begin;
  const int plane = p.y_h * p.y_w;
  // Runs lie in shared memory as they will in memory: as far behind a multiple of 16 bytes.
  const auto place_of = [&](int channel) {
    return staging + channel * p.run_pitch +
           int(reinterpret_cast<uintptr_t>(runs + channel * plane) % (kUnit * 2));
  };
  uint32_t probe = 0;
  stored_boxes_read();
  __syncwarp();  // the outputs before have been read
#pragma unroll
  for (int channel = 0; channel < 2; ++channel) {
    const uint32_t run = place_of(pair * 2 + channel), to = run + lead * 2 + t * 8;
    const auto add_up = [&](auto odd) {
#pragma unroll
      for (int e = 0; e < PIXELS / kEight; ++e) {
        const int i = 4 * e + 2 * channel;
        const float right = behind.of(sum, e, channel);
        if (e >= p.eights) continue;
        const uint32_t place = to + p.place[e];
        const float out[4] = {sum[1][i], sum[2][i] + sum[0][i + 1], sum[1][i + 1],
                              sum[2][i + 1] + right};
        if constexpr (decltype(odd)::value) {
          narrow_to_shared<T>(place, out[0]);
          store_shared_4(place + 2, pack<T>(out[1], out[2]));
          narrow_to_shared<T>(place + 6, out[3]);
        } else {
          store_shared_4(place, pack<T>(out[0], out[1]));
          store_shared_4(place + 4, pack<T>(out[2], out[3]));
        }
        if (TWO) probe = add_zero_times_pair<T>(pack<T>(out[0] + out[2], out[1] + out[3]), probe);
      }
    };
    // All lanes alike: their channels are an even number apart.
    if (uniform(to) / 2 % 2)
      add_up(std::true_type());
    else
      add_up(std::false_type());
    if (lead && t == 0) {
      const int own = first + pair * 2 + channel;
      const float bias = p.bias && own < p.columns
                             ? load(static_cast<const T*>(p.bias) + item.group * p.columns + own)
                             : 0.f;
#pragma unroll
      for (int e = 0; e < PIXELS / kEight; ++e)
        if (e < p.eights && p.row_starts >> e & 1) {
          const float value = sum[0][4 * e + 2 * channel] + bias;
          narrow_to_shared<T>(run + p.place[e], value);
          if (TWO) probe = add_zero_times_pair<T>(pack<T>(value, 0), probe);
        }
    }
  }
  fence_for_wgmma();  // and for the copy engine
  __syncwarp();
  for (int k = lane; k < p.rows * kOutChannels; k += 32) {
    const int channel = k % kOutChannels, row = k / kOutChannels, y = h + row * kStride;
    if (y >= 0 && y < p.y_h && first + channel < p.columns)
      store_run(runs + channel * plane + row * kStride * p.y_w,
                place_of(channel) + row * p.run_step, end - begin);
  }
  const float all = add_pair<T>(probe);
  return all != all;
}

// Rows of y that a tap row beside the image reaches: its zeros make NaN of a weight that is not finite. What came out NaN of it is summed
// again without that. All of a warp's outputs are there.
template <class T>
__device__ __noinline__ void repair(const Params& p) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, plane = p.x_h * p.x_w;
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of(p, i);
    for (int row = 0; row < p.rows; ++row) {
      const int h = item.row + row, y = (h + 1) * kStride - p.pad_h;
      if ((h >= 0 && h + 1 < p.x_h) || h >= p.x_h || y >= p.y_h) continue;
      const int begin = item.start == 0 ? 0 : item.start * kStride + 1 - p.pad_w,
                end = min(min(item.start + p.own, p.x_w) * kStride + 1 - p.pad_w, p.y_w),
                columns = end - begin;
      for (int k = lane; k < kOutChannels * columns; k += 32) {
        const int column = begin + k % columns,
                  channel = item.channel + warp * kOutChannels + k / columns,
                  all = item.group * p.columns + channel;
        if (channel >= p.columns) continue;
        T* const to = static_cast<T*>(p.y) +
                      ((int64_t{item.image} * p.groups * p.columns + all) * p.y_h + y) * p.y_w +
                      column;
        const float value = Numeric<T>::widen(*to);
        if (value == value) continue;
        // The tap row that is inside.
        const int kernel_row = h < 0 ? 0 : 2, from = h < 0 ? 0 : h;
        float sum = p.bias ? load(static_cast<const T*>(p.bias) + all) : 0.f;
        for (int tap = 0; tap < kKernel; ++tap) {
          const int twice = column + p.pad_w - tap;
          if (twice % kStride != 0 || twice < 0 || twice / kStride >= p.x_w) continue;
          const T* x = static_cast<const T*>(p.x) +
                       (int64_t{item.image} * p.groups + item.group) * p.reduce * plane +
                       from * p.x_w + twice / kStride;
          const T* w = static_cast<const T*>(p.w) +
                       (int64_t{item.group} * p.reduce * p.columns + channel) * kTaps +
                       kernel_row * kKernel + tap;
          for (int in = 0; in < p.reduce; ++in, x += plane, w += p.columns * kTaps)
            sum += load(x) * load(w);
        }
        *to = Numeric<T>::narrow(sum);
      }
    }
  }
}

}  // namespace convt2d::cuda::twill
