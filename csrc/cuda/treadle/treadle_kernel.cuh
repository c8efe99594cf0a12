// The treadle kernel; treadle_config.h draws the GEMM, treadle_stage.cuh brings it to shared memory.
//
// If a sum came out NaN, it is added up again, of products that exist: zeros from outside of x and dY are multiplied too,
// and 0 * inf is NaN.
#pragma once

#include "cuda/device/as_multiplied.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/treadle/treadle_stage.cuh"

namespace convt2d::cuda::treadle {

// Of a thread: [instruction][row of x and input channel 8 i + 2 t or + 1, output channel g or g + 8].
template <int ROW, int GROUP>
struct Sums {
  static constexpr Role role = kTiles[ROW].role[GROUP];
  float full[role.full > 0 ? role.full : 1][kRows * kChannels / 2];
  float pair[1][(kRows + 1) * kChannels / 2];
};

// Where a thread finds its words of dY in a stage. Lanes of the upper half of a warpgroup have the other tap of `full`,
// or the other line of `pair`.
template <int ROW, int GROUP, bool CHANNELS_LAST>
struct Places {
  static constexpr Role role = kTiles[ROW].role[GROUP];
  // Of an instruction, of the first and second word of four of a slice.
  uint32_t full[role.full > 0 ? role.full : 1][2], pair[2];

  __device__ __forceinline__ Places() {
    const int upper = threadIdx.x % 128 / 64;
#pragma unroll
    for (int i = 0; i < role.full; ++i)
#pragma unroll
      for (int word = 0; word < 2; ++word) full[i][word] = place(word, role.first + i * 2 + upper);
#pragma unroll
    for (int word = 0; word < 2; ++word)
      pair[word] =
          place(word, role.first + role.full * 2) + upper * line_bytes(kTiles[ROW], CHANNELS_LAST);
  }
  static __device__ __forceinline__ uint32_t place(int word, int tap) {
    const int lane = threadIdx.x % 32, t = lane % 4;
    const int channel = threadIdx.x / 32 % 2 * 16 + lane / 4;
    if constexpr (CHANNELS_LAST) {
      const int pixel = t * 2 + word + tap;
      return pixel * 128 + ((channel / 4 ^ pixel % 8) << 4) + channel % 4 * 4;
    } else {
      constexpr int kCopies = copies(kTiles[ROW]);
      return tap % kCopies * copy_bytes(kTiles[ROW]) +
             (channel * pitch_words(kTiles[ROW]) + word * 4 + t + tap / kCopies) * 4;
    }
  }
};

// What a lane holds of an instruction: 32 bytes of a line, as mma.sync has them.
template <int ROW, bool CHANNELS_LAST>
__device__ __forceinline__ void fetch(uint32_t (&word)[4], uint32_t from,
                                      const uint32_t (&place)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if constexpr (CHANNELS_LAST) {
      word[half * 2] = load_shared_4(from + place[half]);
      word[half * 2 + 1] = load_shared_4(from + (place[half] ^ 32));  // eight channels on
    } else {
      word[half * 2] = load_shared_4(from + place[half]);
      word[half * 2 + 1] = load_shared_4(from + place[half] + 8 * pitch_words(kTiles[ROW]) * 4);
    }
  }
}

// A batch of a step: `y` is where its columns start in a line, `x` the first of its four rows. Words of a slice are fetched
// while the one before is multiplied.
template <class M, int ROW, int GROUP, bool CHANNELS_LAST>
__device__ __forceinline__ void multiply_batch(Sums<ROW, GROUP>& sum,
                                               const Places<ROW, GROUP, CHANNELS_LAST>& places,
                                               uint32_t y, uint64_t x) {
  constexpr Role role = kTiles[ROW].role[GROUP];
  constexpr int kLine = line_bytes(kTiles[ROW], CHANNELS_LAST);
  constexpr int kSliceOfLine = CHANNELS_LAST ? kSlice * 128 : kSliceBytes;
  using T = typename M::Element;
#pragma unroll
  for (int s = 0; s < slices(kTiles[ROW]); ++s) {
    uint32_t full[role.full][2][4], pair[4];
#pragma unroll
    for (int i = 0; i < role.full; ++i)
#pragma unroll
      for (int line = 0; line < 2; ++line)
        fetch<ROW, CHANNELS_LAST>(full[i][line], y + line * kLine + s * kSliceOfLine,
                                  places.full[i]);
    if constexpr (role.pair) fetch<ROW, CHANNELS_LAST>(pair, y + s * kSliceOfLine, places.pair);
#pragma unroll
    for (int i = 0; i < role.full; ++i)
#pragma unroll
      for (int line = 0; line < 2; ++line) computed(full[i][line]);
    if constexpr (role.pair) computed(pair);
    const uint64_t here = advance(x, s * (kSliceBytes >> 4));
    wgmma_fence();
#pragma unroll
    for (int line = 0; line < 2; ++line)
#pragma unroll
      for (int i = 0; i < role.full; ++i)
        WgmmaFetched<T, kRows * kChannels>::add(sum.full[i], full[i][line],
                                                advance(here, line * (kRowBytes >> 4)));
    if constexpr (role.pair) WgmmaFetched<T, (kRows + 1) * kChannels>::add(sum.pair[0], pair, here);
    wgmma_commit();
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
}

// The same in strict fp32: of a warpgroup that has one or the other. Sums of the batch are parts, which ordinary additions
// join.
template <class M, int ROW, int GROUP>
__device__ __forceinline__ void multiply_strict(Sums<ROW, GROUP>& sum,
                                                const Places<ROW, GROUP, false>& places, uint32_t y,
                                                uint64_t x) {
  constexpr Role role = kTiles[ROW].role[GROUP];
  static_assert(role.full + role.pair == 1);
  constexpr int kLines = role.full ? 2 : 1, kCount = slices(kTiles[ROW]) * kLines;
  constexpr int kWidth = (role.full ? kRows : kRows + 1) * kChannels;
  constexpr uint32_t kRest = 2 * plane_bytes(kTiles[ROW]) >> 4;
  uint32_t high[kCount][4], low[kCount][4];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    fetch<ROW, false>(high[i],
                      y + i % kLines * line_bytes(kTiles[ROW], false) + i / kLines * kSliceBytes,
                      role.full ? places.full[0] : places.pair);
#pragma unroll
    for (int w = 0; w < 4; ++w) M::split(high[i][w], high[i][w], low[i][w]);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) computed(high[i]), computed(low[i]);
  using Words = const uint32_t (&)[4];
  float part[1][kWidth / 2];
  start_strict<kWidth, kCount>(
      part, [&](int i) -> Words { return high[i]; }, [&](int i) -> Words { return low[i]; },
      [&](int i) {
        return advance(x, i % kLines * (kRowBytes >> 4) + i / kLines * (kSliceBytes >> 4));
      },
      kRest);
  wgmma_wait<0>();
  if constexpr (role.full) {
    join_part(sum.full[0], part[0]);
  } else {
    join_part(sum.pair[0], part[0]);
  }
}

// All of a block's steps.
template <class M, int ROW, int GROUP, bool CHANNELS_LAST>
__device__ __forceinline__ void multiply(const Params& p, const Scope& at, uint32_t shared,
                                         Sums<ROW, GROUP>& sum) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kFirst = tile.share ? GROUP : 0, kNext = tile.share ? kGroups : 1;
  constexpr int kBatchBytes = slices(tile) * kSliceBytes;
  constexpr int kBatchOfLine = kBatchBytes * (CHANNELS_LAST ? 32 : 1);  // a word is 128 bytes
  const Places<ROW, GROUP, CHANNELS_LAST> places;
  const uint64_t layout = swizzled_layout(128, 8 * 128);
  Ring slot, stage;  // of the step's second pair, and its lines
  Step step(p, at.begin);
  int before = 0;  // the slot of its first pair
  // One loop: of two, one in the other, the compiler makes copies of the sums.
  for (int i = at.begin, batch = kFirst; i < at.end;) {
    if (batch == kFirst) {
      if (i == at.begin || step.pair == 0) {
        barrier_wait(slot_full(shared, slot.stage), slot.parity);
        before = slot.stage;
        slot.advance(slots(tile));
      }
      barrier_wait(slot_full(shared, slot.stage), slot.parity);
      barrier_wait(stage_full(shared, stage.stage), stage.parity);
    }
    const uint32_t y =
        shared + y_at(tile) + stage.stage * stage_bytes(tile, CHANNELS_LAST) + batch * kBatchOfLine;
    const int in_row = batch * kBatchBytes;
    const uint64_t x =
        operand(layout, slot_at(shared, before) + in_row / 128 * plane_bytes(tile) + in_row % 128);
    if constexpr (tile.strict) {
      multiply_strict<M, ROW, GROUP>(sum, places, y, x);
    } else {
      multiply_batch<M, ROW, GROUP, CHANNELS_LAST>(sum, places, y, x);
    }
    batch += kNext;
    if (batch < step.batches(p, tile)) continue;
    batch = kFirst;
    ++i;
    step.advance(p);
    const bool last = i == at.end || step.pair == 0;  // of those that share rows
    __syncwarp();                                     // all lanes have read dY
    if (threadIdx.x % 32 == 0) {
      barrier_arrive(stage_full(shared, stage.stage) + 8);
      barrier_arrive(slot_full(shared, before) + 8);
      if (last) barrier_arrive(slot_full(shared, slot.stage) + 8);
    }
    before = slot.stage;
    slot.advance(slots(tile));
    stage.advance(stages(tile));
  }
#pragma unroll
  for (int i = 0; i < tile.role[GROUP].full; ++i) finished(sum.full[i]);
  if constexpr (tile.role[GROUP].pair) finished(sum.pair[0]);
}

// Sums of a thread to the block's, where `add` says whether some are there already.
template <int ROW, int WIDTH>
__device__ __forceinline__ void put_sums(uint32_t to, const float (&sum)[WIDTH], int tap, int line,
                                         bool add) {
  const int lane = threadIdx.x % 32, output = threadIdx.x / 32 % 2 * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) {
    const int column = i / 4 * 8 + lane % 4 * 2 + i % 2, input = column % kChannels;
    const int kernel_row = kRows - 1 + line - column / kChannels;
    if (kernel_row < 0 || kernel_row >= kRows) continue;
    const uint32_t place =
        to + (((kernel_row * kTiles[ROW].taps + tap) * kChannels + input) * kSumPitch + output +
              i / 2 % 2 * 8) *
                 4;
    store_shared_sum(place, add ? load_shared<float>(place) + sum[i] : sum[i]);
  }
}

// A warpgroup: multiplies, and adds its sums to the block's, in a fixed order.
template <class M, int ROW, int GROUP, bool CHANNELS_LAST>
__device__ __forceinline__ void sum_up(const Params& p, const Scope& at, uint32_t shared) {
  constexpr Tile tile = kTiles[ROW];
  constexpr Role role = tile.role[GROUP];
  Sums<ROW, GROUP> sum;
  clear(sum.full);
  clear(sum.pair);
  multiply<M, ROW, GROUP, CHANNELS_LAST>(p, at, shared, sum);
  const uint32_t to = shared + kXAt;
  const int upper = threadIdx.x % 128 / 64;
  constexpr bool kAdds = tile.share && GROUP == 1;
  barrier_among(1, kConsumers);  // all have read the stages
  if (kAdds) {
    barrier_among(1, kConsumers);
    barrier_among(1, kConsumers);
  }
#pragma unroll
  for (int i = 0; i < role.full; ++i)
    put_sums<ROW>(to, sum.full[i], role.first + i * 2 + upper, 0, kAdds);
  if constexpr (role.pair) {
    constexpr int kTap = role.first + role.full * 2;
    if (upper == 0) put_sums<ROW>(to, sum.pair[0], kTap, 0, kAdds);
  }
  barrier_among(1, kConsumers);
  if constexpr (role.pair) {
    constexpr int kTap = role.first + role.full * 2;
    if (upper == 1) put_sums<ROW>(to, sum.pair[0], kTap, 1, true);
  }
  barrier_among(1, kConsumers);
  if (tile.share && GROUP == 0) {
    barrier_among(1, kConsumers);
    barrier_among(1, kConsumers);
  }
}

// One sum of the block, of the products that exist. Slow, and rare: somewhere is a NaN or an infinity.
template <class M, int ROW>
__device__ __noinline__ float sum_with_care(const Params& p, const Scope& at, int input, int output,
                                            int tap_h, int tap_w) {
  const int x_channel = (at.group * p.rows + input) * p.x_stride[1];
  const int y_channel = (at.group * p.columns + output) * p.y_stride[1];
  float sum = 0;
  Step step(p, at.begin);
  for (int i = at.begin; i < at.end; ++i, step.advance(p))
    for (int line = step.line(); line < min(step.line() + 2, p.y_h); ++line) {
      const int h = line + p.pad_h - tap_h;
      if (h < 0 || h >= p.x_h) continue;
      const int x = x_channel + step.n * p.x_stride[0] + h * p.x_stride[2];
      const int y = y_channel + step.n * p.y_stride[0] + line * p.y_stride[2];
      const int first = step.column(kTiles[ROW]);
      for (int w = first; w < min(first + columns(kTiles[ROW]), p.x_w); ++w) {
        const int v = w - p.pad_w + tap_w;
        if (v >= 0 && v < p.y_w)
          sum = fmaf(as_multiplied<M>(p.x, x + w * p.x_stride[3]),
                     as_multiplied<M>(p.y, y + v * p.y_stride[3]), sum);
      }
    }
  return sum;
}

// The block's sums to dW or to partial sums; what is NaN once more. By the warps that multiplied.
template <class M, int ROW>
__device__ __forceinline__ void store_sums(const Params& p, const Scope& at, uint32_t shared,
                                           float* partials) {
  constexpr int kTaps = kTiles[ROW].taps;
  const int lane = threadIdx.x % 32, output = at.output + lane;
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < kRows * kTaps * kChannels; i += kConsumers / 32) {
    const int input = at.input + i % kChannels, tap = i / kChannels;
    const int tap_h = at.kernel_h + tap / kTaps, tap_w = at.kernel_w + tap % kTaps;
    if (tap_h >= p.kernel_h || tap_w >= p.kernel_w || input >= p.rows || output >= p.columns)
      continue;
    float sum = load_shared<float>(shared + kXAt + (i * kSumPitch + lane) * 4);
    if (sum != sum) sum = sum_with_care<M, ROW>(p, at, input, output, tap_h, tap_w);
    const int to = (at.group * p.rows + input) * p.stride[0] + output * p.stride[1] +
                   tap_h * p.stride[2] + tap_w * p.stride[3];
    if (partials) {
      partials[to] = sum;
    } else {
      store(static_cast<typename M::Element*>(p.weight) + to, sum);
    }
  }
}

template <class M, int ROW, bool CHANNELS_LAST>
__global__ void __launch_bounds__(kThreads, 1)
    convt2d_treadle_grad_weight_kernel(const __grid_constant__ Params p,
                                       const __grid_constant__ CUtensorMap map) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Scope at = scope_of(p, kTiles[ROW]);
  // A barrier for what the copy engine brings counts the thread that asks, else the warps that bring.
  constexpr Tile tile = kTiles[ROW];
  if (threadIdx.x < slots(tile)) {
    barrier_init(slot_full(shared, threadIdx.x), CHANNELS_LAST || tile.strict ? 4 : 1);
    barrier_init(slot_full(shared, threadIdx.x) + 8, kConsumers / 32);
  } else if (threadIdx.x >= 32 && threadIdx.x < 32 + stages(tile)) {
    barrier_init(stage_full(shared, threadIdx.x - 32), CHANNELS_LAST ? 1 : 4);
    barrier_init(stage_full(shared, threadIdx.x - 32) + 8, kConsumers / 32);
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  if (warp_of_block() >= kConsumers / 32) {
    fewer_registers<bringer_registers(tile)>();
    bring<M, ROW, CHANNELS_LAST>(p, at, &map, shared);
    return;
  }
  more_registers<consumer_registers(tile)>();
  if (warpgroup_of_block() == 0) {
    sum_up<M, ROW, 0, CHANNELS_LAST>(p, at, shared);
  } else {
    sum_up<M, ROW, 1, CHANNELS_LAST>(p, at, shared);
  }
  float* const partials = p.partials ? p.partials + int64_t{at.piece} * p.piece_floats : nullptr;
  store_sums<M, ROW>(p, at, shared, partials);
#endif
}

}  // namespace convt2d::cuda::treadle
