// spool: 16-bit NCHW grad_weight, sm_90a, by way of copies in the workspace.
//
// Which pixels of dY a tap meets is a question of addresses where a pixel's channels lie together, and of fetching number by
// number where they do not (hopper_fetched_weight.h). So dY, and x, are turned once, to channels last, and multiplied as
// hopper multiplies such tensors (hopper_weight_config.h). Its sums are matrices of a tap, which a last kernel turns to NCHW's
// dW, whose taps lie together: pieces from the workspace, added up and rounded, or a single piece in place.
//
//   workspace   x   [buffer][image][pixel][pitch]    channels in whole 16 bytes; what is beside them is never read
//               dY  [buffer][image][pixel][pitch]
//               dW  [piece][tap][ci][co]             fp32, of several pieces
//               counters
//   dW          [ci][tap][co]                        rounded, of one piece, before it is turned
//
// Where both copies fit the workspace, that may be three kernels, each of which starts while the one before it ends. Or the
// batch is taken in slices of images, of which two or three have room in a ring of buffers: the *reel*, one kernel that
// multiplies all of them, and whose other threads turn the next ones meanwhile (spool_reel.cuh).
#pragma once

#include <cuda.h>

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

// A tensor to be turned, `images` at a time.
struct Turned {
  const void* from;
  void* to;
  int32_t channels, pixels, pitch;  // of an image
  int32_t channel_blocks, pixel_blocks;
  int32_t block_pixels;  // whole octets: with what is before its start, as many as a line has
  int32_t images, batch;
  int64_t elements;  // of all images
};
struct TurnParams {
  Turned tensor[2];
  int32_t first_blocks;  // of the first tensor
};

// The reel: three warps of a block, which hopper's kernel has for x of few channels, turn slices whose planes are whole 16
// bytes, each for itself. The copy engine brings a tile, 64 channels of 64 pixels, the warp turns it where it is, and the copy
// engine takes it away.
constexpr int kReelThreads = 96;
constexpr int kReelSide = 64, kReelTileBytes = kReelSide * kReelSide * 2,
              kReelTiles = kReelThreads / 32 * 2;
constexpr int kReelBytes = kReelTiles * (kReelTileBytes + 8), kReelAlignment = 1024;

struct ReelParams {
  Turned tensor[2];
  FastDivide by_channels[2], by_pixels[2];  // tiles of an image
  int32_t first_units, units;               // tiles of a slice: of the first tensor, of both
  int32_t slices, buffers, blocks;
  int32_t last_tiles_n;     // K tiles along images, of the last slice
  int32_t tiles_at;         // in shared memory
  uint32_t *turned, *read;  // by slice: how many warps have turned it, how many blocks have read it
};
// Of the tensors, and of their copies.
struct ReelMaps {
  CUtensorMap from[2], to[2];
};

// Sums: a block has some neighbours of all taps' matrices, four a thread.
constexpr int kSumThreads = 256;
constexpr int kSumSlots = 16;  // taps, times parts of the pieces, at once, at most
constexpr int kMostTaps = 128;
// A single piece: a block has rows of dW, each an input channel's, as few as are so many numbers of a tap, which are whole
// 16 bytes in shared memory, and no multiple of 128.
constexpr int kReturnElements = 128, kMostReturnBytes = 100 << 10;

struct SumParams {
  const void* pieces;
  void* weight;
  int32_t elements;  // of a tap's matrix, a multiple of four
  int32_t block_elements;
  int32_t taps, count;
  int32_t piece_quads;
  int32_t parts;  // a power of two
  int32_t columns;
  FastDivide by_taps, by_octets;
};
// Odd, so that neither side meets a bank often.
CONVT2D_HOST_DEVICE int sum_pitch(const SumParams& p) { return p.block_elements + 1; }
CONVT2D_HOST_DEVICE int sum_bytes(const SumParams& p) {
  return p.taps * p.parts * sum_pitch(p) * 4;
}
CONVT2D_HOST_DEVICE int return_pitch(int block_elements) {
  const int bytes = block_elements * 2 + 16;
  return bytes % 128 == 0 ? bytes + 16 : bytes;
}
CONVT2D_HOST_DEVICE int return_bytes(const SumParams& p) {
  return p.taps * return_pitch(p.block_elements);
}

}  // namespace convt2d::cuda::spool
