// What a lane adds up, and runs of outputs on their way to memory.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/shared_number.cuh"
#include "cuda/device/tensor_store.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/pleat/pleat_config.h"

namespace convt2d::cuda::pleat {

// What a lane adds up: outputs of one row of a block and one column of two, of every second pair of columns.
struct Lane {
  int row, column;  // of its outputs, in a block; the first one, but for `pad` before it
  int source;       // whose products it wants
  bool last;        // it has tap columns 2 and 3 of the last two pixels of eight;
  bool inside,
      ends;  // its first output of a row is one; so is one right of the row's last pixel, which is its own
  __device__ __forceinline__ Lane(const Params& p, int width, int pad) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const bool upper = g & 2;
    row = g / 4;
    last = upper && t == 3;
    column = 4 * t + (upper ? 2 : 0) + (g & 1) - pad;
    inside = column >= 0;
    ends = last && column + kStride * (width - 8) + 2 < p.y_w;
    // An output of the lower lanes has a product of the pixel before theirs; one of the upper lanes of that before their second.
    source = (g ^ 2) * 4 + (upper ? t : (t + 3) % 4);
  }
};

// A block's outputs, from the products of a row of x and `above`, what the row above has for it, with the bias; then the row's own. HERE:
// there is such a row. `before`: a last lane's of the pixel before the row; returns that of the row's last one. give(e, output).
template <int EIGHTS, bool HERE, class Give>
__device__ __forceinline__ float add_block(const Lane& lane, const float* sum,
                                           float (&above)[EIGHTS][2], float bias, float before,
                                           Give&& give) {
#pragma unroll
  for (int e = 0; e < EIGHTS; ++e) {
    float two[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) two[i] = HERE ? above[e][i] + sum[4 * e + i] : above[e][i];
    if (HERE) above[e][0] = sum[4 * e + 2] + bias, above[e][1] = sum[4 * e + 3];
    const float other = __shfl_sync(~0u, lane.last ? before : two[1], lane.source);
    before = two[1];
    give(e, two[0] + other);
  }
  return before;
}

// Where a warp's outputs of a tile go: rows `first` to `end` of y, which follow each other in memory.
struct Run {
  int first, end;
  uint32_t to;  // shared address of the row `first`
};

// A run to memory, which starts `lead` numbers behind `from` and a multiple of 16 bytes: whole ones by the copy engine, what is before
// and behind them a number a lane.
template <class T>
__device__ __forceinline__ void store_run(T* y, uint32_t from, int lead, int count) {
  constexpr int kUnit = 8;
  T* const aligned = y - lead;
  const int lane = threadIdx.x % 32, end = lead + count, first = lead > 0, last = end / kUnit;
  fence_for_wgmma();  // and for the copy engine
  __syncwarp();
  if (lane == 0 && last > first)
    store_bytes(aligned + first * kUnit, from + first * kUnit * 2, (last - first) * kUnit * 2);
  const int at = lane < kUnit ? lane : last * kUnit + lane - kUnit;
  const bool edge = lane < kUnit ? first > 0 && at >= lead : at >= max(lead, first * kUnit);
  if (lane < 2 * kUnit && edge && at < end)
    reinterpret_cast<unsigned short*>(aligned)[at] = load_shared<unsigned short>(from + at * 2);
}

}  // namespace convt2d::cuda::pleat
