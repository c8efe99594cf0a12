// The kernel of depthwise_mma.h.
#pragma once

#include "cuda/depthwise/depthwise_lanes.cuh"
#include "cuda/depthwise/depthwise_mma.h"
#include "cuda/device/mma.cuh"

namespace convt2d::cuda::depthwise::lanes {

// What a lane (g, t) holds: of pieces 2 g and 2 g + 1, which are rows g and g + 8 of the product, one row of dY in each group of four.
// Its two columns are one that a piece reaches, of the block's row of x and of the row before: one of the
// piece's own, or its left or right neighbour's.
template <typename T, int kStride>
struct Products {
  using Row = Piece<T, kStride, 2>;
  using Mma = std::conditional_t<std::is_same_v<T, __half>, MmaF16, MmaBF16>;
  static constexpr int kOwn = Row::kOwn, kGroups = kStride / 4, kWords = kMmaColumns / 2;
  static constexpr int kSteps = kWords / 2;                   // of K, in a group
  static constexpr int kDepth = 32 / (kGroups * 2 * kWords);  // blocks that loads are ahead
  // Lanes t that have no column of the piece's own.
  static constexpr int kLeft = kOwn, kRight = kOwn + 1;

  uint32_t weights[kGroups][kSteps][2];

  __device__ __forceinline__ void load_weights(const Geometry& g, int channel) {
    const int t = threadIdx.x % 4, column = threadIdx.x % 32 / 4, of_lane = column / 2;
    // The column reached, of which the first is the left neighbour's.
    const int v = of_lane < kOwn ? of_lane + 1 : of_lane == kLeft ? 0 : kOwn + 1;
    const T* w = static_cast<const T*>(g.w) + channel * g.w_stride[0];
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int row = group * 4 + t + column % 2 * kStride;
        T value[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int tap = Row::tap(step * 4 + i, v);
          const bool exists = of_lane <= kRight && tap >= 0 && tap < Row::kKernel &&
                              row < g.h.kernel && tap < g.v.kernel;
          value[i] = exists ? w[row * g.w_stride[2] + tap * g.w_stride[3]] : Numeric<T>::narrow(0);
        }
        __builtin_memcpy(weights[group][step], value, sizeof value);
      }
  }

  // Adds a block's products. Sums of its own row of x begin, and those of the row before go on.
  __device__ __forceinline__ void add(float (&sum)[4],
                                      const uint32_t (&rows)[kGroups][2][kWords]) const {
    sum[1] = sum[0], sum[3] = sum[2];
    sum[0] = sum[2] = 0;
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const uint32_t (&both)[2][kWords] = rows[group];
        const uint32_t a[4] = {both[0][2 * step], both[1][2 * step], both[0][2 * step + 1],
                               both[1][2 * step + 1]};
        Mma::mma(sum, a, weights[group][step][0], weights[group][step][1]);
      }
  }

  // The row of x whose sums are complete, of pieces 2 g and 2 g + 1: what their neighbours have of it is added. `first`, `last`:
  // there is no piece before the first, or behind the second.
  static __device__ __forceinline__ void complete(const float (&sum)[4], bool first, bool last,
                                                  float (&done)[2]) {
    done[0] = sum[1], done[1] = sum[3];
    const int lane = threadIdx.x % 32, t = lane % 4, quad = lane - t;
    const float left[2] = {__shfl_sync(~0u, done[1], max(quad - 4, 0) + kRight),
                           __shfl_sync(~0u, done[0], quad + kRight)},
                right[2] = {__shfl_sync(~0u, done[1], quad + kLeft),
                            __shfl_sync(~0u, done[0], min(quad + 4, 28) + kLeft)};
    if (t == 0) {
      if (!first) done[0] += left[0];
      done[1] += left[1];
    }
    if (t == kOwn - 1) {
      done[0] += right[0];
      if (!last) done[1] += right[1];
    }
  }

  // What a lane stores of them, of the pieces that are its `own`, a bit each. `x`: the first one's.
  static __device__ __forceinline__ void store(T* x, const float (&done)[2], int own, bool exists,
                                               float& spoiled) {
    const int t = threadIdx.x % 4;
    if constexpr (kOwn == 2) {
      // Lane 0 has both columns of the first piece then, lane 1 those of the second.
      const float other = __shfl_xor_sync(~0u, t == 0 ? done[1] : done[0], 1);
      const float first = t == 0 ? done[0] : other, second = t == 0 ? other : done[1];
      if (!exists || t > 1 || !(own >> t & 1)) return;
      *reinterpret_cast<typename Pair<T>::Bits*>(x + t * kOwn) =
          Pair<T>::narrow(first, second).bits;
      spoiled = fmaf(second, 0.f, fmaf(first, 0.f, spoiled));
    } else {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (!exists || t > 0 || !(own >> k & 1)) continue;
        x[k] = Numeric<T>::narrow(done[k]);
        spoiled = fmaf(done[k], 0.f, spoiled);
      }
    }
  }
};

// A warp owns a channel, a tile of columns and some strips of rows of all images: as in the kernel of lanes, but for who adds.
// No barrier. What is not finite is computed again by definition.
template <typename T, int kStride>
__global__ void __launch_bounds__(kMmaThreads, 5)
    convt2d_depthwise_grad_input_mma_kernel(const __grid_constant__ LaneParams p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // other chips: declined by the planner
  using P = Products<T, kStride>;
  constexpr int kOwn = P::kOwn, kDepth = P::kDepth, kTaps = 2;
  const Geometry& g = p.g;
  const LaneTile& t = p.t;

  const int lane = threadIdx.x % 32, of_pair = lane % 4, first_piece = lane / 4 * 2;
  unsigned rest = blockIdx.x * kMmaWarps + threadIdx.x / 32;
  unsigned next = t.by_tiles.quotient(rest);
  const int tile = int(rest - next * t.by_tiles.divisor);
  rest = next, next = t.by_channels.quotient(rest);
  const int channel = int(rest - next * t.by_channels.divisor), part = int(next);
  if (part >= t.split) return;
  const int segment = t.by_lanes.quotient(first_piece), inside = first_piece - segment * t.lanes;
  const int pieces = g.v.out / kMmaColumns, piece = tile * t.step - t.lead + inside;
  Place at;
  at.slot = segment;
  at.first_unit = part * t.rounds * t.slots + segment;
  at.last_unit = segment < t.slots ? min((part + 1) * t.rounds * t.slots, t.units) : 0;
  bool there[2];
  int own = 0;  // a bit for each piece
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    there[k] = segment < t.slots && unsigned(piece + k) < unsigned(pieces);
    own |= int(there[k] && unsigned(inside + k - t.lead) < unsigned(t.step)) << k;
  }

  // What is fetched next: the lane's row of each group of a block.
  Walk<kTaps> ahead(t, at);
  const T* y = nullptr;
  int row = 0;  // of dY
  const int64_t y_step = int64_t{kStride} * g.v.out;
  const auto aim = [&] {
    row = (ahead.row + kTaps - 1) * kStride - g.h.near_pad + of_pair;
    y = static_cast<const T*>(g.y) +
        (int64_t{ahead.n} * g.out_channels + channel) * (int64_t{g.h.out} * g.v.out) +
        int64_t{row} * g.v.out + piece * kMmaColumns;
  };
  uint32_t rows[kDepth][P::kGroups][2][P::kWords];
  const auto fetch = [&](int slot) {
#pragma unroll
    for (int group = 0; group < P::kGroups; ++group) {
      const bool exists = unsigned(row + group * 4) < unsigned(g.h.out);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const auto pack = load_pack<uint32_t, P::kWords>(
            reinterpret_cast<const uint32_t*>(y + group * 4 * g.v.out + k * kMmaColumns),
            exists && there[k]);
#pragma unroll
        for (int i = 0; i < P::kWords; ++i) rows[slot][group][k][i] = pack.value[i];
      }
    }
    y += y_step, row += kStride;
    if (ahead.advance()) aim();
  };
  aim();
#pragma unroll
  for (int slot = 0; slot < kDepth; ++slot) fetch(slot);

  P products;
  products.load_weights(g, channel);
  const auto x_at = [&](const Walk<kTaps>& walk) {
    return static_cast<T*>(g.result) +
           (int64_t{walk.n} * g.in_channels + channel) * (int64_t{g.h.in} * g.v.in) +
           int64_t{walk.row} * g.v.in + piece * kOwn;
  };
  const auto row_exists = [&](const Walk<kTaps>& walk) {
    return walk.step >= kTaps - 1 && unsigned(walk.row) < unsigned(g.h.in);
  };
  float sum[4] = {}, spoiled = 0;  // spoiled: NaN once something is not finite
  Walk<kTaps> here(t, at);
  T* x = x_at(here);
  const int steps = t.rounds * here.steps;
  for (int first = 0; first < steps; first += kDepth) {
#pragma unroll
    for (int slot = 0; slot < kDepth; ++slot) {
      products.add(sum, rows[slot]);
      fetch(slot);
      float done[2];
      P::complete(sum, inside == 0, inside + 2 >= t.lanes, done);
      P::store(x, done, own, row_exists(here), spoiled);
      x += g.v.in;
      if (here.advance()) {
        x = x_at(here);
        sum[0] = sum[2] = 0;
      }
    }
  }

  if (!__any_sync(~0u, spoiled != 0)) return;
  __syncwarp();  // what a lane looks at, others may have stored
  Walk<kTaps> again(t, at);
#pragma unroll 1
  for (int step = 0; step < steps; ++step, again.advance()) {
    if (of_pair > 0 || !row_exists(again)) continue;
#pragma unroll 1
    for (int k = 0; k < 2; ++k)
      if (own >> k & 1)
        repair<T, kOwn>(g, again.n, channel, again.row, (piece + k) * kOwn, x_at(again) + k * kOwn);
  }
#endif
}

}  // namespace convt2d::cuda::depthwise::lanes
