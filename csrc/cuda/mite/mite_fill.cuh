// How a block of mite brings a patch of a tensor.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/mite/mite_config.h"

namespace convt2d::cuda::mite {

// `threads` of a block, of which this one is `thread`; COUNT numbers of a thread are under way at once. The patch begins
// at a row and a column of an image and group, perhaps outside, where it becomes zeros.
template <int COUNT, class T>
__device__ __forceinline__ void fill_patch(const Patch& patch, int n, int group, int row,
                                           int column, int thread, int threads, float* floats) {
  const int first = patch.by_line.quotient(thread);
  if (first >= patch.together) return;
  const T* const from =
      static_cast<const T*>(patch.from) + n * patch.n + group * patch.channels * patch.c;
#pragma unroll 1
  for (int place = thread - first * patch.line; place < patch.line; place += threads) {
    const int right = patch.by_channels.quotient(place);
    const int channel = place - right * int(patch.by_channels.divisor);
    const int x = column + right;
    const bool inside = unsigned(x) < unsigned(patch.columns);
    const T* const start = from + channel * patch.c + row * patch.h + x * patch.w;
    float* const to = floats + patch.at + channel * patch.plane + right;
#pragma unroll 1
    for (int line = first; line < patch.lines; line += COUNT * patch.together) {
      float value[COUNT];
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        const int at = line + i * patch.together;
        const int c = patch.by_rows.quotient(at), down = at - c * int(patch.by_rows.divisor);
        value[i] = 0;
        if (inside && at < patch.lines && unsigned(row + down) < unsigned(patch.rows))
          value[i] = load(start + c * patch.c + down * patch.h);
      }
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        const int at = line + i * patch.together;
        if (at < patch.lines) to[at * patch.pitch] = value[i];
      }
    }
  }
}

}  // namespace convt2d::cuda::mite
