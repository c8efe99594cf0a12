// spool: 16-bit NCHW grad_weight, sm_90a, by way of copies in the workspace.
//
// Which pixels of dY a tap meets is a question of addresses where a pixel's channels lie together, and of fetching number by
// number where they do not (hopper_fetched_weight.h). So dY, and x, are turned once, to channels last, by a kernel that the
// memory bounds, and multiplied by hopper's kernel for such tensors (hopper_weight_config.h). That leaves its sums in the
// workspace too, as matrices of a tap, which a third kernel adds up, rounds and turns to NCHW's dW, whose taps lie together.
//
//   workspace   x  [image][pixel][pitch]    channels in whole 16 bytes; what is beside them is never read
//               dY [image][pixel][pitch]
//               dW [piece][tap][ci][co]     fp32, or, in one piece of one slice, rounded
//
// Where all that is more than the workspace may be, the batch is taken in slices of images, one after the other through the
// same copies, which stay in L2: the first two kernels once for each, of which a later one adds to the sums there are.
//
// All kernels but the very first start while the one before them ends. What turns a later slice reads it meanwhile, and
// writes when its copies are no longer read.
#pragma once

#include <cstdint>

#include "core/types.h"
#include "cuda/device/index.cuh"

namespace convt2d::cuda::spool {

// Turning: a block has so many lines, each a channel's run of pixels, which may start anywhere among 16 bytes. From one to
// the next it is an odd number of words, so that lanes meet no bank twice.
constexpr int kTurnThreads = 256;
constexpr int kOctet = 8;  // numbers of 16 bytes
constexpr int kTurnChannels = 64, kTurnOctets = 16, kTurnPixels = kTurnOctets * kOctet;
constexpr int kLineWords = kTurnPixels / 2 + 1;
constexpr int kTurnBytes = kTurnChannels * kLineWords * 4;

// A tensor to be turned.
struct Turned {
  const void* from;
  void* to;
  int32_t channels, pixels, pitch;  // of an image
  int32_t channel_blocks, pixel_blocks;
  int32_t
      block_pixels;  // of a block, whole octets: with what is before its start, at most kTurnPixels
  int64_t first;     // element of the slice
  int64_t elements;  // of all images, whatever the slice
};
struct TurnParams {
  Turned tensor[2];
  int32_t first_blocks;  // of the first tensor
};

// Sums: a block has some neighbours of all taps' matrices, four a thread.
constexpr int kSumThreads = 256;
constexpr int kSumSlots = 16;  // taps, times parts of the pieces, at once, at most
constexpr int kMostTaps = 128;
// A single piece: bytes of a tap's numbers in shared memory, whole 16 and no multiple of 128.
constexpr int kReturnElements = 128, kReturnPitch = 2 * kReturnElements + 16;

struct SumParams {
  const void* pieces;
  void* weight;
  int32_t elements;  // of a tap's matrix, a multiple of four
  int32_t block_elements;
  int32_t taps, count;
  int32_t piece_quads;
  int32_t parts;  // a power of two
  FastDivide by_taps;
};
// Odd, so that neither side meets a bank often.
CONVT2D_HOST_DEVICE int sum_pitch(const SumParams& p) { return p.block_elements + 1; }
CONVT2D_HOST_DEVICE int sum_bytes(const SumParams& p) {
  return p.taps * p.parts * sum_pitch(p) * 4;
}
CONVT2D_HOST_DEVICE int return_bytes(const SumParams& p) { return p.taps * kReturnPitch; }

}  // namespace convt2d::cuda::spool
