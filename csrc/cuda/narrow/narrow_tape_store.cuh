// The second half of narrow's tapes: a row of the destination goes to memory from registers, and the others move up.
//
// A thread has pairs of outputs, 4 n + t of those of a unit, in NCHW of four units side by side, in NHWC of units 8 apart.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/narrow/narrow_plain.cuh"
#include "cuda/narrow/narrow_tape.h"

namespace convt2d::cuda::narrow {

// Of two blocks of pixels, as the tensor core leaves them.
template <int ROW>
using TapeSums = float[2][tape_columns(kTapes[ROW]) / 2];

// Where a team is: first image, stretch, and the rows of the destination from `row` to before `end`.
struct Stretch {
  int n, sweep, row, end;
};

// What a thread writes of each row: its pairs of a unit.
template <int ROW>
struct TapePairs {
  static constexpr int kCount = (kTapes[ROW].row + 7) / 8;
  int phase[kCount];    // of rows; of a pair that is none, none
  int place[kCount];    // numbers from where the unit of the row begins
  float bias[kCount][2];
};

template <class T, int ROW>
__device__ __forceinline__ void find_pairs(const TapeParams& p, TapePairs<ROW>& pairs) {
#pragma unroll
  for (int n = 0; n < pairs.kCount; ++n) {
    const int pair = (4 * n + int(threadIdx.x) % 4) % (kTapes[ROW].row / 2), phase = p.by_columns.quotient(pair),
              inside = pair - phase * p.columns;
    pairs.phase[n] = phase < p.stride_h ? phase : -(1 << 29);
    pairs.place[n] = p.channels_last ? 2 * inside : inside * p.y_channel;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int number = 2 * inside + i,
                channel = p.channels_last ? number - int(p.by_columns.quotient(number)) * p.columns
                                          : inside;
      pairs.bias[n][i] = p.bias ? load(static_cast<const T*>(p.bias) + channel) : 0.f;
    }
  }
}

template <class T>
__device__ __forceinline__ uint32_t bits_of(T value) {
  if constexpr (sizeof(T) == 4) {
    return __float_as_uint(value);
  } else {
    return *reinterpret_cast<const unsigned short*>(&value);
  }
}

template <class T, int ROW>
__device__ __forceinline__ void store_tape(const TapeParams& p, const Stretch& at, int row,
                                           bool second, const TapePairs<ROW>& pairs,
                                           const TapeSums<ROW>& sum) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kTeamThreads / 32;
  // Units of the stretch that are its own.
  const int begin = at.sweep * p.step, first = at.sweep == 0 ? 0 : begin + kTapeEdge,
            end = at.sweep == p.sweeps - 1 ? p.units : begin + p.run - kTapeEdge;
  const int unit_numbers = 2 * p.y_pixel;
#pragma unroll
  for (int n = 0; n < pairs.kCount; ++n) {
    const int y_row = row * p.stride_h + pairs.phase[n] - p.pad_h;
    if (unsigned(y_row) >= unsigned(p.y_h)) continue;
    if (tape_spare(kTapes[ROW]) && lane % 4 / 2 != int(second)) continue;
    T value[4][2];
    float sound = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        value[j][i] = Numeric<T>::narrow(sum[j / 2][4 * n + j % 2 * 2 + i] + pairs.bias[n][i]);
        sound = fmaf(Numeric<T>::widen(value[j][i]), 0.f, sound);
      }
    T* const y = static_cast<T*>(p.destination) + (y_row * p.y_w * p.y_pixel + pairs.place[n]);
    uint32_t again = 0;  // a bit of each number that is not finite
    if (sound != 0.f) {
#pragma unroll
      for (int j = 0; j < 8; ++j) again |= uint32_t(!is_finite(value[j / 2][j % 2])) << j;
    }
    // Image and unit of the thread's j-th.
    const auto unit_of = [&](int j, int& image) {
      const int pixel = warp * 32 + (p.channels_last ? j * 8 + lane / 4 : lane / 4 * 4 + j);
      image = p.by_run.quotient(pixel);
      const int unit = begin + pixel - image * p.run;
      image += at.n;
      return image < p.batch && unit >= first && unit < end ? unit : -1;
    };
    const auto place_of = [&](int image, int unit) {
      return y + (image * p.columns * p.y_h * p.y_w + unit * unit_numbers);
    };
    int image;
    const int unit = unit_of(0, image);
    if (p.whole && unit >= 0 && unit + 3 < end) {
      T* const to = place_of(image, unit);
      if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          store_words(to + 4 * half, bits_of(value[2 * half][0]), bits_of(value[2 * half][1]),
                      bits_of(value[2 * half + 1][0]), bits_of(value[2 * half + 1][1]));
      } else {
        uint32_t word[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) word[j] = bits_of(value[j][0]) | bits_of(value[j][1]) << 16;
        store_words(to, word[0], word[1], word[2], word[3]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int u = unit_of(j, image);
        if (u < 0) continue;
        T* const to = place_of(image, u);
        // Of the last unit of an odd row only half is there.
        const int there = p.channels_last ? (p.y_w - 2 * u) * p.columns - pairs.place[n] : p.y_w - 2 * u;
        if (there > 0) to[0] = value[j][0];
        if (there > 1) to[1] = value[j][1];
      }
    }
#pragma unroll 1
    for (; again; again &= again - 1) {
      const int number = __ffs(again) - 1, u = unit_of(number / 2, image);
      if (u < 0) continue;
      const int inside = pairs.place[n] + number % 2;
      int channel, column;
      if (p.channels_last) {
        const int right = inside >= p.columns;
        channel = inside - right * p.columns, column = 2 * u + right;
      } else {
        channel = (4 * n + lane % 4) % (kTapes[ROW].row / 2) - pairs.phase[n] * p.columns;
        column = 2 * u + number % 2;
      }
      if (column < p.y_w)
        place_of(image, u)[number % 2] = plain_output<T>(p, image, channel, y_row, column);
    }
  }
}

// A row's sums have gone; the others move up by eights of columns, and the last are new.
template <int ROW>
__device__ __forceinline__ void move_up(bool second, TapeSums<ROW>& sum) {
  constexpr int kCount = tape_columns(kTapes[ROW]) / 2,
                kBy = tape_spare(kTapes[ROW]) ? 4 : kTapes[ROW].row / 2;
#pragma unroll
  for (int b = 0; b < 2; ++b)
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const float next = k + kBy < kCount ? sum[b][k + kBy < kCount ? k + kBy : k] : 0.f;
      sum[b][k] = tape_spare(kTapes[ROW]) && !second ? sum[b][k] : next;
    }
}

}  // namespace convt2d::cuda::narrow
