// From sums to y: a lane's products are outputs of two pixels, two taps of each for every eight columns.
//
// Words: pixels g and g + 8, of which a lane has 8 bytes each. 16 bits: pixels 2 g and 2 g + 1. Of a kernel row of two taps these are
// 8 neighbouring bytes, if both pixels are in the same row. Of longer ones lanes t and t + 1 have four taps together: the first of
// them gets those of pixel 2 g, the second those of 2 g + 1.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/tuft/tuft_scope.cuh"

namespace convt2d::cuda::tuft {

// What outputs a block's columns are, by pairs: how far from the first output of a pixel, -1 if there is none, and the bias.
template <class T, int ROW>
__device__ __forceinline__ void bring_outputs(const Params& p, const Scope& at, uint32_t outputs) {
  constexpr Tile tile = kTiles[ROW];
  for (int i = threadIdx.x; i < tile.width / 2; i += threads(tile)) {
    const int column = at.column_block * tile.width + 2 * i, row = column / p.kernel_w,
              channel = row / p.kernel_h;
    const bool exists = channel < p.columns;
    const int offset = channel * p.plane * taps(p) +
                       (row - channel * p.kernel_h) * p.x_w * p.kernel_w + column % p.kernel_w;
    const float bias = exists && p.bias
                           ? load(static_cast<const T*>(p.bias) + at.group * p.columns + channel)
                           : 0.f;
    store_shared<2>(outputs + i * kOutputBytes,
                    {exists ? static_cast<uint32_t>(offset) : ~0u, __float_as_uint(bias)});
  }
}

// The first output of a pixel, of a group's first channel; `missing` is -1 if there is no such pixel.
template <class T>
struct Spot {
  T* to;
  int missing;

  __device__ __forceinline__ Spot(const Params& p, const Scope& at, const Line& line, int inside) {
    const int pixel = line.first + inside, row = p.by_row.quotient(pixel);
    const int64_t channel = int64_t{line.n * p.groups + at.group} * p.columns;
    to = static_cast<T*>(p.y) + channel * p.plane * taps(p) +
         p.kernel_w * (pixel + row * (p.kernel_h - 1) * p.x_w);
    keep_in_register(to);  // else every address is summed up anew
    missing = pixel < p.plane ? 0 : -1;
  }

  // Outputs of a pair of columns, or from there on.
  template <int WORDS>
  __device__ __forceinline__ void store(int offset, uint32_t first, uint32_t second = 0) const {
    store_words_if<WORDS>(offset | missing, to + offset, first, second, 0, 0);
  }
};

// Two columns' outputs of both pixels.
template <class T>
using Outputs = uint32_t[2][sizeof(T) / 2];

// Calls `store` with a lane's part of each eight columns, and where they go. What goes with some eights is fetched before, since what
// is loaded where it is stored is waited for.
template <class T, int WIDTH, class Store>
__device__ __forceinline__ void for_eights(uint32_t outputs, const float (&sum)[WIDTH / 2],
                                           Store&& store) {
  constexpr int kAtOnce = 4;
#pragma unroll
  for (int first = 0; first < WIDTH / 8; first += kAtOnce) {
    uint32_t where[kAtOnce][2];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      load_shared_8(outputs + (first + k) * 4 * kOutputBytes, where[k]);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const float bias = __uint_as_float(where[k][1]);
      Outputs<T> output;
#pragma unroll
      for (int pixel = 0; pixel < 2; ++pixel) {
        const float* const mine = sum + 4 * (first + k) + 2 * pixel;
        if constexpr (is_word<T>) {
          output[pixel][0] = __float_as_uint(mine[0] + bias);
          output[pixel][1] = __float_as_uint(mine[1] + bias);
        } else {
          output[pixel][0] = pack<T>(mine[0] + bias, mine[1] + bias);
        }
      }
      store(static_cast<int>(where[k][0]), output);
    }
  }
}

// A team's sums of a line.
template <class T, int WIDTH>
__device__ __forceinline__ void store_line(const Params& p, const Scope& at, const Line& line,
                                           uint32_t outputs, const float (&sum)[WIDTH / 2]) {
  const int lane = threadIdx.x % 32, pair = lane % 4, odd = lane % 2,
            inside = threadIdx.x % 128 / 32 * 16 + lane / 4 * (is_word<T> ? 1 : 2);
  const uint32_t mine = outputs + pair * kOutputBytes;
  if constexpr (is_word<T>) {
    const Spot<T> first(p, at, line, inside), second(p, at, line, inside + 8);
    for_eights<T, WIDTH>(mine, sum, [&](int offset, const Outputs<T>& output) {
      first.template store<2>(offset, output[0][0], output[0][1]);
      second.template store<2>(offset, output[1][0], output[1][1]);
    });
  } else if (p.kernel_w > 2) {
    const Spot<T> spot(p, at, line, inside + odd);
    for_eights<T, WIDTH>(mine - odd * kOutputBytes, sum, [&](int offset, const Outputs<T>& output) {
      const uint32_t given = __shfl_xor_sync(0xffffffff, odd ? output[0][0] : output[1][0], 1);
      spot.template store<2>(offset, odd ? given : output[0][0], odd ? output[1][0] : given);
    });
  } else if (p.x_w % 2 == 0) {
    const Spot<T> first(p, at, line, inside);
    for_eights<T, WIDTH>(mine, sum, [&](int offset, const Outputs<T>& output) {
      first.template store<2>(offset, output[0][0], output[1][0]);
    });
  } else {
    const Spot<T> first(p, at, line, inside), second(p, at, line, inside + 1);
    for_eights<T, WIDTH>(mine, sum, [&](int offset, const Outputs<T>& output) {
      first.template store<1>(offset, output[0][0]);
      second.template store<1>(offset, output[1][0]);
    });
  }
}

}  // namespace convt2d::cuda::tuft
