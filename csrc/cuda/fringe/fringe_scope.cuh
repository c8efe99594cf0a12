// What a block of fringe works on: its bands, and their tiles; and where what comes of dY is.
#pragma once

#include "cuda/device/digits.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/fringe/fringe_config.h"

namespace convt2d::cuda::fringe {

struct Scope {
  int group, row;         // the first input channel, in the group
  int piece, begin, end;  // bands of all images
};
__device__ __forceinline__ Scope scope_of(const Params& p) {
  Digits number{int(blockIdx.x)};
  Scope at;
  at.row = number.next(p.row_blocks) * p.row_groups * kRows;
  at.group = number.next(p.groups);
  at.piece = number.rest;
  const int64_t bands = int64_t{p.batch} * p.bands;
  at.begin = static_cast<int>(bands * at.piece / p.split);
  at.end = static_cast<int>(bands * (at.piece + 1) / p.split);
  return at;
}

// Pixels of a tile.
template <class T>
constexpr int kTilePixels = kRow / int(sizeof(T));

// A band: where it is, and its tiles. A strip's are those of a row, row by row.
struct Band {
  int image, row, column, rows, row_tiles, tiles;
  template <class T>
  static __device__ __forceinline__ Band of(const Params& p, int band) {
    constexpr int kPixels = kTilePixels<T>;
    Band found;
    found.image = p.by_bands.quotient(band);
    const int in_image = band - found.image * p.bands;
    const int h = p.by_bands_w.quotient(in_image), w = in_image - h * p.bands_w;
    found.row = h * p.band_rows;
    found.rows = min(p.band_rows, p.x_h - found.row);
    found.column = w * p.band_tiles * kPixels;
    if (p.flat) {
      found.row_tiles = 0;
      found.tiles = (found.rows * p.x_w + kPixels - 1) / kPixels;
    } else {
      found.row_tiles = min(p.band_tiles, (p.x_w - found.column + kPixels - 1) / kPixels);
      found.tiles = found.rows * found.row_tiles;
    }
    return found;
  }
};

// A band's tile: its place in the list of pixels, and on the map of x.
struct TileWalk {
  int listed = 0, row = 0, column = 0;
  __device__ __forceinline__ void advance(const Params& p, const Band& band) {
    ++listed;
    if (p.flat) return;
    if (++column == band.row_tiles) {
      column = 0;
      listed = ++row * p.band_tiles;
    }
  }
};

// A tile's pixels that the band has.
template <class T>
__device__ __forceinline__ int pixels_of(const Params& p, const Band& band, int tile) {
  return p.flat ? min(kTilePixels<T>, band.rows * p.x_w - tile * kTilePixels<T>) : kTilePixels<T>;
}

// Steps of a tile that are multiplied.
template <class T>
__device__ __forceinline__ int steps_of(const Params& p, const Band& band, int tile) {
  return (pixels_of<T>(p, band, tile) * int(sizeof(T)) + kStep - 1) / kStep;
}

// Both sides of what comes of dY, a band at a time.
__device__ __forceinline__ uint32_t raw_barrier(const StageRing& ring, int index) {
  return ring.barriers + kRawBarriersAt + index * 16;
}
__device__ __forceinline__ uint32_t raw_at(const Params& p, const StageRing& ring, int index) {
  return ring.stages + p.stages * p.stage_bytes + index * p.raw_room;
}

}  // namespace convt2d::cuda::fringe
