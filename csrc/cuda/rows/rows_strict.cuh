// rows in strict fp32: a product is three of the tensor core's. All phases of w among `phases_at_once` neighbours that read a pixel are
// computed by one warp, which splits it once.
#pragma once

#include "cuda/device/strict_product.cuh"
#include "cuda/rows/rows_planes.cuh"

namespace convt2d::cuda::rows {

constexpr int kPartBytes = 2 * kChannels * kUnit;  // of weights: their high parts,
constexpr int kBlockBytes = 2 * kPartBytes;        // and behind them the low ones

// Pixels, asked for all at once and looked at when they are there, by the same threads: rows of [unit][pixel], those beside x zeros.
__device__ __forceinline__ void start_patch(const Params& p, const Place& at, uint32_t shared) {
  const int plane = p.h.in * p.w.in, first_pixel = at.w + p.w.first_offset;
  const float* const source = static_cast<const float*>(p.source) +
                              (int64_t{at.n} * p.groups + at.group) * p.reduce * plane;
  const int count = p.patch_rows * p.units * p.patch_width;
#pragma unroll 1
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int line = p.divide_patch_width.quotient(i);
    const int row = p.divide_units.quotient(line), channel = (line - row * p.units) * 4;
    const int y = at.h + p.h.first_offset + row, x = first_pixel + i - line * p.patch_width;
    const bool there = unsigned(y) < unsigned(p.h.in) && unsigned(x) < unsigned(p.w.in);
    const int left = there ? p.reduce - channel : 0;
    const float* const from = source + (left > 0 ? channel * plane + y * p.w.in + x : 0);
#pragma unroll
    for (int c = 0; c < 4; ++c)
      copy_async<4>(shared + p.patch_at + i * kUnit + c * 4, c < left ? from + c * plane : source,
                    c < left);
  }
  copy_async_commit();
}
// Tells whether one is not finite.
__device__ __forceinline__ bool finish_patch(const Params& p, uint32_t shared) {
  copy_async_wait_for<0>();
  const int count = p.patch_rows * p.units * p.patch_width;
  uint32_t nan = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += kThreads) {
    uint32_t word[4];
    load_shared_16(shared + p.patch_at + i * kUnit, word);
    watch_unit<MmaF32x3>(word, nan);
  }
  return saw_nan<float>(nan);
}

// Weights in the order of readings, split once for all positions. Tells whether one is not finite, or its higher part.
__device__ __forceinline__ bool fill_blocks(const Params& p, int first_group, int first_column,
                                            uint32_t shared) {
  const float* const weight =
      static_cast<const float*>(p.weight) + int64_t{first_group} * p.reduce * p.weight_stride[0];
  uint32_t nan = 0;
#pragma unroll 1
  for (int i = threadIdx.x; i < p.h.kernel * p.w.kernel * p.units * kChannels; i += kThreads) {
    const int of_tap = i / kChannels, row = i % kChannels;
    const int tap = p.divide_units.quotient(of_tap), unit = of_tap - tap * p.units;
    const int which = p.readings.of_tap[tap];
    if (which < 0) continue;
    const Reading& reading = p.readings.reading[which];
    const int block = reading.first_block + unit / 2 * reading.count + p.readings.place[tap];
    const int column = first_column + row, first = unit * 4;
    const int left = column < p.columns ? p.reduce - first : 0, tap_h = tap / p.w.kernel;
    const float* const from = weight + first * p.weight_stride[0] + column * p.weight_stride[1] +
                              tap_h * p.weight_stride[2] +
                              (tap - tap_h * p.w.kernel) * p.weight_stride[3];
    uint32_t bits[4], high[4], low[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) bits[c] = c < left ? bits_of(from + c * p.weight_stride[0]) : 0;
    watch_unit<MmaF32x3>(bits, nan);
#pragma unroll
    for (int c = 0; c < 4; ++c) split_in_two(bits[c], high[c], low[c]);
    const uint32_t to =
        shared + p.weights_at + block * kBlockBytes + (unit % 2 * kChannels + row) * kUnit;
    store_shared_16(to, high);
    store_shared_16(to + kPartBytes, low);
  }
  return saw_nan<float>(nan);
}

// sum += a * b of eight channels, a being a block of weights: the lesser products come first and an ordinary addition last,
// since the tensor core cuts digits off where it adds.
__device__ __forceinline__ void add_products(float (&sum)[kTiles][4], uint32_t block,
                                             const uint32_t (&high)[kTiles][2],
                                             const uint32_t (&low)[kTiles][2]) {
  uint32_t high_a[4], low_a[4];
  float part[kTiles][4] = {};
  ldmatrix_x4(low_a, block + kPartBytes);
  ldmatrix_x4(high_a, block);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) MmaF32x3::mma(part[i], low_a, high[i][0], high[i][1]);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) MmaF32x3::mma(part[i], high_a, low[i][0], low[i][1]);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) MmaF32x3::mma(part[i], high_a, high[i][0], high[i][1]);
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
#pragma unroll
    for (int k = 0; k < 4; ++k) sum[i][k] += part[i][k];
}

// 16 channels x 32 positions of up to `kMostStrictPhases` phases, of which `phases` exist. The bias comes last, so that short
// sums are not rounded as it would be.
__device__ __forceinline__ void multiply_strict(const Params& p, uint32_t shared, const Work& work,
                                                int phases) {
  const int lane = threadIdx.x % 32, row_bytes = p.patch_width * kUnit;
  const uint32_t weights = shared + p.weights_at + lane * kUnit;
  // Matrices of weights: both halves of the channels of a unit, then of the next; of pixels: both units of eight positions,
  // then of the next eight.
  const uint32_t pixels =
      work.pixels + lane / 8 % 2 * row_bytes + (lane / 16 * 8 + lane % 8) * kUnit;
  float sum[kMostStrictPhases][kTiles][4] = {};
  const int end = p.readings.first[work.pair + 1];
#pragma unroll 1
  for (int which = p.readings.first[work.pair]; which < end; ++which) {
    const Reading& reading = p.readings.reading[which];
    uint32_t from = pixels + reading.row * p.units * row_bytes + reading.column * kUnit;
    uint32_t block = weights + reading.first_block * kBlockBytes;
#pragma unroll 1
    for (int unit = 0; unit < p.units; unit += 2) {
      uint32_t high[kTiles][2], low[kTiles][2];
#pragma unroll
      for (int i = 0; i < kTiles; i += 2) {
        uint32_t b[4];
        ldmatrix_x4(b, from + i * 8 * kUnit);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          split_in_two(b[k], high[i + k / 2][k % 2], low[i + k / 2][k % 2]);
      }
#pragma unroll
      for (int phase = 0; phase < kMostStrictPhases; ++phase) {
        if (!(reading.phases >> phase & 1)) continue;
        add_products(sum[phase], block, high, low);
        block += kBlockBytes;
      }
      from += 2 * row_bytes;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float bias = bias_of(p, shared, lane / 4 + 8 * half);
#pragma unroll
    for (int phase = 0; phase < kMostStrictPhases; ++phase)
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int k = 0; k < 2; ++k) sum[phase][i][2 * half + k] += bias;
  }
  visit_count<kMostStrictPhases>(
      phases, [&](auto count) { stage_sums<float, decltype(count)::value>(p, work, sum); });
}

}  // namespace convt2d::cuda::rows
