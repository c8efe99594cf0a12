// Device code that the gather kernels on tensor cores share: small divisions, wide stores, the NaN rule.
// `Params` is a family's GatherParams; the fields used here have the same names in all.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/gather_axes.h"

namespace convt2d::cuda {

// u / d for u, d < 2^16 with magic = ceil(2^32 / d), or 0 for d = 1. The planner keeps every u small.
__device__ __forceinline__ int divide(int u, uint32_t magic) {
  return magic ? static_cast<int>(__umulhi(static_cast<uint32_t>(u), magic)) : u;
}

// Image, row and column of a position or of a tile's first one.
struct TileOrigin {
  int n, h, w;
};

template <class Params>
__device__ __forceinline__ TileOrigin tile_origin(const Params& p, int tile) {
  const int tw = tile % p.tiles_w;
  const int rest = tile / p.tiles_w;
  const int th = rest % p.tiles_h;
  return {rest / p.tiles_h * p.tile_n, th * p.tile_h, tw * p.tile_w};
}

// Which combination of (group, column tile, phases) this block works on, and which of its walkers it is: digits of its
// number, that of the phases first.
template <class Params, class Scope>
__device__ __forceinline__ void read_phases(const Params& p, int& rest, Scope& at) {
  at.group_w = rest % p.w.groups;
  rest /= p.w.groups;
  at.group_h = rest % p.h.groups;
  rest /= p.h.groups;
}
template <class Params, class Scope>
__device__ __forceinline__ void read_channels(const Params& p, int rest, Scope& at) {
  at.column_tile = rest % p.column_tiles;
  rest /= p.column_tiles;
  at.group = rest % p.groups;
  at.walker = rest / p.groups;
  at.phases_h = p.h.group[at.group_h].phases;
  at.phases_w = p.w.group[at.group_w].phases;
}
template <class Params, class Scope>
__device__ __forceinline__ void read_combination(const Params& p, Scope& at) {
  int rest = blockIdx.x;
  read_phases(p, rest, at);
  read_channels(p, rest, at);
}

// What a reduction runs over beside taps and channels, with its strides. Families that have such a thing overload
// this for their parameters.
struct Outer {
  int count, source, weight;
};
template <class Params>
__device__ __forceinline__ Outer outer_of(const Params&) {
  return {1, 0, 0};
}

// Tensor-core tiles multiply zero-filled borders too, and 0 * inf is NaN. So an element that came out
// NaN is computed again, tap by tap, with nothing multiplied that has no business there. `element` is
// where it has been stored already. Rare, slow, exact.
template <class T, class Params>
__device__ __noinline__ void repair_nan(const Params* params, T* element, int group_h, int group_w,
                                        int group, int channel, int sh, int sw, TileOrigin at) {
  const Params& p = *params;
  const float stored = Numeric<T>::widen(*element);
  if (stored == stored) return;
  const AxisGroup &gh = p.h.group[group_h], &gw = p.w.group[group_w];
  const T* source = static_cast<const T*>(p.source) + at.n * p.source_stride[0] +
                    group * p.reduce * p.source_stride[1];
  const T* weight =
      static_cast<const T*>(p.weight) + group * p.weight_group + channel * p.weight_column;
  float sum = 0.f;
  for (int i = gh.first; i < gh.first + gh.count; ++i) {
    const AxisStep& h = p.h.step[i];
    const int y = at.h * p.h.source_step + h.offset;
    if (h.rank[sh] < 0 || y < 0 || y >= p.h.source_extent) continue;
    for (int j = gw.first; j < gw.first + gw.count; ++j) {
      const AxisStep& w = p.w.step[j];
      const int x = at.w * p.w.source_step + w.offset;
      if (w.rank[sw] < 0 || x < 0 || x >= p.w.source_extent) continue;
      const T* s = source + y * p.source_stride[2] + x * p.source_stride[3];
      const T* k = weight + (gh.first_tap[sh] + h.rank[sh] * p.h.tap_step) * p.weight_h +
                   (gw.first_tap[sw] + w.rank[sw] * p.w.tap_step) * p.weight_w;
      const Outer outer = outer_of(p);
      for (int o = 0; o < outer.count; ++o)
        for (int c = 0; c < p.reduce; ++c)
          sum += load(s + o * outer.source + c * p.source_stride[1]) *
                 load(k + o * outer.weight + c * p.weight_reduce);
    }
  }
  if (p.bias) sum += load(static_cast<const T*>(p.bias) + group * p.columns + channel);
  *element = Numeric<T>::narrow(sum);
}

// A run of numbers as they lie in memory.
template <class T, int COUNT, int WORDS>
__device__ __forceinline__ void pack_run(const float (&value)[COUNT], uint32_t (&word)[WORDS]) {
  static_assert(WORDS * 4 == COUNT * sizeof(T));
#pragma unroll
  for (int i = 0; i < WORDS; ++i) {
    if constexpr (sizeof(T) == 4) {
      word[i] = __float_as_uint(value[i]);
    } else {
      word[i] = pack<T>(value[2 * i], value[2 * i + 1]);
    }
  }
}

// Stores a run of 4 to 16 bytes at an address that is a multiple of them.
template <class T, int WORDS>
__device__ __forceinline__ void store_packed(T* to, const uint32_t (&word)[WORDS]) {
  if constexpr (WORDS == 4) {
    store_words(to, word[0], word[1], word[2], word[3]);
  } else if constexpr (WORDS == 2) {
    store_words(to, word[0], word[1]);
  } else {
    *reinterpret_cast<uint32_t*>(to) = word[0];
  }
}
template <class T, int COUNT>
__device__ __forceinline__ void store_run(T* to, const float (&value)[COUNT]) {
  uint32_t word[COUNT * int(sizeof(T)) / 4];
  pack_run<T>(value, word);
  store_packed(to, word);
}

}  // namespace convt2d::cuda
