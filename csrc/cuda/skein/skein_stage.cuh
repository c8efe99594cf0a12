// The bands of a block, and how they come to shared memory.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/skein/skein_config.h"

namespace convt2d::cuda::skein {

// An output channel, a piece of its dW, and the block's bands of that.
struct Scope {
  int channel, piece, begin, end;
};
__device__ __forceinline__ Scope scope_of(const Params& p) {
  const int channels = p.groups * p.columns, piece = blockIdx.x / channels;
  const int part = piece * p.ranks + blockIdx.y;
  const auto first = [&](int part) {
    return static_cast<int>(int64_t{part} * p.bands_of_all / (p.split * p.ranks));
  };
  return {static_cast<int>(blockIdx.x) - piece * channels, piece, first(part), first(part + 1)};
}

// Its first image, q and piece of a row.
struct Band {
  int n, q, v;
  __device__ __forceinline__ Band(const Params& p, int number) {
    const int row = p.by_strips.quotient(number);
    const int group = p.by_bands.quotient(row);
    n = group * p.images;
    q = (row - group * p.bands) * p.band;
    v = (number - row * p.strips) * p.pieces;
  }
};

// By one lane.
__device__ __forceinline__ void bring_bands(const Params& p, const Maps& maps, const Scope& at,
                                            StageRing& ring, uint32_t bytes) {
  for (int number = at.begin; number < at.end; ++number, ring.advance()) {
    const Band band(p, number);
    barrier_wait(ring.empty(), ring.parity ^ 1);
    barrier_expect(ring.full(), bytes);
    copy_box(ring.stage(), &maps.y, ring.full(), band.v * kPiece, band.q * p.stride_h - p.pad_h,
             at.channel, band.n);
    copy_box(ring.stage() + p.x_at, &maps.x, ring.full(),
             band.v * p.pixels + p.first_shift - p.lead, band.q - (p.back - 1),
             at.channel / p.columns, band.n);
  }
}

// Where each place of a stage is in dY, and in x, -1 where an instruction has more than there are.
template <class T>
__device__ __forceinline__ void fill_tables(const Params& p, uint32_t y_table, uint32_t x_table) {
  constexpr int kBytes = sizeof(T);
  for (int place = threadIdx.x; place < p.steps * step_places(kBytes); place += kThreads) {
    const int row = p.by_pieces.quotient(place), v = place - row * p.pieces;
    const int image = p.by_band.quotient(row), q = row - image * p.band;
    const bool there = image < p.images;
    store_shared_4(
        y_table + place * 4,
        there ? (image * y_rows(p) + q * p.stride_h) * p.y_pitch + v * kPiece * kBytes : 0);
    store_shared_4(x_table + place * 4,
                   there ? (image * x_rows(p) + q) * p.x_pitch + v * p.pixels * kBytes : -1);
  }
}

}  // namespace convt2d::cuda::skein
