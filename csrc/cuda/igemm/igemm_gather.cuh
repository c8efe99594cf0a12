// The igemm kernel of forward and grad_input. igemm_config.h draws the tiling.
//
// A persistent block walks tiles of positions for one combination of (group, channel tile,
// phases). While the tensor cores work on a unit of the reduction, the next ones arrive in other stages;
// one barrier a unit. That goes on across tiles, and during the epilogue. Where the reduction is shared out,
// a block has one tile, and its part of it is added to the others' (igemm_share.cuh).
#pragma once

#include "cuda/igemm/igemm_store.cuh"

namespace convt2d::cuda::igemm {

// One step's source fragments: 64 positions x 32 bytes of channels. `row` are this lane's positions in
// the patch, in bytes: for pixel rows the 16 rows of each ldmatrix, for planes rows g and g + 8.
template <class M, bool PLANES>
struct SourceFragments {
  static constexpr int kTiles = kWarpPositions / 16;
  static constexpr int kRows = PLANES ? 2 * kTiles : kTiles;

  static __device__ __forceinline__ void rows_of(const GatherParams& p, uint32_t (&row)[kRows]) {
    const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) % position_warps(p);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int position =
          warp * kWarpPositions + (PLANES ? i * 8 + (lane >> 2) : i * 16 + (lane & 15));
      const TileOrigin in = position_in_tile(p, position);
      const int pixel = in.n < p.tile_n ? (in.n * p.patch_h + in.h * p.patch_step_h) * p.patch_w +
                                              in.w * p.patch_step_w
                                        : 0;
      row[i] = pixel * kPixelBytes<PLANES> +
               (PLANES ? (lane & 3) * plane_pitch(p) * 4 : (lane >> 4) * 16);
    }
  }

  static __device__ __forceinline__ void load(uint32_t (&a)[kTiles][4],
                                              const uint32_t (&row)[kRows], uint32_t shift,
                                              uint32_t four_planes) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      if constexpr (PLANES) {
        a[m][0] = load_shared_4(shift + row[2 * m]);
        a[m][1] = load_shared_4(shift + row[2 * m + 1]);
        a[m][2] = load_shared_4(shift + four_planes + row[2 * m]);
        a[m][3] = load_shared_4(shift + four_planes + row[2 * m + 1]);
      } else {
        ldmatrix_x4(a[m], shift + row[m]);
      }
    }
  }
};

// Sums of a few steps, folded into the rounded ones. Nothing at all for arithmetic that needs none.
template <class M, int COLUMNS, int SLOTS, bool SPLIT = M::kSplit>
struct Partial {
  __device__ __forceinline__ void step(Sums<COLUMNS, SLOTS>&) {}
  __device__ __forceinline__ void fold(Sums<COLUMNS, SLOTS>&) {}
};

template <class M, int COLUMNS, int SLOTS>
struct Partial<M, COLUMNS, SLOTS, true> {
  Sums<COLUMNS, SLOTS> sum = {};
  int steps = 0;

  __device__ __forceinline__ void step(Sums<COLUMNS, SLOTS>& total) {
    if (++steps == M::kFoldSteps) fold(total);
  }

  __device__ __forceinline__ void fold(Sums<COLUMNS, SLOTS>& total) {
    steps = 0;
#pragma unroll
    for (int s = 0; s < SLOTS; ++s)
#pragma unroll
      for (int n = 0; n < COLUMNS / 8; ++n)
#pragma unroll
        for (int m = 0; m < kWarpPositions / 16; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            total[s][n][m][i] += sum[s][n][m][i];
            sum[s][n][m][i] = 0.f;
          }
  }
};

// sum[m] += a[m] * b for the 16-row tiles of a warp and 8 columns.
template <class M, int TILES>
__device__ __forceinline__ void multiply(float (&sum)[TILES][4], const uint32_t (&a)[TILES][4],
                                         uint32_t b0, uint32_t b1) {
#pragma unroll
  for (int m = 0; m < TILES; ++m) M::mma(sum[m], a[m], b0, b1);
}

template <class M, int COLUMNS, int SLOTS, bool PLANES, bool SHARED>
__global__ void __launch_bounds__(32 * most_warps({COLUMNS, SLOTS}, M::kSplit, SHARED),
                                  is_large({COLUMNS, SLOTS}, M::kSplit, SHARED) ? 1 : 3)
    convt2d_igemm_gather_kernel(const __grid_constant__ GatherParams p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // older chips: declined by the planner
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  if constexpr (SHARED) return;  // never planned where there are no clusters
#endif
  constexpr int kEntryBytes = COLUMNS * kRowBytes + 16;
  constexpr int kColumnTiles = COLUMNS / 8, kTiles = kWarpPositions / 16;
  constexpr int kTogether = SHARED && !M::kSplit ? 4 : 1;  // parcels; strict fp32 has no registers
  using Fragments = SourceFragments<M, PLANES>;
  // With few positions a staged number is multiplied once or twice: it is rounded on its way there.
  constexpr bool kRoundsFragments = SHARED && M::kRounds;
  using Staged = std::conditional_t<kRoundsFragments, RawTF32, M>;
  extern __shared__ __align__(128) unsigned char smem[];
  const SharedMap map = shared_map(p, COLUMNS, SLOTS);
  Step<SLOTS>* const steps = reinterpret_cast<Step<SLOTS>*>(smem + map.steps);
  int* const entries = reinterpret_cast<int*>(smem + map.entries);
  int2* const destinations = reinterpret_cast<int2*>(smem + map.destinations);
  int* const sources = reinterpret_cast<int*>(smem + map.sources);
  const uint32_t patch0 = shared_address(smem + map.patch);
  const uint32_t weight0 = shared_address(smem + map.weights);

  const Scope at = scope_of<SHARED>(p);
  const Pieces pieces = pieces_of<Staged, COLUMNS>(p, at);
  const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  const int ahead = p.stages - 1;  // how many units the asynchronous copies lead by
  build_steps<PLANES, kEntryBytes, SLOTS>(p, at, steps, entries);

  uint32_t row[Fragments::kRows];
  Fragments::rows_of(p, row);
  const int lane = threadIdx.x & 31;
  const int weight_lane = (lane >> 4) * 8 + (lane & 7);  // ldmatrix: 16 columns x 2 halves
  uint32_t weight_row = weight_lane * kRowBytes + (((lane >> 3 & 1) ^ (weight_lane >> 2 & 1)) << 4);
  const uint32_t four_planes = plane_pitch(p) * 16;

  // A warp's team multiplies its share of the slices of a chunk, and of the steps where teams are more.
  const int slice_teams = SHARED ? p.slice_teams : 1, step_teams = SHARED ? p.step_teams : 1;
  int first_step = 0;
  if (SHARED && p.teams > 1) {
    const int team = (threadIdx.x >> 5) / position_warps(p), first_slice = team % slice_teams;
    first_step = team / slice_teams;
    weight_row += first_slice * weight_slice(p, COLUMNS);
#pragma unroll
    for (int i = 0; i < Fragments::kRows; ++i) row[i] += first_slice * at.patch_slice;
  }

  // The unit that is fetched next. The table of its patch is built a barrier earlier.
  int fetch_tile = at.walker, fetch_index = 0, fetch_turn = 0, fetch_stage = 0;
  const auto fetch_sources = [&] { return sources + fetch_turn % 2 * at.patch_pixels; };
  const auto fetch_anew = [&](const Unit& unit) { return fetch_index == 0 || unit.chunk == 0; };
  const auto prepare_fetch = [&] {
    const Unit unit = unit_of<SHARED>(p, at, fetch_index);
    if (fetch_anew(unit) && fetch_tile < tiles)
      build_sources(p, at, fetch_tile, unit, fetch_sources());
  };
  const auto start_fetch = [&] {
    const Unit unit = unit_of<SHARED>(p, at, fetch_index);
    if (fetch_tile < tiles) {
      copy_source<Staged, PLANES>(p, at, unit.chunk, fetch_sources(),
                                  patch0 + fetch_stage * map.patch_stage);
      if (SHARED && p.weights_copied)
        copy_weights<Staged, COLUMNS>(p, at, unit, entries,
                                      weight0 + fetch_stage * map.weight_stage);
    }
    copy_async_commit();
  };
  const auto advance_fetch = [&] {
    if (++fetch_stage == p.stages) fetch_stage = 0;
    if (++fetch_index == at.units) {
      fetch_index = 0;
      fetch_tile += p.walkers;
    }
    fetch_turn += fetch_anew(unit_of<SHARED>(p, at, fetch_index));
  };

  // The first units have nothing to hide behind.
  for (int i = 0; i < ahead; ++i) {
    prepare_fetch();
    __syncthreads();
    start_fetch();
    if (i == 0) {
      const Unit first = unit_of<SHARED>(p, at, 0);
      Delivery d{int(threadIdx.x),
                 pieces.source + pieces.weight,
                 first.chunk,
                 first.chunk,
                 weight_shift(p, first),
                 fetch_sources(),
                 entries,
                 patch0,
                 weight0};
      while (d.next < d.total) {
        Parcel parcel[kTogether];
        pick_all<Staged, COLUMNS>(p, at, pieces, parcel, d);
        deliver_all<Staged>(parcel);
      }
    }
    advance_fetch();
  }
  prepare_fetch();
  copy_async_wait(ahead - 1);
  round_source<Staged, PLANES>(p, at, patch0);
  __syncthreads();

  int stage = 0, weight_stage = 0;
  bool weights_in = false;  // resident weights are complete
  for (int tile = at.walker, turn = 0; tile < tiles; tile += p.walkers, ++turn) {
    int2* const here = destinations + turn % 2 * positions(p);
    build_destinations(p, at, tile, here);
    const bool another = tile + p.walkers < tiles;
    Sums<COLUMNS, SLOTS> sum = {};
    Partial<M, COLUMNS, SLOTS> part;

    for (int index = 0; index < at.units; ++index) {
      const bool last = index + 1 == at.units;
      weights_in |= last && p.resident;
      start_fetch();
      Delivery d;
      d.next = threadIdx.x;
      d.total = last && !another ? 0 : weights_in ? pieces.source : pieces.source + pieces.weight;
      const int next_index = last ? 0 : index + 1;
      const Unit next_unit = unit_of<SHARED>(p, at, next_index);
      d.source_chunk = unit_of<SHARED>(p, at, fetch_index).chunk;
      d.weight_chunk = next_unit.chunk;
      d.weight_shift = weight_shift(p, next_unit);
      d.sources = fetch_sources();
      d.entries = entries;
      d.patch = patch0 + fetch_stage * map.patch_stage;
      d.weight = weight0 + (p.resident ? next_index : weight_stage ^ 1) * map.weight_stage;
      advance_fetch();

      uint32_t patch = patch0 + stage * map.patch_stage;
      uint32_t weight = weight0 +
                        (p.resident                   ? index
                         : SHARED && p.weights_copied ? stage
                                                      : weight_stage) *
                            map.weight_stage +
                        weight_row;
      // Where warps have few steps, several parcels travel together.
      Parcel early[kTogether];
      if constexpr (SHARED) pick_all<Staged, COLUMNS>(p, at, pieces, early, d);
      for (int slice = 0; slice < 1 << p.slice_shift; slice += slice_teams) {
        Step<SLOTS> next = steps[first_step];
        for (int i = first_step; i < at.steps; i += step_teams) {
          const Step<SLOTS> step = next;
          if (i + step_teams < at.steps) next = steps[i + step_teams];
          Parcel parcel;
          const bool carrying = !SHARED && d.next < d.total;
          if (carrying) pick<Staged, COLUMNS>(p, at, pieces, parcel, d);
          uint32_t a[kTiles][4], a_low[kTiles][4];
          Fragments::load(a, row, patch + step.shift, four_planes);
#pragma unroll
          for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              if constexpr (M::kSplit) M::split(a[m][j], a[m][j], a_low[m][j]);
              if constexpr (kRoundsFragments) a[m][j] = M::round(a[m][j]);
            }
#pragma unroll
          for (int s = 0; s < SLOTS; ++s) {
            if (step.entry[s] < 0) continue;
            const uint32_t from = weight + step.entry[s];
#pragma unroll
            for (int n = 0; n < kColumnTiles; n += 2) {
              constexpr int kWide = kColumnTiles == 1 ? 1 : 2;
              uint32_t b[4];
              if constexpr (kWide == 1) {
                ldmatrix_x2(b[0], b[1], from);
              } else {
                ldmatrix_x4(b, from + n * 8 * kRowBytes);
              }
#pragma unroll
              for (int k = 0; k < kWide; ++k) {
                if constexpr (M::kSplit) {
                  uint32_t high[2], low[2];
                  M::split(b[2 * k], high[0], low[0]);
                  M::split(b[2 * k + 1], high[1], low[1]);
                  multiply<M>(part.sum[s][n + k], a_low, high[0], high[1]);
                  multiply<M>(part.sum[s][n + k], a, low[0], low[1]);
                  multiply<M>(part.sum[s][n + k], a, high[0], high[1]);
                } else if constexpr (kRoundsFragments) {
                  multiply<M>(sum[s][n + k], a, M::round(b[2 * k]), M::round(b[2 * k + 1]));
                } else {
                  multiply<M>(sum[s][n + k], a, b[2 * k], b[2 * k + 1]);
                }
              }
            }
          }
          part.step(sum);
          if (carrying) deliver<Staged>(parcel);
        }
        patch += at.patch_slice * slice_teams;
        weight += weight_slice(p, COLUMNS) * slice_teams;
      }
      part.fold(sum);
      if constexpr (SHARED) deliver_all<Staged>(early);
      while (d.next < d.total) {
        Parcel late[kTogether];
        pick_all<Staged, COLUMNS>(p, at, pieces, late, d);
        deliver_all<Staged>(late);
      }
      prepare_fetch();
      if (++stage == p.stages) stage = 0;
      weight_stage ^= 1;
      copy_async_wait(ahead - 1);
      round_source<Staged, PLANES>(p, at, patch0 + stage * map.patch_stage);
      __syncthreads();
    }

    const auto store = [&](const auto& share) {
      if (p.vector_stores) {
        store_vectors<M, COLUMNS, SLOTS>(p, at, share, sum, here, tile);
      } else {
        store_rows<M, COLUMNS, SLOTS>(p, at, share, sum, here,
                                      reinterpret_cast<float*>(smem + map.staging), tile);
      }
    };
    if constexpr (SHARED) {
      constexpr int kStoreTiles = kVectorTiles<typename M::Element, COLUMNS>;
      const Share share = share_of<kStoreTiles, COLUMNS>(p);
      if (p.teams > 1) add_teams<COLUMNS, SLOTS>(p, sum, patch0);
      if (p.ranks > 1) add_ranks<kStoreTiles, COLUMNS, SLOTS>(p, sum, patch0, share);
      if (threadIdx.x >> 5 < position_warps(p)) store(share);
      if (p.ranks > 1) cluster_wait();
    } else {
      store(Everything{});
    }
  }
#endif
}

}  // namespace convt2d::cuda::igemm
