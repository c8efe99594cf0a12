// What narrow's tapes multiply: weights, laid out once, and pixels in registers.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/narrow/narrow_tape.h"

namespace convt2d::cuda::narrow {

// All weights. A thread has a column of a step, of which there are no more than threads, and every so many channels. What it asks for comes late if it asks behind the
// copy engine, so that is asked, `ask`, behind the first of them.
template <class T, int ROW, class Ask>
__device__ __forceinline__ void bring_tape_weights(const TapeParams& p, uint32_t shared,
                                                   Ask&& ask) {
  constexpr Tape tape = kTapes[ROW];
  constexpr int kColumns = tape_stored(tape), kAll = tape_steps(tape) * kColumns;
  constexpr int kSlice = slice_channels(sizeof(T)), kBatch = 16;
  const int beside = int(blockDim.x) / kAll, first = int(threadIdx.x) / kAll;
  const int mine = threadIdx.x - first * kAll, step = mine / kColumns,
            column = mine - step * kColumns, of_rows = column - tape_spare(tape),
            r = max(of_rows, 0) / tape.row, c = max(of_rows, 0) % tape.row;
  // Columns of a unit: (phase of rows, channel, phase), or as they lie in a pixel of y.
  const int row_columns = 2 * p.columns, phase_h = p.by_row_columns.quotient(c),
            inside = c - phase_h * row_columns;
  const int major = p.channels_last ? p.by_columns.quotient(inside) : inside / 2;
  const int minor = p.channels_last ? inside - major * p.columns : inside % 2;
  const int channel = p.channels_last ? minor : major, phase_w = p.channels_last ? major : minor;
  const int reach_h = r * p.stride_h + phase_h, kh = p.by_dilation_h.quotient(reach_h);
  const int reach_w = phase_w + p.pad_w - 2 * (step - tape.reach),
            kw = p.by_dilation_w.quotient(max(reach_w, 0));
  const bool there = first < beside && of_rows >= 0 && r < tape.span && phase_h < p.stride_h && reach_w >= 0 && kh < p.kernel_h &&
                     kw < p.kernel_w && kh * p.dilation_h == reach_h &&
                     kw * p.dilation_w == reach_w;
  const T* const from = static_cast<const T*>(p.weight) +
                        (there ? channel * p.weight_column + kh * p.weight_h + kw * p.weight_w : 0);
  const int left = there ? p.reduce : 0,
            channels = first < beside ? p.chunks * p.chunk_slices * kSlice : 0;
  const uint32_t to = shared + p.weights_at + mine * 16;
#pragma unroll 1
  for (int start = first; start < channels || start == first; start += beside * kBatch) {
    uint32_t number[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int ci = start + i * beside;
      number[i] = load_if<sizeof(T)>(from + ci * p.weight_reduce, ci, left);
    }
    if (start == first) ask();
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int ci = start + i * beside;
      if (ci >= channels) continue;
      if constexpr (sizeof(T) == 4) {
        // In NCHW a thread has two neighbouring channels, which the instruction wants in different halves.
        const int half = p.channels_last ? ci / 4 : ci / 8 * 2 + ci % 2,
                  inside = p.channels_last ? ci % 4 : ci / 2 % 4;
        store_shared_4(to + half * (kAll * 16) + inside * 4, MmaTF32::round(number[i]));
      } else {
        store_shared_2(to + ci / 8 * (kAll * 16) + ci % 8 * 2,
                       static_cast<unsigned short>(number[i]));
      }
    }
  }
}

// Operands of a slice, of 64 rows; which of them a step and a block of pixels have. NCHW: rows g and g + 8 are neighbours in a
// thread, so that two pixels on is as good as the next block.
template <int REACH, bool LAST>
constexpr int kTapeOperands = LAST ? 2 * (2 * REACH + 1) : 2 * REACH + 3;
template <bool LAST>
CONVT2D_HOST_DEVICE constexpr int tape_operand(int step, int block) {
  return LAST ? 2 * step + block : step + 2 * block;
}

// Where a lane of a team finds its pixels in a chunk.
template <class T, int REACH>
struct TapePlaces {
  static constexpr int kBefore = sizeof(T) == 2 ? 2 : REACH;  // pixels beside that are fetched
  // NCHW: of two neighbouring channels four pixels, those to the left and those to the right, and masks of the latter, where
  // they are of the same image. NHWC: what ldmatrix wants of each step and block of pixels; ~0: zeros.
  static constexpr int kOwn = 0, kLeft = 2, kRight = 4, kLeftThere = 6, kRightThere = 7;
  uint32_t at[REACH > 1 ? 2 * (2 * REACH + 1) : 8];
};

template <class T, int REACH>
__device__ __forceinline__ void find_tape(const TapeParams& p, TapePlaces<T, REACH>& place) {
  using Places = TapePlaces<T, REACH>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kTeamThreads / 32;
  const auto swizzled = [&](uint32_t at) { return at ^ (at >> 7 & (p.line / 16 - 1)) << 4; };
  if (p.channels_last) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int pixel = warp * 32 + b * 16 + lane % 16,
                inside = pixel - int(p.by_run.quotient(pixel)) * p.run;
#pragma unroll
      for (int s = 0; s <= 2 * REACH; ++s)
        place.at[tape_operand<true>(s, b)] = unsigned(inside + s - REACH) < unsigned(p.run)
                                ? swizzled((pixel + s - REACH) * p.line + lane / 16 * 16)
                                : ~0u;
    }
    return;
  }
  const int pixel = warp * 32 + lane / 4 * 4, image = p.by_run.quotient(pixel),
            first = pixel - image * p.run;
  const auto find = [&](int inside, int to) {
    const int box = inside >> p.line_bits;
#pragma unroll
    for (int odd = 0; odd < 2; ++odd)
      place.at[to + odd] = swizzled(
          ((box * p.images + image) * p.chunk_slices * slice_channels(sizeof(T)) + lane % 4 * 2 +
           odd) *
              p.line +
          (inside - (box << p.line_bits)) * int(sizeof(T)));
  };
  const bool left = first > 0, right = first + 4 < p.run;
  find(first, Places::kOwn);
  find(left ? first - Places::kBefore : first, Places::kLeft);
  find(right ? first + 4 : first, Places::kRight);
  place.at[Places::kLeftThere] = left ? ~0u : 0, place.at[Places::kRightThere] = right ? ~0u : 0;
}

template <class T, int REACH>
__device__ __forceinline__ void fetch_tape_laid(const TapeParams& p,
                                                const TapePlaces<T, REACH>& place, uint32_t x,
                                                uint32_t (&word)[2 * REACH + 3][4]) {
  // Pixels from kBefore before the lane's own ones, of both halves of K.
  using Places = TapePlaces<T, REACH>;
  constexpr int kBefore = Places::kBefore, kPixels = 4 + 2 * kBefore;
  const uint32_t left_there = place.at[Places::kLeftThere],
                 right_there = place.at[Places::kRightThere];
  uint32_t pixel[kPixels][2];
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int half = 0; half < 2; ++half, x += 8 * p.line) {
      uint32_t pair[2][4];  // of a channel: pairs of pixels
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        uint32_t own[2];
        load_shared_8(x + place.at[Places::kOwn + odd], own);
        pair[odd][0] = load_shared_4(x + place.at[Places::kLeft + odd]) & left_there;
        pair[odd][1] = own[0], pair[odd][2] = own[1];
        pair[odd][3] = load_shared_4(x + place.at[Places::kRight + odd]) & right_there;
      }
#pragma unroll
      for (int i = 0; i < kPixels; ++i)
        pixel[i][half] = __byte_perm(pair[0][i / 2], pair[1][i / 2], i % 2 ? 0x7632 : 0x5410);
    }
  } else {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      uint32_t own[4];
      load_shared_16(x + place.at[Places::kOwn + odd], own);
#pragma unroll
      for (int i = 0; i < 4; ++i) pixel[kBefore + i][odd] = own[i];
      if constexpr (kBefore == 2) {
        uint32_t two[2];
        load_shared_8(x + place.at[Places::kLeft + odd], two);
        pixel[0][odd] = two[0] & left_there, pixel[1][odd] = two[1] & left_there;
        load_shared_8(x + place.at[Places::kRight + odd], two);
        pixel[6][odd] = two[0] & right_there, pixel[7][odd] = two[1] & right_there;
      } else {
        pixel[0][odd] = load_shared_4(x + place.at[Places::kLeft + odd]) & left_there;
        pixel[5][odd] = load_shared_4(x + place.at[Places::kRight + odd]) & right_there;
      }
    }
  }
#pragma unroll
  for (int o = 0; o < 2 * REACH + 3; ++o)
#pragma unroll
    for (int i = 0; i < 4; ++i) word[o][i] = pixel[kBefore - REACH + o + i % 2][i / 2];
}

// Operands of a slice of the chunk at `x`.
template <class T, int REACH, bool LAST>
__device__ __forceinline__ void fetch_tape(const TapeParams& p, const TapePlaces<T, REACH>& place,
                                           uint32_t x, uint32_t zeros, int slice,
                                           uint32_t (&word)[kTapeOperands<REACH, LAST>][4]) {
  if constexpr (LAST) {
#pragma unroll
    for (int s = 0; s <= 2 * REACH; ++s)
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int o = tape_operand<true>(s, b);
        ldmatrix_x4(word[o], (place.at[o] == ~0u ? zeros : x + place.at[o]) ^ slice * kSliceBytes);
      }
  } else {
    fetch_tape_laid<T, REACH>(p, place, x + slice * slice_channels(sizeof(T)) * p.line, word);
  }
}

}  // namespace convt2d::cuda::narrow
