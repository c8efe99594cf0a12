// Consumers of copied channels that fetch weights (TF32, NHWC forward, whose weights have no rows along K): positions are
// multiplied from shared memory, and a table says for each product of a chunk where both are (build_steps()). All that a
// lane holds of a product comes to its registers while the one before is multiplied, also from chunk to chunk, so that
// neither its latency nor that of the table stands between two multiplications. Branches as in hopper_copied.cuh.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/hopper/hopper_copied.cuh"

namespace convt2d::cuda::hopper {

// Where a lane finds what it holds of a slice, of a product at `weights`. See fetched_channel().
__device__ __forceinline__ void find_weights(const GatherParams& p, uint32_t weights,
                                             uint32_t (&weight)[4]) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % 4, k = lane & 3;
  const int piece = warp % 2 * 2 + (lane >> 4) * 4;
  const uint32_t first =
      warp / 2 * column_block(p) + k * 128 + (piece ^ k) * 16 + (lane >> 2 & 3) * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    weight[i] = weights + (first ^ (i % 2 * 16 + i / 2 * 64)) + i / 2 * 4 * 128;
}

// What a lane holds of a product: weights of its slices; where its pixels are, in units of 16 bytes from a position's; its
// slot; and the barrier of the patch that the product before was the last one to read, for the lane that gives it back.
template <int SLICES>
struct LentProduct {
  uint32_t word[SLICES][4];
  uint32_t pixels, second, done;
};

// Goes through the products of a tile, ahead of the multiplications.
template <int SLICES>
struct WeightFetcher {
  const GatherParams& p;
  const uint32_t steps, end;  // the table
  uint32_t lane[4];           // find_weights(), in the first buffer
  Reader source, weight;
  uint32_t patch = 0,
           weights = 0;  // of the buffers: units of 16 bytes, and bytes from the first one
  uint32_t now[2] = {}, from = 0;  // the next entry, and where the one after it is

  __device__ __forceinline__ void start_tile() {
    weights = -p.part_bytes;  // those that stay come chunk by chunk
    from = steps;
    load_entry();
  }
  __device__ __forceinline__ void load_entry() {
    load_shared_8(from, now);
    from = from + 8 == end ? steps : from + 8;
  }
  // Returns the barrier of the weights that the product before was the last one to read, likewise.
  __device__ __forceinline__ uint32_t fetch(LentProduct<SLICES>& to) {
    constexpr int kSlice = 8 * 128;
    uint32_t done_weight = 0;
    to.done = 0;
    if (now[0] & kNextBuffer) {
      to.done = source.open;
      patch = source.advance(p.source_stages) * (p.patch_bytes >> 4);
    }
    if (now[1] & kNextBuffer) {
      if (p.weight_stages) {
        done_weight = weight.open;
        weights = weight.advance(p.weight_stages) * p.part_bytes;
      } else {
        weights += p.part_bytes;
      }
    }
    to.pixels = patch + (now[0] & ~kNextBuffer);
    to.second = now[1] & kSecondSlot;
    const uint32_t product = weights + ((now[1] & ~(kNextBuffer | kSecondSlot)) << 4);
    load_entry();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t first = lane[i] + product;
#pragma unroll
      for (int s = 0; s < SLICES; ++s) to.word[s][i] = load_shared_4(first + s * kSlice);
    }
    return done_weight;
  }
  __device__ __forceinline__ void end_tile() {
    give_back(source.open);
    give_back(weight.open);
    source.open = weight.open = 0;
  }
};

// Half of a product of one slot. No branch within.
template <class M, int ROW, int SLICES, int HALF, int SLOT>
__device__ __forceinline__ void multiply_batch(Sums<ROW>& sum, const LentProduct<SLICES>& product,
                                               const uint32_t (&source)[kTiles[ROW].operands],
                                               uint32_t layout_high) {
  using Multiply = WgmmaFetched<typename M::Element, kTiles[ROW].width>;
  wgmma_fence();
#pragma unroll
  for (int s = HALF * SLICES / 2; s < (HALF + 1) * SLICES / 2; ++s)
#pragma unroll
    for (int o = 0; o < kTiles[ROW].operands; ++o)
      Multiply::add(
          sum[o][SLOT], product.word[s],
          uint64_t{layout_high} << 32 | (source[o] + product.pixels + s * (kSliceBytes >> 4)));
  wgmma_commit();
}

template <class M, int ROW, int SLICES, int HALF>
__device__ __forceinline__ void multiply_half(Sums<ROW>& sum, const LentProduct<SLICES>& product,
                                              const uint32_t (&source)[kTiles[ROW].operands],
                                              uint32_t layout_high) {
  constexpr int kSlots = kTiles[ROW].slots;
  if (kSlots == 1 || !product.second)
    multiply_batch<M, ROW, SLICES, HALF, 0>(sum, product, source, layout_high);
  else
    multiply_batch<M, ROW, SLICES, HALF, kSlots - 1>(sum, product, source, layout_high);
}

// All products of a tile. Tells `follower` which tile it is once some of them are issued, if that is not 0.
template <class M, int ROW, int SLICES>
__device__ __forceinline__ void multiply_lent(WeightFetcher<SLICES>& fetcher, int products,
                                              int told,
                                              const uint32_t (&operands)[kTiles[ROW].operands],
                                              uint32_t layout_high, uint32_t follower,
                                              uint32_t tile_number, Sums<ROW>& sum) {
  constexpr TileRow tile = kTiles[ROW];
  // Two that take turns.
  LentProduct<SLICES> turn[2];
  fetcher.start_tile();
  fetcher.fetch(turn[0]);
  const auto multiply_and_fetch = [&](auto index, int left) {
    constexpr int kNow = decltype(index)::value;
    const LentProduct<SLICES>& now = turn[kNow];
    // A warp waits until the tensor core takes what it issues, one instruction after the other, so that behind the last one
    // there is but that one under way. What has to be done between products therefore stands between two halves of one.
    multiply_half<M, ROW, SLICES, 0>(sum, now, operands, layout_high);
    wgmma_wait<1>();  // for the product before
    give_back(now.done);
    if (left == told) raise_number(follower, tile_number);
    const uint32_t done_weight = left > 1 ? fetcher.fetch(turn[1 - kNow]) : 0;
    multiply_half<M, ROW, SLICES, 1>(sum, now, operands, layout_high);
    give_back(done_weight);  // all words of this product have come
  };
#pragma unroll 1
  for (int left = products; left > 0; left -= 2) {
    multiply_and_fetch(std::integral_constant<int, 0>(), left);
    if (left == 1) break;
    multiply_and_fetch(std::integral_constant<int, 1>(), left - 1);
  }
  wgmma_wait<0>();
#pragma unroll
  for (int o = 0; o < tile.operands; ++o)
#pragma unroll
    for (int s = 0; s < tile.slots; ++s) finished(sum[o][s]);
  fetcher.end_tile();
}

template <class M, int ROW, int SLICES>
__device__ __forceinline__ void consume_slices(const GatherParams& p, const Known& known) {
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kPositions = tile.operands * tile.width;
  const int group = warpgroup_of_block(), tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  const uint64_t layout = swizzled_layout(chunk_bytes(p), group_pixels(p) * p.pixel_bytes);
  uint32_t layout_high = layout >> 32;
  keep_in_register(layout_high);
  uint32_t operands[tile.operands];
#pragma unroll
  for (int o = 0; o < tile.operands; ++o) {
    const int pixel = operand_pixel(p, tile, group * tile.operands + o);
    operands[o] = static_cast<uint32_t>(layout) + ((known.loop.patch + pixel * p.pixel_bytes) >> 4);
  }
  const uint32_t steps = shared_address(smem + known.map.offsets), barriers = known.loop.barriers;
  const int products = p.chunks * known.loop.products;
  WeightFetcher<SLICES> fetcher{p, steps, steps + known.loop.products * 8};
  fetcher.source.full = barriers;
  fetcher.weight.full = barriers + 2 * Reader::kToEmpty;
  find_weights(p, known.loop.weights, fetcher.lane);
  // The first group leads.
  const uint32_t leader = steps + p.max_products * 8;
  const bool ordered = p.lead > 0 && products > 0, leads = ordered && group == 0;
  const uint32_t follower = leads && threadIdx.x == 0 ? leader : 0;
  const int told = follower ? max(products - p.lead, 0) + 1 : 0;
  uint32_t tile_number = 0;
  TileWalk walk(p, known.at);
#pragma unroll 1
  for (int now = known.at.walker; now < tiles; now += known.at.walkers, walk.advance(p)) {
    const TileOrigin origin = walk.origin(p);
    list_destinations<ROW>(
        p, known.at, origin, reinterpret_cast<const int*>(smem + known.map.positions),
        reinterpret_cast<int2*>(smem + known.map.destinations) + group * kPositions, group,
        kGroup0 + group);
    ++tile_number;
    if (ordered && !leads) wait_for_number(leader, tile_number);
    Sums<ROW> sum;
    clear<ROW>(sum);
    if (products > 0)
      multiply_lent<M, ROW, SLICES>(fetcher, products, told, operands, layout_high, follower,
                                    tile_number, sum);
    store_sums<M, ROW>(p, known, sum, origin);
  }
}

// A loop for each number of slices, 2 or 4: in one for both the compiler keeps what is fetched in registers of its own.
template <class M, int ROW>
__device__ __forceinline__ void consume_lent(const GatherParams& p, const TensorMaps& maps,
                                             const Known& known) {
  bring_resident_weights<M, ROW>(p, maps, known);
  if (p.slices == 4)
    consume_slices<M, ROW, 4>(p, known);
  else
    consume_slices<M, ROW, 2>(p, known);
}

}  // namespace convt2d::cuda::hopper
