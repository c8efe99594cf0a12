// heddle's grad_input; heddle_input.h draws the GEMM.
//
// An output that came out NaN is summed again, of products that exist.
#pragma once

#include "cuda/device/wgmma.cuh"
#include "cuda/heddle/heddle_input.h"
#include "cuda/heddle/heddle_stage.cuh"

namespace convt2d::cuda::heddle {

// The row of dY of a line, from the first one of its step.
__device__ __forceinline__ int row_of_line(const InputParams& p, int line) {
  if (!p.apart) return line * p.line_step;
  const int row = line / p.kernel_h;
  return row * p.stride_h + (line - row * p.kernel_h) * p.dilation_h;
}

// A number as a word of the tensor core: rounded, or its high and low parts.
template <class M>
__device__ __forceinline__ void put_weight(uint32_t to, uint32_t first, uint32_t second) {
  if constexpr (M::kSplit) {
    uint32_t word[4];
    M::split(first, word[0], word[2]);
    M::split(second, word[1], word[3]);
    store_shared<4>(to, word);
  } else {
    const uint32_t word[2] = {M::round(first), M::round(second)};
    store_shared<2>(to, word);
  }
}

// All weights of a block, as operands: of a lane, two words of the input channel g.
template <class M>
__device__ __forceinline__ void bring_weights(const InputParams& p, int group, int input,
                                              uint32_t weights) {
  using T = typename M::Element;
  constexpr int kBytes = M::kSplit ? 16 : 8;
  const int taps = p.kernel_h * p.kernel_w, eights = p.input_warps * (p.row + 1);
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const T* const weight =
      static_cast<const T*>(p.weight) + int64_t{group} * p.rows * p.weight_stride[0];
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < eights * taps * p.slices; i += kInputWarps) {
    const int slice = i % p.slices, rest = i / p.slices, tap = rest % taps, eight = rest / taps;
    const int channel = input + eight * 8 + g;
    const int kh = tap / p.kernel_w, kw = tap - kh * p.kernel_w;
    const T* const of_tap =
        weight + channel * p.weight_stride[0] + kh * p.weight_stride[2] + kw * p.weight_stride[3];
    const auto number = [&](int output) -> uint32_t {
      if (channel >= p.rows || output >= p.columns) return 0;
      const T* const from = of_tap + output * p.weight_stride[1];
      if constexpr (sizeof(T) == 4) {
        return __float_as_uint(*from);
      } else {
        return __ldg(reinterpret_cast<const unsigned short*>(from));
      }
    };
    uint32_t word[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (sizeof(T) == 4) {
        word[half] = number(slice * 8 + half * 4 + t);
      } else {
        const int output = slice * 16 + half * 8 + t * 2;
        word[half] = number(output) | number(output + 1) << 16;
      }
    }
    put_weight<M>(weights + (i * 32 + threadIdx.x % 32) * kBytes, word[0], word[1]);
  }
}

// One output, in ordinary arithmetic.
template <class M>
__device__ __noinline__ float output_with_care(const InputParams& p, int n, int group, int input,
                                               int h, int w) {
  using T = typename M::Element;
  const auto read = [](const void* from, int64_t at) {
    const float value = Numeric<T>::widen(static_cast<const T*>(from)[at]);
    if constexpr (!M::kRounds) return value;
    return __uint_as_float(M::round(__float_as_uint(value)) & 0xffffe000u);
  };
  float sum = 0;
  for (int kh = 0; kh < p.kernel_h; ++kh) {
    const int y_h = h * p.stride_h - p.pad_h + kh * p.dilation_h;
    if (y_h < 0 || y_h >= p.y_h) continue;
    for (int kw = 0; kw < p.kernel_w; ++kw) {
      const int y_w = w * p.stride_w - p.pad_w + kw * p.dilation_w;
      if (y_w < 0 || y_w >= p.y_w) continue;
      for (int c = 0; c < p.columns; ++c)
        sum = fmaf(
            read(p.y, ((n * p.groups + group) * p.columns + c) * p.y_plane + y_h * p.y_w + y_w),
            read(p.weight, int64_t{group * p.rows + input} * p.weight_stride[0] +
                               c * p.weight_stride[1] + kh * p.weight_stride[2] +
                               kw * p.weight_stride[3]),
            sum);
    }
  }
  return sum;
}

// Where a lane's numbers of a kernel row start, of one pixel tile: two output channels of 16 bits, or one of words.
template <class T>
struct LanePlaces {
  static constexpr int kPlaces = sizeof(T) == 2 ? 2 : 1;
  uint32_t place[kPlaces];
};

// The first operand: pixels g and g + 8, output channels of a slice.
template <class M>
__device__ __forceinline__ void fetch_pixels(uint32_t (&a)[4],
                                             const LanePlaces<typename M::Element>& at,
                                             uint32_t offset, uint32_t eight_pixels,
                                             uint32_t half_slice) {
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const uint32_t here = offset + (w % 2 ? eight_pixels : 0) + (w / 2 ? half_slice : 0);
    if constexpr (sizeof(typename M::Element) == 4) {
      a[w] = load_shared_4(at.place[0] + here);
    } else {
      const uint32_t low = load_shared<unsigned short>(at.place[0] + here);
      const uint32_t high = load_shared<unsigned short>(at.place[1] + here);
      a[w] = __byte_perm(low, high, 0x5410);
    }
  }
}

// A step: `slot` of its first line.
template <class M, int ROW>
__device__ __forceinline__ void multiply_pixels(const InputParams& p, int group, int input,
                                                const Step& step, int slot, uint32_t slots) {
  using T = typename M::Element;
  constexpr int kSize = int(sizeof(T)), kEights = ROW + 1, kVector = 16 / kSize;
  constexpr int kBytes = M::kSplit ? 16 : 8;  // of a lane's weights
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int pixel_warp = warp % p.pixel_warps, input_warp = warp / p.pixel_warps;
  if (input_warp >= p.input_warps) return;
  const int taps = p.kernel_h * p.kernel_w, of_eight = taps * p.slices * 32 * kBytes;
  const uint32_t weights = slots + p.weights_at + input_warp * kEights * of_eight + lane * kBytes;
  const int tiles_w = p.width / kTilePixels, tiles = tiles_w * p.step_rows;
  const int first_w = step.tile * p.width, first_h = step.h * p.step_rows;
  const int row_h = first_h * p.stride_h - p.pad_h;
  const int channel = (step.n * p.groups + group) * p.columns;
  // The line's first number of channel 0, but for its row.
  const int first = channel * p.y_plane + first_w * p.stride_w - p.pad_w;
  const uint32_t eight_pixels = 8 * p.stride_w * kSize;
  const uint32_t half_slice = (kSize == 4 ? 4 : 8) * p.y_pitch;
#pragma unroll 1
  for (int tile = pixel_warp; tile < tiles; tile += p.pixel_warps * kTilesAtOnce) {
    float sum[kTilesAtOnce][kEights][4] = {};
    int tile_row[kTilesAtOnce], tile_w[kTilesAtOnce];
#pragma unroll
    for (int i = 0; i < kTilesAtOnce; ++i) {
      const int mine = min(tile + i * p.pixel_warps, tiles - 1);
      tile_row[i] = mine / tiles_w;
      tile_w[i] = (mine - tile_row[i] * tiles_w) * kTilePixels;
    }
    uint32_t from_weights = weights;
#pragma unroll 1
    for (int kh = 0; kh < p.kernel_h; ++kh) {
      LanePlaces<T> at[kTilesAtOnce];
#pragma unroll
      for (int i = 0; i < kTilesAtOnce; ++i) {
        const int line = tile_row[i] * p.row_lines + kh * p.tap_lines;
        const int row = row_h + tile_row[i] * p.stride_h + kh * p.dilation_h;
        const uint32_t here = slots + slot_of_line(p, slot, line) * p.channels * p.y_pitch +
                              (tile_w[i] + g) * p.stride_w * kSize;
#pragma unroll
        for (int j = 0; j < LanePlaces<T>::kPlaces; ++j) {
          const int c = LanePlaces<T>::kPlaces * t + j;
          const int lead = first + row * p.y_w + c * p.y_plane & kVector - 1;
          at[i].place[j] = here + c * p.y_pitch + lead * kSize;
        }
      }
#pragma unroll 1
      for (int kw = 0; kw < p.kernel_w; ++kw) {
        float part[kTilesAtOnce][kEights][4] = {};
        uint32_t offset = kw * p.dilation_w * kSize;
#pragma unroll 2
        for (int slice = 0; slice < p.slices;
             ++slice, offset += 2 * half_slice, from_weights += 32 * kBytes) {
          uint32_t b[kEights][kBytes / 4];
#pragma unroll
          for (int j = 0; j < kEights; ++j) {
            if constexpr (M::kSplit) {
              load_shared_16(from_weights + j * of_eight, b[j]);
            } else {
              load_shared_8(from_weights + j * of_eight, b[j]);
            }
          }
#pragma unroll
          for (int i = 0; i < kTilesAtOnce; ++i) {
            uint32_t a[4];
            fetch_pixels<M>(a, at[i], offset, eight_pixels, half_slice);
            if constexpr (M::kSplit) {
              uint32_t low[4];
#pragma unroll
              for (int w = 0; w < 4; ++w) M::split(a[w], a[w], low[w]);
#pragma unroll
              for (int j = 0; j < kEights; ++j) {
                M::mma(part[i][j], low, b[j][0], b[j][1]);
                M::mma(part[i][j], a, b[j][2], b[j][3]);
                M::mma(part[i][j], a, b[j][0], b[j][1]);
              }
            } else {
#pragma unroll
              for (int w = 0; w < 4; ++w) a[w] = M::round(a[w]);
#pragma unroll
              for (int j = 0; j < kEights; ++j) M::mma(sum[i][j], a, b[j][0], b[j][1]);
            }
          }
          if constexpr (M::kSplit) {
            if (slice % kStrictSlices != kStrictSlices - 1 && slice != p.slices - 1) continue;
#pragma unroll
            for (int i = 0; i < kTilesAtOnce; ++i)
#pragma unroll
              for (int j = 0; j < kEights; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) sum[i][j][e] += part[i][j][e], part[i][j][e] = 0;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTilesAtOnce; ++i) {
      const int h = first_h + tile_row[i];
      if (tile + i * p.pixel_warps >= tiles || h >= p.x_h) continue;
#pragma unroll
      for (int j = 0; j < kEights; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int w = first_w + tile_w[i] + g + e / 2 * 8;
          const int c = input + (input_warp * kEights + j) * 8 + t * 2 + e % 2;
          if (w >= p.x_w || c >= p.rows) continue;
          float value = sum[i][j][e];
          if (value != value) value = output_with_care<M>(p, step.n, group, c, h, w);
          store(static_cast<T*>(p.x) +
                    ((step.n * p.groups + group) * p.rows + c) * (p.x_h * p.x_w) + h * p.x_w + w,
                value);
        }
    }
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kInputThreads, 1)
    convt2d_heddle_grad_input_kernel(const __grid_constant__ InputParams p) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  using T = typename M::Element;
  extern __shared__ __align__(128) unsigned char smem[];
  const uint32_t slots = shared_address(smem);
  int rest = blockIdx.x;
  const int in_block = rest % p.in_blocks;
  rest /= p.in_blocks;
  const int group = rest % p.groups, piece = rest / p.groups;
  const int input = in_block * p.input_warps * (ROW + 1) * 8;
  const int begin = static_cast<int>(int64_t{p.steps} * piece / p.pieces);
  const int end = static_cast<int>(int64_t{p.steps} * (piece + 1) / p.pieces);
  int slot = 0, slot_ahead = 0;
  bool weights_there = false;
#pragma unroll 1
  for (int step = begin - p.stages + 1; step < end; ++step) {
    if (step >= begin) {
      if (!weights_there) bring_weights<M>(p, group, input, slots + p.weights_at);
      weights_there = true;
      copy_async_wait(p.stages - 2);
      __syncthreads();  // all have what they asked for, and have multiplied the step before
    }
    if (const int asked = step + p.stages - 1; asked < end) {
      const Step ahead(p, begin, asked);
      if (asked > begin) slot_ahead = next_slot(p, slot_ahead, ahead.fresh);
      const int first_row = ahead.h * p.step_rows * p.stride_h - p.pad_h;
      const int column = ahead.tile * p.width * p.stride_w - p.pad_w;
      for (int line = ahead.fresh ? 0 : p.lines - p.new_lines; line < p.lines; ++line)
        bring_line<T, kInputThreads>(
            p, (ahead.n * p.groups + group) * p.columns, p.columns, p.channels,
            first_row + row_of_line(p, line), column,
            slots + slot_of_line(p, slot_ahead, line) * p.channels * p.y_pitch);
    }
    copy_async_commit();
    if (step < begin) continue;
    const Step here(p, begin, step);
    if (step > begin) slot = next_slot(p, slot, here.fresh);
    multiply_pixels<M, ROW>(p, group, input, here, slot, slots);
  }
#endif
}

}  // namespace convt2d::cuda::heddle
