// heddle's grad_input; heddle_input.h draws the GEMM.
//
// An output that came out NaN is summed again, of products that exist.
#pragma once

#include "cuda/device/digits.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/heddle/heddle_input.h"
#include "cuda/heddle/heddle_stage.cuh"
#include "cuda/input_with_care.cuh"

namespace convt2d::cuda::heddle {

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

// A number of K: its output channel and tap.
struct Tap {
  int channel, kernel_w;
};
__device__ __forceinline__ Tap tap_of(const InputParams& p, int k) {
  const int channel = k / p.kernel_w;
  return {channel, k - channel * p.kernel_w};
}
// The numbers of K of a lane, of a slice: two words, of two neighbours in 16 bits.
template <class T>
constexpr int kLaneNumbers = 8 / int(sizeof(T));
template <class T>
__device__ __forceinline__ int lane_number(int t, int i) {
  return sizeof(T) == 4 ? i * 4 + t : i / 2 * 8 + t * 2 + i % 2;
}
template <class T>
constexpr int kSliceNumbers = 32 / int(sizeof(T));

// All weights of a block, as operands: of a lane, two words of the input channel g.
template <class M>
__device__ __forceinline__ void bring_weights(const InputParams& p, int group, int input,
                                              uint32_t weights) {
  using T = typename M::Element;
  constexpr int kBytes = M::kSplit ? 16 : 8;
  const int of_eight = p.kernel_h * p.slices, eights = p.group_warps * p.input_warps;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < eights * of_eight; i += kInputWarps) {
    const int eight = i / of_eight, rest = i - eight * of_eight;
    const int kh = rest / p.slices, slice = rest - kh * p.slices;
    const int of_group = eight / p.input_warps;
    const int channel = input + (eight - of_group * p.input_warps) * 8 + g;
    const T* const of_row = static_cast<const T*>(p.weight) +
                            (int64_t{group + of_group} * p.rows + channel) * p.weight_stride[0] +
                            kh * p.weight_stride[2];
    uint32_t number[kLaneNumbers<T>];
#pragma unroll
    for (int j = 0; j < kLaneNumbers<T>; ++j) {
      const int k = slice * kSliceNumbers<T> + lane_number<T>(t, j);
      number[j] = 0;
      if (channel >= p.rows || k >= p.reduce) continue;
      const Tap tap = tap_of(p, k);
      const T* const from =
          of_row + tap.channel * p.weight_stride[1] + tap.kernel_w * p.weight_stride[3];
      if constexpr (sizeof(T) == 4) {
        number[j] = __float_as_uint(*from);
      } else {
        number[j] = __ldg(reinterpret_cast<const unsigned short*>(from));
      }
    }
    const uint32_t to = weights + (i * 32 + threadIdx.x % 32) * kBytes;
    if constexpr (sizeof(T) == 4) {
      put_weight<M>(to, number[0], number[1]);
    } else {
      put_weight<M>(to, number[0] | number[1] << 16, number[2] | number[3] << 16);
    }
  }
}

// Where a lane's numbers of K lie in a line, but for its lead, and what of that comes from the channel: three bits.
constexpr int kLeadBits = 3;
template <class T>
__device__ __forceinline__ void bring_places(const InputParams& p, uint32_t places) {
  constexpr int kOfSlice = 4 * kLaneNumbers<T>;
  for (int i = threadIdx.x; i < p.slices * kOfSlice; i += kInputThreads) {
    const int slice = i / kOfSlice, rest = i - slice * kOfSlice;
    const int t = rest / kLaneNumbers<T>, j = rest - t * kLaneNumbers<T>;
    const int k = slice * kSliceNumbers<T> + lane_number<T>(t, j);
    const Tap tap = tap_of(p, k < p.reduce ? k : 0);  // times a weight of zero: any that is there
    const uint32_t at = tap.channel * p.y_pitch + tap.kernel_w * p.dilation_w * int(sizeof(T));
    store_shared_4(places + i * 4,
                   at << kLeadBits | (tap.channel * p.y_plane & (1 << kLeadBits) - 1));
  }
}

// The lines of a step, to a stage: of words, a channel a warp; of 16 bits, whose lines are few vectors, all at once. What
// lies beside a row becomes zeros; in front of it only where a tap reads that.
template <class T>
__device__ __forceinline__ void bring_step(const InputParams& p, int channel, int h, int column,
                                           uint32_t stage) {
  constexpr int kSize = int(sizeof(T)), kVector = 16 / kSize;
  const T* const y = static_cast<const T*>(p.y);
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int line = 0; line < p.step.lines; ++line, stage += p.line_bytes) {
    const int row_h = h + p.step.line_row[line];
    if constexpr (kSize == 2) {
      bring_line<T, kInputThreads>(p, channel, p.channels, p.channels, row_h, column, stage);
      continue;
    }
    const bool there = row_h >= 0 && row_h < p.y_h;
#pragma unroll 1
    for (int c = threadIdx.x / 32; c < p.channels; c += kInputWarps) {
      const int row = (channel + c) * p.y_plane + row_h * p.y_w, base = row + column & -kVector;
      const uint32_t to = stage + c * p.y_pitch;
      const int left = there ? row + p.y_w - base : 0;
      int first = 0;
      if (column < 0) {
        first = min((row - base + kVector - 1) / kVector, p.y_vectors);
        for (int vector = lane; vector < first; vector += 32) {
          const int from = base + vector * kVector;
          if (there && from + kVector > row) {
            bring_front(y, from, row, row + p.y_w, to + vector * 16);
          } else {
            copy_async_16_part(to + vector * 16, y, 0);
          }
        }
      }
#pragma unroll 4
      for (int vector = first + lane; vector < p.y_vectors; vector += 32) {
        const int bytes = min(max(left - vector * kVector, 0) * kSize, 16);
        copy_async_16_part(to + vector * 16, y + (bytes ? base + vector * kVector : 0), bytes);
      }
    }
  }
}

// What a warp multiplies and stores.
struct Lane {
  int group, input;      // of the block's; the warp's first channel
  int pixel;             // the first of a lane's,
  uint32_t step_pixels;  // and from one to the next, bytes of dY
  uint32_t weights;      // of the lane
  uint32_t line;         // from a stage on, for the first pixel
};

// Pixels of a lane, rows g and g + 8 of two tiles: of words four neighbours; in 16 bits every second one of eight, so that
// after a turn (movmatrix) a lane has the eight of a channel.
template <class T>
constexpr int kPixelStep = sizeof(T) == 4 ? 1 : 2;
template <class T>
__device__ __forceinline__ int lane_pixel(int g) {
  return sizeof(T) == 4 ? g * kLanePixels : g / 2 * (2 * kLanePixels) + g % 2;
}

// Sums of the live rows, of two tiles.
using LiveSums = float[kLiveRows][2][4];

// Operands of a line and a slice, both tiles.
template <class M>
__device__ __forceinline__ void fetch_pixels(uint32_t (&a)[2][4], uint32_t places, uint32_t line,
                                             uint32_t lead, uint32_t step_pixels) {
  using T = typename M::Element;
  constexpr int kSize = int(sizeof(T)), kVector = 16 / kSize;
  uint32_t place[kLaneNumbers<T>];
  if constexpr (kSize == 4) {
    load_shared_8(places, place);
  } else {
    load_shared_16(places, place);
  }
#pragma unroll
  for (uint32_t& of : place) of = line + (of >> kLeadBits) + (of + lead & kVector - 1) * kSize;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint32_t pixel = (2 * i + w % 2) * step_pixels;
      if constexpr (kSize == 4) {
        a[i][w] = load_shared_4(place[w / 2] + pixel);
      } else {
        const uint32_t low = load_shared<unsigned short>(place[w / 2 * 2] + pixel);
        const uint32_t high = load_shared<unsigned short>(place[w / 2 * 2 + 1] + pixel);
        a[i][w] = __byte_perm(low, high, 0x5410);
      }
    }
}

// A line of dY, for all live rows that read it.
template <class M>
__device__ __forceinline__ void multiply_line(const InputParams& p, const Lane& at,
                                              const int8_t (&kernel_row)[kLiveRows],
                                              uint32_t places, uint32_t line, uint32_t lead,
                                              LiveSums& sum) {
  constexpr int kBytes = M::kSplit ? 16 : 8;  // of a lane's weights
  constexpr int kPlaceBytes = 4 * kLaneNumbers<typename M::Element>;
  int way[kLiveRows];  // to a row's weights
#pragma unroll
  for (int e = 0; e < kLiveRows; ++e)
    way[e] = kernel_row[e] < 0 ? -1 : kernel_row[e] * p.slices * (32 * kBytes);
  uint32_t weights = at.weights;
  const auto multiply = [&](LiveSums& into) {
    uint32_t a[2][4];
    fetch_pixels<M>(a, places, line, lead, at.step_pixels);
    uint32_t low[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if constexpr (M::kSplit) {
          M::split(a[i][w], a[i][w], low[i][w]);
        } else {
          a[i][w] = M::round(a[i][w]);
        }
      }
#pragma unroll
    for (int e = 0; e < kLiveRows; ++e) {
      if (way[e] < 0) continue;
      uint32_t b[kBytes / 4];
      if constexpr (M::kSplit) {
        load_shared_16(weights + way[e], b);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          M::mma(into[e][i], low[i], b[0], b[1]);
          M::mma(into[e][i], a[i], b[2], b[3]);
          M::mma(into[e][i], a[i], b[0], b[1]);
        }
      } else {
        load_shared_8(weights + way[e], b);
#pragma unroll
        for (int i = 0; i < 2; ++i) M::mma(into[e][i], a[i], b[0], b[1]);
      }
    }
    places += 4 * kPlaceBytes;
    weights += 32 * kBytes;
  };
  if constexpr (M::kSplit) {
#pragma unroll 1
    for (int first = 0; first < p.slices; first += kStrictSlices) {
      LiveSums part = {};
      const int end = min(first + kStrictSlices, p.slices);
#pragma unroll 1
      for (int slice = first; slice < end; ++slice) multiply(part);
#pragma unroll
      for (int e = 0; e < kLiveRows; ++e)
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[e][i][j] += part[e][i][j];
    }
  } else {
#pragma unroll 2
    for (int slice = 0; slice < p.slices; ++slice) multiply(sum);
  }
}

// The eldest row, which is whole.
template <class M>
__device__ __forceinline__ void store_row(const InputParams& p, const Lane& at, int n, int group,
                                          int h, int first_w, float (&sum)[2][4]) {
  using T = typename M::Element;
  float all = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) all += sum[i / 4][i % 4];
  if (all != all) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& value = sum[i / 4][i % 4];
      const int channel = at.input + threadIdx.x % 4 * 2 + i % 2;
      const int w = first_w + at.pixel + i / 2 * kPixelStep<T>;
      if (value != value && channel < p.rows && w < p.x_w)
        value = output_with_care<M>(p, n, group, channel, h, w);
    }
  }
  const int lane = threadIdx.x % 32, plane = p.x_h * p.x_w;
  T* const x = static_cast<T*>(p.x) + ((n * p.groups + group) * p.rows + at.input) * plane +
               h * p.x_w + first_w;
  if constexpr (sizeof(T) == 2) {
    uint32_t word[4];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word[i] = turn_tile(pack<T>(sum[i / 2][i % 2 * 2], sum[i / 2][i % 2 * 2 + 1]));
    const int channel = lane / 4, pixel = at.pixel - lane_pixel<T>(lane / 4) + lane % 4 * 8;
    if (at.input + channel >= p.rows) return;
    T* const to = x + channel * plane + pixel;
    const int left = p.x_w - first_w - pixel;
    if (p.whole) {
      if (left > 0) store_words(to, word[0], word[1], word[2], word[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (i < left)
          reinterpret_cast<unsigned short*>(to)[i] =
              static_cast<unsigned short>(word[i / 2] >> i % 2 * 16);
    }
  } else {
    const int left = p.x_w - first_w - at.pixel;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int channel = lane % 4 * 2 + c;
      if (at.input + channel >= p.rows) continue;
      T* const to = x + channel * plane + at.pixel;
      const float value[4] = {sum[0][c], sum[0][2 + c], sum[1][c], sum[1][2 + c]};
      if (p.whole) {
        if (left > 0)
          store_words(to, __float_as_uint(value[0]), __float_as_uint(value[1]),
                      __float_as_uint(value[2]), __float_as_uint(value[3]));
      } else {
#pragma unroll
        for (int i = 0; i < kLanePixels; ++i)
          if (i < left) to[i] = value[i];
      }
    }
  }
}

// Where a step is: image, strip, row of x that is the first to read its lines, and of the segment.
struct InputStep {
  int segment, n, tile, h, of_segment;
  __device__ __forceinline__ InputStep(const InputParams& p, int first_segment) {
    begin(p, first_segment);
  }
  __device__ __forceinline__ void begin(const InputParams& p, int at) {
    segment = at;
    of_segment = 0;
    const int strip = p.by_cuts.quotient(at);
    h = (at - strip * static_cast<int>(p.by_cuts.divisor)) * p.segment_rows;
    n = p.by_tiles.quotient(strip);
    tile = strip - n * static_cast<int>(p.by_tiles.divisor);
  }
  __device__ __forceinline__ void next(const InputParams& p) {
    ++h;
    if (++of_segment == p.segment_rows + p.step.live - 1) begin(p, segment + 1);
  }
};

template <class M>
__global__ void __launch_bounds__(kInputThreads, kInputBlocks)
    convt2d_heddle_grad_input_kernel(const __grid_constant__ InputParams p) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  using T = typename M::Element;
  constexpr int kSize = int(sizeof(T));
  extern __shared__ __align__(128) unsigned char smem[];
  const uint32_t stages = shared_address(smem);
  Digits number{int(blockIdx.x)};
  const int in_block = number.next(p.in_blocks);
  const int group = number.next(p.group_blocks) * p.group_warps, piece = number.rest;
  const int input = in_block * p.input_warps * 8;
  const int begin = static_cast<int>(int64_t{p.segments} * piece / p.pieces);
  const int end = static_cast<int>(int64_t{p.segments} * (piece + 1) / p.pieces);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int pixel_warp = warp % p.pixel_warps, channel_warp = warp / p.pixel_warps;
  Lane at;
  at.group = channel_warp / p.input_warps;
  at.input = input + (channel_warp - at.group * p.input_warps) * 8;
  at.pixel = pixel_warp * kWarpPixels + lane_pixel<T>(g);
  at.weights = stages + p.weights_at +
               (channel_warp * p.kernel_h * p.slices * 32 + lane) * (M::kSplit ? 16 : 8);
  at.step_pixels = kPixelStep<T> * p.stride_w * kSize;
  at.line = at.group * p.columns * p.y_pitch + at.pixel * p.stride_w * kSize;
  const bool works = at.group < p.group_warps;
  const uint32_t places = stages + p.places_at + t * (4 * kLaneNumbers<T>);
  bring_weights<M>(p, group, input, stages + p.weights_at);
  bring_places<T>(p, stages + p.places_at);
  const int stage_bytes = p.step.lines * p.line_bytes;
  const int steps = (end - begin) * (p.segment_rows + p.step.live - 1);
  LiveSums sum = {};
  InputStep ahead(p, begin), here = ahead;
  int stage = 0, stage_ahead = 0;
#pragma unroll 1
  for (int step = 1 - p.stages; step < steps; ++step) {
    if (step >= 0) {
      copy_async_wait(p.stages - 2);
      __syncthreads();  // all have what they asked for, and have multiplied the step before
    }
    if (step + p.stages - 1 < steps) {
      bring_step<T>(p, (ahead.n * p.groups + group) * p.columns, ahead.h * p.stride_h - p.pad_h,
                    ahead.tile * p.width * p.stride_w - p.pad_w,
                    stages + stage_ahead * stage_bytes);
      stage_ahead = stage_ahead + 1 == p.stages ? 0 : stage_ahead + 1;
      ahead.next(p);
    }
    copy_async_commit();
    if (step < 0) continue;
    if (works) {
      if (here.of_segment == 0) {
#pragma unroll
        for (int e = 0; e < kLiveRows; ++e)
#pragma unroll
          for (int i = 0; i < 8; ++i) sum[e][i / 4][i % 4] = 0;
      }
      const int first_w = here.tile * p.width;
      const int first = (here.n * p.groups + group + at.group) * p.columns * p.y_plane +
                        first_w * p.stride_w - p.pad_w + (here.h * p.stride_h - p.pad_h) * p.y_w;
#pragma unroll 1
      for (int line = 0; line < p.step.lines; ++line)
        multiply_line<M>(p, at, p.step.kernel_row[line], places,
                         stages + stage * stage_bytes + line * p.line_bytes + at.line,
                         first + p.step.line_row[line] * p.y_w, sum);
      const int h = here.h - p.step.live + 1;
      if (here.of_segment >= p.step.live - 1 && h < p.x_h)
        store_row<M>(p, at, here.n, group + at.group, h, first_w, sum[0]);
#pragma unroll
      for (int e = 0; e < kLiveRows; ++e)
#pragma unroll
        for (int i = 0; i < 8; ++i)
          sum[e][i / 4][i % 4] = e + 1 < kLiveRows ? sum[e + 1][i / 4][i % 4] : 0;
    }
    here.next(p);
    stage = stage + 1 == p.stages ? 0 : stage + 1;
  }
#endif
}

}  // namespace convt2d::cuda::heddle
