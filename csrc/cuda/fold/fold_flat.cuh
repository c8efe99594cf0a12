// Flat tiles of words: products are outputs.
//
// Of 16 neighbouring pixels a lane has four, in two pairs of columns of the sum (turn_regions deals them so). With 2 x 2
// taps its neighbour four lanes on has the other column of y: they trade, and each has four neighbours of a row.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/fold/fold_plain.cuh"
#include "cuda/fold/fold_scope.cuh"
#include "cuda/fold/fold_words.cuh"
#include "cuda/gather_device.cuh"

namespace convt2d::cuda::fold {

// TAPS: of a row.
template <int ROW, int TAPS>
__device__ __forceinline__ void store_flat(const Params& p, const Scope& at, const Item& item,
                                           uint32_t shared, const Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kTaps = TAPS * TAPS;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int row = warp * 16 + lane / 4, odd = TAPS == 2 ? lane / 4 % 2 : 0;
  const int plane = p.x_h * p.x_w, y_w = p.row_w * TAPS;
  const int first = item.first_position + group % parts(tile) * tile.width + lane % 4 * 4 + odd * 2;
  float* to[tile.row_blocks][2];  // null: no such channel
  float bias[tile.row_blocks][2];
#pragma unroll
  for (int b = 0; b < tile.row_blocks; ++b)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int block = group / parts(tile) * tile.row_blocks + b;
      const int inside = (row + half * 8) / kTaps, tap = (row + half * 8) % kTaps;
      const int channel = first_channel(p, tile, at, block) + inside;
      const int64_t image = int64_t{item.n} * p.groups * p.columns + at.group * p.columns + channel;
      to[b][half] =
          channel < p.columns && inside < p.row_channels
              ? static_cast<float*>(p.destination) + image * plane * kTaps + tap / TAPS * y_w
              : nullptr;
      bias[b][half] = load_shared<float>(shared + kBiasAt + (block * p.row_channels + inside) * 4);
    }
#pragma unroll
  for (int i = 0; i < tile.width / 16; ++i) {
    const int pixel = first + i * 16;
    int place = pixel;
    if constexpr (TAPS == 2) {
      const int h = divide(pixel, p.row_magic);
      place = 2 * (h * y_w + pixel - h * p.row_w);
    }
#pragma unroll
    for (int b = 0; b < tile.row_blocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float value[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
          value[j] = sum[b][(2 * i + j / 2) * 4 + half * 2 + j % 2] + bias[b][half];
        if constexpr (TAPS == 2) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const float other = __shfl_xor_sync(~0u, odd ? value[j] : value[2 + j], 4);
            const float mine = odd ? value[2 + j] : value[j];
            value[j] = odd ? other : mine;
            value[2 + j] = odd ? mine : other;
          }
          const float middle = value[1];
          value[1] = value[2], value[2] = middle;
        }
        if (to[b][half] == nullptr || pixel >= plane) continue;
        if constexpr (tile.strict) {
          const int block = group / parts(tile) * tile.row_blocks + b;
          const int r = row + half * 8, channel = first_channel(p, tile, at, block) + r / kTaps;
#pragma unroll
          for (int j = 0; j < 4; ++j)
            if (!is_finite(value[j]))
              value[j] = plain_flat(p, item.n, at.group * p.columns + channel, pixel + j / TAPS,
                                    r % kTaps / TAPS * TAPS + j % TAPS);
        }
        store_words(to[b][half] + place, __float_as_uint(value[0]), __float_as_uint(value[1]),
                    __float_as_uint(value[2]), __float_as_uint(value[3]));
      }
  }
}

}  // namespace convt2d::cuda::fold
