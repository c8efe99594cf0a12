// The second half of the spread kernel: a warpgroup puts the products of 64 pixels into shared memory, and each output
// collects those that land on it, kernel columns in a fixed order.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/spread/spread_scope.cuh"

namespace convt2d::cuda::spread {

template <class T>
__device__ __forceinline__ bool is_finite(T value) {
  const float wide = Numeric<T>::widen(value);
  return wide - wide == 0.f;
}

// An output in ordinary arithmetic, from global memory. What is beside x, and kernel rows that there are not, are multiplied
// as zeros: so what is not finite is summed again. Slow, and rare.
template <class T>
__device__ __forceinline__ T plain_output(const Params& p, int n, int channel, int row,
                                          int column) {
  const T* const x = static_cast<const T*>(p.source) + n * p.x_image;
  const T* const weight = static_cast<const T*>(p.weight) + channel * p.weight_column;
  float sum = 0;
  for (int kh = 0; kh < p.kernel_h; ++kh)
    for (int kw = 0; kw < p.kernel_w; ++kw) {
      const int h = row + p.pad_h - kh, w = column + p.pad_w - kw;
      if (h < 0 || w < 0 || h % p.stride_h || w % p.stride_w) continue;
      if (h / p.stride_h >= p.x_h || w / p.stride_w >= p.x_w) continue;
      const T* const pixel = x + (h / p.stride_h * p.x_w + w / p.stride_w) * p.x_pixel;
      for (int c = 0; c < p.reduce; ++c)
        sum = fmaf(
            load(pixel + c * p.x_channel),
            load(weight + (int64_t{c} * p.weight_reduce + kh * p.weight_h + kw * p.weight_w)), sum);
    }
  if (p.bias) sum += load(static_cast<const T*>(p.bias) + channel);
  return Numeric<T>::narrow(sum);
}

// Columns 8 i + 2 t and the next of pixels l / 4 and l / 4 + 8: rows of products are 8 banks more than all of them, so half
// a warp meets each bank once. PAIRS: of two neighbours, 2 (l / 4) and the next.
template <int ROW, bool PAIRS>
__device__ __forceinline__ void store_products(const Params& p,
                                               const float (&sum)[kTiles[ROW].width / 2],
                                               uint32_t products) {
  constexpr int kWidth = kTiles[ROW].width, kPitch = pitch(kTiles[ROW]);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int pixel = warp * 16 + (PAIRS ? half + lane / 4 * 2 : half * 8 + lane / 4),
              row = pixel >> p.run_shift;
    const uint32_t to = products + ((pixel + (row + 1) * p.margin) * kPitch + lane % 4 * 2) * 4;
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i)
      store_shared_sums(to + i * 32, sum[4 * i + 2 * half], sum[4 * i + 2 * half + 1]);
  }
}

// Columns of the destination that belong to an item.
struct Reached {
  int first, count;
};
__device__ __forceinline__ Reached reached(const Params& p, const Item& item) {
  const int lead = item.sweep ? p.run - p.step : 0;
  const int end = item.sweep == p.sweeps - 1 ? p.end_position - item.pixel : p.run;
  const int first = max(0, (item.pixel + lead) * p.stride_w - p.pad_w);
  return {first, min(p.y_w, (item.pixel + end) * p.stride_w - p.pad_w) - first};
}

// A thread's column of the destination, from the item's first, and channel; threads side by side are so in memory.
struct Task {
  int pixel, channel;
};
template <int ROW>
__device__ __forceinline__ Task task_of(const Params& p, int task) {
  const int slow = p.by_fast.quotient(task),
            fast = task - slow * (kTiles[ROW].source == kPlanes ? p.span : p.block_channels);
  return kTiles[ROW].source == kPlanes ? Task{fast, slow} : Task{slow, fast};
}
template <int ROW>
__device__ __forceinline__ int tasks_of(const Params& p, const Item& item, const Reached& all) {
  return kTiles[ROW].source == kPlanes ? item.channels * p.span : all.count * p.block_channels;
}

// The outputs of an instruction's rows, of which `row` is the first. A thread has a task in all rows. Returns whether all of
// a thread's are finite.
template <class T, int ROW>
__device__ __forceinline__ bool collect(const Params& p, const Item& item, int row,
                                        uint32_t products) {
  constexpr int kPitch = pitch(kTiles[ROW]);
  const Reached all = reached(p, item);
  const int count = tasks_of<ROW>(p, item, all);
  const int tap_step = (p.stride_w * p.column_tap - kPitch) * 4, phase_step = p.column_phase * 4,
            row_step = (p.run + p.margin) * kPitch * 4;
  const int line = p.y_line;
  T* const y = static_cast<T*>(p.destination) + item.channel * p.y_channel;
  bool good = true;
#pragma unroll 1
  for (int task = threadIdx.x % 128; task < count; task += 128) {
    const auto [pixel, channel] = task_of<ROW>(p, task);
    if (channel >= item.channels || pixel >= all.count) continue;
    const int column = all.first + pixel, padded = column + p.pad_w;
    const int position = p.by_stride_w.quotient(padded), e = padded - position * p.stride_w;
    const int taps = e < p.kernel_w ? p.by_stride_w.quotient(p.kernel_w - 1 - e) + 1 : 0;
    const int place =
        (p.margin + position - item.pixel) * kPitch + e * p.column_tap + channel * p.column_channel;
    uint32_t from = products + (taps > 0 ? place * 4 : 0);
    const float bias = p.bias ? load(static_cast<const T*>(p.bias) + item.channel + channel) : 0.f;
#pragma unroll 1
    for (int r = 0; r < p.block_rows; ++r, from += row_step) {
      const Row at = row_of(p, row + r);
      if (at.n >= p.batch) break;
      int y_row = at.row * p.stride_h - p.pad_h;
      T* to = y + (at.n * p.y_image + y_row * line + column * p.y_pixel + channel * p.y_channel);
      uint32_t place = from;
#pragma unroll 1
      for (int phase = 0; phase < p.stride_h;
           phase += 2, y_row += 2, place += 2 * phase_step, to += 2 * line) {
        const uint32_t next = phase + 1 < p.stride_h ? phase_step : 0;  // two at once
        float sum[2] = {bias, bias};
        if (p.kernel_w <= 2 * p.stride_w) {
          float product[2][2];
#pragma unroll
          for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int f = 0; f < 2; ++f)
              product[f][i] = load_shared<float>(place + f * next + (i < taps ? i * tap_step : 0));
#pragma unroll
          for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int f = 0; f < 2; ++f)
              if (i < taps) sum[f] += product[f][i];
        } else {
#pragma unroll 1
          for (int i = 0; i < taps; ++i)
#pragma unroll
            for (int f = 0; f < 2; ++f)
              sum[f] += load_shared<float>(place + f * next + i * tap_step);
        }
#pragma unroll
        for (int f = 0; f < 2; ++f) {
          if (phase + f >= p.stride_h || y_row + f < 0 || y_row + f >= p.y_h) continue;
          const T value = Numeric<T>::narrow(sum[f]);
          good &= is_finite(value);
          to[f * line] = value;
        }
      }
    }
  }
  return good;
}

// What a thread has collected of so many rows and is not finite, once more. A call, which would take the registers of sums
// that are still needed if it came any earlier.
template <class T, int ROW>
__device__ __noinline__ void mend(const Params& p, const Item& item, int row, int rows) {
  const Reached all = reached(p, item);
  for (int task = threadIdx.x % 128; task < tasks_of<ROW>(p, item, all); task += 128) {
    const auto [pixel, channel] = task_of<ROW>(p, task);
    if (channel >= item.channels || pixel >= all.count) continue;
    for (int r = 0; r < rows * p.stride_h; ++r) {
      const Row at = row_of(p, row + r / p.stride_h);
      const int y_row = at.row * p.stride_h - p.pad_h + r % p.stride_h;
      if (at.n >= p.batch || y_row < 0 || y_row >= p.y_h) continue;
      T* const to = static_cast<T*>(p.destination) +
                    (at.n * p.y_image + y_row * p.y_line + (all.first + pixel) * p.y_pixel +
                     (item.channel + channel) * p.y_channel);
      if (!is_finite(*to))
        *to = plain_output<T>(p, at.n, item.channel + channel, y_row, all.first + pixel);
    }
  }
}

}  // namespace convt2d::cuda::spread
