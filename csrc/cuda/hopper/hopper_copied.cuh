// Consumers of what the copy engine brings as rows of channels: both operands lie in shared memory, and a table says for
// each product of a chunk where (build_steps()). What stands between two multiplications decides how long a tile takes,
// as much as they do: no branch comes between the first one of a product and the wait for the product before, else the
// compiler closes what is under way in each branch, adds an empty multiplication where they meet, and the wait is one for
// all of them.
#pragma once

#include "cuda/hopper/hopper_consumer.cuh"

namespace convt2d::cuda::hopper {

// Where a consumer is in a ring of buffers.
struct Reader {
  uint32_t full;      // barriers of the ring; the others are kToEmpty behind
  Ring next = {};     // buffer
  uint32_t open = 0;  // barrier of the buffer that is being read, for the lane that gives it back

  static constexpr uint32_t kToEmpty = kMaxStages * 8;

  // Waits for the next buffer, and returns which one it is.
  __device__ __forceinline__ int advance(int stages) {
    const int stage = next.stage;
    const uint32_t barrier = full + stage * 8;
    barrier_wait(barrier, next.parity);
    open = threadIdx.x % 32 == 0 ? barrier + kToEmpty : 0;
    next.advance(stages);
    return stage;
  }
};
__device__ __forceinline__ void give_back(uint32_t open) {
  if (open) barrier_arrive(open);
}

// Addresses of operands, in units of 16 bytes: descriptors without their upper half.
template <int ROW>
struct Operands {
  uint64_t source_layout, weight_layout;
  uint32_t source[kTiles[ROW].operands], weights;  // in the first buffer
};

// All products of a tile. Tells `follower` which tile it is once some of them are issued, if that is not 0.
template <class M, int ROW, int SLICES>
__device__ __forceinline__ void multiply_tile(const GatherParams& p, const Loop& loop,
                                              uint32_t steps, const Operands<ROW>& operands,
                                              Reader& source, Reader& weight, uint32_t follower,
                                              uint32_t tile_number, Sums<ROW>& sum) {
  constexpr TileRow tile = kTiles[ROW];
  using Multiply = Wgmma<typename M::Element, tile.width, tile.columns_copied>;
  const uint32_t weight_slice = p.weight_slice >> 4, end = steps + loop.products * 8;
  const auto descriptor = [](uint64_t layout, uint32_t low) {
    return (layout & ~uint64_t{0xffffffff}) | low;
  };
  uint32_t patch = 0, weights = operands.weights - (loop.weight_stage >> 4);
  clear<ROW>(sum);
  uint32_t now[2], from = steps;
  load_shared_8(from, now);
  const int all = p.chunks * loop.products, told = follower ? max(all - p.lead, 0) + 1 : 0;
#pragma unroll 1
  for (int left = all; left > 0; --left) {
    // Buffers whose last multiplication was issued in the step before.
    uint32_t done_source = 0, done_weight = 0;
    if (now[0] & kNextBuffer) {
      done_source = source.open;
      patch = source.advance(p.source_stages) * (loop.patch_stage >> 4);
    }
    if (now[1] & kNextBuffer) {
      if (p.weight_stages) {
        done_weight = weight.open;
        weights = operands.weights + weight.advance(p.weight_stages) * (loop.weight_stage >> 4);
      } else {
        weights += loop.weight_stage >> 4;
      }
    }
    const uint32_t pixels = patch + (now[0] & ~kNextBuffer),
                   rows = weights + (now[1] & ~kNextBuffer);
    from = from + 8 == end ? steps : from + 8;
    load_shared_8(from, now);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
      for (int o = 0; o < tile.operands; ++o)
        Multiply::add(sum[o][0],
                      descriptor(operands.source_layout,
                                 operands.source[o] + pixels + slice * (kSliceBytes >> 4)),
                      descriptor(operands.weight_layout, rows + slice * weight_slice));
    wgmma_commit();
    wgmma_wait<1>();
    give_back(done_source);
    give_back(done_weight);
    if (left == told) raise_number(follower, tile_number);
  }
  wgmma_wait<0>();
  give_back(source.open);
  give_back(weight.open);
  source.open = weight.open = 0;
}

template <class M, int ROW>
__device__ __forceinline__ void consume_copied(const GatherParams& p, const TensorMaps& maps,
                                               const Known& known) {
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr TileRow tile = kTiles[ROW];
  const Loop loop = known.loop;
  const int team = may_be_teams(tile) && p.teams > 1 ? warpgroup_of_block() / 2 : 0,
            group = warpgroup_of_block() - team * 2, tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  Operands<ROW> operands;
  operands.source_layout = swizzled_layout(chunk_bytes(p), group_pixels(p) * p.pixel_bytes);
  operands.weight_layout =
      tile.columns_copied ? turned_layout(column_row(p), column_block(p))
      : p.weight_mode == kWeightCopied
          ? swizzled_layout(chunk_bytes(p), kGroup * chunk_bytes(p))
          : operand_layout(weight_rows(tile) * kHalfBytes, kGroup * kHalfBytes);
#pragma unroll
  for (int o = 0; o < tile.operands; ++o) {
    const int pixel = operand_pixel(p, tile, group * tile.operands + o);
    operands.source[o] =
        static_cast<uint32_t>(operands.source_layout) +
        ((loop.patch + team * p.source_stages * loop.patch_stage + pixel * p.pixel_bytes) >> 4);
  }
  operands.weights = static_cast<uint32_t>(operands.weight_layout) + (loop.weights >> 4);

  bring_resident_weights<M, ROW>(p, maps, known);
  if (may_rest(tile) && group >= busy_groups(p, tile)) return;

  const uint32_t steps = shared_address(smem + known.map.offsets);
  // Only one team has weights that stream: from the same register.
  Reader source{loop.barriers + team * kTeamStages * 8}, weight{source.full + 2 * Reader::kToEmpty};
  // The first groups lead.
  constexpr int kLeaders = consumer_groups(tile) / 2;
  const uint32_t leader = steps + p.max_products * 8 + group % kLeaders * 4;
  const bool ordered = p.lead > 0 && loop.products > 0, leads = ordered && group < kLeaders;
  const uint32_t follower = leads && threadIdx.x % 128 == 0 ? leader : 0;
  uint32_t tile_number = 0;
  TileWalk walk(p, scope_of_team(p, tile, known.at, team));
#pragma unroll 1
  for (int now = known.at.walker + team * known.at.walkers; now < tiles;
       now += known.at.walkers * (may_be_teams(tile) ? p.teams : 1), walk.advance(p)) {
    ++tile_number;
    if (ordered && !leads) wait_for_number(leader, tile_number);
    Sums<ROW> sum;
    visit_slices(1 << p.slice_shift, [&](auto count) {
      multiply_tile<M, ROW, decltype(count)::value>(p, loop, steps, operands, source, weight,
                                                    follower, tile_number, sum);
    });
    store_sums<M, ROW>(p, known, sum, walk.origin(p));
  }
}

}  // namespace convt2d::cuda::hopper
