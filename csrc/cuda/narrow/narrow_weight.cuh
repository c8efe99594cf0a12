// narrow's grad_weight; narrow_weight.h draws the GEMM.
//
// Zeros stand for what does not exist and are multiplied too, and 0 * inf is NaN: what came out NaN is added up again, of
// products that exist.
#pragma once

#include "cuda/device/as_multiplied.cuh"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/narrow/narrow_weight.h"

namespace convt2d::cuda::narrow {

// What a block works on: bands [begin, end).
struct WeightScope {
  int group, input, piece, begin, end;  // `input`: its first channel, in the group
  __device__ __forceinline__ WeightScope(const WeightParams& p, WeightTile tile) {
    const int combination = p.by_split.quotient(blockIdx.x);
    piece = blockIdx.x - combination * p.split;
    group = p.by_channel_blocks.quotient(combination);
    input = (combination - group * p.channel_blocks) * p.channel_warps * warp_inputs(tile);
    const int each = p.items / p.split, more = p.items - each * p.split;
    begin = piece * each + min(piece, more);
    end = begin + each + (piece < more);
  }
};

struct Band {
  int n, row, pixels;
  __device__ __forceinline__ Band(const WeightParams& p, int item) {
    n = p.by_bands.quotient(item);
    row = (item - n * p.bands) * p.band_rows;
    pixels = min(p.band_rows, p.x_h - row) * p.x_w;
  }
};

// The steps of a warp, band by band.
struct StepWalk {
  int item, step, steps;
  template <class T>
  __device__ __forceinline__ void settle(const WeightParams& p, int end, int first) {
    constexpr int kPixels = step_pixels(sizeof(T));
    while (step >= steps && item < end) {
      if (++item == end) break;
      step = first;
      steps = (Band(p, item).pixels + kPixels - 1) / kPixels;
    }
  }
};

// A lane's pieces of a step, 16 bytes each. NHWC: pixel by pixel.
template <class T, int ROW>
__device__ __forceinline__ void ask_x(const WeightParams& p, const WeightScope& at, int channel,
                                      const StepWalk& walk, uint32_t to) {
  constexpr int kSize = sizeof(T), kPieces = lane_pieces(kWeightTiles[ROW]);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Band band(p, walk.item);
  const int pixel = walk.step * step_pixels(kSize) + t * lane_pixels(kSize);
  const T* const x = static_cast<const T*>(p.x);
  const int plane_pixel = band.row * p.x_w + pixel;
  to += lane * 16;
  if (p.channels_last) {
    constexpr int kOfPixel = kPieces / lane_pixels(kSize), kVector = 16 / kSize;
    channel += g * kOfPixel * kVector;
    const int pitch = p.groups * p.rows;
    const T* from = x + (band.n * p.x_plane + plane_pixel) * pitch + at.group * p.rows + channel;
#pragma unroll
    for (int i = 0; i < lane_pixels(kSize); ++i) {
#pragma unroll
      for (int k = 0; k < kOfPixel; ++k) {
        const bool valid = pixel + i < band.pixels && channel + k * kVector < p.rows;
        copy_async<16>(to + (i * kOfPixel + k) * 512, valid ? from + k * kVector : x, valid);
      }
      from += pitch;
    }
  } else {
    channel += g;
    const T* from =
        x + ((band.n * p.groups + at.group) * p.rows + channel) * p.x_plane + plane_pixel;
    const bool inside = pixel < band.pixels;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const bool valid = inside && channel + i * 8 < p.rows;
      copy_async<16>(to + i * 512, valid ? from : x, valid);
      from += 8 * p.x_plane;
    }
  }
}

// What a band meets of dY, BYTES at once, by all threads.
template <class T, int BYTES>
__device__ __forceinline__ void ask_y(const WeightParams& p, const WeightScope& at, int item,
                                      uint32_t to) {
  constexpr int kNumbers = BYTES / sizeof(T);
  const Band band(p, item);
  const int first = band.row * p.stride_h - p.pad_h;
  const T* const y = static_cast<const T*>(p.y);
  const T* const image = y + band.n * p.y_image + at.group * p.columns * p.y_channel;
  const int pieces = p.y_lines * p.line_pieces;
  constexpr int kTogether = 2;
#pragma unroll 1
  for (int begin = threadIdx.x; begin < pieces; begin += kTogether * kWeightThreads) {
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const int i = begin + k * kWeightThreads;
      const int line = p.by_pieces.quotient(i), piece = i - line * p.line_pieces;
      const int row = p.by_row_lines.quotient(line), channel = line - row * p.row_lines;
      const int h = first + row, number = piece * kNumbers - p.lead;
      const bool valid =
          unsigned(h) < unsigned(p.y_h) && unsigned(number) < unsigned(p.y_row_numbers);
      const T* const from = valid ? image + h * p.y_row + channel * p.y_channel + number : y;
      if (i < pieces) copy_async<BYTES>(to + line * p.line_bytes + piece * BYTES, from, valid);
    }
  }
}

// A lane's part of x as operands of one half of the step, [16 channels].
template <class T, int ROW>
__device__ __forceinline__ void fetch_x(bool channels_last, uint32_t from, int half,
                                        uint32_t (&a)[kWeightTiles[ROW].inputs][4]) {
  constexpr int kInputs = kWeightTiles[ROW].inputs;
  from += threadIdx.x % 32 * 16;
  if (!channels_last) {
#pragma unroll
    for (int i = 0; i < kInputs * 2; ++i) {
      uint32_t word[2];
      load_shared_8(from + i * 512 + half * 8, word);
      a[i / 2][i % 2] = word[0], a[i / 2][2 + i % 2] = word[1];
    }
  } else if constexpr (sizeof(T) == 4) {
    constexpr int kOfPixel = kInputs / 2;
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      uint32_t word[4];
      load_shared_16(from + (half * kInputs + i) * 512, word);
#pragma unroll
      for (int w = 0; w < 4; ++w) a[i % kOfPixel * 2 + w / 2][i / kOfPixel * 2 + w % 2] = word[w];
    }
  } else {
    static_assert(kInputs == 4);  // 16 bytes of a pixel
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t one[4], next[4];
      load_shared_16(from + (half * 4 + i * 2) * 512, one);
      load_shared_16(from + (half * 4 + i * 2 + 1) * 512, next);
#pragma unroll
      for (int w = 0; w < 8; ++w)
        a[w / 2][i * 2 + w % 2] = __byte_perm(one[w / 2], next[w / 2], w % 2 ? 0x7632 : 0x5410);
    }
  }
}

// Of a column, what meets a pixel (32 bits) or two neighbours.
template <class T>
__device__ __forceinline__ uint32_t fetch_y(uint32_t from, int pixel_step) {
  if constexpr (sizeof(T) == 4) {
    return load_shared_4(from);
  } else {
    return __byte_perm(load_shared<unsigned short>(from),
                       load_shared<unsigned short>(from + pixel_step), 0x5410);
  }
}

// [16 input channels][8 columns][channel g or g + 8, column 2 t or the next]
template <int ROW>
using WeightSums = float[kWeightTiles[ROW].inputs][kWeightTiles[ROW].columns][4];

template <class M, int ROW>
__device__ __forceinline__ void multiply_step(const WeightParams& p, uint32_t from_x, uint32_t y,
                                              int step, int pixels,
                                              uint32_t (&places)[kWeightTiles[ROW].columns],
                                              WeightSums<ROW>& sum) {
  using T = typename M::Element;
  constexpr WeightTile tile = kWeightTiles[ROW];
  constexpr int kSize = sizeof(T), kPixels = 4 / kSize;  // of a word
  const int t = threadIdx.x % 4;
  // Where the lane's words of pixels stand; what is behind the band is multiplied by zeros.
  int pixel = step * step_pixels(kSize) + t * lane_pixels(kSize);
  const int row = p.by_w.quotient(pixel);
  int w = pixel - row * p.x_w;
  uint32_t place = y + row * p.row_step + w * p.pixel_step;
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    uint32_t base[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      base[i] = pixel < pixels ? place : y;
      pixel += kPixels, w += kPixels, place += kPixels * p.pixel_step;
      if (w >= p.x_w) w -= p.x_w, place += p.row_step - p.x_w * p.pixel_step;
    }
    uint32_t a[tile.inputs][4], low[M::kSplit ? tile.inputs : 1][4];
    fetch_x<T, ROW>(p.channels_last, from_x, half, a);
#pragma unroll
    for (int m = 0; m < tile.inputs; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (M::kSplit) {
          M::split(a[m][i], a[m][i], low[m][i]);
        } else if constexpr (kSize == 2) {
          // Said to be new: words as they were loaded would be moved to four neighbouring registers for each product.
          a[m][i] = __byte_perm(a[m][i], a[m][i], p.same_bytes);
        } else {
          a[m][i] = M::round(a[m][i]);
        }
      }
#pragma unroll
    for (int j = 0; j < tile.columns; ++j) {
      uint32_t b[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) b[i] = M::round(fetch_y<T>(base[i] + places[j], p.pixel_step));
      if constexpr (M::kSplit) {
        uint32_t low_b[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) M::split(b[i], b[i], low_b[i]);
        // The lesser products come first, while there is little to cut digits off from.
        float part[tile.inputs][4] = {};
#pragma unroll
        for (int product = 0; product < 3; ++product)
#pragma unroll
          for (int m = 0; m < tile.inputs; ++m)
            M::mma(part[m], product == 0 ? low[m] : a[m], product == 1 ? low_b[0] : b[0],
                   product == 1 ? low_b[1] : b[1]);
#pragma unroll
        for (int m = 0; m < tile.inputs; ++m)
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[m][j][e] += part[m][e];
      } else {
#pragma unroll
        for (int m = 0; m < tile.inputs; ++m) M::mma(sum[m][j], a[m], b[0], b[1]);
      }
    }
  }
}

// One sum of the block, of the products that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M>
__device__ __noinline__ float weight_with_care(const WeightParams& p, const WeightScope& at,
                                               int input, int output, int tap_h, int tap_w) {
  const int x_channel = p.channels_last ? 1 : p.x_plane;
  const int x_pixel = p.channels_last ? p.groups * p.rows : 1;
  const int y_pixel = p.channels_last ? p.groups * p.columns : 1;
  float sum = 0;
#pragma unroll 1
  for (int item = at.begin; item < at.end; ++item) {
    const Band band(p, item);
#pragma unroll 1
    for (int pixel = 0; pixel < band.pixels; ++pixel) {
      const int row = p.by_w.quotient(pixel), column = pixel - row * p.x_w;
      const int h = (band.row + row) * p.stride_h - p.pad_h + tap_h * p.dilation_h;
      const int w = column * p.stride_w - p.pad_w + tap_w * p.dilation_w;
      if (unsigned(h) >= unsigned(p.y_h) || unsigned(w) >= unsigned(p.y_w)) continue;
      const int from_x = band.n * p.x_plane * p.groups * p.rows +
                         (at.group * p.rows + input) * x_channel +
                         (band.row * p.x_w + pixel) * x_pixel;
      const int from_y = band.n * p.y_image + (at.group * p.columns + output) * p.y_channel +
                         h * p.y_row + w * y_pixel;
      sum = fmaf(as_multiplied<M>(p.x, from_x), as_multiplied<M>(p.y, from_y), sum);
    }
  }
  return sum;
}

// Sums of the block from shared memory, [warp][number][lane], to dW or to partial sums, those of warps that differ in
// pixels alone added in their order. By all threads.
template <class M, int ROW>
__device__ __forceinline__ void store_weights(const WeightParams& p, const WeightScope& at,
                                              uint32_t shared) {
  constexpr WeightTile tile = kWeightTiles[ROW];
  constexpr int kSums = weight_sums(tile);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < p.channel_warps * kSums; i += kWeightWarps) {
    const int warp = i / kSums, number = i - warp * kSums;
    const int e = number % 4, j = number / 4 % tile.columns, m = number / 4 / tile.columns;
    const int input =
        at.input + warp * warp_inputs(tile) +
        (p.channels_last ? g * tile.inputs * 2 + m * 2 + e / 2 : m * 16 + e / 2 * 8 + g);
    const int column = j * 8 + t * 2 + e % 2, place = p.column_to[column];
    if (place < 0 || input >= p.rows) continue;
    // All are loaded, whatever there is, so that they are waited for once.
    float of_part[kWeightWarps], sum = 0;
#pragma unroll
    for (int part = 0; part < kWeightWarps; ++part)
      of_part[part] = load_shared<float>(
          shared +
          (((min(part, p.pixel_warps - 1) * p.channel_warps + warp) * kSums + number) * 32 + lane) *
              4);
#pragma unroll
    for (int part = 0; part < kWeightWarps; ++part) sum += part < p.pixel_warps ? of_part[part] : 0;
    if (sum != sum) {
      const int outer = column / (p.channels_last ? p.columns : p.kernel_w),
                inner = column - outer * (p.channels_last ? p.columns : p.kernel_w);
      const int middle = p.channels_last ? p.kernel_w : p.columns, row = outer / middle;
      sum = weight_with_care<M>(p, at, input, p.channels_last ? inner : outer - row * middle, row,
                                p.channels_last ? outer - row * middle : inner);
    }
    const int to = (at.group * p.rows + input) * p.input_stride + place;
    if (p.partials) {
      p.partials[int64_t{at.piece} * p.piece_floats + to] = sum;
    } else {
      store(static_cast<typename M::Element*>(p.weight) + to, sum);
    }
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kWeightThreads, 1)
    convt2d_narrow_grad_weight_kernel(const __grid_constant__ WeightParams p) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  using T = typename M::Element;
  constexpr WeightTile tile = kWeightTiles[ROW];
  constexpr int kStages = kWeightStages, kStepBytes = step_bytes(tile);
  extern __shared__ __align__(128) unsigned char smem[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t start = shared_address(smem), ring = start + kWeightHeader,
                 mine = ring + warp * kStages * kStepBytes, y = ring + ring_bytes(tile);
  const WeightScope at(p, tile);
  const int part = p.by_channel_warps.quotient(warp);
  // Warps beyond the last part have no steps.
  const int first = part < p.pixel_warps ? part : INT32_MAX / 2;
  const int channel = at.input + (warp - part * p.channel_warps) * warp_inputs(tile);
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends

  StepWalk asked{at.begin - 1, 0, 0};
  const auto ask = [&](int to) {
    asked.settle<T>(p, at.end, first);
    if (asked.item < at.end) {
      ask_x<T, ROW>(p, at, channel, asked, mine + to * kStepBytes);
      asked.step += p.pixel_warps;
    }
    copy_async_commit();
  };

  if (threadIdx.x == 0) {
    barrier_init(start, kWeightThreads);
    barrier_init(start + 8, kWeightThreads);
  }
  uint32_t places[tile.columns];
#pragma unroll
  for (int j = 0; j < tile.columns; ++j) places[j] = p.column_at[j * 8 + lane / 4];
  WeightSums<ROW> sum = {};
  // Ahead of the first band, all is asked for that shall be under way: the stage behind the one that is asked for.
  int stage = 1;
#pragma unroll 1
  for (int item = at.begin - 1; item < at.end; ++item) {
    const bool real = item >= at.begin;
    const int turn = item - at.begin, half = turn & 1;
    __syncthreads();  // all have done with the band before
    if (item + 1 < at.end) {
      if (p.y_piece == 16) {
        ask_y<T, 16>(p, at, item + 1, y + (half ^ 1) * p.y_bytes);
      } else {
        ask_y<T, 4>(p, at, item + 1, y + (half ^ 1) * p.y_bytes);
      }
      copy_async_arrive(start + (half ^ 1) * 8);
    }
    int pixels = 0, steps = kStages - 1;
    if (real) {
      barrier_wait(start + half * 8, turn >> 1 & 1);
      pixels = Band(p, item).pixels;
      steps = (pixels + step_pixels(sizeof(T)) - 1) / step_pixels(sizeof(T));
    }
#pragma unroll 1
    for (int step = real ? first : 0; step < steps; step += real ? p.pixel_warps : 1) {
      if (real) copy_async_wait_for<kStages - 2>();
      // To where the step before came from, whose operands have been multiplied.
      ask(stage == 0 ? kStages - 1 : stage - 1);
      if (real)
        multiply_step<M, ROW>(p, mine + stage * kStepBytes, y + half * p.y_bytes, step, pixels,
                              places, sum);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
  }

  copy_async_wait_for<0>();
  __syncthreads();  // all have read what sums are written to
#pragma unroll
  for (int i = 0; i < weight_sums(tile); ++i)
    store_shared_sum(ring + ((warp * weight_sums(tile) + i) * 32 + lane) * 4,
                     sum[i / 4 / tile.columns][i / 4 % tile.columns][i % 4]);
  __syncthreads();
  store_weights<M, ROW>(p, at, ring);
#endif
}

}  // namespace convt2d::cuda::narrow
