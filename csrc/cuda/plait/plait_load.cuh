// Short sums: the warps that sort load dY themselves, a batch ahead, since what a few chunks would wait for is who asks.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/plait/plait_stage.cuh"

namespace convt2d::cuda::plait {

CONVT2D_HOST_DEVICE constexpr int load_batch_of(Taps taps, bool paired) {
  if (paired) return 2;
  if (taps.kernel > kEight) return 1;
  if (taps.kernel == 3) return vectors_of(taps) > 3 ? 2 : 3;
  return vectors_of(taps) > 3 ? 2 : vectors_of(taps) > 1 ? 4 : 8;
}

// The rows of (channel, kernel row) of a warp, tile after tile, chunk after chunk, in batches. Chunks may share a row.
struct RowWalk {
  int tile, chunk, batch;

  __device__ __forceinline__ bool there(const Params& p) const { return tile < p.tiles; }
  // Whether another tile begins.
  __device__ __forceinline__ bool advance(const Params& p, int batches) {
    if (++batch < batches) return false;
    batch = 0;
    if (++chunk < p.chunks) return false;
    chunk = 0;
    tile += p.walkers;
    return true;
  }
};

// What a lane's eight of positions reads: tap (0, 0) of the first position.
struct LoadPlace {
  int pixel;  // of the group's channel 0, from the beginning of dY
  int y, x;

  __device__ __forceinline__ LoadPlace(const Params& p, const Scope& at, int number) {
    const Eight eight = eight_of(p, min(number, p.eights - 1));
    const bool there = number < p.eights && eight.there(p);
    y = there ? eight.h * p.stride_h - p.pad_h : -(1 << 30);
    x = eight.w * p.stride_w - p.pad_w;
    pixel =
        (eight.n * p.groups + at.group) * p.reduce * (p.y_h * p.y_w) + (there ? y : 0) * p.y_w + x;
  }
};

// Where a row of dY starts for an eight: elements, and whether it exists. `down`: rows below that of tap (0, 0).
struct RowPlace {
  int element;
  bool there;

  __device__ __forceinline__ RowPlace(const Params& p, const LoadPlace& place, int channel,
                                      int down)
      : element(place.pixel + (channel * p.y_h + down) * p.y_w),
        there(channel < p.reduce && uint32_t(place.y + down) < uint32_t(p.y_h)) {}
};

template <int KIND>
__device__ __forceinline__ void fetch_row(const Params& p, const RowPlace& from,
                                          Loaded<KIND>& loaded) {
  constexpr Taps taps = kTaps[KIND];
  loaded.from = from.element * 2;
  const int vector = from.element >> 3,
            end = (taps.lead < 0 ? from.element & 7 : taps.lead) + span_of(taps);
  const auto* const source = static_cast<const uint4*>(p.source) + vector;
#pragma unroll
  for (int i = 0; i < vectors_of(taps); ++i) {
    const bool wanted = from.there && end > 8 * i && uint32_t(vector + i) < uint32_t(p.bytes) / 16;
    load_16_if(source + i, 0, wanted, loaded.vector[i]);
  }
}

// The rows of a warp in a chunk, as ChunkRows, of all warps; left-over ones of every chunk.
template <int KIND, bool PAIRED>
struct LoadRows : ChunkRows<KIND, PAIRED> {
  using Base = ChunkRows<KIND, PAIRED>;
  __device__ __forceinline__ LoadRows(int first, int step) : Base(first, step) {}

  __device__ __forceinline__ int batches() const {
    constexpr int kBatch = load_batch_of(Base::taps, PAIRED);
    const int rows = PAIRED ? kPairedChannels * kPairs * 2 / 4 : chunk_rows(Base::taps);
    return (rows + this->step * kBatch - 1) / (this->step * kBatch);
  }
  __device__ __forceinline__ int row(int chunk, int number) const {
    const int of_block =
        ((this->first + chunk * Base::kLeftOver) & (this->step - 1)) + number * this->step;
    return PAIRED ? of_block * 4 + int(this->lane >> 3)
                  : chunk * kDepth / Base::taps.kernel + of_block;
  }
  __device__ __forceinline__ RowPlace place(const Params& p, const LoadPlace& at, int chunk,
                                            int row) const {
    if (PAIRED) {
      const int channel = row / (kPairs * 2);
      return {p, at, chunk * kPairedChannels + channel, row - channel * (kPairs * 2)};
    }
    const int channel = int(p.by_kernel_h.quotient(uint32_t(row)));
    return {p, at, channel, (row - channel * p.kernel_h) * p.dilation_h};
  }
};

// Everything that the warps that load and sort do. `full` ends with all of them, and the weights.
template <int KIND, bool PAIRED>
__device__ __forceinline__ void load_kind(const Params& p, const Maps& maps, const Scope& at,
                                          uint32_t shared) {
  constexpr int kBatch = load_batch_of(kTaps[KIND], PAIRED);
  const int warp = (threadIdx.x - kConsumers) / 32, lane = threadIdx.x % 32;
  const int half = p.halves > 1 ? warp & 1 : 0, shift = p.halves > 1 ? 1 : 0;
  const LoadRows<KIND, PAIRED> rows(warp >> shift, kBringWarps >> shift);
  const int weight_row = at.group * p.columns + at.column_tile * tile_channels(p);
  const int streamed = p.resident ? 0 : weight_bytes(p);
  const int batches = rows.batches();
  StageRing ring{shared, shared + p.stages_at, p.stages, p.stage_bytes};
  const auto place_of = [&](int tile) {
    return LoadPlace(p, at, tile * tile_eights(p) + half * kEights + rows.eight());
  };
  const auto load_at = [&](const RowWalk& walk, const LoadPlace& place, int i, int end,
                           Loaded<KIND>& loaded) {
    const int row = rows.row(walk.chunk, walk.batch * kBatch + i);
    if (row < end) fetch_row<KIND>(p, rows.place(p, place, walk.chunk, row), loaded);
  };
  RowWalk walk{at.walker, 0, 0}, ahead = walk;
  if (!walk.there(p)) return;
  LoadPlace next = place_of(walk.tile);
  Inside<KIND> inside;
  find_inside<KIND>(p, next.x, inside);
  Loaded<KIND> loaded[kBatch];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) load_at(ahead, next, i, rows.end(p, 0), loaded[i]);

#pragma unroll 1
  while (walk.there(p)) {
    if (walk.batch == 0) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      if (streamed && warp == 0 && lane == 0) {
        barrier_expect(ring.full(), streamed);
        copy_box(ring.stage(), &maps.weight, ring.full(), walk.chunk * kDepth, weight_row, 0, 0);
      }
      __syncwarp();
    }
    if (ahead.advance(p, batches) && ahead.there(p)) next = place_of(ahead.tile);
    const int end = rows.end(p, walk.chunk),
              ahead_end = ahead.there(p) ? rows.end(p, ahead.chunk) : 0;
    const uint32_t to = ring.stage() + streamed + half * p.half_bytes;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int row = rows.row(walk.chunk, walk.batch * kBatch + i);
      if (row < end) rows.write(p, loaded[i], inside, walk.chunk, row, to);
      load_at(ahead, next, i, ahead_end, loaded[i]);
    }
    if (walk.batch == batches - 1) {
      fence_for_wgmma();
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.full());
      ring.advance();
    }
    if (walk.advance(p, batches) && walk.there(p)) find_inside<KIND>(p, next.x, inside);
  }
}

}  // namespace convt2d::cuda::plait
