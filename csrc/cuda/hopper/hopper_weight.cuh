// The hopper kernel of grad_weight. hopper_weight_config.h draws the tiling, hopper_weight_store.cuh is what comes
// after the main loop.
//
// One thread asks the copy engine for a block's K tiles, in a ring of stages (or x is brought); `full` ends a phase when a stage has
// arrived, `empty` when every warp that multiplies has read it. If a sum came out NaN, all of it once more, with
// care.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/hopper/hopper_weight_store.cuh"

namespace convt2d::cuda::hopper {

// Named barriers: all who multiply and the warp that asks, who agree whether the sums are good; without it; a group.
enum { kVerdict = 1, kAllConsumers = 2, kWeightGroup0 = 3 };
template <int ROW>
__device__ __forceinline__ bool agree(const WeightParams& p, bool good) {
  return barrier_all(
      kVerdict, weight_consumers(kWeightTiles[ROW]) + 32 + (p.x_piece > 0 ? kWeightBringers : 0),
      good);
}

// All of a block's K tiles.
__device__ __forceinline__ void copy_tiles(const WeightParams& p, const WeightMaps& maps,
                                           const WeightScope& at, StageRing& ring) {
  const int x_box = tile_pixels(p) * kRowBytes, y_box = patch_pixels(p) * kRowBytes;
  const int x_channel = at.group * p.rows + at.row_block * p.x_blocks * kCellChannels;
  const int y_channel = at.group * p.columns + at.column_block * p.y_blocks * kCellChannels;
  int planes = 0;
  for (int i = at.first_tap; i < at.first_tap + at.taps; ++i)
    planes = max(planes, p.tap[i].plane + 1);
  TileStart start(p, at.begin);
  for (int tile = at.begin; tile < at.end; ++tile, start.advance(p), ring.advance()) {
    barrier_wait(ring.empty(), ring.parity ^ 1);
    const int x_boxes = p.x_piece > 0 ? 0 : p.x_blocks;
    barrier_expect(ring.full(), x_boxes * x_box + planes * p.y_blocks * y_box);
    uint32_t to = ring.stage();
#pragma unroll 1
    for (int i = 0; i < x_boxes; ++i, to += kTilePixels * kRowBytes)
      copy_box(to, &maps.x, ring.full(), x_channel + i * kCellChannels, start.w, start.h, start.n);
    to = ring.stage() + p.x_blocks * kTilePixels * kRowBytes;
#pragma unroll 1
    for (int tap = at.first_tap, plane = 0; plane < planes; ++tap) {
      if (p.tap[tap].plane != plane) continue;  // which has been asked for
      ++plane;
#pragma unroll 1
      for (int i = 0; i < p.y_blocks; ++i, to += p.plane_bytes)
        copy_box(to, &maps.y, ring.full(), y_channel + i * kCellChannels,
                 start.w * p.stride_w + p.tap[tap].w, start.h * p.stride_h + p.tap[tap].h, start.n);
    }
  }
}

// Where a tile's pixels are, and of which a bringer needs every `kPixels`-th: told once a block, since it takes divisions.
__device__ __forceinline__ void list_pixels(const WeightParams& p, uint32_t table) {
  const int pixel = threadIdx.x, row = pixel / p.tile_w, n = row / p.tile_h;
  const int h = row - n * p.tile_h, w = pixel - row * p.tile_w;
  // Bytes of x from the tile's first one on, and the pixel's place in the tile, a byte an axis. What is not of the tile is
  // beyond any image.
  const bool used = pixel < tile_pixels(p);
  const uint32_t at = ((n * p.x_h + h) * p.x_w + w) * p.groups * p.rows * 2;
  store_shared<2>(table + pixel * 8,
                  {used ? at : 0, used ? uint32_t(n << 16 | h << 8 | w) : 0x7f0000u});
}

// A K tile of x, by all who bring: lanes take neighbouring pieces of the 64 channels of one or two pixels. Where some pixels
// are is looked up at once, since a warp alone waits for each instruction.
template <int PIECE>
__device__ __forceinline__ void bring_x(const WeightParams& p, const WeightScope& at,
                                        uint32_t table, uint32_t stage, const TileStart& start) {
  constexpr int kLanes = kRowBytes / PIECE, kPixels = kWeightBringers / kLanes;  // at once
  constexpr int kAtOnce = 6;
  const int bringer = threadIdx.x % 128 - 32, channel = bringer % kLanes * (PIECE / 2);
  const int first = at.row_block * p.x_blocks * kCellChannels + channel;  // of the group's
  const auto left = [](int extent, int from) { return min(extent - from, 127) - 1; };
  // A byte keeps its highest bit if the pixel's place on that axis is no more than this.
  constexpr uint32_t kThere = 0x808080;
  const uint32_t last =
      kThere | left(p.batch, start.n) << 16 | left(p.x_h, start.h) << 8 | left(p.x_w, start.w);
  const int tile =
      ((start.n * p.x_h + start.h) * p.x_w + start.w) * p.groups * p.rows + at.group * p.rows;
  const char* const from = static_cast<const char*>(p.x) + (int64_t{tile} + first) * 2;
#pragma unroll 1
  for (int i = 0; i < p.x_blocks; ++i) {
    const bool channel_there = first + i * kCellChannels < p.rows;
    const char* const source = from + i * kRowBytes;
    const uint32_t to = stage + i * kTilePixels * kRowBytes;
#pragma unroll 1
    for (int begin = bringer / kLanes; begin < kTilePixels; begin += kAtOnce * kPixels) {
      uint32_t listed[kAtOnce][2];
      // The last pixel may come more than once, so that there is no branch.
      const auto pixel = [&](int k) { return uint32_t(min(begin + k * kPixels, kTilePixels - 1)); };
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) load_shared_8(table + pixel(k) * 8, listed[k]);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const bool there = channel_there && (last - listed[k][1] & kThere) == kThere;
        copy_async<PIECE>(to + pixel(k) * kRowBytes + (channel * 2 ^ pixel(k) % 8 * 16),
                          source + (there ? listed[k][0] : 0), there);
      }
    }
  }
}

// All of a block's, up to two tiles at once under way. A stage is given back when the next one is there, so of a ring of
// two each must be there before the next is asked for.
template <int PIECE>
__device__ __forceinline__ void bring_tiles_of_x(const WeightParams& p, const WeightScope& at,
                                                 StageRing& ring) {
  const int behind = min(2, p.stages - 2);
  const uint32_t table = ring.barriers + kPixelsAt;
  StageRing there = ring;
  TileStart start(p, at.begin);
  for (int tile = at.begin; tile < at.end + behind; ++tile) {
    if (tile < at.end) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      bring_x<PIECE>(p, at, table, ring.stage(), start);
      start.advance(p);
      ring.advance();
    }
    copy_async_commit();
    if (tile < at.begin + behind) continue;
    copy_async_wait(behind);
    fence_for_wgmma();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(there.full());
    there.advance();
  }
}

// Multiplies all of a block's K tiles. A stage is given back when the next one's multiplications are under way.
template <class T, int ROW>
__device__ __forceinline__ void multiply_tiles(const WeightParams& p, const WeightScope& at,
                                               const WeightCells* cells, WeightSums<ROW>& sum,
                                               StageRing& ring) {
  constexpr WeightTile tile = kWeightTiles[ROW];
  const bool speaker = threadIdx.x % 32 == 0;
  uint64_t x[tile.instructions], y[tile.instructions];  // of stage address 0
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) {
    const WeightCells& mine = cells[my_instruction<ROW>(i)];
    x[i] = operand(turned_layout(kRowBytes, 0), uniform(mine.x_block) * kTilePixels * kRowBytes);
    y[i] = operand(turned_layout(kRowBytes, uniform(mine.apart)),
                   p.x_blocks * kTilePixels * kRowBytes + uniform(mine.at));
  }
  uint32_t read = 0;  // the stage before, to be given back
  for (int k = at.begin; k < at.end; ++k, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    const uint32_t stage = ring.stage() >> 4;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step)
#pragma unroll
      for (int i = 0; i < tile.instructions; ++i)
        WgmmaTurned<T, tile.width>::add(
            sum[i], advance(x[i], stage + step * (kStepPixels * kRowBytes >> 4)),
            advance(y[i], stage + p.step[step]));
    wgmma_commit();
    if (read) {
      wgmma_wait<1>();
      if (speaker) barrier_arrive(read);
    }
    read = ring.empty();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < tile.instructions; ++i) finished(sum[i]);
  if (read && speaker) barrier_arrive(read);
}

// The same with care.
template <class T, int ROW>
__device__ __forceinline__ void multiply_tiles_with_care(const WeightParams& p,
                                                         const WeightScope& at,
                                                         const WeightCells* cells,
                                                         WeightSums<ROW>& sum, StageRing& ring) {
  clear(sum);
  TileStart start(p, at.begin);
  for (int k = at.begin; k < at.end; ++k, start.advance(p), ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    multiply_valid<T, ROW>(p, at, cells, sum, ring.stage(), start.n, start.h, start.w);
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
  }
  barrier_among(kAllConsumers,
                weight_consumers(kWeightTiles[ROW]));  // all are done with the stages
}

template <class T, int ROW>
__global__ void __launch_bounds__(weight_threads(kWeightTiles[ROW]), 1)
    convt2d_hopper_grad_weight_kernel(const __grid_constant__ WeightParams p,
                                      const __grid_constant__ WeightMaps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  constexpr WeightTile tile = kWeightTiles[ROW];
  extern __shared__ __align__(1024) unsigned char smem[];
  const WeightScope at = weight_scope(p);
  const uint32_t shared = shared_address(smem);
  StageRing ring{shared, shared + kStagesAt, p.stages, weight_stage_bytes(p)};
  start_stages(ring.barriers, p.stages, 1 + (p.x_piece > 0 ? kWeightBringers / 32 : 0),
               weight_consumers(tile) / 32);
  // What the instructions are about, found once since it takes divisions.
  WeightCells* const cells = reinterpret_cast<WeightCells*>(smem + kCellsAt);
  if (threadIdx.x < tile.instructions * tile.groups)
    cells[threadIdx.x] = cells_of(p, tile, at.first_tap, threadIdx.x);
  if (p.x_piece > 0 && threadIdx.x < kTilePixels) list_pixels(p, shared + kPixelsAt);
  // Pixels that no tile uses are multiplied as well, so they are zero.
  if (tile_pixels(p) < kTilePixels)
    for (int i = threadIdx.x * 16; i < p.stages * ring.bytes; i += weight_threads(tile) * 16)
      store_shared_16(ring.stages + i, {0, 0, 0, 0});
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  if (warp_of_block() >= weight_consumers(tile) / 32) {
    fewer_registers<kWeightProducerRegisters>();
    wait_for_predecessor();  // which may have written the tensors
    const bool asks = warp_of_block() == weight_consumers(tile) / 32;
    if (!asks && p.x_piece == 0) return;
    for (bool again = false;; again = true) {
      if (asks) {
        if (threadIdx.x % 32 == 0) copy_tiles(p, maps, at, ring);
      } else if (p.x_piece == 8) {
        bring_tiles_of_x<8>(p, at, ring);
      } else {
        bring_tiles_of_x<4>(p, at, ring);
      }
      __syncwarp();
      if (again || agree<ROW>(p, true)) return;
    }
  } else {
    more_registers<weight_consumer_registers(tile)>();
    WeightSums<ROW> sum;
    clear(sum);
    multiply_tiles<T, ROW>(p, at, cells, sum, ring);
    if (!agree<ROW>(p, !any_nan<ROW>(p, at, cells, sum)))
      multiply_tiles_with_care<T, ROW>(p, at, cells, sum, ring);
    const int group = warpgroup_of_block();
    const uint32_t sums = ring.stages + group * sum_bytes(tile);
    lay_out<ROW>(sum, sums);
    barrier_among(kWeightGroup0 + group, 128);
    store_weights<T, ROW>(p, at, cells, sums);
  }
#endif
}

}  // namespace convt2d::cuda::hopper
