// The hopper kernel of forward and grad_input. hopper_config.h draws the tiling, hopper_stage.cuh is
// the producers' side, hopper_store.cuh the epilogue; consumers that fetch pixels are in hopper_fetched.cuh, those of
// copied channels in hopper_copied.cuh, of which those that fetch weights are in hopper_lent.cuh.
//
// A persistent block walks tiles of positions for one combination of (group, column tile, phases).
// Producers and consumers hand buffers to each other through barriers in shared memory: `full` when the
// producers have filled one, `empty` when the tensor cores have read it. The consumer groups work on
// a part of a tile each. Nothing makes them take turns, so they tend to multiply together and then to
// store together; while they store, the producers fill the next tile's buffers. (Of copied channels, half of them may
// lead, or two blocks share a multiprocessor.)
#pragma once

#include "cuda/hopper/hopper_copied.cuh"
#include "cuda/hopper/hopper_fetched.cuh"
#include "cuda/hopper/hopper_lent.cuh"

namespace convt2d::cuda::hopper {

// Multiplies COUNT slices of the weights with all operands of positions. No loop: its counter and addresses
// would be most of the instructions.
template <class M, int ROW, int COUNT>
__device__ __forceinline__ void add_slices(Sums<ROW>& sum, int slot, uint64_t weights,
                                           uint32_t weight_step,
                                           const uint64_t (&pixels)[kTiles[ROW].operands],
                                           uint32_t source_step) {
  using Multiply = Wgmma<typename M::Element, kTiles[ROW].width>;
#pragma unroll
  for (int slice = 0; slice < COUNT; ++slice) {
    const uint64_t w = advance(weights, slice * weight_step);
#pragma unroll
    for (int o = 0; o < kTiles[ROW].operands; ++o) {
      const uint64_t x = advance(pixels[o], slice * source_step);
      if constexpr (kTiles[ROW].channel_rows) {
        Multiply::add(sum[o][slot], w, x);
      } else {
        Multiply::add(sum[o][slot], x, w);
      }
    }
  }
}

// Strict fp32. A number is the sum of two that the tensor core takes (MmaF32x3), so a product is three; and since it
// cuts off digits where it adds, products are summed in parts, which ordinary additions join.
constexpr int kMostOpen = 4;  // slices of a part
template <int ROW>
using PartialSums = float[kTiles[ROW].operands][kTiles[ROW].width / 2];

// Multiplies SLICES slices of a product. The lesser products come first, while there is little that digits could be
// cut off from.
template <int ROW, int SLICES>
__device__ __forceinline__ void add_split(PartialSums<ROW>& part, bool keep, uint64_t weights,
                                          uint32_t weight_step, uint32_t weight_low,
                                          const uint64_t (&pixels)[kTiles[ROW].operands],
                                          uint32_t source_step, uint32_t source_low) {
  using Multiply = WgmmaPartial<kTiles[ROW].width>;
  constexpr bool kChannels = kTiles[ROW].channel_rows;
  wgmma_fence();
#pragma unroll
  for (int lesser = 1; lesser >= 0; --lesser)
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
      const uint64_t w = advance(weights, slice * weight_step);
#pragma unroll
      for (int o = 0; o < kTiles[ROW].operands; ++o) {
        const uint64_t x = advance(pixels[o], slice * source_step);
        const uint64_t a = kChannels ? w : x, b = kChannels ? x : w;
        const uint32_t low_a = kChannels ? weight_low : source_low,
                       low_b = kChannels ? source_low : weight_low;
        if (lesser) {
          Multiply::add(part[o], advance(a, low_a), b, keep || slice > 0);
          Multiply::add(part[o], a, advance(b, low_b), true);
        } else {
          Multiply::add(part[o], a, b, true);
        }
      }
    }
}

template <class M, int ROW>
__device__ __forceinline__ void consume(const GatherParams& p, const TensorMaps& maps,
                                        const Known& known) {
  const Scope& at = known.at;
  const SharedMap& map = known.map;
  // Whose sums leave more registers keeps this there.
  const std::conditional_t<kTiles[ROW].copied, const Loop, const Loop&> loop = known.loop;
  using T = typename M::Element;
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kPositions = tile.operands * operand_positions(tile);
  const int lane = threadIdx.x & 31,
            group = tile.strict ? int(threadIdx.x) / 128 : warpgroup_of_block();
  const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  const uint64_t source_layout = operand_layout(p.source_half, group_pixels(p) * kHalfBytes),
                 weight_layout =
                     operand_layout(weight_rows(tile) * kHalfBytes, kGroup * kHalfBytes);
  uint32_t first_pixel[tile.operands];  // bytes
#pragma unroll
  for (int o = 0; o < tile.operands; ++o)
    first_pixel[o] = operand_pixel(p, tile, group * tile.operands + o) * p.pixel_bytes;

  bring_resident_weights<M, ROW>(p, maps, known);

  const int slices = 1 << p.slice_shift;
  const int chunks = loop.products ? p.chunks : 0;
  const uint32_t source_step = p.source_slice >> 4, weight_step = p.weight_slice >> 4;
  const int product_stride = p.product_bytes;
  Ring source, weight;
  TileWalk walk(p, at);
  for (int now = at.walker; now < tiles; now += at.walkers, walk.advance(p)) {
    const TileOrigin origin = walk.origin(p);
    if constexpr (tile.channel_rows)
      list_destinations<ROW>(p, at, origin, reinterpret_cast<const int*>(smem + map.positions),
                             reinterpret_cast<int2*>(smem + map.destinations) + group * kPositions,
                             group, kGroup0 + group);
    Sums<ROW> sum;
    clear<ROW>(sum);

    std::conditional_t<tile.strict, PartialSums<ROW>, int> part;
    int open = 0;  // slices in them
    // Buffers whose last multiplication was issued, but maybe not finished: given back a product later.
    uint32_t done_source = 0, done_weight = 0;
    const auto give_back = [&] {
      if (lane == 0) {
        if (done_source) barrier_arrive(done_source);
        if (done_weight) barrier_arrive(done_weight);
      }
      done_source = done_weight = 0;
    };
    const uint32_t full_source = loop.barriers, empty_source = full_source + kMaxStages * 8,
                   full_weight = empty_source + kMaxStages * 8,
                   empty_weight = full_weight + kMaxStages * 8;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      barrier_wait(full_source + source.stage * 8, source.parity);
      const uint32_t patch = loop.patch + source.stage * loop.patch_stage;
      for (int from = 0; from < loop.products; from += p.part_products) {
        const int to = min(from + p.part_products, loop.products);
        if (p.weight_stages) barrier_wait(full_weight + weight.stage * 8, weight.parity);
        const uint32_t weights =
            loop.weights + (p.weight_stages
                                ? weight.stage * loop.weight_stage - from * product_stride
                                : chunk * loop.weight_stage);
        int slot_first = 0;
#pragma unroll
        for (int s = 0; s < tile.slots; ++s) {
          const int slot_last = tile.channel_rows ? loop.slot_ends[s] : loop.products;
          const int end = min(slot_last, to);
#pragma unroll 1
          for (int i = max(slot_first, from); i < end; ++i) {
            const uint32_t product = weights + i * product_stride;
            const uint32_t pixels = patch + load_shared_4(loop.shifts + i * 4);
            uint64_t x[tile.operands];
#pragma unroll
            for (int o = 0; o < tile.operands; ++o)
              x[o] = operand(source_layout, pixels + first_pixel[o]);
            if constexpr (tile.strict) {
              const uint64_t w = operand(weight_layout, product);
              visit_slices(slices, [&](auto count) {
                add_split<ROW, decltype(count)::value>(part, open > 0, w, weight_step,
                                                       p.weight_low >> 4, x, source_step,
                                                       p.source_low >> 4);
                wgmma_commit();
              });
              if (done_source | done_weight) {
                wgmma_wait<1>();
                give_back();
              }
              open += slices;
              if (open >= kMostOpen || i + 1 == end) {
                open = 0;
                wgmma_wait<0>();
#pragma unroll
                for (int o = 0; o < tile.operands; ++o) {
                  finished(part[o]);
#pragma unroll
                  for (int k = 0; k < tile.width / 2; ++k) sum[o][s][k] += part[o][k];
                }
              }
            } else {
              const uint64_t w = operand(weight_layout, product);
              // Committed in each branch: behind them the compiler adds an empty instruction, and waits for that.
              visit_slices(slices, [&](auto count) {
                wgmma_fence();
                add_slices<M, ROW, decltype(count)::value>(sum, s, w, weight_step, x, source_step);
                wgmma_commit();
              });
              if (done_source | done_weight) {
                wgmma_wait<1>();
                give_back();
              }
            }
          }
          slot_first = slot_last;
        }
        if (p.weight_stages) {
          done_weight = empty_weight + weight.stage * 8;
          weight.advance(p.weight_stages);
          if constexpr (tile.strict) give_back();
        }
      }
      done_source = empty_source + source.stage * 8;
      source.advance(p.source_stages);
      if constexpr (tile.strict) give_back();
    }
    wgmma_wait<0>();
    give_back();

    store_sums<M, ROW>(p, known, sum, origin);
  }
}

// Where a block keeps what its threads look up, but for what is said about its columns.
__device__ __forceinline__ Places places_of(const SharedMap& map, unsigned char* smem) {
  Places places{};
  places.base = smem;
  places.taps = reinterpret_cast<int*>(smem + map.taps);
  places.columns = reinterpret_cast<ColumnInfo*>(smem + map.columns);
  const uint32_t barriers = shared_address(smem + map.barriers);
  places.full_source = barriers;
  places.empty_source = barriers + kMaxStages * 8;
  places.full_weight = barriers + kMaxStages * 16;
  places.empty_weight = barriers + kMaxStages * 24;
  places.full_rows = barriers + kMaxStages * 32;
  places.rows = shared_address(smem + map.rows);
  places.staging = shared_address(smem + map.staging);
  places.dump = shared_address(smem + map.dump);
  places.kernel = reinterpret_cast<int*>(smem + map.kernel);
  places.patch = shared_address(smem + map.patch);
  places.weights = shared_address(smem + map.weights);
  return places;
}

// A lane of each busy warp arrives; one producer group fills a buffer, or the copy engine for one thread. kMaxStages threads.
__device__ __forceinline__ void init_barriers(const GatherParams& p, TileRow tile,
                                              const Places& places, int thread) {
  constexpr int kFilled = 4;
  const int of_stage = thread * 8, read = busy_groups(p, tile) * 4;
  barrier_init(places.full_source + of_stage, !straight(tile)    ? kFilled
                                              : p.brought_pieces ? kBringers
                                                                 : 1);
  barrier_init(places.empty_source + of_stage, read);
  barrier_init(places.full_weight + of_stage, copied(p.weight_mode) ? 1 : kFilled);
  barrier_init(places.empty_weight + of_stage, read);
  barrier_init(places.full_rows + of_stage, tile.strict ? kSplitters / 32 : 1);
  fence_for_wgmma();  // and for the copy engine
}

// What is said about columns, seen from two of them.
__device__ __forceinline__ bool are_pairs(const ColumnInfo* two) {
  return two[0].offset < 0 ? two[1].offset < 0 : two[1].offset == two[0].offset + 1;
}
__device__ __forceinline__ bool are_even(const ColumnInfo* two, bool one_phase) {
  const int other = one_phase ? two[1].offset : -1;
  return (two[0].offset < 0 || two[0].offset % 2 == 0) && (other < 0 || other % 2 == 0);
}

__device__ __forceinline__ Loop loop_of(const Scope& at, const SharedMap& map, const Places& places,
                                        unsigned char* smem) {
  return {places.full_source, places.patch,     places.weights, shared_address(smem + map.shifts),
          map.patch_stage,    map.weight_stage, at.products,    {}};
}

// Those who ask the copy engine, or bring rows, write what they need by themselves and start at once, while the others
// write the rest.
template <class M, int ROW>
__device__ __forceinline__ void ask_from_the_start(const GatherParams& p, const TensorMaps& maps,
                                                   const Scope& at, const SharedMap& map,
                                                   const Places& places) {
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kThreads = producers(tile);
  const int thread = threadIdx.x - consumers(tile);
  if (thread >= kThreads - kMaxStages) init_barriers(p, tile, places, thread % kMaxStages);
  if (thread == 32) prefetch_map(&maps.source);
  if (thread == 33 && copied(p.weight_mode)) prefetch_map(&maps.weight);
  if constexpr (tile.fetched) {
    build_pieces(p, reinterpret_cast<int2*>(smem + map.pieces), thread, kThreads);
    if constexpr (has_alike_halves(tile))
      list_spread_rows(p, reinterpret_cast<int2*>(smem + map.pieces), thread, kThreads);
  } else {
    build_products(p, at, tile, reinterpret_cast<int*>(smem + map.shifts),
                   reinterpret_cast<int*>(smem + map.taps), thread, kThreads);
    build_firsts(p, at, tile, reinterpret_cast<int*>(smem + map.firsts), thread ^ kThreads / 2,
                 kThreads);
  }
  barrier_among(kProducerGroup0, kThreads);
  if (!tile.fetched && p.weight_stages &&
      !copied(p.weight_mode)) {  // they bring weights, by columns
    barrier_among(kTables, threads(tile));
  } else {
    barrier_join(kTables, threads(tile));
  }
  produce<M, ROW>(p, at, map, maps, places);
}
template <class M, int ROW>
__device__ __forceinline__ void write_tables(const GatherParams& p, const Scope& at,
                                             const SharedMap& map, Places places, Known& known) {
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kThreads = consumers(tile);
  const int thread = threadIdx.x;
  ColumnInfo* const columns = reinterpret_cast<ColumnInfo*>(smem + map.columns);
  build_columns<typename M::Element>(p, at, tile, columns, thread, kThreads);
  build_positions(p, tile, reinterpret_cast<int*>(smem + map.positions), kThreads - 1 - thread,
                  kThreads);
  if constexpr (tile.fetched)
    build_offsets(p, at, reinterpret_cast<int*>(smem + map.offsets), thread, kThreads);
  uint2* const steps = reinterpret_cast<uint2*>(smem + map.offsets);
  if (by_steps(tile) && thread == 0)
    steps[p.max_products] = make_uint2(0, 0);  // tiles that leaders have begun
  if (thread == 32) known.at = at;
  if (thread == 64) known.map = map;
  if (thread == 96) known.loop = loop_of(at, map, places, smem);
  if (tile.fetched && thread == 128) known.places = places;
  barrier_among(kTables, threads(tile));
  if constexpr (by_steps(tile)) {
    build_steps(p, at, tile, reinterpret_cast<const int*>(smem + map.shifts),
                reinterpret_cast<const int*>(smem + map.firsts), steps, thread, kThreads);
    if (p.store_mode == kSingles) {
      const ColumnInfo* const two = columns + (thread * 2 < weight_rows(tile) ? thread * 2 : 0);
      places.pairs = barrier_all(kAllConsumers, kThreads, are_pairs(two));
      places.even = barrier_all(kAllConsumers, kThreads, are_even(two, stacked(p, tile) == 1));
    }
    if (thread == 128) known.places = places;
    barrier_among(kAllConsumers, kThreads);
  }
}

// Everything else: all threads write all tables first.
template <class M, int ROW>
__device__ __forceinline__ void write_all_tables(const GatherParams& p, const Scope& at,
                                                 const SharedMap& map, Places& places,
                                                 Known& known) {
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr TileRow tile = kTiles[ROW];
  constexpr int kThreads = threads(tile);
  const int thread = threadIdx.x;
  int* const taps = reinterpret_cast<int*>(smem + map.taps);
  ColumnInfo* const columns = reinterpret_cast<ColumnInfo*>(smem + map.columns);
  build_products(p, at, tile, reinterpret_cast<int*>(smem + map.shifts), taps, thread, kThreads);
  build_columns<typename M::Element>(p, at, tile, columns, thread, kThreads);
  build_positions(p, tile, reinterpret_cast<int*>(smem + map.positions), thread, kThreads);
  if constexpr (straight(tile))
    build_firsts(p, at, tile, reinterpret_cast<int*>(smem + map.firsts), thread, kThreads);
  if (thread < kMaxStages) init_barriers(p, tile, places, thread);
  __syncthreads();
  build_kernel(p, at, tile, taps, reinterpret_cast<int*>(smem + map.kernel));
  if constexpr (tile.weights_fetched) {
    uint2* const steps = reinterpret_cast<uint2*>(smem + map.offsets);
    build_steps(p, at, tile, reinterpret_cast<const int*>(smem + map.shifts),
                reinterpret_cast<const int*>(smem + map.firsts), steps, thread, kThreads);
    if (thread == 0) steps[p.max_products] = make_uint2(0, 0);  // tiles that leaders have begun
  }
  const ColumnInfo* const two = columns + (thread * 2 < weight_rows(tile) ? thread * 2 : 0);
  places.pairs = __syncthreads_and(are_pairs(two));
  places.even = __syncthreads_and(are_even(two, stacked(p, tile) == 1));
  if (thread == 0) {
    known = {at, map, places, loop_of(at, map, places, smem)};
    int end = 0;
    for (int s = 0; s < kMaxSlots; ++s) known.loop.slot_ends[s] = end += products_of(p, at, s);
  }
  __syncthreads();
}

template <class M, int ROW, bool BROUGHT = false>
__global__ void __launch_bounds__(threads(kTiles[ROW]), blocks_together(kTiles[ROW]))
    convt2d_hopper_gather_kernel(const __grid_constant__ GatherParams p,
                                 const __grid_constant__ TensorMaps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  constexpr TileRow tile = kTiles[ROW];
  extern __shared__ __align__(1024) unsigned char smem[];
  const SharedMap map = shared_map(p, tile);
  const Scope at = scope_of(p, tile);
  Places places = places_of(map, smem);
  Known& known = *reinterpret_cast<Known*>(smem + kKnown);
  if constexpr (!asked_from_the_start(tile)) write_all_tables<M, ROW>(p, at, map, places, known);

  // Strict tiles have no registers for it: up to 1.3 times as slow.
  const int warp = tile.strict ? int(threadIdx.x) / 32 : warp_of_block();
  if (warp >= consumers(tile) / 32) {
    if constexpr (!tile.twin) fewer_registers<producer_registers(tile)>();
    if constexpr (asked_from_the_start(tile)) {
      ask_from_the_start<M, ROW>(p, maps, at, map, places);
    } else {
      produce<M, ROW>(p, at, map, maps, places);
    }
  } else {
    if constexpr (!tile.twin) more_registers<consumer_registers(tile)>();
    if constexpr (asked_from_the_start(tile)) write_tables<M, ROW>(p, at, map, places, known);
    if constexpr (by_steps(tile)) {
      consume_copied<M, ROW>(p, maps, known);
    } else if constexpr (tile.weights_fetched) {
      consume_lent<M, ROW>(p, maps, known);
    } else if constexpr (tile.fetched && tile.strict) {
      consume_strict<M, ROW>(p, maps, known);
    } else if constexpr (tile.fetched) {
      consume_fetched<M, ROW, BROUGHT>(p, maps, known);
    } else {
      consume<M, ROW>(p, maps, known);
    }
  }
#endif
}

}  // namespace convt2d::cuda::hopper
