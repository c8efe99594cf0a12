// A mesh of small planes: the copy engine brings a chunk's channels of an image as they lie, which is one piece of memory, for
// all images of which a tile has rows. So there are no zeros between rows: what is no pixel is masked when it is fetched.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/spread/spread_mesh.cuh"
#include "cuda/spread/spread_scope.cuh"

namespace convt2d::cuda::spread {

// The images of which a tile has rows, or the row above it.
struct Images {
  int first, count;
};
__device__ __forceinline__ Images images_of(const Params& p, const Item& item) {
  const Row top = row_of(p, max(item.row - 1, 0));
  const int first = top.n + (top.row >= p.x_h),
            last = row_of(p, min(item.row + p.tile_rows, p.rows) - 1).n;
  return {first, last + 1 - first};
}

// By one thread.
template <class T>
__device__ __forceinline__ void ask_for_whole(const Params& p, const Images& images, int chunk,
                                              uint32_t to, uint32_t full) {
  const int channel = chunk * (p.image_bytes / p.plane_bytes);
  const uint32_t bytes = min(p.image_bytes, (p.reduce - channel) * p.plane_bytes);
  const T* from =
      static_cast<const T*>(p.source) + (images.first * p.x_image + channel * p.x_channel);
  barrier_expect(full, images.count * bytes);
#pragma unroll 1
  for (int i = 0; i < images.count; ++i, to += p.image_bytes, from += p.x_image)
    copy_run(to, from, bytes, full);
}

// The order of a slice's channels in K is such that a lane's are neighbours: those of four lanes are then as far apart as
// planes of 14 x 14 need to meet no bank twice. Which of a chunk's channels row `place` of K is:
template <class T>
__device__ __forceinline__ int whole_channel(int place) {
  return is_word<T> ? place / 8 * 8 + place % 4 * 2 + place / 4 % 2
                    : place / 16 * 16 + place % 8 / 2 * 4 + place / 8 % 2 * 2 + place % 2;
}

// Of a lane's pixels, by row and half: where the first of a pair is, and a mask of what there is; a pair is there or not,
// rows being even.
template <class T>
struct WholePixels {
  uint32_t place[kMeshed + 1][2], mask[kMeshed + 1][2];
  uint32_t from, plane;
  int left;  // the lane that has the pixels to the left

  __device__ __forceinline__ WholePixels(const Params& p, const Item& item, int group)
      : plane(p.plane_bytes) {
    const int lane = threadIdx.x % 32, first = images_of(p, item).first;
    const int row_lanes = p.run / kMeshed * 4;
    left = (lane & ~(row_lanes - 1)) + ((lane - 4) & (row_lanes - 1));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const MeshPlace at = mesh_place(p, half);
#pragma unroll
      for (int r = 0; r <= kMeshed; ++r) {
        const Row row = row_of(p, item.row + group * (p.tile_rows / kGroups) + at.row + r - 1);
        const bool is = row.n >= 0 && row.n < p.batch && row.row < p.x_h;
        place[r][half] =
            lane % 4 * (8 / sizeof(T)) * plane +
            (is ? (row.n - first) * p.image_bytes + row.row * p.x_w * int(sizeof(T)) : 0) +
            at.column * sizeof(T);
        mask[r][half] = is && at.column < p.x_w ? ~0u : 0;
      }
    }
  }

  __device__ __forceinline__ void start(uint32_t stage) { from = stage; }
  __device__ __forceinline__ void next_slice() { from += 32 / sizeof(T) * plane; }

  __device__ __forceinline__ void pairs(int r, Operand& even, Operand& odd) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t at = from + place[r][i % 2] + i / 2 * (4 / sizeof(T)) * plane,
                     there = mask[r][i % 2];
      uint32_t word[2];
      if constexpr (is_word<T>) {
        load_shared_8(at, word);
        even[i] = MmaTF32::round(word[0] & there);
        odd[i] = MmaTF32::round(word[1] & there);
      } else {
        word[0] = load_shared_4(at) & there;
        word[1] = load_shared_4(at + plane) & there;
        even[i] = __byte_perm(word[0], word[1], 0x5410);
        odd[i] = __byte_perm(word[0], word[1], 0x7632);
      }
    }
  }
  // Before a row's first pixel comes its last one, which is none: rows are shorter than those of a tile.
  __device__ __forceinline__ void before(int, const Operand& odd, Operand& before) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) before[i] = __shfl_sync(0xffffffff, odd[i], left);
  }
};

}  // namespace convt2d::cuda::spread
