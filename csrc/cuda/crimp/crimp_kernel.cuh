// The crimp kernel; crimp_config.h draws the GEMM.
//
// Warpgroups add up and store on their own; the ring lets one be ahead of others.
// Nothing is multiplied that does not exist but for columns right of a row and channels behind the last, of which nothing is stored.
#pragma once

#include "cuda/crimp/crimp_scope.cuh"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/tensor_store.cuh"
#include "cuda/device/uniform.cuh"

namespace convt2d::cuda::crimp {

// One thread asks for all. `fresh`: weights come, and stay.
template <int EIGHTS>
__device__ __forceinline__ void bring(const Params& p, const Maps& maps, uint32_t shared) {
  const int depth = p.slices * kSlice, line = depth * kLine;
  for_chunks(p, shared, EIGHTS * 8,
             [&](const StageRing& ring, const Item& item, int row, int chunk, bool fresh) {
               barrier_expect(ring.full(), p.stage_bytes + (fresh ? p.weight_bytes : 0));
#pragma unroll
               for (int box = 0; box < boxes_of(EIGHTS); ++box)
                 copy_box(ring.stage() + box * line, &maps.x, ring.full(),
                          item.column + box * kLineNumbers, row, chunk * depth,
                          item.image * p.groups + item.group);
               for (int team = 0; fresh && team < p.teams; ++team)
                 copy_box(shared + p.weights_at + chunk * p.weight_bytes + team * line, &maps.w,
                          ring.full(), item.channel * 2 * p.stride + team * kRows, chunk * depth,
                          item.group, 0);
             });
}

// A chunk's weights of a warpgroup, in place: of a warp's 16 numbers of a line, which are 2 s taps of each channel, the first s
// of all channels before the others.
__device__ __forceinline__ void sort_taps(int stride, uint32_t weights, int depth, int team) {
  for (int i = threadIdx.x % 128; i < depth * 4; i += 128) {
    const uint32_t low = weights + i / 4 * kLine + ((i % 4 * 2 ^ i / 4 % 8) << 4), high = low ^ 16;
    uint32_t a[4], b[4];
    load_shared_16(low, a);
    load_shared_16(high, b);
    if (stride == 4) {
      store_shared_16(low, {a[0], a[1], b[0], b[1]});
      store_shared_16(high, {a[2], a[3], b[2], b[3]});
    } else {
      store_shared_16(low, {a[0], a[2], b[0], b[2]});
      store_shared_16(high, {a[1], a[3], b[1], b[3]});
    }
  }
  fence_for_wgmma();
  barrier_among(1 + team, 128);
}

template <class T, int SLICES, int NUMBERS>
__device__ __forceinline__ void multiply_slices(float (&sum)[1][NUMBERS], uint64_t w, uint64_t x) {
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
    WgmmaTurned<T, NUMBERS * 2>::add(sum[0], advance(w, slice * (kSlice * kLine >> 4)),
                                     advance(x, slice * (kSlice * kLine >> 4)));
  wgmma_commit();
}

// Adds a tile's products to `sum`, and calls meanwhile() once the first are under way. `fresh`: weights are those just come.
template <class T, int NUMBERS, class Meanwhile>
__device__ __forceinline__ void multiply(const Params& p, uint32_t weights, int team, bool fresh,
                                         StageRing& ring, float (&sum)[1][NUMBERS],
                                         Meanwhile&& meanwhile) {
  const int depth = p.slices * kSlice, line = depth * kLine;
  const uint64_t layout = turned_layout(kLine, line);
  weights += team * line;
  uint32_t before = 0;  // `empty` of the stage whose products are under way
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk, weights += p.weight_bytes, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    if (fresh && p.stride != kWarpLines) sort_taps(p.stride, weights, depth, team);
    const uint64_t x = operand(layout, ring.stage()), w = operand(layout, weights);
    // Each branch commits: behind them the compiler would add an empty instruction, and wait for that.
    if (p.slices == kMostSlices) {
      multiply_slices<T, kMostSlices>(sum, w, x);
    } else {
      multiply_slices<T, kMostSlices / 2>(sum, w, x);
    }
    if (before) {
      wgmma_wait<1>();
      if (threadIdx.x % 32 == 0) barrier_arrive(before);
    } else {
      meanwhile();
    }
    before = ring.empty();
  }
  wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) barrier_arrive(before);
  finished(sum[0]);
}

// A row of y, narrowed, from sums that are complete; those of the row below begin where they were.
template <class T, int EIGHTS>
__device__ __forceinline__ void take_row(float (&sum)[EIGHTS * 4], uint32_t (&row)[EIGHTS],
                                         float bias) {
#pragma unroll
  for (int e = 0; e < EIGHTS; ++e) {
    row[e] = pack<T>(sum[4 * e], sum[4 * e + 1]);
    sum[4 * e] = sum[4 * e + 2], sum[4 * e + 1] = sum[4 * e + 3];
    sum[4 * e + 2] = sum[4 * e + 3] = bias;
  }
}

// Where a lane's columns of the first eight of a box lie, whose rows have EIGHTS of them.
template <int EIGHTS>
__device__ __forceinline__ uint32_t place_of(uint32_t box, int line) {
  const int at = line * EIGHTS * 16, swizzle = is_swizzled(EIGHTS) ? at >> 7 & EIGHTS - 1 : 0;
  return box + (at ^ swizzle << 4) + threadIdx.x % 4 * 4;
}

template <class T, int EIGHTS>
__device__ __forceinline__ void consume(const Params& p, const Maps& maps, uint32_t shared) {
  constexpr int kLast = last_eights(EIGHTS), kWhole = EIGHTS - kLast;
  const int team = warpgroup_of_block(), warp = warp_of_block(), lane = threadIdx.x % 32,
            line = lane / 4;  // of the warp's rows of y, the lane's
  const uint32_t out = shared + kOutAt + warp * box_bytes(kWhole),
                 last_box = shared + p.last_at + warp * box_bytes(kLast),
                 whole = place_of<kLineEights>(out, line), last = place_of<kLast>(last_box, line);
  StageRing ring = ring_of(p, shared);
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of(p, i, EIGHTS * 8);
    const int channel = item.channel + warp * (kWarpLines / p.stride),
              own = channel + line / p.stride;
    const float bias = p.bias && own < p.columns
                           ? load(static_cast<const T*>(p.bias) + item.group * p.columns + own)
                           : 0.f;
    float sum[1][EIGHTS * 4];
#pragma unroll
    for (int j = 0; j < EIGHTS * 4; ++j) sum[0][j] = bias;
    uint32_t made[EIGHTS];
    const auto place = [&](int e) {
      const int at = e % kLineEights * 16;
      return e < kWhole ? whole ^ at : is_swizzled(kLast) ? last ^ at : last + at;
    };
    // What row `row` of x completed, to memory.
    const auto store = [&](int row) {
      if (row < item.begin) return;
      if (lane == 0) stored_boxes_read();
      __syncwarp();  // the rows before have been read
#pragma unroll
      for (int e = 0; e < EIGHTS; ++e) store_shared_4(place(e), made[e]);
      fence_for_wgmma();  // and for the copy engine
      __syncwarp();
      const int y = row * p.stride - p.pad;
      if (y < 0) {  // the copy engine stores no box that starts outside: lanes take theirs
        const int h = y + line % p.stride, w = item.column + lane % 4 * 2;
        if (h < 0 || h >= p.y_h || own >= p.columns) return;
        const int64_t plane = (int64_t{item.image} * p.groups + item.group) * p.columns + own;
        T* to = static_cast<T*>(p.y) + (plane * p.y_h + h) * p.width + w;
#pragma unroll 1
        for (int e = 0; e < EIGHTS && w + e * 8 < p.width; ++e, to += 8)
          *reinterpret_cast<uint32_t*>(to) = load_shared_4(place(e));
      } else if (lane == 0) {
        if (kWhole) store_box(&maps.y, out, item.column, y, channel, item.group, item.image);
        store_box(&maps.last, last_box, item.column + kWhole * 8, y, channel, item.group,
                  item.image);
      }
    };
    for (int row = item.first; row < item.end; ++row) {
      const bool fresh = i == blockIdx.x && row == item.first;
      multiply<T>(p, shared + p.weights_at, team, fresh, ring, sum, [&] { store(row - 1); });
      take_row<T>(sum[0], made, bias);
    }
    store(item.end - 1);
    if (item.end == p.x_h) {  // below the last row of x
      take_row<T>(sum[0], made, bias);
      store(p.x_h);
    }
  }
  if (lane == 0) stored_boxes_there();
}

template <class T, int EIGHTS>
__global__ void __launch_bounds__(threads_of(most_teams(EIGHTS)), 1)
    convt2d_crimp_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  if (threadIdx.x == p.teams * 128) prefetch_map(&maps.w);
  begin(p, maps, shared);
  if (warp_of_block() >= p.teams * 4) {
    if (threadIdx.x == p.teams * 128) bring<EIGHTS>(p, maps, shared);
  } else {
    consume<T, EIGHTS>(p, maps, shared);
  }
#endif
}

}  // namespace convt2d::cuda::crimp
