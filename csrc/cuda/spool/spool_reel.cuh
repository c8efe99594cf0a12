// The reel: one kernel that multiplies all slices, and turns those to come meanwhile; spool_config.h says what for.
//
// Its blocks are all there at once (launch_together), so they may wait for each other: for a slice that all have turned their
// part of, and for a buffer that all have read. Nobody waits for ever. Slices are turned and read in order. Who asks for a
// slice that is not turned yet first waits for all it has asked for, and gives the buffers of all slices before back. So if all
// blocks wait for slice s, the buffers of s - 1 and before are free, and those who turn s wait for nobody.
#pragma once

#include "cuda/device/start_stages.cuh"
#include "cuda/hopper/hopper_weight.cuh"
#include "cuda/spool/spool_reel_turn.cuh"

namespace convt2d::cuda::spool {

using hopper::TileStart;
using hopper::WeightCell;
using hopper::WeightCells;
using hopper::WeightMaps;
using hopper::WeightParams;
using hopper::WeightScope;
using hopper::WeightSums;

// A block's K tiles of one slice; the last one may have fewer.
__device__ __forceinline__ WeightScope of_slice(const WeightParams& p, const ReelParams& r,
                                                WeightScope at, int slice) {
  if (slice < r.slices - 1) return at;
  const int64_t tiles = int64_t{r.last_tiles_n} * p.tiles_h * p.tiles_w;
  at.begin = static_cast<int>(tiles * at.piece / p.split);
  at.end = static_cast<int>(tiles * (at.piece + 1) / p.split);
  return at;
}

// The box of a K tile that a lane asks for: of x, or of a plane of dY. A single thread would take longer to work all of them
// out than they take to come.
struct ReelBox {
  const CUtensorMap* map;  // null: none
  int to;                  // bytes from a stage's start on
  int channel, h, w;       // where it starts, from `step` times the tile's first pixel
  int step_h, step_w;
  int bytes;  // of all boxes of a tile
};
__device__ __forceinline__ ReelBox box_of_lane(const WeightParams& p, const WeightMaps& maps,
                                               const WeightScope& at) {
  const int lane = threadIdx.x % 32, x_boxes = p.x_blocks;
  int planes = 0;
  for (int i = at.first_tap; i < at.first_tap + at.taps; ++i)
    planes = max(planes, p.tap[i].plane + 1);
  ReelBox box{};
  box.bytes = (x_boxes * hopper::tile_pixels(p) + planes * p.y_blocks * hopper::patch_pixels(p)) *
              hopper::kRowBytes;
  if (lane < x_boxes) {
    box.map = &maps.x;
    box.to = lane * hopper::kTilePixels * hopper::kRowBytes;
    box.channel = at.group * p.rows + (at.row_block * p.x_blocks + lane) * hopper::kCellChannels;
    box.step_h = box.step_w = 1;
  } else if (const int of_y = lane - x_boxes; of_y < planes * p.y_blocks) {
    const int plane = of_y / p.y_blocks, block = of_y - plane * p.y_blocks;
    int tap = at.first_tap;
    while (p.tap[tap].plane != plane) ++tap;
    box.map = &maps.y;
    box.to = p.x_blocks * hopper::kTilePixels * hopper::kRowBytes + of_y * p.plane_bytes;
    box.channel =
        at.group * p.columns + (at.column_block * p.y_blocks + block) * hopper::kCellChannels;
    box.h = p.tap[tap].h, box.w = p.tap[tap].w;
    box.step_h = p.stride_h, box.step_w = p.stride_w;
  }
  return box;
}

// A block's K tiles, of copies whose first image that matters is `first_image`: by a warp.
__device__ __forceinline__ void copy_tiles(const WeightParams& p, const WeightScope& at,
                                           const ReelBox& box, StageRing& ring, int first_image) {
  TileStart start(p, at.begin);
  start.n += first_image;
  for (int tile = at.begin; tile < at.end; ++tile, start.advance(p), ring.advance()) {
    barrier_wait(ring.empty(), ring.parity ^ 1);
    if (threadIdx.x % 32 == 0) barrier_expect(ring.full(), box.bytes);
    __syncwarp();
    if (box.map)
      copy_box(ring.stage() + box.to, box.map, ring.full(), box.channel,
               start.w * box.step_w + box.w, start.h * box.step_h + box.h, start.n);
  }
}

// By the warp that asks, some tiles at once, so that a buffer is given back soon.
__device__ __forceinline__ void ask_for_slices(const WeightParams& p, const WeightMaps& maps,
                                               const ReelParams& r, const WeightScope& at,
                                               StageRing& ring) {
  const int each = at.end - at.begin, images = r.tensor[0].images,
            turners = r.blocks * (kReelThreads / 32);
  const bool speaker = threadIdx.x % 32 == 0;
  const ReelBox box = box_of_lane(p, maps, at);
  int asked = 0, given_back = 0, buffer = 0;  // tiles; slices
  const auto give_back = [&](int slices) {
    for (; given_back < slices; ++given_back)
      if (speaker) count_up_after_reading(r.read + given_back);
  };
  for (int slice = 0; slice < r.slices; ++slice) {
    if (!all_counted(r.turned + slice, turners)) {
      if (speaker)
        for (int tile = max(0, asked - p.stages); tile < asked; ++tile)
          barrier_wait(ring.barriers + tile % p.stages * 16, tile / p.stages & 1);
      give_back(slice);
      while (!all_counted(r.turned + slice, turners)) continue;
    }
    const WeightScope here = of_slice(p, r, at, slice);
    fence_for_copy_engine();
    for (WeightScope some = here; some.begin < here.end; some.begin = some.end) {
      some.end = min(some.begin + p.stages, here.end);
      copy_tiles(p, some, box, ring, buffer * images);
      asked += some.end - some.begin;
      // Whoever asks for a tile has seen the one before it in its stage used up.
      if (asked >= p.stages + (given_back + 1) * each) give_back(given_back + 1);
    }
    if (each == 0) give_back(slice + 1);
    if (++buffer == r.buffers) buffer = 0;
  }
}

// What came out NaN, again, of pixels that exist and from the tensors themselves: slow, and rare. A call, with sums of its own,
// so that those of the tensor core are in registers.
template <class T, int ROW>
__device__ __noinline__ void sum_plainly(const WeightParams& p, const ReelParams& r,
                                         const WeightScope& at, const WeightCells* cells,
                                         WeightSums<ROW>& sum) {
  const int g = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const auto inside = [](int at, int extent) {
    return static_cast<unsigned>(at) < static_cast<unsigned>(extent);
  };
  const auto value = [](const Turned& of, int image, int channel, int pixel) {
    const int64_t line = int64_t{image} * of.channels + channel;
    return Numeric<T>::widen(static_cast<const T*>(of.from)[line * of.pixels + pixel]);
  };
  const Turned &x = r.tensor[0], &y = r.tensor[1];
  clear(sum);
  for (int slice = 0; slice < r.slices; ++slice) {
    const WeightScope here = of_slice(p, r, at, slice);
    TileStart start(p, here.begin);
    for (int k = here.begin; k < here.end; ++k, start.advance(p))
#pragma unroll 1
      for (int pixel = 0; pixel < hopper::tile_pixels(p); ++pixel) {
        const int row = pixel / p.tile_w, of_tile = row / p.tile_h;
        const int image = slice * x.images + start.n + of_tile;
        const int h = start.h + row % p.tile_h, w = start.w + pixel % p.tile_w;
        if (image >= x.batch || h >= p.x_h || w >= p.x_w) continue;
        hopper::visit_cells<ROW>(p, at, cells, sum, [&](const WeightCell& cell, float* sums) {
          const hopper::WeightTap& tap = p.tap[at.first_tap + cell.tap];
          const int y_h = (h + tap.shift / p.patch_w) * p.stride_h + tap.h;
          const int y_w = (w + tap.shift % p.patch_w) * p.stride_w + tap.w;
          if (!inside(y_h, p.y_h) || !inside(y_w, p.y_w)) return;
          const int first_row =
              (at.row_block * p.x_blocks + cell.x_block) * hopper::kCellChannels + g;
          const int first_column =
              (at.column_block * p.y_blocks + cell.y_block) * hopper::kCellChannels + 2 * t;
          float rows[2] = {};
          for (int i = 0; i < 2; ++i)
            if (const int row = first_row + 8 * i; row < p.rows)
              rows[i] = value(x, image, at.group * p.rows + row, h * p.x_w + w);
#pragma unroll 1
          for (int i = 0; i < hopper::kCellChannels / 8; ++i)
            for (int j = 0; j < 2; ++j) {
              const int column = first_column + 8 * i + j;
              if (column >= p.columns) continue;
              const float of_y = value(y, image, at.group * p.columns + column, y_h * p.y_w + y_w);
              sums[4 * i + j] = fmaf(rows[0], of_y, sums[4 * i + j]);
              sums[4 * i + 2 + j] = fmaf(rows[1], of_y, sums[4 * i + 2 + j]);
            }
        });
      }
  }
}

template <class T, int ROW>
__global__ void __launch_bounds__(hopper::weight_threads(hopper::kWeightTiles[ROW]), 1)
    convt2d_spool_reel_kernel(const __grid_constant__ WeightParams p,
                              const __grid_constant__ WeightMaps maps,
                              const __grid_constant__ ReelParams r,
                              const __grid_constant__ ReelMaps reel_maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  constexpr hopper::WeightTile tile = hopper::kWeightTiles[ROW];
  constexpr int kConsumers = hopper::weight_consumers(tile);
  extern __shared__ __align__(1024) unsigned char smem[];
  const WeightScope at = hopper::weight_scope(p);  // of a slice
  const uint32_t shared = shared_address(smem);
  StageRing ring{shared, shared + hopper::kStagesAt, p.stages, hopper::weight_stage_bytes(p)};
  start_stages(ring.barriers, p.stages, 1, kConsumers / 32);
  if (threadIdx.x < kReelTiles)  // two of a warp
    barrier_init(shared + r.tiles_at + kReelTiles * kReelTileBytes + threadIdx.x * 8, 1);
  WeightCells* const cells = block_memory<WeightCells>(smem, hopper::kCellsAt);
  if (threadIdx.x < tile.instructions * tile.groups)
    cells[threadIdx.x] = hopper::cells_of(p, tile, at.first_tap, threadIdx.x);
  // Pixels that no tile uses are multiplied as well, so they are zero.
  if (hopper::tile_pixels(p) < hopper::kTilePixels)
    for (int i = threadIdx.x * 16; i < p.stages * ring.bytes;
         i += hopper::weight_threads(tile) * 16)
      store_shared_16(ring.stages + i, {0, 0, 0, 0});
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();
  if (threadIdx.x >= kConsumers) {
    fewer_registers<hopper::kWeightProducerRegisters>();
    if (threadIdx.x < kConsumers + 32)
      ask_for_slices(p, maps, r, at, ring);
    else
      turn_slices(r, reel_maps, shared + r.tiles_at);
  } else {
    more_registers<hopper::weight_consumer_registers(tile)>();
    WeightSums<ROW> sum;
    clear(sum);
    const WeightScope last = of_slice(p, r, at, r.slices - 1);
    WeightScope all = at;
    all.begin = 0;
    all.end = (r.slices - 1) * (at.end - at.begin) + last.end - last.begin;
    hopper::multiply_tiles<T, ROW>(p, all, cells, sum, ring);
    if (hopper::any_nan<ROW>(p, at, cells, sum)) {
      WeightSums<ROW> again;
      sum_plainly<T, ROW>(p, r, at, cells, again);
#pragma unroll
      for (int i = 0; i < tile.instructions; ++i)
#pragma unroll
        for (int j = 0; j < tile.width / 2; ++j) sum[i][j] = again[i][j];
    }
    barrier_among(hopper::kAllConsumers, kConsumers);  // all are done with the stages
    const int group = threadIdx.x / 128;
    const uint32_t sums = ring.stages + group * hopper::sum_bytes(tile);
    hopper::lay_out<ROW>(sum, sums);
    barrier_among(hopper::kWeightGroup0 + group, 128);
    hopper::store_weights<T, ROW>(p, at, cells, sums);
  }
#endif
}

}  // namespace convt2d::cuda::spool
