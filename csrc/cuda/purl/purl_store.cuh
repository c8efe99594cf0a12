// From sums to rows of x: channels' pixels by way of shared memory, and the NaN rule.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/purl/purl_scope.cuh"

namespace convt2d::cuda::purl {

// A warp's 16 pixels of the channels of a pass to shared memory, a channel's pixels one after the other.
template <class T, int PASS, int WIDTH>
__device__ __forceinline__ void lay_out(const float (&sum)[WIDTH / 2], uint32_t staging) {
  constexpr int kPitch = pass_pitch(sizeof(T)), kFirst = PASS * kPassChannels / 2;
  const int lane = threadIdx.x % 32, first = threadIdx.x % 128 / 32 * 16;
  if constexpr (sizeof(T) == 2) {
    const uint32_t to =
        staging + (lane / 16 * 8 + lane % 8) * kPitch + (first + lane / 8 % 2 * 8) * 2;
#pragma unroll
    for (int i = 0; i < kPassChannels / 16; ++i) {
      const float* const mine = sum + kFirst + 8 * i;
      store_turned(to + i * 16 * kPitch, {pack<T>(mine[0], mine[1]), pack<T>(mine[2], mine[3]),
                                          pack<T>(mine[4], mine[5]), pack<T>(mine[6], mine[7])});
    }
  } else {
    const uint32_t to = staging + lane % 4 * 2 * kPitch + (first + lane / 4) * 4;
#pragma unroll
    for (int i = 0; i < kPassChannels / 2; ++i)
      store_shared_sum(to + (i / 4 * 8 + i % 2) * kPitch + i / 2 % 2 * 32, sum[kFirst + i]);
  }
}

// Where a thread's unit of a tile lies in x, which channels of a pass it has, and whether it has any.
template <class T, int UNIT>
struct Unit {
  static constexpr int units = kTeamPixels * int(sizeof(T)) / UNIT, step = 128 / units;
  T* to;
  uint32_t from;
  int channel, plane;
  bool there;

  __device__ __forceinline__ Unit(const Params& p, const Item& item, uint32_t staging) {
    const int thread = threadIdx.x % 128, place = thread % units * UNIT;
    channel = thread / units, plane = p.x_h * p.x_w;
    const int index = warpgroup_of_block() * kTeamPixels + place / int(sizeof(T));
    const Pixel at = pixel_of(p, index);
    const int image = item.image + at.image, row = item.row + at.row,
              column = item.column + at.column;
    there = index < p.pixels && image < p.batch && row < p.x_h && column < p.x_w;
    to = static_cast<T*>(p.x) +
         ((int64_t{image} * p.groups + item.group) * p.columns + item.channel + channel) * plane +
         row * p.x_w + column;
    from = staging + channel * pass_pitch(sizeof(T)) + place;
  }
};

// What 16, 8, 4 or 2 bytes of outputs add to `probe`: zero times each, which is NaN where one is not finite. A lone half's other one is 0.
template <class T, int WORDS>
__device__ __forceinline__ void probe_words(const uint32_t (&word)[WORDS], uint32_t& probe) {
#pragma unroll
  for (int i = 0; i < WORDS; ++i)
    if constexpr (sizeof(T) == 2) {
      probe = add_zero_times_pair<T>(word[i], probe);
    } else {
      probe = __float_as_uint(fmaf(0.f, __uint_as_float(word[i]), __uint_as_float(probe)));
    }
}
template <class T>
__device__ __forceinline__ bool is_nan(uint32_t probe) {
  float all;
  if constexpr (sizeof(T) == 2) {
    all = add_pair<T>(probe);
  } else {
    all = __uint_as_float(probe);
  }
  return all != all;
}

template <int UNIT, int WORDS>
__device__ __forceinline__ void load_unit(uint32_t from, uint32_t (&word)[WORDS]) {
  if constexpr (UNIT == 16) {
    load_shared_16(from, word);
  } else if constexpr (UNIT == 8) {
    load_shared_8(from, word);
  } else if constexpr (UNIT == 4) {
    word[0] = load_shared_4(from);
  } else {
    word[0] = load_shared<unsigned short>(from);
  }
}
// If `key` is not negative.
template <int UNIT, int WORDS>
__device__ __forceinline__ void store_unit_if(int key, void* to, const uint32_t (&word)[WORDS]) {
  if constexpr (UNIT == 2) {
    store_half_if(key, to, static_cast<unsigned short>(word[0]));
  } else {
    store_words_if<WORDS>(key, to, word[0], word[1 % WORDS], word[2 % WORDS], word[3 % WORDS]);
  }
}

// A pass from shared memory to x.
template <class T, int UNIT>
__device__ __forceinline__ void store_pass(const Params& p, const Item& item, int pass,
                                           uint32_t staging, uint32_t& probe) {
  using Unit = Unit<T, UNIT>;
  const Unit unit(p, item, staging);
  const int first = item.channel + pass * kPassChannels + unit.channel,
            left = unit.there ? p.columns - first : 0;
  T* const to = unit.to + pass * kPassChannels * unit.plane;
  // Some at once, and without branches.
  constexpr int kCount = kPassChannels / Unit::step, kAtOnce = kCount < 4 ? kCount : 4;
#pragma unroll
  for (int first_of = 0; first_of < kCount; first_of += kAtOnce) {
    uint32_t word[kAtOnce][UNIT > 4 ? UNIT / 4 : 1];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      load_unit<UNIT>(unit.from + (first_of + k) * Unit::step * pass_pitch(sizeof(T)), word[k]);
    __syncwarp();  // else some are loaded where they are stored, and waited for
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = (first_of + k) * Unit::step;
      store_unit_if<UNIT>(left - 1 - i, to + i * unit.plane, word[k]);
      probe_words<T>(word[k], probe);  // of what is not there, too
    }
  }
}

// A warpgroup's sums of a tile to x; adds zero times each to `probe`.
template <class T, int WIDTH, int PASS = 0>
__device__ __forceinline__ void store_tile(const Params& p, const float (&sum)[WIDTH / 2],
                                           const Item& item, uint32_t staging, uint32_t& probe) {
  const int team = 1 + warpgroup_of_block();
  barrier_among(team, 128);  // the pass before has been read
  lay_out<T, PASS, WIDTH>(sum, staging);
  barrier_among(team, 128);
  if (p.unit == 16) {
    store_pass<T, 16>(p, item, PASS, staging, probe);
  } else if (p.unit == 8) {
    store_pass<T, 8>(p, item, PASS, staging, probe);
  } else if (sizeof(T) == 4 || p.unit == 4) {
    store_pass<T, 4>(p, item, PASS, staging, probe);
  } else {
    store_pass<T, sizeof(T)>(p, item, PASS, staging, probe);
  }
  if constexpr ((PASS + 1) * kPassChannels < WIDTH)
    store_tile<T, WIDTH, PASS + 1>(p, sum, item, staging, probe);
}

// Taps beside dY multiply zeros, which makes NaN of a weight that is not finite. What came out NaN of it is summed again without
// these. All of a block's outputs are there.
template <class T, int WIDTH>
__device__ __noinline__ void repair(const Params& p) {
  const int x_plane = p.x_h * p.x_w, y_plane = p.y_h * p.y_w, taps = p.kernel_h * p.kernel_w;
  for (int i = blockIdx.x; i < p.items; i += p.walkers) {
    const Item item = item_of<WIDTH>(p, i);
    for (int k = threadIdx.x; k < WIDTH * p.pixels; k += kConsumers) {
      const Pixel at = pixel_of(p, k % p.pixels);
      const int image = item.image + at.image, row = item.row + at.row,
                column = item.column + at.column, channel = item.channel + k / p.pixels;
      if (image >= p.batch || row >= p.x_h || column >= p.x_w || channel >= p.columns) continue;
      const int64_t plane = int64_t{image} * p.groups + item.group;
      T* const to =
          static_cast<T*>(p.x) + (plane * p.columns + channel) * x_plane + row * p.x_w + column;
      const float value = Numeric<T>::widen(*to);
      if (value == value) continue;
      const T* const w = static_cast<const T*>(p.w) +
                         (int64_t{item.group} * p.columns + channel) * p.reduce * taps;
      const T* const y = static_cast<const T*>(p.y) + plane * p.reduce * y_plane;
      float sum = 0;
      for (int tap = 0; tap < taps; ++tap) {
        const int h = row * p.stride_h - p.pad_h + tap / p.kernel_w,
                  v = column * p.stride_w - p.pad_w + tap % p.kernel_w;
        if (h < 0 || h >= p.y_h || v < 0 || v >= p.y_w) continue;
        for (int out = 0; out < p.reduce; ++out)
          sum += load(y + out * y_plane + h * p.y_w + v) * load(w + out * taps + tap);
      }
      *to = Numeric<T>::narrow(sum);
    }
  }
}

}  // namespace convt2d::cuda::purl
