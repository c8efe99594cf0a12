// scroll where tensors are planes (NCHW): what one block computes beyond scroll_config.h, and the numbers it is told.
//
// The tensor core wants channels of a pixel side by side, and memory has pixels of a channel. So rows of x come as they lie,
// and warps turn them in shared memory:
//
//   raw        a ring for each warp that turns, its part of the channels: [channel][pixel], by cp.async, zeros beside the image;
//              from a multiple of 32 bytes on there, since that takes half the time
//   x          rings of chunks of channels: [pixel][64 or 128 B], swizzled
//   staging    two pieces of a row of y for each warpgroup: [16 channels][outputs of 64 positions]
//
// Rows of one height of all images lie on a tape, one after the other, each `tape` positions long: whole eights, and as many
// more than the image as keep it from its neighbours. A strip is 64 positions of the tape, so that no more than the last
// eight of an image is lost. A line of a strip is but 128 or 256 bytes of x, too few for memory by themselves, so that
// warpgroups beside each other go down strips beside each other at the same time: strips are cut into `tasks` of equal
// length, and these dealt out in turns. A position is an output of each phase of the columns: a warpgroup has the sums of all of them, and
// stores them as they lie in memory. Warpgroups with different channels may share a ring, whose rows are then turned once for
// all of them.
//
// Of words a tensor core takes pixels out of registers too, and threads may fetch them from rows as they lie, whatever the
// kernel column: then nothing is turned, and rings hold raw rows. Each kernel column fetches, so of seven turned rows are faster.
#pragma once

#include "cuda/scroll/scroll_config.h"

namespace convt2d::cuda::scroll {

constexpr int kZeroAt = kHeader, kPlanesHeader = kHeader + 16;
constexpr int kPieceChannels = 16;  // of a row of y in staging
constexpr int kMostRawStages = 3, kMostSets = 3;
// What a tile has kernels for, and how rows come to those.
CONVT2D_HOST_DEVICE constexpr bool has_planes(Tile tile, int bytes) {
  return tile.phases > 0 && tile.words != (bytes == 4 ? kHalvesAlone : kFetchedAlone);
}
CONVT2D_HOST_DEVICE constexpr bool are_fetched(Tile tile, int bytes) {
  return bytes == 4 && (tile.words == kFetchedWords || tile.words == kFetchedAlone);
}
// Sums of a thread.
CONVT2D_HOST_DEVICE constexpr int sums_of(Tile tile) { return tile.phases * columns_of(tile) / 2; }
// Warpgroups that multiply, at most: where words are fetched, as registers allow. Words take twice as long to turn.
CONVT2D_HOST_DEVICE constexpr int plane_groups(Tile tile, int bytes) {
  if (are_fetched(tile, bytes)) return sums_of(tile) <= 56 ? 4 : 2;
  return bytes == 4 && tile.groups == 3 ? 2 : tile.groups;
}
// Whether a warp may turn all of a chunk's channels at once.
CONVT2D_HOST_DEVICE constexpr bool may_be_whole(Tile tile, int bytes) {
  return are_fetched(tile, bytes) || (bytes == 2 && tile.groups > 2);
}
// Parts of a chunk's channels that are turned one by one, each by a warp of its own or one after the other.
CONVT2D_HOST_DEVICE constexpr int pieces_of(Tile tile, int bytes, int turners) {
  return may_be_whole(tile, bytes) && turners == 1 ? 1 : 2;
}
// Warps that turn, or bring what is fetched, at most.
CONVT2D_HOST_DEVICE constexpr int most_turners(Tile tile, int bytes) {
  const int groups = plane_groups(tile, bytes);
  return groups == 2 && !are_fetched(tile, bytes) ? 4 : groups;
}
// Four warpgroups and a whole one that turns start with 96 registers a thread, and trade some of them.
constexpr int kLendersRegisters = 64, kBorrowersRegisters = 104;
CONVT2D_HOST_DEVICE constexpr bool lends(Tile tile, int bytes) {
  return plane_groups(tile, bytes) == 4;
}
CONVT2D_HOST_DEVICE constexpr int most_threads(Tile tile, int bytes) {
  return 128 * plane_groups(tile, bytes) + 32 * most_turners(tile, bytes);
}
// Outputs of a channel in staging: the distance keeps stores apart.
CONVT2D_HOST_DEVICE constexpr int piece_pitch(int phases, int bytes) {
  return kPositions * phases * bytes + 16;
}
CONVT2D_HOST_DEVICE constexpr int staging_bytes(int phases, int bytes) {
  return 2 * kPieceChannels * piece_pitch(phases, bytes);
}

struct PlaneParams : Params {
  int32_t fetched;             // are_fetched()
  int32_t rings;               // strips at a time,
  int32_t sharers, turners;    // warpgroups of each, and warps that turn for it
  int32_t pieces;              // of a chunk's channels
  int32_t turning_warps;       // of a block, some of which may have nothing to do
  int32_t tape, positions;     // of a row of an image: on the tape, and real ones
  int32_t low;                 // the first pixel that position 0 reads
  int32_t lead;                // pixels before it, so that copies are whole,
  int32_t early;               // and before these, so that lines begin with 32 bytes
  int32_t copy_bytes, copies;  // of a copy; copies of a channel's line
  // Sets of copies: the first one, how many, of how many channels a warp asks at once, and how often it does.
  int32_t sets, set_first[kMostSets], set_copies[kMostSets], set_channels[kMostSets],
      set_turns[kMostSets];
  int32_t raw_pixels, raw_pitch;  // that are turned, whole eights; bytes to the next channel
  int32_t raw_at, raw_stages, raw_bytes;
  int32_t staging_at;
  int32_t phase_bytes, share_bytes;  // weights of the first phase of columns; all of a warpgroup's
  int32_t whole_words;               // rows of y are whole words
  int32_t tasks, task_rows;          // pieces of strips; lines of one
  FastDivide by_tape;
};
// Channels of a piece.
inline int turned_channels(const PlaneParams& p) { return p.line / p.number_bytes / p.pieces; }
inline int threads_of(const PlaneParams& p) { return 128 * p.warpgroups + 32 * p.turning_warps; }

}  // namespace convt2d::cuda::scroll
