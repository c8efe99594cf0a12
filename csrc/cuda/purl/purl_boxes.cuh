// From sums to rows of x in boxes of the copy engine, which stores them while the next ones are laid out, or multiplied.
#pragma once

#include "cuda/device/elect.cuh"
#include "cuda/device/tensor_store.cuh"
#include "cuda/purl/purl_store.cuh"

namespace convt2d::cuda::purl {

// Where in a pass a warpgroup's pixel of a channel lies on its way to x.
__device__ __forceinline__ int out_place(const Params& p, int pixel, int channel, int size) {
  const int span = int(p.by_span.quotient(pixel)),
            at = channel * p.out_pitch + (pixel - span * int(p.by_span.divisor)) * size;
  return span * p.out_span + (at ^ (at / kLine & p.out_swizzle) * 16);
}

// A warp's 16 pixels of the channels of a pass to shared memory; adds zero times each to `probe`.
template <class T, int PASS, int WIDTH>
__device__ __forceinline__ void lay_out_boxes(const Params& p, const float (&sum)[WIDTH / 2],
                                              uint32_t to, uint32_t& probe) {
  constexpr int kFirst = PASS * kPassChannels / 2;
  const int lane = threadIdx.x % 32, first = threadIdx.x % 128 / 32 * 16;
  if constexpr (sizeof(T) == 2) {
    to += out_place(p, first + lane / 8 % 2 * 8, lane / 16 * 8 + lane % 8, 2);
#pragma unroll
    for (int i = 0; i < kPassChannels / 16; ++i) {
      const float* const mine = sum + kFirst + 8 * i;
      const uint32_t word[] = {pack<T>(mine[0], mine[1]), pack<T>(mine[2], mine[3]),
                               pack<T>(mine[4], mine[5]), pack<T>(mine[6], mine[7])};
      store_turned(to + i * 16 * p.out_pitch, word);
      probe_words<T>(word, probe);
    }
  } else {
    uint32_t place[2][2];
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int channel = 0; channel < 2; ++channel)
        place[row][channel] =
            to + out_place(p, first + lane / 4 + row * 8, lane % 4 * 2 + channel, 4);
#pragma unroll
    for (int i = 0; i < kPassChannels / 2; ++i) {
      store_shared_sum(place[i / 2 % 2][i % 2] + i / 4 * 8 * p.out_pitch, sum[kFirst + i]);
      probe_words<T>({__float_as_uint(sum[kFirst + i])}, probe);
    }
  }
}

// The thread of a warpgroup that asks the copy engine, and waits for it.
__device__ __forceinline__ bool asks_of_team() { return warp_of_block() % 4 == 0 && elected(); }

// Until what this thread asked to be taken from the next place has been read.
__device__ __forceinline__ void wait_for_place(const Params& p) {
  if (p.places == kMostPlaces) {
    stored_boxes_read_but<kMostPlaces - 1>();
  } else {
    stored_boxes_read();
  }
}

// A team's pixels of the pass that starts with a channel to x. Of one thread: it may not ask for its warp's number.
__device__ __forceinline__ void ask_for_boxes(const Params& p, const Item& item, int team,
                                              int channel, const CUtensorMap& x, uint32_t from) {
  const int first = team * kTeamPixels, end = min(first + kTeamPixels, p.pixels),
            step = p.box_lines * int(p.by_span.divisor);
#pragma unroll 1
  for (int index = first; index < end; index += step, from += p.box_lines * p.out_span) {
    const int line = int(p.by_line.quotient(index)), at = index - line * int(p.by_line.divisor);
    ask_box(&x, from, (p.of_planes ? item.row * p.x_w : item.column) + at, channel, item.group,
            (p.of_planes ? item.image : item.row) + line, p.of_planes ? 0 : item.image);
  }
  close_boxes();
}

// A warpgroup's sums of a tile to x; adds zero times each to `probe`, of what is not there, too. `turn`: the next place.
template <class T, int WIDTH, int PASS = 0>
__device__ __forceinline__ void store_boxes(const Params& p, const float (&sum)[WIDTH / 2],
                                            const Item& item, const CUtensorMap& x,
                                            uint32_t staging, uint32_t& turn, uint32_t& probe) {
  const int team = warpgroup_of_block(), channel = item.channel + PASS * kPassChannels;
  if (PASS > 0 && channel >= p.columns) return;
  const uint32_t place = staging + turn * p.out_bytes;
  if (asks_of_team()) wait_for_place(p);
  barrier_among(1 + team, 128);
  lay_out_boxes<T, PASS, WIDTH>(p, sum, place, probe);
  fence_for_wgmma();  // and for the copy engine
  barrier_among(1 + team, 128);
  if (asks_of_team()) ask_for_boxes(p, item, team, channel, x, place);
  turn ^= p.places - 1;
  if constexpr ((PASS + 1) * kPassChannels < WIDTH)
    store_boxes<T, WIDTH, PASS + 1>(p, sum, item, x, staging, turn, probe);
}

}  // namespace convt2d::cuda::purl
