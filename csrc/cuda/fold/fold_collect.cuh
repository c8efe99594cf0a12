// The second half of the fold kernel: outputs collect their products in shared memory, wait there or go to memory.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/pair.cuh"
#include "cuda/fold/fold_plain.cuh"
#include "cuda/fold/fold_scope.cuh"

namespace convt2d::cuda::fold {

// Where the channels of a block of rows find things; such a channel is a number below `count`.
struct Rows {
  int channel, count;  // of y
  uint32_t products, bias;
  uint32_t carried_from, carried_to;  // sums that wait: of the tile before, for the next
};

// A lane's position in a pair of rows, 2 i and 2 i + 1 of those that a tile meets.
struct Spot {
  int image, i, q;
  bool exists;
};

// Taps 0 and 1 come from row i of x, taps 2 and 3 from the row above it. ODD: near_pad is, so that an output of an even
// column has odd taps. SPOTS: of a lane, 32 positions apart.
template <int KERNEL, int PITCH, bool ODD, int SPOTS, int ABOVE>
__device__ __forceinline__ void add_taps(uint32_t products, float (&sum)[2][2][SPOTS]) {
#pragma unroll
  for (int f = 0; f < 2; ++f)
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int left = 0; left < 2; ++left) {
        const int h = f + 2 * ABOVE, w = (ODD ? 1 - e : e) + 2 * left;
        if (h >= KERNEL || w >= KERNEL) continue;
        const int place = (h * KERNEL + w) * PITCH + (ODD ? e : 0) - left;
#pragma unroll
        for (int s = 0; s < SPOTS; ++s)
          sum[f][e][s] += load_shared<float>(products + (place + s * 32) * 4);
      }
}

// What is the same for all spots of a tile. Rows of y are counted from the first one that the tile's rows of x reach.
template <class T>
struct Reached {
  T* y;                               // of row 0 and the first channel
  int from_row;                       // that row
  uint32_t products;                  // that land on row 0, of tap 0 and the first channel
  int plane, image;                   // elements of y from one to the next
  int first, carried, done, touched;  // rows: from this on; below this
  int to;                             // row that is row 0 of the next tile
  int positions;                      // of a row
  bool alone;                         // the last of them has one output, not two
};
template <class T>
__device__ __forceinline__ Reached<T> reached(const Params& p, const Item& item, const Moment& now,
                                              const Rows& rows) {
  Reached<T> all;
  all.plane = p.y_h * p.y_w;
  all.image = p.groups * p.columns * all.plane;
  all.y = static_cast<T*>(p.destination) + (int64_t{item.n} * all.image + rows.channel * all.plane +
                                            now.from_row * p.y_w + 2 * item.first_position);
  all.products = rows.products + ((p.pad_w >> 1) - p.low_w) * 4;
  all.from_row = now.from_row;
  all.first = now.first_out - now.from_row;
  all.carried = max(now.carried, now.from_row) - now.from_row;
  all.done = now.done - now.from_row;
  all.touched = now.touched - now.from_row;
  all.positions = min(p.strip_positions, (p.y_w + 1) / 2 - item.first_position);
  all.alone = 2 * (item.first_position + all.positions) > p.y_w;
  all.to = now.to_row - now.from_row;
  return all;
}

template <class T, int KERNEL, int PITCH, bool ODD, bool STRICT, int SPOTS>
__device__ __forceinline__ void collect_spots(const Params& p, const Item& item,
                                              const Reached<T>& all, int rows_of_x,
                                              const Rows& rows, int c, const Spot& at) {
  const int row = 2 * at.i, step = p.row_pitch * 4;
  const uint32_t products = all.products + c * (KERNEL * KERNEL * PITCH * 4) +
                            (at.image * p.x_h + at.i) * step + at.q * 4;
  const uint32_t waits = c * carried_step(p) + 4 * at.i * step + at.q * 4;
  const float bias = load_shared<float>(rows.bias + c * 4);
  float sum[2][2][SPOTS];
#pragma unroll
  for (int f = 0; f < 2; ++f) {
    const bool waited = f < KERNEL - 2 && at.exists && row + f < all.carried;
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int s = 0; s < SPOTS; ++s)
        sum[f][e][s] =
            waited ? load_shared<float>(rows.carried_from + waits + (2 * f + e) * step + s * 128)
                   : bias;
  }
  if (at.exists && at.i > 0 && at.i <= rows_of_x)
    add_taps<KERNEL, PITCH, ODD, SPOTS, 1>(products - step, sum);
  if (at.exists && at.i < rows_of_x) add_taps<KERNEL, PITCH, ODD, SPOTS, 0>(products, sum);
  T* const y = all.y + (at.image * all.image + c * all.plane + row * p.y_w + 2 * at.q);
#pragma unroll
  for (int f = 0; f < 2; ++f) {
    if (!at.exists || row + f < all.first || row + f >= all.touched) continue;
#pragma unroll
    for (int s = 0; s < SPOTS; ++s) {
      if (at.q + s * 32 >= all.positions) continue;
      T* const to = y + f * p.y_w + s * 64;
      if (row + f >= all.done) {
#pragma unroll
        for (int e = 0; e < 2; ++e)
          store_shared_4(rows.carried_to + waits + (2 * (f - all.to) + e) * step + s * 128,
                         __float_as_uint(sum[f][e][s]));
        continue;
      }
      if constexpr (STRICT) {
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (!is_finite(sum[f][e][s]))
            sum[f][e][s] =
                plain_output(p, item.n + at.image, rows.channel + c, all.from_row + row + f,
                             2 * (item.first_position + at.q + s * 32) + e);
      }
      if (p.packed) {
        store_pair(to, sum[f][0][s], sum[f][1][s]);
      } else {
        to[0] = Numeric<T>::narrow(sum[f][0][s]);
        // The last pair of a row of odd length has but one.
        if (at.q + s * 32 + 1 < all.positions || !all.alone)
          to[1] = Numeric<T>::narrow(sum[f][1][s]);
      }
    }
  }
}

template <class T, int KERNEL, int PITCH, bool ODD, bool STRICT>
__device__ __forceinline__ void collect_pairs(const Params& p, const Item& item, const Moment& now,
                                              const Rows& rows, int warp, int warps) {
  if (rows.count <= 0) return;
  const Reached<T> all = reached<T>(p, item, now, rows);
  // Lanes are side by side in a row, and rows below each other where they are short.
  const int lane = threadIdx.x % 32, q = lane & ((1 << p.row_shift) - 1),
            down = lane >> p.row_shift;
  const int end = (all.touched + 1) / 2,
            pairs = p.tile_images > 1 ? p.tile_images * p.rows_apart : end;
  int c = warp, i = all.first / 2;
  while (true) {
    for (; c >= rows.count; c -= rows.count) i += 32 >> p.row_shift;
    if (i >= pairs) return;
    Spot at{0, i + down, q, false};
    if (p.tile_images > 1) {
      at.image = divide(at.i, p.rows_apart_magic);
      at.i -= at.image * p.rows_apart;
    }
    const bool exists = at.i < end && at.image < p.tile_images && item.n + at.image < p.batch;
    while (at.q - q < all.positions) {
      at.exists = exists && at.q < all.positions;
      if (at.q - q + 32 < all.positions) {
        collect_spots<T, KERNEL, PITCH, ODD, STRICT, 2>(p, item, all, now.rows, rows, c, at);
        at.q += 64;
      } else {
        collect_spots<T, KERNEL, PITCH, ODD, STRICT, 1>(p, item, all, now.rows, rows, c, at);
        at.q += 32;
      }
    }
    c += warps;
  }
}

// All outputs that the products of a block of rows land on, by `warps` warps, of which this is number `warp`.
template <class T, int PITCH, bool STRICT>
__device__ __forceinline__ void collect(const Params& p, const Item& item, const Moment& now,
                                        const Rows& rows, int warp, int warps) {
  const bool odd = p.pad_w % 2 != 0;
  if (p.kernel == 3) {
    odd ? collect_pairs<T, 3, PITCH, true, STRICT>(p, item, now, rows, warp, warps)
        : collect_pairs<T, 3, PITCH, false, STRICT>(p, item, now, rows, warp, warps);
  } else {
    odd ? collect_pairs<T, 4, PITCH, true, STRICT>(p, item, now, rows, warp, warps)
        : collect_pairs<T, 4, PITCH, false, STRICT>(p, item, now, rows, warp, warps);
  }
}

}  // namespace convt2d::cuda::fold
