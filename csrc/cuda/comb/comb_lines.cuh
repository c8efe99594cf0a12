// The kernel of comb_lines.h.
#pragma once

#include "cuda/comb/comb_kernel.cuh"
#include "cuda/comb/comb_lines.h"
#include "cuda/device/barrier.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/gather_device.cuh"

namespace convt2d::cuda::comb {

// What a block works on: a tile of dW.
struct LineScope {
  Scope whole;
  int line;  // the first of the group's
};
__device__ __forceinline__ LineScope line_scope_of(const LineParams& p, int rows) {
  LineScope at;
  Digits number{int(blockIdx.x)};
  at.whole.row = number.next(p.whole.row_blocks) * rows;
  const int block = number.next(p.whole.column_blocks);
  at.whole.column = block * p.columns;
  at.whole.group = number.rest;
  at.whole.piece = at.whole.begin = 0;
  at.whole.end = p.whole.chunks;
  at.line = block * p.lines;
  return at;
}

// A word of a chunk's pixels in the order of K.
struct Word {
  int row, column;
  bool exists;
  template <class T>
  static __device__ __forceinline__ Word of(const LineParams& p, int word) {
    constexpr int kPixels = 4 / int(sizeof(T));
    const int major = p.by_words.quotient(word),
              minor = word - major * static_cast<int>(p.by_words.divisor);
    const int row = p.across ? minor : major, in_row = p.across ? major : minor;
    return {row, in_row * kPixels, row < p.chunk_rows && in_row < p.row_words};
  }
};

// Where the pixels of words meet dY, from a quad's first tap on: bytes, of 16-bit numbers eighths of the two pixels'. What
// does not exist is zero in x: any pixel will do.
template <class T>
__device__ __forceinline__ void list_words(const LineParams& p, uint32_t table) {
  constexpr int kSize = sizeof(T);
  for (int i = threadIdx.x; i < p.steps * kStepWords; i += kThreads) {
    const Word word = Word::of<T>(p, i);
    uint32_t where = p.first_tap, next = 0;
    if (word.exists) {
      where += word.row * p.row_pitch + word.column * p.pixel_step;
      if (word.column + 1 < p.whole.by_width.divisor) next = p.pixel_step;
    }
    store_shared_4(table + i * 4, kSize == 4 ? where : where / 8 | (where + next) / 8 << 16);
  }
}

// dY of a chunk, a line of a row of pixels, or its run of one of them, by each of some threads. Of rows and lines that do not
// exist, the last ones that do: x is zero there, or nobody wants the sums.
template <class T>
__device__ __forceinline__ void bring_lines(const LineParams& p, const LineScope& at, int first,
                                            uint32_t stage, uint32_t barrier) {
  const int all = p.chunk_rows * p.lines * p.runs;
  if (threadIdx.x == 0) barrier_expect(barrier, all * p.line_bytes);
  for (int i = threadIdx.x; i < all; i += kThreads) {
    const int both = p.by_runs.quotient(i), run = i - both * p.runs;
    const int row = p.by_lines.quotient(both), place = both - row * p.lines;
    const int number = min(first + row, p.pixel_rows - 1), image = p.by_height.quotient(number);
    const int h = number - image * static_cast<int>(p.by_height.divisor);
    const int line = min(at.line + place, p.all_lines - 1);
    const int kernel_row = p.by_segments.quotient(line),
              segment = line - kernel_row * static_cast<int>(p.by_segments.divisor);
    const int channel = p.by_kernel_h.quotient(kernel_row),
              tap = kernel_row - channel * p.whole.kernel_h;
    const int column =
        p.apart ? run * p.whole.stride_w - p.whole.pad_w + segment * p.line_columns : 0;
    const int y_row = h * p.whole.stride_h - p.whole.pad_h + tap * p.whole.dilation_h;
    copy_run(stage + row * p.row_pitch + run * p.pixel_step + place * p.line_pitch + p.left,
             static_cast<const T*>(p.whole.y) + int64_t{image} * p.whole.y_image +
                 int64_t{at.whole.group * p.channels + channel} * p.whole.y_plane +
                 y_row * p.whole.y_w + column,
             p.line_bytes, barrier);
  }
}

// Zeros beside lines: nothing else is written there.
__device__ __forceinline__ void clear_beside(const LineParams& p, uint32_t stages) {
  for (int i = threadIdx.x; i < p.stages * p.chunk_rows * p.lines; i += kThreads) {
    const int row = p.by_lines.quotient(i), line = i - row * p.lines, stage = row / p.chunk_rows;
    const uint32_t to = stages + stage * p.stage_bytes +
                        (row - stage * p.chunk_rows) * p.row_pitch + line * p.line_pitch;
    for (int at = 0; at < p.left; at += 16) store_shared_16(to + at, {0, 0, 0, 0});
    for (int at = p.left + p.line_bytes; at < p.line_room; at += 16)
      store_shared_16(to + at, {0, 0, 0, 0});
  }
}

// A row of pixels: of the block's first channel, its first number in x.
__device__ __forceinline__ int first_of_row(const LineParams& p, const LineScope& at, int number) {
  const int height = p.by_height.divisor, image = p.by_height.quotient(number);
  return (image * p.whole.groups + at.whole.group) * p.whole.rows * p.whole.x_plane +
         at.whole.row * p.whole.x_plane +
         (number - image * height) * static_cast<int>(p.whole.by_width.divisor);
}

// x of a chunk in the order of K, BYTES at once.
template <class T, int BYTES>
__device__ __forceinline__ void bring_words(const LineParams& p, const LineScope& at, int channels,
                                            int first, uint32_t laid) {
  const int warp = threadIdx.x / 32;
  for (int i = threadIdx.x % 32; i < p.steps * kStepBytes / BYTES; i += 32) {
    const Word word = Word::of<T>(p, i * BYTES / 4);
    const bool there = word.exists && first + word.row < p.pixel_rows;
    const T* const x = static_cast<const T*>(p.whole.x);
    const T* from = x;
    if (there)
      from += int64_t{first_of_row(p, at, first + word.row)} + warp * p.whole.x_plane + word.column;
    const int apart = there ? kWarps * p.whole.x_plane : 0;
    for (int channel = warp; channel < channels; channel += kWarps, from += apart)
      copy_async<BYTES>(laid + channel * p.laid_pitch + i * BYTES, from, there);
  }
}

// The same of 16 bits where channels are neighbours, as those of a warp's lanes are: by way of registers.
template <class T>
__device__ __forceinline__ void bring_channels(const LineParams& p, const LineScope& at,
                                               int channels, int first, uint32_t laid) {
  constexpr int kTogether = 4;  // words under way
  const int words = p.steps * kStepWords, width = p.whole.by_width.divisor;
  for (int channel = threadIdx.x % 32; channel < channels; channel += 32) {
    const T* const x = static_cast<const T*>(p.whole.x) + at.whole.row + channel;
    const uint32_t to = laid + channel * p.laid_pitch;
#pragma unroll 1
    for (int i = threadIdx.x / 32; i < words; i += kWarps * kTogether) {
      uint32_t bits[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const Word word = Word::of<T>(p, i + j * kWarps);
        const int row = first + word.row;
        const bool there = word.exists && row < p.pixel_rows && i + j * kWarps < words;
        const T* const from =
            x + (there ? (int64_t{row} * width + word.column) * p.whole.x_pixel : 0);
        const auto* const numbers = reinterpret_cast<const unsigned short*>(from);
        bits[j] = there ? __ldg(numbers) : 0u;
        if (there && word.column + 1 < width)
          bits[j] |= uint32_t{__ldg(numbers + p.whole.x_pixel)} << 16;
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j)
        if (i + j * kWarps < words) store_shared_4(to + (i + j * kWarps) * 4, bits[j]);
    }
  }
}

// x of a chunk rounded where it lies.
template <class M>
__device__ __forceinline__ void round_words(const LineParams& p, int channels, uint32_t laid) {
  const int warp = threadIdx.x / 32;
  for (int channel = warp; channel < channels; channel += kWarps)
    for (int i = threadIdx.x % 32; i < p.steps * kStepBytes / 16; i += 32) {
      uint32_t word[4];
      load_shared_16(laid + channel * p.laid_pitch + i * 16, word);
#pragma unroll
      for (int w = 0; w < 4; ++w) word[w] = M::round(word[w]);
      store_shared_16(laid + channel * p.laid_pitch + i * 16, word);
    }
}

// Columns of a step: of each of four taps, as an instruction has them.
template <class M>
__device__ __forceinline__ void fetch_quad(uint32_t (&columns)[kTogether][2],
                                           const uint32_t (&where)[2], uint32_t quad, bool turned) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if constexpr (M::kRow == 16) {
      const uint32_t low = (where[half] & 0xffff) * 8, high = (where[half] >> 16) * 8;
      uint32_t a[2], b[2];
      load_shared_8(quad + (turned ? high : low), a);
      load_shared_8(quad + (turned ? low : high), b);
      const uint32_t even = turned ? 0x1054 : 0x5410, odd = turned ? 0x3276 : 0x7632;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        columns[i * 2][half] = __byte_perm(a[i], b[i], even);
        columns[i * 2 + 1][half] = __byte_perm(a[i], b[i], odd);
      }
    } else {
      uint32_t taps[4];
      load_shared_16(quad + where[half], taps);
#pragma unroll
      for (int i = 0; i < 4; ++i) columns[i][half] = M::round(taps[i]);
    }
  }
}

// Of a thread: [16 channels][tap of a quad][channel g or g + 8, quad 2 t or the next].
template <int TILE>
using LineSums = float[line_sixteens(TILE)][kTogether][4];

// Adds the products of COUNT steps. `x`: of the first.
template <class M, int TILE, int COUNT>
__device__ __forceinline__ void add_steps(LineSums<TILE>& sum, uint32_t x, int pitch,
                                          const uint32_t (&columns)[COUNT][kTogether][2],
                                          int count) {
#pragma unroll
  for (int s = 0; s < COUNT; ++s) {
    if (s > 0 && s >= count) break;
    uint32_t low[kTogether][2], high[kTogether][2];
#pragma unroll
    for (int j = 0; j < kTogether; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        high[j][half] = columns[s][j][half];
        if constexpr (M::kSplit) M::split(high[j][half], high[j][half], low[j][half]);
      }
#pragma unroll
    for (int i = 0; i < line_sixteens(TILE); ++i) {
      uint32_t rows[4], rest[4];
      ldmatrix_x4(rows, x + i * 16 * pitch + s * kStepBytes);
      if constexpr (M::kSplit)
#pragma unroll
        for (int w = 0; w < 4; ++w) M::split(rows[w], rows[w], rest[w]);
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        if constexpr (M::kSplit) {
          M::mma(sum[i][j], rest, high[j][0], high[j][1]);
          M::mma(sum[i][j], rows, low[j][0], low[j][1]);
        }
        M::mma(sum[i][j], rows, high[j][0], high[j][1]);
      }
    }
  }
}

// A chunk.
template <class M, int TILE>
__device__ __forceinline__ void multiply_lines(const LineParams& p, LineSums<TILE>& sum,
                                               uint32_t table, uint32_t laid, uint32_t quad) {
  const int lane = threadIdx.x % 32;
  const bool turned = p.turned && lane & 8;
  const uint32_t x = laid + lane % 16 * p.laid_pitch + lane / 16 * 16;
  // Strict sums are folded every so many steps.
  constexpr int kBatch = M::kSplit ? 4 : kStepsAtOnce;
#pragma unroll 1
  for (int batch = 0; batch < p.steps; batch += kBatch) {
    LineSums<TILE> of_batch;
    if constexpr (M::kSplit)
#pragma unroll
      for (auto& tile : of_batch)
#pragma unroll
        for (auto& four : tile)
#pragma unroll
          for (float& value : four) value = 0;
#pragma unroll
    for (int s = 0; s < kBatch; s += kStepsAtOnce) {
      const int step = batch + s;
      if (s > 0 && step >= p.steps) break;
      // All places first: what is loaded is waited for once.
      uint32_t where[kStepsAtOnce][2], columns[kStepsAtOnce][kTogether][2];
#pragma unroll
      for (int i = 0; i < kStepsAtOnce; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          where[i][half] = load_shared_4(table + min(step + i, p.steps - 1) * kStepBytes +
                                         half * 16 + lane % 4 * 4);
#pragma unroll
      for (int i = 0; i < kStepsAtOnce; ++i) fetch_quad<M>(columns[i], where[i], quad, turned);
      if constexpr (M::kSplit) {
        add_steps<M, TILE>(of_batch, x + step * kStepBytes, p.laid_pitch, columns, p.steps - step);
      } else {
        add_steps<M, TILE>(sum, x + step * kStepBytes, p.laid_pitch, columns, p.steps - step);
      }
    }
    if constexpr (M::kSplit)
#pragma unroll
      for (int i = 0; i < line_sixteens(TILE); ++i)
#pragma unroll
        for (int j = 0; j < kTogether; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[i][j][e] += of_batch[i][j][e];
  }
}

// Four neighbours of dW once more, those that came out NaN.
template <class M>
__device__ __noinline__ void mend_quad(const Params& p, int group, int row, int column,
                                       typename M::Element* number) {
  Scope at{};
  at.group = group;
  at.end = p.chunks;
#pragma unroll 1
  for (int e = 0; e < kTogether; ++e) {
    const float value = Numeric<typename M::Element>::widen(number[e]);
    if (value != value) store(number + e, sum_with_care<M>(p, at, row, column + e));
  }
}

template <class M, int TILE>
__device__ __forceinline__ void store_sums(const LineParams& p, const LineScope& at, int channels,
                                           const LineSums<TILE>& sum) {
  using T = typename M::Element;
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * kQuads + lane % 4 * 2;
  const int group = at.whole.group;
#pragma unroll
  for (int i = 0; i < line_sixteens(TILE); ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int in_block = i * 16 + e / 2 * 8 + lane / 4, quad = first + e % 2;
      const int row = at.whole.row + in_block, column = at.whole.column + quad * kTogether;
      if (in_block >= channels || quad >= p.quads || column >= p.whole.columns) continue;
      const float value[kTogether] = {sum[i][0][e], sum[i][1][e], sum[i][2][e], sum[i][3][e]};
      T* const to = static_cast<T*>(p.whole.weight) +
                    int64_t{group * p.whole.rows + row} * p.whole.columns + column;
      store_run(to, value);
      const float all = value[0] + value[1] + value[2] + value[3];
      if (all != all) mend_quad<M>(p.whole, group, row, column, to);
    }
}

template <class M, int TILE>
__global__ void __launch_bounds__(kThreads,
                                  line_blocks(sizeof(typename M::Element), M::kSplit, TILE))
    convt2d_comb_lines_kernel(const __grid_constant__ LineParams p) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  using T = typename M::Element;
  constexpr int kRows = line_sixteens(TILE) * 16;
  extern __shared__ __align__(16) unsigned char smem[];
  const uint32_t barriers = shared_address(smem), table = barriers + kLineTableAt;
  const uint32_t stages = barriers + p.stages_at;
  const LineScope at = line_scope_of(p, kRows);
  // Sums of channels that do not exist are of whatever is there, and nobody's.
  const int channels = min(kRows, p.whole.rows - at.whole.row);
  if (threadIdx.x < p.stages) barrier_init(barriers + threadIdx.x * 8, kThreads + 1);
  if (p.line_room > p.line_bytes) clear_beside(p, stages);
  list_words<T>(p, table);
  fence_for_wgmma();  // for the copy engine
  __syncthreads();
  // A quad beyond the last one computes what nobody reads.
  const int quad = min(static_cast<int>(threadIdx.x) / 4, p.quads - 1);
  const int line_quads = p.line_columns / kTogether, line = quad / line_quads;
  const uint32_t quad_at =
      line * p.line_pitch + (quad - line * line_quads) * kTogether * int(sizeof(T));
  LineSums<TILE> sum = {};
  int here = 0;  // a stage
  uint32_t parity = 1;
  // One loop, in which nothing is multiplied before all stages have been asked for: code that runs once comes from far.
  const int ahead = p.stages * p.chunk_rows;
#pragma unroll 1
  for (int first = -ahead; first < p.pixel_rows; first += p.chunk_rows) {
    const uint32_t stage = stages + here * p.stage_bytes, x = stage + p.x_at,
                   barrier = barriers + here * 8;
    if (first >= 0) {
      barrier_wait(barrier, parity);
      if constexpr (M::kRounds) {
        round_words<M>(p, channels, x);
        __syncthreads();
      }
      multiply_lines<M, TILE>(p, sum, table, x, stage + quad_at);
      __syncthreads();  // all have multiplied it
    }
    if (const int next = first + ahead; next < p.pixel_rows) {
      bring_lines<T>(p, at, next, stage, barrier);
      if (sizeof(T) == 2 && p.x_piece == 0) {
        bring_channels<T>(p, at, channels, next, x);
        barrier_arrive(barrier);
      } else {
        if (p.x_piece == 16) {
          bring_words<T, 16>(p, at, channels, next, x);
        } else {
          bring_words<T, 4>(p, at, channels, next, x);
        }
        copy_async_arrive(barrier);
      }
    }
    if (++here == p.stages) here = 0, parity ^= 1;
  }
  store_sums<M, TILE>(p, at, channels, sum);
#endif
}

}  // namespace convt2d::cuda::comb
