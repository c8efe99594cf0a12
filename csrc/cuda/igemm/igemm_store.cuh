// From accumulators to the destination: bias, one rounding, the NaN rule, whole sectors.
#pragma once

#include "cuda/device/numeric.cuh"
#include "cuda/igemm/igemm_stage.cuh"

namespace convt2d::cuda::igemm {

// Tensor-core tiles multiply zero-filled borders too, and 0 * inf is NaN. So an element that came out
// NaN is computed again, tap by tap, with nothing multiplied that has no business there. `element` is
// where it has been stored already. Rare, slow, exact.
template <class M>
__device__ __noinline__ void repair_nan(const GatherParams* params, typename M::Element* element,
                                        int group_h, int group_w, int group, int channel, int sh,
                                        int sw, int position, int tile) {
  using T = typename M::Element;
  const GatherParams& p = *params;
  const float stored = Numeric<T>::widen(*element);
  if (stored == stored) return;
  const AxisGroup &gh = p.h.group[group_h], &gw = p.w.group[group_w];
  const TileOrigin o = tile_origin(p, tile), in = position_in_tile(p, position);
  const T* source = static_cast<const T*>(p.source) + (o.n + in.n) * p.source_stride[0] +
                    group * p.reduce * p.source_stride[1];
  const T* weight =
      static_cast<const T*>(p.weight) + group * p.weight_group + channel * p.weight_column;
  float sum = 0.f;
  for (int i = gh.first; i < gh.first + gh.count; ++i) {
    const AxisStep& h = p.h.step[i];
    const int y = (o.h + in.h) * p.h.source_step + h.offset;
    if (h.rank[sh] < 0 || y < 0 || y >= p.h.source_extent) continue;
    for (int j = gw.first; j < gw.first + gw.count; ++j) {
      const AxisStep& w = p.w.step[j];
      const int x = (o.w + in.w) * p.w.source_step + w.offset;
      if (w.rank[sw] < 0 || x < 0 || x >= p.w.source_extent) continue;
      const T* s = source + y * p.source_stride[2] + x * p.source_stride[3];
      const T* k = weight + (gh.first_tap[sh] + h.rank[sh] * p.h.tap_step) * p.weight_h +
                   (gw.first_tap[sw] + w.rank[sw] * p.w.tap_step) * p.weight_w;
      for (int c = 0; c < p.reduce; ++c)
        sum += load(s + c * p.source_stride[1]) * load(k + c * p.weight_reduce);
    }
  }
  if (p.bias) sum += load(static_cast<const T*>(p.bias) + group * p.columns + channel);
  *element = Numeric<T>::narrow(sum);
}

template <class T>
__device__ __forceinline__ float bias_of(const GatherParams& p, const Scope& at, int channel) {
  return p.bias && channel < p.columns
             ? load(static_cast<const T*>(p.bias) + at.group * p.columns + channel)
             : 0.f;
}

// Stores an aligned run in the widest pieces there are.
template <class T, int COUNT>
__device__ __forceinline__ void store_run(T* to, const float (&value)[COUNT]) {
  if constexpr (sizeof(T) == 4) {
    if constexpr (COUNT == 4) {
      *reinterpret_cast<float4*>(to) = make_float4(value[0], value[1], value[2], value[3]);
    } else {
      *reinterpret_cast<float2*>(to) = make_float2(value[0], value[1]);
    }
  } else {
    uint32_t word[COUNT / 2];
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) word[i] = pack<T>(value[2 * i], value[2 * i + 1]);
    if constexpr (COUNT == 8) {
      *reinterpret_cast<uint4*>(to) = make_uint4(word[0], word[1], word[2], word[3]);
    } else if constexpr (COUNT == 4) {
      *reinterpret_cast<uint2*>(to) = make_uint2(word[0], word[1]);
    } else {
      *reinterpret_cast<uint32_t*>(to) = word[0];
    }
  }
}

template <int COLUMNS, int SLOTS>
using Sums = float[SLOTS][COLUMNS / 8][kWarpPositions / 16][4];

// NHWC: a thread holds runs of neighbouring channels of a pixel (channel_of) and stores them whole.
template <class M, int COLUMNS, int SLOTS>
__device__ __forceinline__ void store_vectors(const GatherParams& p, const Scope& at,
                                              const Sums<COLUMNS, SLOTS>& sum,
                                              const int2* destinations, int tile) {
  using T = typename M::Element;
  constexpr int kTiles = kVectorTiles<T, COLUMNS>, kRun = 2 * kTiles;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int channel0 = at.column_tile * COLUMNS + (lane & 3) * kRun;
  const int position0 = warp * kWarpPositions + (lane >> 2);
  T* base = static_cast<T*>(p.destination) + at.group * p.columns;
  float nan = 0.f;  // turns NaN when any sum is not finite
#pragma unroll
  for (int v = 0; v < COLUMNS / 8; v += kTiles) {
    const int channel = channel0 + v * 8;
    float bias[kRun];
#pragma unroll
    for (int j = 0; j < kRun; ++j) bias[j] = bias_of<T>(p, at, channel + j);
    const bool wide = p.vector_stores == 2 && channel + kRun <= p.columns;
#pragma unroll
    for (int i = 0; i < kWarpPositions / 8; ++i) {
      const int2 to = destinations[position0 + i * 8];
#pragma unroll
      for (int s = 0; s < SLOTS; ++s) {
        const int sh = slot_h(p, s), sw = slot_w(p, s);
        if (!exists(at, to, sh, sw)) continue;
        T* pixel = base + to.x + sh * p.destination_stride[2] + sw * p.destination_stride[3];
        float value[kRun];
#pragma unroll
        for (int j = 0; j < kRun; ++j) {
          const float here = sum[s][v + j / 2][i / 2][i % 2 * 2 + j % 2];
          nan = fmaf(here, 0.f, nan);
          value[j] = here + bias[j];
        }
        if (wide) {
          store_run(pixel + channel, value);
        } else {
#pragma unroll
          for (int j = 0; j < kRun; ++j)
            if (channel + j < p.columns) pixel[channel + j] = Numeric<T>::narrow(value[j]);
        }
      }
    }
  }
  if (nan == nan) return;
  for (int i = 0; i < kWarpPositions / 8; ++i) {
    const int position = position0 + i * 8;
    const int2 to = destinations[position];
    for (int s = 0; s < SLOTS; ++s) {
      const int sh = slot_h(p, s), sw = slot_w(p, s);
      if (!exists(at, to, sh, sw)) continue;
      T* pixel = base + to.x + sh * p.destination_stride[2] + sw * p.destination_stride[3];
      for (int v = 0; v < COLUMNS / 8; v += kTiles)
        for (int j = 0; j < kRun; ++j)
          if (const int channel = channel0 + v * 8 + j; channel < p.columns)
            repair_nan<M>(&p, pixel + channel, at.group_h, at.group_w, at.group, channel, sh, sw,
                          position, tile);
    }
  }
}

// Any other layout: through the warp's own shared memory, eight channels at a time, so that lanes store
// neighbouring positions, all column phases of a row interleaved. A lane owns pairs of neighbours.
template <class M, int COLUMNS, int SLOTS>
__device__ __forceinline__ void store_rows(const GatherParams& p, const Scope& at,
                                           const Sums<COLUMNS, SLOTS>& sum,
                                           const int2* destinations, float* staging, int tile) {
  using T = typename M::Element;
  constexpr int kPairs = kWarpPositions * SLOTS / 64;
  constexpr int kPitch = staging_pitch(SLOTS);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  staging += warp * 8 * kPitch;
  const uint32_t slots_magic = magic_of(p.w.slots);

  const auto offset_of = [&](int item, int& position, int& sh, int& sw) {
    const int rest = divide(item, slots_magic);
    sw = item - rest * p.w.slots;
    sh = rest / kWarpPositions;
    position = warp * kWarpPositions + rest % kWarpPositions;
    const int2 to = destinations[position];
    return exists(at, to, sh, sw)
               ? to.x + sh * p.destination_stride[2] + sw * p.destination_stride[3]
               : -1;
  };
  // Element offsets of this lane's pairs in every channel, -1: not there; and which are stored whole.
  int first_of[kPairs], second_of[kPairs];
  uint32_t whole = 0;
  float nan = 0.f;  // turns NaN when any sum is not finite
  const int first = at.column_tile * COLUMNS;
  T* base = static_cast<T*>(p.destination) +
            static_cast<int64_t>(at.group * p.columns + first) * p.destination_stride[1];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    int position, sh, sw;
    first_of[i] = offset_of(i * 64 + lane * 2, position, sh, sw);
    second_of[i] = offset_of(i * 64 + lane * 2 + 1, position, sh, sw);
    if (first_of[i] >= 0 && second_of[i] == first_of[i] + 1 && p.destination_stride[1] % 2 == 0 &&
        reinterpret_cast<uintptr_t>(base + first_of[i]) % (2 * sizeof(T)) == 0)
      whole |= 1u << i;
  }
  const int pair_stride = p.w.slots;  // floats between neighbouring positions of a phase
#pragma unroll
  for (int n = 0; n < COLUMNS / 8; ++n) {
    if (first + n * 8 >= p.columns) break;
    __syncwarp();
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
      const int sh = slot_h(p, s), sw = slot_w(p, s);
      if (sh >= at.phases_h || sw >= at.phases_w) continue;
      float* to = staging + (lane & 3) * 2 * kPitch +
                  (sh * kWarpPositions + (lane >> 2)) * pair_stride + sw;
#pragma unroll
      for (int m = 0; m < kWarpPositions / 16; ++m)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          to[0] = sum[s][n][m][2 * j];
          to[kPitch] = sum[s][n][m][2 * j + 1];
          to += 8 * pair_stride;
        }
    }
    __syncwarp();
    const int channels = min(8, p.columns - first - n * 8);
    const float* from = staging + lane * 2;
    for (int c = 0; c < channels; ++c) {
      const float bias = bias_of<T>(p, at, first + n * 8 + c);
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const float2 pair = *reinterpret_cast<const float2*>(from + i * 64);
        const float value[2] = {pair.x + bias, pair.y + bias};
        nan = fmaf(pair.x, 0.f, fmaf(pair.y, 0.f, nan));
        if (whole >> i & 1) {
          store_run(base + first_of[i], value);
        } else {
          if (first_of[i] >= 0) base[first_of[i]] = Numeric<T>::narrow(value[0]);
          if (second_of[i] >= 0) base[second_of[i]] = Numeric<T>::narrow(value[1]);
        }
      }
      base += p.destination_stride[1];
      from += kPitch;
    }
  }
  if (nan == nan) return;
  base = static_cast<T*>(p.destination) +
         static_cast<int64_t>(at.group * p.columns) * p.destination_stride[1];
  for (int i = 0; i < 2 * kPairs; ++i) {
    int position, sh, sw;
    const int to = offset_of(i / 2 * 64 + lane * 2 + i % 2, position, sh, sw);
    if (to < 0) continue;
    for (int channel = first; channel < min(first + COLUMNS, p.columns); ++channel)
      repair_nan<M>(&p, base + channel * p.destination_stride[1] + to, at.group_h, at.group_w,
                    at.group, channel, sh, sw, position, tile);
  }
}

}  // namespace convt2d::cuda::igemm
