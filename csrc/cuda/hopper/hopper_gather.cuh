// The hopper kernel of forward and grad_input. hopper_config.h draws the tiling, hopper_stage.cuh is
// the producers' side, hopper_store.cuh the epilogue.
//
// A persistent block walks tiles of positions for one combination of (group, column tile, phases).
// Producers and consumers hand buffers to each other through barriers in shared memory: `full` when the
// producers have filled one, `empty` when the tensor cores have read it. The two consumer groups work on
// halves of a tile each. Nothing makes them take turns, so they tend to multiply together and then to
// store together; while they store, the producers fill the next tile's buffers.
#pragma once

#include "cuda/hopper/hopper_stage.cuh"
#include "cuda/hopper/hopper_store_rows.cuh"

namespace convt2d::cuda::hopper {

// Named barriers, beside those of the producers: all consumers, a group of them.
enum { kAllConsumers = 1, kGroup0 = 2 };

// What a consumer looks up again for each tile, in shared memory: its sums leave it few registers, and what it
// spills to local memory comes back from L2, since the loads of the producers flood the small L1.
struct Known {
  Scope at;
  SharedMap map;
  Places places;
};
static_assert(sizeof(Known) <= kKnownBytes, "SharedMap has no more room");

template <class M, int ROW>
__device__ __forceinline__ void consume(const GatherParams& p, const Known& known) {
  const Scope& at = known.at;
  const SharedMap& map = known.map;
  const Places& places = known.places;
  using T = typename M::Element;
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kPositions = tile.operands * operand_positions(tile);
  using Multiply = Wgmma<T, tile.width>;
  const int lane = threadIdx.x & 31, group = threadIdx.x / 128;
  const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  const int* const shifts = reinterpret_cast<const int*>(places.base + map.shifts);
  const uint64_t source_layout = operand_layout(source_half(p), group_pixels(p) * kHalfBytes);
  const uint64_t weight_layout =
      operand_layout(weight_rows(tile) * kHalfBytes, kGroup * kHalfBytes);
  uint32_t first_pixel[tile.operands];  // bytes
#pragma unroll
  for (int o = 0; o < tile.operands; ++o)
    first_pixel[o] = operand_pixel(p, tile, group * tile.operands + o) * kHalfBytes;

  if (!p.weight_stages) {
    bring_all_weights<M>(p, at, tile, places, map.weight_stage);
    fence_for_wgmma();
    barrier_among(kAllConsumers, kConsumers);
  }

  const int slices = 1 << p.slice_shift;
  const int chunks = at.products ? p.chunks : 0;
  const int slice_stride = source_slice(p);
  const int weight_slice = p.part_products * product_bytes(tile);
  Ring source, weight;
  TileWalk walk(p, at.walker);
  for (int now = at.walker; now < tiles; now += p.walkers, walk.advance(p)) {
    const TileOrigin origin = walk.origin(p);
    if constexpr (tile.channel_rows)
      list_destinations<ROW>(
          p, at, origin, reinterpret_cast<const int*>(places.base + map.positions),
          reinterpret_cast<int2*>(places.base + map.destinations) + group * kPositions, group,
          kGroup0 + group);
    Sums<ROW> sum;
#pragma unroll
    for (int o = 0; o < tile.operands; ++o)
#pragma unroll
      for (int s = 0; s < tile.slots; ++s)
#pragma unroll
        for (int i = 0; i < tile.width / 2; ++i) sum[o][s][i] = 0.f;

    // Buffers whose last multiplication was issued, but maybe not finished: given back a product later.
    uint32_t done_source = 0, done_weight = 0;
    const auto give_back = [&] {
      if (lane == 0) {
        if (done_source) barrier_arrive(done_source);
        if (done_weight) barrier_arrive(done_weight);
      }
      done_source = done_weight = 0;
    };
    for (int chunk = 0; chunk < chunks; ++chunk) {
      barrier_wait(places.full_source + source.stage * 8, source.parity);
      const uint32_t patch = places.patch + source.stage * map.patch_stage;
      for (int part = 0; part < at.parts; ++part) {
        const int first_product = part * p.part_products;
        const int last_product = min(first_product + p.part_products, at.products);
        if (p.weight_stages) barrier_wait(places.full_weight + weight.stage * 8, weight.parity);
        const uint32_t weights = places.weights +
                                 (p.weight_stages ? weight.stage : chunk) * map.weight_stage -
                                 first_product * product_bytes(tile);
        int slot_first = 0;
#pragma unroll
        for (int s = 0; s < tile.slots; ++s) {
          const int slot_last =
              tile.channel_rows ? slot_first + products_of(p, at, s) : at.products;
          const int last = min(slot_last, last_product);
#pragma unroll 1
          for (int i = max(slot_first, first_product); i < last; ++i) {
            const uint32_t pixels = patch + shifts[i];
            const uint32_t rows = weights + i * product_bytes(tile);
            wgmma_fence();
            for (int slice = 0; slice < slices; ++slice) {
              const uint64_t w = operand(weight_layout, rows + slice * weight_slice);
#pragma unroll
              for (int o = 0; o < tile.operands; ++o) {
                const uint64_t x =
                    operand(source_layout, pixels + slice * slice_stride + first_pixel[o]);
                if constexpr (tile.channel_rows) {
                  Multiply::add(sum[o][s], w, x);
                } else {
                  Multiply::add(sum[o][s], x, w);
                }
              }
            }
            wgmma_commit();
            if (done_source | done_weight) {
              wgmma_wait<1>();
              give_back();
            }
          }
          slot_first = slot_last;
        }
        if (p.weight_stages) {
          done_weight = places.empty_weight + weight.stage * 8;
          weight.advance(p.weight_stages);
        }
        if (part + 1 == at.parts) done_source = places.empty_source + source.stage * 8;
      }
      source.advance(p.source_stages);
    }
    wgmma_wait<0>();
    give_back();

    const Tables tables = {
        places.columns,
        reinterpret_cast<const int*>(places.base + map.positions),
        places.pairs,
        places.even,
        reinterpret_cast<const int2*>(places.base + map.destinations) + group * kPositions,
        places.staging + threadIdx.x / 32 * staging_bytes(tile, sizeof(T))};
    if constexpr (tile.channel_rows) {
      store_channel_rows<M, ROW>(p, at, sum, tables, origin);
    } else {
      store_pixel_rows<M, ROW>(p, at, sum, tables, origin);
    }
  }
}

template <class M, int ROW>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_hopper_gather_kernel(const __grid_constant__ GatherParams p) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  constexpr TileRow tile = kTiles[ROW];
  extern __shared__ __align__(128) unsigned char smem[];
  const SharedMap map = shared_map(p, tile);
  const Scope at = scope_of(p, tile);
  int* const taps = reinterpret_cast<int*>(smem + map.taps);
  ColumnInfo* const columns = reinterpret_cast<ColumnInfo*>(smem + map.columns);
  build_products(p, at, tile, reinterpret_cast<int*>(smem + map.shifts), taps);
  build_columns<typename M::Element>(p, at, tile, columns);
  build_positions(p, tile, reinterpret_cast<int*>(smem + map.positions));

  Places places;
  places.base = smem;
  places.taps = taps;
  places.columns = columns;
  const uint32_t barriers = shared_address(smem + map.barriers);
  places.full_source = barriers;
  places.empty_source = barriers + kMaxStages * 8;
  places.full_weight = barriers + kMaxStages * 16;
  places.empty_weight = barriers + kMaxStages * 24;
  places.staging = shared_address(smem + map.staging);
  places.dump = shared_address(smem + map.dump);
  places.kernel = reinterpret_cast<int*>(smem + map.kernel);
  places.patch = shared_address(smem + map.patch);
  places.weights = shared_address(smem + map.weights);
  if (threadIdx.x < kMaxStages) {  // a lane of each warp arrives; one producer group fills a buffer
    barrier_init(places.full_source + threadIdx.x * 8, kProducers / 64);
    barrier_init(places.empty_source + threadIdx.x * 8, kConsumers / 32);
    barrier_init(places.full_weight + threadIdx.x * 8, kProducers / 64);
    barrier_init(places.empty_weight + threadIdx.x * 8, kConsumers / 32);
  }
  __syncthreads();
  build_kernel(p, at, tile, taps, reinterpret_cast<int*>(smem + map.kernel));
  const bool one = threadIdx.x * 2 < weight_rows(tile);
  const ColumnInfo *const first = columns + (one ? threadIdx.x * 2 : 0), *const second = first + 1;
  places.pairs = __syncthreads_and(first->offset < 0 ? second->offset < 0
                                                     : second->offset == first->offset + 1);
  const int other = stacked(p, tile) == 1 ? second->offset : -1;
  places.even = __syncthreads_and((first->offset < 0 || first->offset % 2 == 0) &&
                                  (other < 0 || other % 2 == 0));

  Known& known = *reinterpret_cast<Known*>(smem + kKnown);
  if (threadIdx.x == 0) known = {at, map, places};
  __syncthreads();

  if (threadIdx.x >= kConsumers) {
    fewer_registers<kProducerRegisters>();
    produce<M>(p, at, tile, map, places);
  } else {
    more_registers<kConsumerRegisters>();
    consume<M, ROW>(p, known);
  }
#endif
}

}  // namespace convt2d::cuda::hopper
