// What a consumer knows, and does whatever it multiplies: hopper_gather.cuh, hopper_fetched.cuh.
#pragma once

#include "cuda/hopper/hopper_stage.cuh"
#include "cuda/hopper/hopper_store_rows.cuh"

namespace convt2d::cuda::hopper {

// Named barriers, beside those of the producers: all consumers, a group of them.
enum { kAllConsumers = 1, kGroup0 = 2 };

// What the loop over a tile's chunks goes by.
struct Loop {
  uint32_t barriers, patch, weights, shifts;
  int patch_stage, weight_stage, products;
  int slot_ends[kMaxSlots];  // channel rows: products of a column phase and those before it
};
// What a consumer looks up for each tile, in shared memory: its sums leave it few registers, and what it
// spills to local memory comes back from L2, since the loads of the producers flood the small L1.
struct Known {
  Scope at;
  SharedMap map;
  Places places;
  Loop loop;
};
static_assert(sizeof(Known) <= kKnownBytes, "SharedMap has no more room");

// Calls `visit` with the number of slices that a chunk has as a type.
template <class Visit>
__device__ __forceinline__ void visit_slices(int slices, Visit&& visit) {
  if (slices == 4) {
    visit(std::integral_constant<int, 4>());
  } else if (slices == 2) {
    visit(std::integral_constant<int, 2>());
  } else {
    visit(std::integral_constant<int, 1>());
  }
}

// Weights that stay, before anybody multiplies.
template <class M, int ROW>
__device__ __forceinline__ void bring_resident_weights(const GatherParams& p,
                                                       const TensorMaps& maps, const Known& known) {
  if (p.weight_stages) return;
  if (kTiles[ROW].fetched && p.one_chunk) {
    gather_weights<M, ROW>(p, known.at, known.places, known.map);
  } else {
    bring_all_weights<M, ROW>(p, known.at, maps, known.places, known.map.weight_stage);
  }
  fence_for_wgmma();
  barrier_among(kAllConsumers, consumers(kTiles[ROW]));
}

template <int ROW>
__device__ __forceinline__ void clear(Sums<ROW>& sum) {
#pragma unroll
  for (int o = 0; o < kTiles[ROW].operands; ++o)
#pragma unroll
    for (int s = 0; s < kTiles[ROW].slots; ++s)
#pragma unroll
      for (int i = 0; i < kTiles[ROW].width / 2; ++i) sum[o][s][i] = 0.f;
}

template <class M, int ROW>
__device__ __forceinline__ void store_sums(const GatherParams& p, const Known& known,
                                           Sums<ROW>& sum, TileOrigin origin) {
  using T = typename M::Element;
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kPositions = tile.operands * operand_positions(tile);
  const SharedMap& map = known.map;
  const Places& places = known.places;
  // Not by way of places.base, of which the compiler would not know that it is shared memory.
  const Tables tables = {
      reinterpret_cast<const ColumnInfo*>(smem + map.columns),
      reinterpret_cast<const int*>(smem + map.positions),
      places.pairs,
      places.even,
      reinterpret_cast<const int2*>(smem + map.destinations) + threadIdx.x / 128 * kPositions,
      places.staging + threadIdx.x / 32 * staging_bytes(tile, sizeof(T))};
  if constexpr (staged(tile)) {
    store_channel_rows<M, ROW>(p, known.at, sum, tables, origin);
  } else if constexpr (tile.channel_rows) {
    store_channel_runs<M, ROW>(p, known.at, sum, tables, origin);
  } else {
    store_pixel_rows<M, ROW>(p, known.at, sum, tables, origin);
  }
}

}  // namespace convt2d::cuda::hopper
