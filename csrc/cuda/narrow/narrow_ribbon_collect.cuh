// The second half of narrow's ribbons: the products of a row go to shared memory, and each output collects those that land
// on it, kernel columns in a fixed order.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/shared_number.cuh"
#include "cuda/narrow/narrow_plain.cuh"
#include "cuda/narrow/narrow_ribbon.h"
#include "cuda/narrow/narrow_scope.cuh"

namespace convt2d::cuda::narrow {

// Of two blocks of pixels and each eight of columns, as the tensor core leaves them; those of a row of the destination are
// neighbours.
template <int ROW>
using RibbonSums = float[2][all_columns(kRibbons[ROW]) / 2];

// Of the first row of the destination, columns 8 n + 2 t and the next.
template <class T, int ROW>
__device__ __forceinline__ void store_ribbon(const RibbonParams& p, const RibbonSums<ROW>& sum,
                                             uint32_t products) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto place = [&](int pixel) {
    const int image = p.by_run.quotient(pixel);
    return products + (lane % 4 * 2 * kRibbonPitch + pixel + (image + 1) * p.margin) * 4;
  };
  if (sizeof(T) == 4 && !p.channels_last) {  // four pixels
    const uint32_t to = place(warp * kWarpPixels + lane / 4 * 4);
#pragma unroll
    for (int n = 0; n < kRibbons[ROW].width / 8; ++n)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd)
        store_shared_16(
            to + (8 * n + odd) * kRibbonPitch * 4,
            {__float_as_uint(sum[0][4 * n + odd]), __float_as_uint(sum[0][4 * n + 2 + odd]),
             __float_as_uint(sum[1][4 * n + odd]), __float_as_uint(sum[1][4 * n + 2 + odd])});
    return;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t to = place(i * 64 + warp * 16 + lane / 4);  // and 8 pixels on
#pragma unroll
    for (int n = 0; n < kRibbons[ROW].width / 8; ++n)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        store_shared_sum(to + (8 * n + odd) * kRibbonPitch * 4, sum[i][4 * n + odd]);
        store_shared_sum(to + (8 * n + odd) * kRibbonPitch * 4 + 32, sum[i][4 * n + 2 + odd]);
      }
  }
}

template <class T>
struct alignas(2 * sizeof(T)) Pair {
  T a, b;
};

// What a thread writes of a row.
template <class T>
struct RibbonUnit {
  T* y;  // of the first channel and row
  int n, row, first;

  __device__ __forceinline__ bool there(const RibbonParams& p, int phase) const {
    return unsigned(row * p.stride_h + phase - p.pad_h) < unsigned(p.y_h);
  }
  __device__ __forceinline__ T* place(const RibbonParams& p, int phase, int channel) const {
    return y + (channel * p.y_channel + (row * p.stride_h + phase - p.pad_h) * p.y_w * p.y_pixel);
  }
  __device__ __forceinline__ T again(const RibbonParams& p, int phase, int channel, int i) const {
    return plain_output<T>(p, n, channel, row * p.stride_h + phase - p.pad_h, first + i);
  }
};

template <class T>
__device__ __forceinline__ float bias_of(const RibbonParams& p, int channel) {
  return p.bias ? load(static_cast<const T*>(p.bias) + channel) : 0.f;
}

// Units of two outputs with at most TAPS kernel columns each: two lines at once, so that their loads do not wait for each
// other. A tap that there is not is another's products times zero; where these are not finite, the output is summed again.
// `from`: where the unit's products are; `turned`: where its outputs go, if they are stored with those of the warp's other
// units.
template <class T, int TAPS>
__device__ __forceinline__ void collect_twos(const RibbonParams& p, const RibbonUnit<T>& unit,
                                             uint32_t from, uint32_t turned) {
  const int lines = p.stride_h * p.columns;
  const uint32_t line_bytes = p.line_columns * kRibbonPitch * 4;
#pragma unroll 1
  for (int line = 0; line < lines; line += 2) {
    int phase[2], channel[2];
    float sum[2][2], product[2][2][TAPS];
#pragma unroll
    for (int l = 0; l < 2; ++l) {
      const int mine = min(line + l, lines - 1);
      phase[l] = p.by_columns.quotient(mine), channel[l] = mine - phase[l] * p.columns;
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < TAPS; ++j)
          product[l][i][j] = load_shared<float>(from + mine * line_bytes + p.two[i][j]);
      sum[l][0] = sum[l][1] = bias_of<T>(p, channel[l]);
    }
#pragma unroll
    for (int l = 0; l < 2; ++l)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < TAPS; ++j)
          sum[l][i] = fmaf(product[l][i][j], p.two_there[i][j], sum[l][i]);
    const bool both = unit.first + 1 < p.y_w;
#pragma unroll
    for (int l = 0; l < 2; ++l) {
      const int ph = phase[l], ch = channel[l];
      if (line + l >= lines || !unit.there(p, ph)) continue;
      Pair<T> pair{Numeric<T>::narrow(sum[l][0]), Numeric<T>::narrow(sum[l][1])};
      // What is not finite is not zero times zero.
      if (Numeric<T>::widen(pair.a) * 0.f + Numeric<T>::widen(pair.b) * 0.f != 0.f) {
        if (!is_finite(pair.a)) pair.a = unit.again(p, ph, ch, 0);
        if (both && !is_finite(pair.b)) pair.b = unit.again(p, ph, ch, 1);
      }
      if (turned) {
        const uint32_t to = turned + (ph * 64 * p.columns + ch) * sizeof(T);
        store_shared_number(to, pair.a);
        store_shared_number(to + p.columns * sizeof(T), pair.b);
        continue;
      }
      T* const to = unit.place(p, ph, ch);
      if (p.pairs) {
        *reinterpret_cast<Pair<T>*>(to) = pair;
      } else {
        to[0] = pair.a;
        if (both) to[p.y_pixel] = pair.b;
      }
    }
  }
}

// Of the channels whose lines are collected at once.
template <int ROW>
struct RibbonBias {
  float of[most_lines(kRibbons[ROW]) / 2];
};

template <class T, int ROW>
__device__ __forceinline__ RibbonBias<ROW> find_bias(const RibbonParams& p) {
  RibbonBias<ROW> bias;
#pragma unroll
  for (int i = 0; i < most_lines(kRibbons[ROW]) / 2; ++i)
    bias.of[i] = bias_of<T>(p, min(i, p.columns - 1));
  return bias;
}

// Stores two neighbours, at a multiple of their size.
template <class T>
__device__ __forceinline__ void store_pair(T* to, float a, float b) {
  if constexpr (sizeof(T) == 4) {
    store_words(to, __float_as_uint(a), __float_as_uint(b));
  } else {
    *reinterpret_cast<uint32_t*>(to) = pack<T>(a, b);
  }
}

// All LINES of units of two outputs, of two rows of y: loads at fixed places, one behind the other, few instructions. False,
// and nothing stored, if an output is not finite.
template <class T, int ROW, int LINES>
__device__ __forceinline__ bool collect_all(const RibbonParams& p, const RibbonUnit<T>& unit,
                                            uint32_t from, const RibbonBias<ROW>& bias) {
  constexpr int kTaps = kRibbons[ROW].span, kChannels = LINES / 2,
                kLine = line_columns(kRibbons[ROW]) * kRibbonPitch * 4;
  float sum[LINES][2], product[LINES][2][kTaps];
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      const uint32_t at = from + p.two[i][j];
#pragma unroll
      for (int line = 0; line < LINES; ++line)
        product[line][i][j] = load_shared<float>(at + line * kLine);
    }
  float sound = 0;
#pragma unroll
  for (int line = 0; line < LINES; ++line)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[line][i] = bias.of[line % kChannels];
#pragma unroll
      for (int j = 0; j < kTaps; ++j)
        sum[line][i] = fmaf(product[line][i][j], p.two_there[i][j], sum[line][i]);
      sound = fmaf(sum[line][i], 0.f, sound);
    }
  if (sound != 0.f) return false;
  const int y_row = unit.row * 2 - p.pad_h;
  const int row = p.y_w * p.y_pixel;
  T* const y = unit.y + y_row * row;
  if (kChannels == 1 || p.y_pixel == 1) {
#pragma unroll
    for (int line = 0; line < LINES; ++line)
      if (unsigned(y_row + line / kChannels) < unsigned(p.y_h))
        store_pair(y + (line % kChannels * p.y_channel + line / kChannels * row), sum[line][0],
                   sum[line][1]);
  } else {  // channels of both outputs lie side by side
#pragma unroll
    for (int phase = 0; phase < 2; ++phase) {
      if (unsigned(y_row + phase) >= unsigned(p.y_h)) continue;
      const auto number = [&](int k) {
        return sum[phase * kChannels + k % kChannels][k / kChannels];
      };
#pragma unroll
      for (int k = 0; k < 2 * kChannels; k += 2)
        store_pair(y + (phase * row + k), number(k), number(k + 1));
    }
  }
  return true;
}

// What a warp has turned, of its first unit: 64 pixels of each phase, all channels.
template <class T>
__device__ __forceinline__ void store_turned_units(const RibbonParams& p,
                                                   const RibbonUnit<T>& first, uint32_t turned) {
  const int words = 64 * p.columns * int(sizeof(T)) / 4;
#pragma unroll 1
  for (int phase = 0; phase < p.stride_h; ++phase) {
    if (!first.there(p, phase)) continue;
    uint32_t* const to = reinterpret_cast<uint32_t*>(first.place(p, phase, 0));
#pragma unroll 4
    for (int word = threadIdx.x % 32; word < words; word += 32)
      to[word] = load_shared_4(turned + (phase * words + word) * 4);
  }
}

// Any units.
template <class T>
__device__ __forceinline__ void collect_some(const RibbonParams& p, const RibbonUnit<T>& unit,
                                             uint32_t from) {
#pragma unroll 1
  for (int phase = 0; phase < p.stride_h; ++phase)
#pragma unroll 1
    for (int channel = 0; channel < p.columns;
         ++channel, from += p.line_columns * kRibbonPitch * 4) {
      if (!unit.there(p, phase)) continue;
      T* const to = unit.place(p, phase, channel);
#pragma unroll 1
      for (int i = 0; i < p.stride_w && unit.first + i < p.y_w; ++i) {
        float sum = bias_of<T>(p, channel);
#pragma unroll 2
        for (int tap = p.first_tap[i]; tap < p.first_tap[i + 1]; ++tap)
          sum += load_shared<float>(from + p.tap[tap]);
        T value = Numeric<T>::narrow(sum);
        if (!is_finite(value)) value = unit.again(p, phase, channel, i);
        to[i * p.y_pixel] = value;
      }
    }
}

template <class T, int ROW>
__device__ __forceinline__ void collect_ribbon(const RibbonParams& p, const Item& item, int row,
                                               const RibbonBias<ROW>& bias, uint32_t shared,
                                               uint32_t products) {
  const Units units = units_of(p, item.sweep);
  const int lane = threadIdx.x % 32, count = p.images * p.positions;
  // ptxas lets no multiplication be under way where it does not see that a warp goes one way (C7520).
  const int warp = uniform(int(threadIdx.x) / 32 % kRibbonWarps);
#pragma unroll 1
  for (int start = warp * 32; start < count; start += kRibbonConsumers) {
    const int task = start + lane, image = p.by_positions.quotient(task);
    const int u = units.first + task - image * p.positions, n = item.n + image;
    const bool here = image < p.images && u < units.end && n < p.batch;
    const uint32_t from =
        products + (image * p.run + (image + 1) * p.margin + u - item.sweep * p.step) * 4;
    const int first = u * p.stride_w;
    RibbonUnit<T> unit{
        static_cast<T*>(p.destination) + (n * p.columns * p.y_h * p.y_w + first * p.y_pixel), n,
        row, first};
    if (!p.twos) {
      if (here) collect_some<T>(p, unit, from);
      continue;
    }
    if (p.lines_at_once > 0) {
      constexpr int kMost = most_lines(kRibbons[ROW]);
      bool done = !here;
      if (here && first + 1 < p.y_w)
        done = p.lines_at_once == kMost ? collect_all<T, ROW, kMost>(p, unit, from, bias)
                                        : collect_all<T, ROW, 2>(p, unit, from, bias);
      if (!done) collect_twos<T, kRibbons[ROW].span>(p, unit, from, 0);
      continue;
    }
    // Where all units of a warp are there, neighbours of a row, and have two outputs.
    uint32_t turned = 0;
    if (p.wide && __all_sync(0xffffffff, here && first + 1 < p.y_w &&
                                             image == int(p.by_positions.quotient(start))))
      turned = shared + p.turned_at + warp * p.turned_bytes;
    const uint32_t mine = turned ? turned + lane * 2 * p.columns * uint32_t(sizeof(T)) : 0;
    if (here) collect_twos<T, kRibbons[ROW].span>(p, unit, from, mine);
    if (!turned) continue;
    __syncwarp();
    unit.y -= lane * p.stride_w * p.y_pixel;
    store_turned_units(p, unit, turned);
    __syncwarp();
  }
}

}  // namespace convt2d::cuda::narrow
