// From accumulators to the destination: bias, one rounding, the NaN rule, whole sectors.
#pragma once

#include "cuda/device/numeric.cuh"
#include "cuda/igemm/igemm_share.cuh"
#include "cuda/igemm/igemm_stage.cuh"

namespace convt2d::cuda::igemm {

template <class T>
__device__ __forceinline__ float bias_of(const GatherParams& p, const Scope& at, int channel) {
  return p.bias && channel < p.columns
             ? load(static_cast<const T*>(p.bias) + at.group * p.columns + channel)
             : 0.f;
}

// NHWC: a thread holds runs of neighbouring channels of a pixel (channel_of) and stores them whole.
template <class M, int COLUMNS, int SLOTS, class Share>
__device__ __forceinline__ void store_vectors(const GatherParams& p, const Scope& at,
                                              const Share& share, const Sums<COLUMNS, SLOTS>& sum,
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
    if (!share.stores(v / kTiles)) continue;
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
          if (const int channel = channel0 + v * 8 + j;
              channel < p.columns && share.stores(v / kTiles))
            repair_nan(&p, pixel + channel, at.group_h, at.group_w, at.group, channel, sh, sw,
                       position_of(p, tile, position));
    }
  }
}

// Any other layout: through the warp's own shared memory, eight channels at a time, so that lanes store
// neighbouring positions, all column phases of a row interleaved. A lane owns pairs of neighbours.
template <class M, int COLUMNS, int SLOTS, class Share>
__device__ __forceinline__ void store_rows(const GatherParams& p, const Scope& at,
                                           const Share& share, const Sums<COLUMNS, SLOTS>& sum,
                                           const int2* destinations, float* staging, int tile) {
  using T = typename M::Element;
  constexpr int kPairs = kWarpPositions * SLOTS / 64;
  constexpr int kPitch = staging_pitch(SLOTS);
  constexpr int kTiles = kVectorTiles<T, COLUMNS>;  // of which a rank stores all or none
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
    if (!share.stores(n / kTiles)) {
      base += 8 * p.destination_stride[1];
      continue;
    }
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
      if (share.stores((channel - first) / 8 / kTiles))
        repair_nan(&p, base + channel * p.destination_stride[1] + to, at.group_h, at.group_w,
                   at.group, channel, sh, sw, position_of(p, tile, position));
  }
}

}  // namespace convt2d::cuda::igemm
