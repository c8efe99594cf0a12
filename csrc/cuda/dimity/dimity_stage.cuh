// What a block of dimity works on, and its rows of NCHW tensors on their way to shared memory: four warps ask the copy engine.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/dimity/dimity_config.h"

namespace convt2d::cuda::dimity {

template <class T>
constexpr int kVector = 16 / int(sizeof(T));

// The channels, taps and steps of a block.
struct Scope {
  int group, input, output;  // the first group, and channels of the groups'
  int kernel_h, kernel_w;    // the first tap
  int piece, begin, end;     // of all q
};
// Neighbouring blocks read the same pixels, at about the same time.
__device__ __forceinline__ Scope scope_of(const Params& p, Tile tile) {
  Digits number{int(blockIdx.x)};
  Scope at;
  at.kernel_w = number.next(p.tap_blocks) * block_taps(p, tile);
  at.kernel_h = number.next(p.row_blocks) * block_rows(p, tile);
  at.output = number.next(p.out_blocks) * block_outputs(p);
  at.input = number.next(p.in_blocks) * block_inputs(p);
  at.group = number.next(p.group_blocks) * p.group_units;
  at.piece = number.rest;
  at.begin = static_cast<int>(int64_t{p.all_q} * at.piece / p.split);
  at.end = static_cast<int>(int64_t{p.all_q} * (at.piece + 1) / p.split);
  return at;
}

// The steps of a q, one a phase.
struct Steps {
  int n, q;
  int pixel;  // the strip's first one
  __device__ __forceinline__ Steps(const Params& p, int number) {
    const int strip = p.by_q.quotient(number);
    q = number - strip * p.strip_q;
    n = p.by_tiles.quotient(strip);
    pixel = (strip - n * p.row_tiles) * p.chunks * kChunkPixels;
  }
  // The row of dY, whether it exists or not, and the column that the first pixel and the block's first tap meet in.
  __device__ __forceinline__ int row(const Params& p, const Scope& at, int phase) const {
    return q * p.stride_h + (phase + at.kernel_h) * p.dilation_h - p.pad_h;
  }
  __device__ __forceinline__ int column(const Params& p, const Scope& at) const {
    return pixel * p.stride_w + at.kernel_w * p.dilation_w - p.pad_w;
  }
};

// Where rows begin in their tensors, of the block's first channel.
__device__ __forceinline__ int x_row(const Params& p, const Scope& at, int n, int row) {
  return ((n * p.groups + at.group) * p.rows + at.input) * p.x_plane + row * p.x_w;
}
__device__ __forceinline__ int y_row(const Params& p, const Scope& at, int n, int row) {
  return ((n * p.groups + at.group) * p.columns + at.output) * p.y_plane + row * p.y_w;
}

__device__ __forceinline__ int slot_before(const Params& p, int slot, int back) {
  return slot >= back ? slot - back : slot - back + p.slots;
}
__device__ __forceinline__ int slot_after(const Params& p, int slot) {
  return slot + 1 == p.slots ? 0 : slot + 1;
}

// Some numbers of a tensor on their way to shared memory: whole 16 bytes by the copy engine. Of the tensor's last ones these
// would reach beyond it, so a lane brings them.
template <class T>
struct Run {
  const T* tensor;
  int begin, whole, end;
  uint32_t to;

  // Numbers `first` to `end` of a tensor of `all`. `base`, which may lie before it, is what `place` has, and what lies before
  // it among its 16 bytes.
  __device__ __forceinline__ Run(const void* from, int base, int first, int end, int all,
                                 uint32_t place)
      : tensor(static_cast<const T*>(from)), end(end) {
    const bool some = first < end;
    begin = some ? first & -kVector<T> : end;
    whole = some ? min(end + kVector<T> - 1 & -kVector<T>, all & -kVector<T>) : end;
    to = place + (begin - (base & -kVector<T>)) * int(sizeof(T));
  }
  __device__ __forceinline__ uint32_t bytes() const {
    return max(whole - begin, 0) * int(sizeof(T));
  }
  __device__ __forceinline__ void start(uint32_t barrier) const {
    if (bytes() > 0) copy_run(to, tensor + begin, bytes(), barrier);
  }
  __device__ __forceinline__ void bring_rest() const {
    if (whole >= end) return;
#pragma unroll 1
    for (int i = max(whole, begin); i < end; ++i) {
      const uint32_t place = to + (i - begin) * int(sizeof(T));
      if constexpr (sizeof(T) == 4) {
        store_shared_4(place, __float_as_uint(__ldg(tensor + i)));
      } else {
        store_shared_2(place, __ldg(reinterpret_cast<const unsigned short*>(tensor) + i));
      }
    }
    fence_for_wgmma();  // the copy engine may write there again
  }
};

// All steps of a block: some lanes of each warp that brings have a channel of dY and one of x.
template <class T>
__device__ __forceinline__ void bring_steps(const Params& p, const Scope& at, uint32_t shared,
                                            uint32_t stages, uint32_t slots) {
  const int lane = threadIdx.x % 32;
  if (lane >= kMostChannels / kBringers) return;
  const int channel = lane * kBringers + threadIdx.x / 32 % kBringers;
  const bool has_output = channel < min(block_outputs(p), p.columns - at.output);
  const bool has_input = channel < min(block_inputs(p), p.rows - at.input);
  Ring ring;
  int slot = p.window - 1;
#pragma unroll 1
  for (int number = at.begin; number < at.end; ++number) {
    const Steps steps(p, number);
    const int column = steps.column(p, at);
    const int first = max(column, 0), end = min(column + p.reach, p.y_w);
    // Rows of x come with their q; a block that starts inside a strip wants those before as well.
    const int oldest = number == at.begin ? p.window - 1 : 0;
#pragma unroll 1
    for (int phase = 0; phase < p.phases; ++phase) {
      const uint32_t full = shared + ring.stage * 16;
      const int row_h = steps.row(p, at, phase);
      const auto visit = [&](auto&& use) {
        if (has_output && unsigned(row_h) < unsigned(p.y_h)) {
          const int row = y_row(p, at, steps.n, row_h) + channel * p.y_plane;
          use(Run<T>(p.y, row + column, row + first, row + end, p.y_numbers,
                     stages + ring.stage * p.stage_bytes + channel * p.y_pitch));
        }
        if (!has_input || phase > 0) return;
#pragma unroll 1
        for (int back = oldest; back >= 0; --back) {
          if (unsigned(steps.q - back) >= unsigned(p.x_h)) continue;
          const int row = x_row(p, at, steps.n, steps.q - back) + channel * p.x_plane;
          const int pixel = row + steps.pixel;
          use(Run<T>(p.x, pixel, pixel, min(pixel + p.chunks * kChunkPixels, row + p.x_w),
                     p.x_numbers,
                     slots + slot_before(p, slot, back) * p.slot_bytes + channel * p.x_pitch));
        }
      };
      barrier_wait(full + 8, ring.parity ^ 1);
      uint32_t bytes = 0;
      visit([&](const Run<T>& run) {
        bytes += run.bytes();
        run.bring_rest();
      });
      barrier_expect(full, bytes);
      visit([&](const Run<T>& run) { run.start(full); });
      ring.advance(p.stages);
    }
    slot = slot_after(p, slot);
  }
}

}  // namespace convt2d::cuda::dimity
