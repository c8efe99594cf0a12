// The second half of the spread kernel: a warpgroup puts the products of 64 pixels into shared memory, and each output
// collects those that land on it, kernel columns in a fixed order.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/pair.cuh"
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
// a warp meets each bank once. Planes of 16 bits: of two neighbours, 2 (l / 4)
// and the next. Sets: a warp has pixels of one place.
template <class T, int ROW>
__device__ __forceinline__ void store_products(const Params& p,
                                               const float (&sum)[kTiles[ROW].width / 2],
                                               uint32_t products) {
  constexpr int kWidth = kTiles[ROW].width, kPitch = pitch(kTiles[ROW]);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int mine = half * 8 + lane / 4, place = warp & ((1 << p.place_shift) - 1);
    const int pixel =
        kTiles[ROW].source == kSets ? ((warp >> p.place_shift) * 16 + mine << p.place_shift) + place
        : kTiles[ROW].source == kPlanes && !is_word<T> ? warp * 16 + half + lane / 4 * 2
                                                       : warp * 16 + mine;
    const int row = pixel >> p.run_shift;
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

// A thread's first column of the destination, and its first channel; threads side by side are so in memory. It may have two
// numbers that are neighbours there: of planes columns, the first one even; else channels, `task_channels` of them.
struct Task {
  int column, channel;
};
template <int ROW>
constexpr int kTaskColumns = kTiles[ROW].source == kPlanes ? 2 : 1;
template <int ROW>
__device__ __forceinline__ Task task_of(const Params& p, const Reached& all, int task) {
  const int slow = p.by_fast.quotient(task), fast = task - slow * p.fast;
  return kTiles[ROW].source == kPlanes ? Task{(all.first & ~1) + 2 * fast, slow}
                                       : Task{all.first + slow, fast * p.task_channels};
}
template <int ROW>
__device__ __forceinline__ int tasks_of(const Params& p, const Item& item, const Reached& all) {
  return (kTiles[ROW].source == kPlanes ? item.channels : all.count) * p.fast;
}

// The rows of the destination that an instruction's rows become, of which `row` is the first, an even number of lines: where
// each starts in memory, negative if it is none, and its products from those of the first one on, in bytes.
template <int ROW>
__device__ __forceinline__ void find_lines(const Params& p, int row, uint32_t lines) {
  const int line = threadIdx.x % 128;
  if (line >= p.lines) return;
  const int r = line / p.stride_h, phase = line - r * p.stride_h;
  const Row at = row_of(p, row + r);
  const int y_row = at.row * p.stride_h - p.pad_h + phase;
  const bool there = r < p.block_rows && at.n < p.batch && y_row >= 0 && y_row < p.y_h;
  const int from = (r * (p.run + p.margin) * pitch(kTiles[ROW]) + phase * p.column_phase) * 4;
  const uint32_t words[2] = {there ? at.n * p.y_image + y_row * p.y_line : ~0u,
                             there ? static_cast<uint32_t>(from) : 0u};
  store_shared<2>(lines + line * 8, words);
}

// Of a task, for each of its columns: the first two taps' products, of what there is not zeros before the first pixel; and
// taps from the third one on.
template <int COLUMNS, int CHANNELS>
struct Outputs {
  uint32_t from[COLUMNS][2];
  int taps[COLUMNS];
  bool is[COLUMNS];
  int to;  // elements from the start of the destination on
  float bias[CHANNELS];
};

template <class T, int ROW, int CHANNELS>
__device__ __forceinline__ Outputs<kTaskColumns<ROW>, CHANNELS> outputs_of(
    const Params& p, const Item& item, const Reached& all, int task, uint32_t products) {
  constexpr int kPitch = pitch(kTiles[ROW]), kColumns = kTaskColumns<ROW>;
  const auto [column, channel] = task_of<ROW>(p, all, task);
  const int end = all.first + all.count, channel_at = item.channel + channel;
  const bool there = channel < item.channels && column < end;
  const int tap_step = p.stride_w * p.column_tap - kPitch;
  Outputs<kColumns, CHANNELS> out;
  out.to = column * p.y_pixel + channel_at * p.y_channel;
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c)
    out.bias[c] = there && p.bias ? load(static_cast<const T*>(p.bias) + (channel_at + c)) : 0.f;
#pragma unroll
  for (int f = 0; f < kColumns; ++f) {
    const int padded = column + f + p.pad_w, position = p.by_stride_w.quotient(padded),
              e = padded - position * p.stride_w;
    const bool is = there && (kColumns == 1 || (column + f >= all.first && column + f < end));
    const int place =
        (p.margin + position - item.pixel) * kPitch + e * p.column_tap + channel * p.column_channel;
    out.is[f] = is;
    out.from[f][0] = products + (is && e < p.kernel_w ? place * 4 : 0);
    out.from[f][1] = products + (is && e + p.stride_w < p.kernel_w ? (place + tap_step) * 4 : 0);
    out.taps[f] = is ? p.kernel_w - e - 2 * p.stride_w : 0;
  }
  return out;
}

// Neighbouring channels' products are so too.
template <int CHANNELS>
__device__ __forceinline__ void load_products(uint32_t from, float (&product)[CHANNELS]) {
  if constexpr (CHANNELS == 1) {
    product[0] = load_shared<float>(from);
  } else {
    uint32_t word[2];
    load_shared_8(from, word);
    product[0] = __uint_as_float(word[0]);
    product[1] = __uint_as_float(word[1]);
  }
}

template <class T, int CHANNELS>
__device__ __forceinline__ void store_channels(T* to, const float (&sum)[CHANNELS]) {
  if constexpr (CHANNELS == 1) {
    *to = Numeric<T>::narrow(sum[0]);
  } else {
    store_pair(to, sum[0], sum[1]);
  }
}

// The outputs of an instruction's rows. A thread has a task in all lines, two of them at once, and several tasks at once: each
// is one access that depends on another, and a scheduler has but two warps to do something else meanwhile. Returns whether all
// of a thread's are finite.
template <class T, int ROW, int CHANNELS>
__device__ __forceinline__ bool collect_tasks(const Params& p, const Item& item, uint32_t lines,
                                              uint32_t products) {
  constexpr int kColumns = kTaskColumns<ROW>, kAtOnce = kColumns == 2 ? 1 : 2;
  static_assert(kColumns == 1 || CHANNELS == 1);
  const Reached all = reached(p, item);
  const int count = tasks_of<ROW>(p, item, all);
  const int tap_step = (p.stride_w * p.column_tap - pitch(kTiles[ROW])) * 4;
  const bool wide = p.kernel_w > 2 * p.stride_w;
  float check = 0;  // what is not finite is not zero times zero
#pragma unroll 1
  for (int task = threadIdx.x % 128; task < count; task += 128 * kAtOnce) {
    Outputs<kColumns, CHANNELS> out[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      out[i] = outputs_of<T, ROW, CHANNELS>(p, item, all, task + i * 128, products);
#pragma unroll 1
    for (int line = 0; line < p.lines; line += 2) {
      uint32_t at[4];
      load_shared_16(lines + line * 8, at);
      float sum[kAtOnce][2][kColumns][CHANNELS], second[kAtOnce][2][kColumns][CHANNELS];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int l = 0; l < 2; ++l)
#pragma unroll
          for (int f = 0; f < kColumns; ++f) {
            load_products(out[i].from[f][0] + at[2 * l + 1], sum[i][l][f]);
            load_products(out[i].from[f][1] + at[2 * l + 1], second[i][l][f]);
          }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int l = 0; l < 2; ++l)
#pragma unroll
          for (int f = 0; f < kColumns; ++f)
#pragma unroll
            for (int c = 0; c < CHANNELS; ++c)
              sum[i][l][f][c] = sum[i][l][f][c] + second[i][l][f][c] + out[i].bias[c];
      if (wide) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
          for (int f = 0; f < kColumns; ++f) {
            uint32_t next = out[i].from[f][1];
#pragma unroll 1
            for (int left = out[i].taps[f]; left > 0; left -= p.stride_w) {
              next += tap_step;
#pragma unroll
              for (int l = 0; l < 2; ++l) {
                float further[CHANNELS];
                load_products(next + at[2 * l + 1], further);
#pragma unroll
                for (int c = 0; c < CHANNELS; ++c) sum[i][l][f][c] += further[c];
              }
            }
          }
      }
#pragma unroll
      for (int l = 0; l < 2; ++l) {
        if (static_cast<int>(at[2 * l]) < 0) continue;
        T* const line_at = static_cast<T*>(p.destination) + at[2 * l];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          T* const to = line_at + out[i].to;
#pragma unroll
          for (int f = 0; f < kColumns; ++f)
#pragma unroll
            for (int c = 0; c < CHANNELS; ++c)
              if (out[i].is[f]) check = fmaf(sum[i][l][f][c], 0.f, check);
          if (kColumns == 2 && p.paired && out[i].is[0] && out[i].is[kColumns - 1]) {
            store_pair(to, sum[i][l][0][0], sum[i][l][kColumns - 1][0]);
          } else {
#pragma unroll
            for (int f = 0; f < kColumns; ++f)
              if (out[i].is[f]) store_channels(to + f, sum[i][l][f]);
          }
        }
      }
    }
  }
  return check == 0;
}

template <class T, int ROW>
__device__ __forceinline__ bool collect(const Params& p, const Item& item, uint32_t lines,
                                        uint32_t products) {
  if constexpr (kTiles[ROW].source != kPlanes)
    if (p.task_channels == 2) return collect_tasks<T, ROW, 2>(p, item, lines, products);
  return collect_tasks<T, ROW, 1>(p, item, lines, products);
}

// What a thread has collected of so many rows and is not finite, once more. A call, which would take the registers of sums
// that are still needed if it came any earlier.
template <class T, int ROW>
__device__ __noinline__ void mend(const Params& p, const Item& item, int row, int rows) {
  const Reached all = reached(p, item);
  for (int task = threadIdx.x % 128; task < tasks_of<ROW>(p, item, all); task += 128) {
    const auto [first, channel] = task_of<ROW>(p, all, task);
    if (channel >= item.channels) continue;
    for (int column = max(first, all.first);
         column < min(first + kTaskColumns<ROW>, all.first + all.count); ++column)
      for (int r = 0; r < rows * p.stride_h; ++r) {
        const Row at = row_of(p, row + r / p.stride_h);
        const int y_row = at.row * p.stride_h - p.pad_h + r % p.stride_h;
        if (at.n >= p.batch || y_row < 0 || y_row >= p.y_h) continue;
        T* const to = static_cast<T*>(p.destination) +
                      (at.n * p.y_image + y_row * p.y_line + column * p.y_pixel +
                       (item.channel + channel) * p.y_channel);
        for (int c = 0; c < p.task_channels; ++c)
          if (!is_finite(to[c]))
            to[c] = plain_output<T>(p, at.n, item.channel + channel + c, y_row, column);
      }
  }
}

}  // namespace convt2d::cuda::spread
