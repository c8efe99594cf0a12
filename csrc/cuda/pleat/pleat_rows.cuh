// Rows of whole eights, and strips of such.
#pragma once

#include <type_traits>

#include "cuda/device/uniform.cuh"
#include "cuda/pleat/pleat_strips.cuh"

namespace convt2d::cuda::pleat {

// A block's outputs to a run. `y`, `to`: the lane's row of outputs, and where its first one goes.
template <class T, int EIGHTS, bool HERE>
__device__ __forceinline__ void add_to_run(const Lane& lane, const Run& run, int y, uint32_t to,
                                           const float* sum, float (&above)[EIGHTS][2],
                                           float bias) {
  const bool stored = y >= run.first && y < run.end;
  const float last = add_block<EIGHTS, HERE>(lane, sum, above, bias, 0, [&](int e, float output) {
    if (stored && (e > 0 || lane.inside)) narrow_to_shared<T>(to + e * 32, output);
  });
  if (stored && lane.ends) narrow_to_shared<T>(to + (EIGHTS - 1) * 32 + 4, last + bias);
}

template <class T, int ROW>
__device__ __forceinline__ void consume(const Params& p, uint32_t shared) {
  constexpr int kEights = eights_of(ROW), kTileRows = tile_rows(kEights);
  constexpr bool kStrips = has_strips(ROW);
  const int group = warpgroup_of_block(), warp = warp_of_block(), lane_number = threadIdx.x % 32;
  const uint32_t out = shared + p.out_at + warp * p.out_bytes, step = kStride * p.y_w * 2;
  const Lane lane(p, kEights * 8, kStrips ? 0 : p.pad_w);
  const uint32_t left_at =
      shared + p.left_at + warp * p.left_bytes + (lane.row * kStride + lane.column % kStride) * 4;
  StageRing ring = ring_of(p, shared);
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of<ROW>(p, i);
    const int channel = item.channel + warp, all = item.group * p.columns + channel;
    const bool exists = channel < p.columns;
    const float bias = p.bias && exists ? load(static_cast<const T*>(p.bias) + all) : 0.f;
    T* const plane =
        static_cast<T*>(p.y) + (int64_t{item.image} * p.groups * p.columns + all) * (p.y_h * p.y_w);
    for (int strip = 0; strip < (kStrips ? p.strips : 1); ++strip) {
      const Pieces<T> pieces(p, plane, strip_of(p, strip));
      float above[kEights][2];
#pragma unroll
      for (int e = 0; e < kEights; ++e) above[e][0] = bias, above[e][1] = 0;
      for (int row = item.first; row < item.end_row; row += kTileRows) {
        float sum[1][tile_width(kEights) / 2];
        multiply<T>(p, group, ring, sum);
        const int next = row + kTileRows;
        if (next > p.x_h) {  // rows that do not exist
#pragma unroll
          for (int j = 0; j < kTileRows * kEights * 4; ++j)
            if (row + j / (4 * kEights) >= p.x_h) sum[0][j] = 0;
        }
        // The block below the last row of x is the tile's too.
        const int begin = max(row, item.begin), end = next >= item.end_row ? item.end : next;
        Run run;
        run.first = max(begin * kStride - p.pad_h, 0);
        run.end = exists ? min(end * kStride - p.pad_h, p.y_h) : run.first;
        const int top = row * kStride - p.pad_h;
        if (!kStrips && lane_number == 0) stored_boxes_read();
        __syncwarp();  // those before have been read
        if constexpr (kStrips) {
          const T* y = pieces.y + (top + lane.row) * p.y_w;
          uint32_t to = out, left = left_at + (row - item.first) * kLeft;
          const auto add = [&](auto here, const float* sums) {
            pieces.template add<kEights, decltype(here)::value>(lane, y, to, left, strip > 0, sums,
                                                                above, bias);
            y += kStride * p.y_w, to += kStride * kPiece, left += kLeft;
          };
#pragma unroll
          for (int r = 0; r < kTileRows; ++r) add(std::true_type(), sum[0] + r * kEights * 4);
          if (next == p.x_h) add(std::false_type(), nullptr);
          pieces.store(p, out, top, run.first, run.end);
        } else {
          T* const y = plane + run.first * p.y_w;
          const int lead = int(reinterpret_cast<uintptr_t>(y) % 16 / sizeof(T));
          run.to = out + lead * 2;
          int at = top + lane.row;
          uint32_t to = run.to + ((at - run.first) * p.y_w + lane.column) * 2;
#pragma unroll
          for (int r = 0; r < kTileRows; ++r, at += kStride, to += step)
            add_to_run<T, kEights, true>(lane, run, at, to, sum[0] + r * kEights * 4, above, bias);
          if (next == p.x_h) add_to_run<T, kEights, false>(lane, run, at, to, nullptr, above, bias);
          if (run.end > run.first) store_run(y, out, lead, (run.end - run.first) * p.y_w);
        }
      }
    }
  }
  if (!kStrips && lane_number == 0) stored_boxes_there();
}

}  // namespace convt2d::cuda::pleat
