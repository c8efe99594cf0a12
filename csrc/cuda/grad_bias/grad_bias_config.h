// How the sums of a bias gradient are shared out. It follows from the shape, the layout and the strides alone, so that the same
// numbers are added in the same order whoever adds them.
//
// dY that is dense is *words* of 16 bytes, from its first number on.
//
//   planes   NCHW: a team of lanes adds up one channel's planes, word by word; what a word has of other planes is left out.
//            A block has as many channels as teams.
//   columns  NHWC, or planes of one pixel: after so many words channels come round again, so a thread that steps by a multiple
//            of them has a sum for each number of a word.
//   numbers  anything with strides, and channels too many and too odd for columns: number by number.
//
// In each a block has one of `pieces` of the reduction; more than one are added up by a second launch.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "core/problem.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::grad_bias {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;    // words of a thread under way
constexpr int kTogether = 4;  // blocks of a multiprocessor

enum class Way : int32_t { planes, columns, numbers };

struct Tiling {
  Way way;
  int32_t lanes;  // that share a channel's positions; columns: threads that have words
  int32_t words;  // of a plane, at most; columns: of a step, after which channels come round

  int32_t tiles;          // blocks' worth of channels
  int32_t channels;       // of a block
  int64_t positions;      // planes: words of a channel; columns: steps; numbers: pixels
  int64_t pieces, piece;  // how many, and positions of one
};

Tiling tiling_of(const Problem& problem);

struct Params {
  Tiling t;
  const void* y;
  void* bias;      // written where there is one piece
  void* partials;  // else [piece][channel], in accumulator precision
  int64_t total;   // numbers of dY
  int64_t image;   // numbers from one image to the next
  int64_t stride_n, stride_c, stride_h, stride_w;
  int32_t plane;  // pixels
  int32_t all_channels;
  int32_t copies;   // columns: numbers of a block that are one channel's,
  int32_t helpers;  // and threads that add them up, a power of two
  FastDivide divide_tiles, divide_words, divide_h, divide_w;
};

Params params_of(const Problem& problem, const Args& args);

// Dynamic shared memory.
int shared_bytes(const Problem& problem, const Tiling& tiling);

}  // namespace convt2d::cuda::grad_bias
