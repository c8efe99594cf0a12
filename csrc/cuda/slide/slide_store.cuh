// The second half of the slide kernel: the sums of a tile slide together, and outputs go to memory through a buffer of each
// warp, in which they lie as they will lie there, to the word, so that lanes move 16 bytes at a time, however odd a row's
// start.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/gather_device.cuh"
#include "cuda/slide/slide_plain.cuh"
#include "cuda/slide/slide_scope.cuh"

namespace convt2d::cuda::slide {

template <int ROW>
using Sums = float[blocks(kTiles[ROW])][kTiles[ROW].width / 2];

// A warpgroup's tile: image, first row of positions and residue of its outputs' rows; first position of the rows.
struct Place {
  int n, row, phase, position;
  bool first, last;  // of the sweeps
};

// Of one of a thread's channels.
template <int ROW>
__device__ __forceinline__ float bias_of(uint32_t shared, int channel) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x & 31;
  return load_shared<float>(shared + kBiasAt +
                            (channel * 32 + warp * kWarpChannels + lane / 4) * 4);
}
// Sums before the first product: every output has one kernel column that starts with the bias.
template <int ROW>
__device__ __forceinline__ void start(uint32_t shared, Sums<ROW>& sum) {
  constexpr Tile tile = kTiles[ROW];
#pragma unroll
  for (int b = 0; b < blocks(tile); ++b)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int kw = tile.halved ? 2 * b + half : b;
      const float first = kw < tile.stride ? bias_of<ROW>(shared, tile.halved ? 0 : half) : 0.f;
#pragma unroll
      for (int i = 0; i < tile.width / 8; ++i)
        sum[b][4 * i + 2 * half] = sum[b][4 * i + 2 * half + 1] = first;
    }
}

// A lane's two neighbouring positions, of one kernel column.
template <int ROW>
__device__ __forceinline__ float2 sums_of(const Sums<ROW>& sum, int channel, int kw, int i) {
  constexpr bool kHalved = kTiles[ROW].halved;
  const int block = kHalved ? kw / 2 : kw, half = kHalved ? kw % 2 : channel;
  return {sum[block][4 * i + 2 * half], sum[block][4 * i + 2 * half + 1]};
}

// Eights of positions that slide together, so that many shuffles are under way: of as many as the shortest run has.
constexpr int kTogether = kLeastRun / 8;

// What the lane to the left has; the first of four lanes gets what the last one had `before`.
template <class Number>
__device__ __forceinline__ Number from_left(Number before, Number mine) {
  const int lane = threadIdx.x & 31;
  return __shfl_sync(0xffffffffu, (lane & 3) == 3 ? before : mine, lane & 3 ? lane - 1 : lane + 3);
}

// The outputs of two neighbouring positions of each of COUNT eights. `get`: their sums of a kernel column. What the last of
// four lanes would pass on goes to the next eight, and from the last eight to `kept`.
template <int ROW, int COUNT, class Get>
__device__ __forceinline__ void slide(float (&kept)[carried(kTiles[ROW])],
                                      float (&output)[COUNT][2 * kTiles[ROW].stride], Get&& get) {
  constexpr int kKernel = kTiles[ROW].kernel, kStride = kTiles[ROW].stride;
  int step = 0;
#pragma unroll
  for (int e = 0; e < kStride; ++e) {
    const int last = (kKernel - 1 - e) / kStride;
    float2 both[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) both[i] = get(e + last * kStride, i);
#pragma unroll
    for (int j = last - 1; j >= 0; --j, ++step) {
      float got[COUNT];
#pragma unroll
      for (int i = 0; i < COUNT; ++i) got[i] = from_left(i ? both[i - 1].y : kept[step], both[i].y);
      kept[step] = both[COUNT - 1].y;
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        const float2 more = get(e + j * kStride, i);
        both[i] = {got[i] + more.x, both[i].x + more.y};
      }
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      output[i][e] = both[i].x;
      output[i][kStride + e] = both[i].y;
    }
  }
}

// Rows of a warp's buffer: where they lie in memory, and which of their outputs exist.
template <class T>
struct Runs {
  T* y;
  int first;  // element of the first channel's row 0, at the tile's first output
  int plane, y_w, y_h;
  int row, step, end;  // of y: of the first run; to the next; of positions that are left
  int channels;
  int low, high;  // outputs
};
struct Run {
  int element;  // of its first output
  bool there;
};
template <class T>
__device__ __forceinline__ Run run_of(const Runs<T>& runs, int index) {
  const int channel = index % kWarpChannels, r = index / kWarpChannels;
  const int h = runs.row + r * runs.step;
  return {runs.first + channel * runs.plane + h * runs.y_w,
          channel < runs.channels && r < runs.end && h >= 0 && h < runs.y_h};
}

// Runs of a warp from its buffer to memory, each by LANES lanes: whole 16 bytes, from a multiple of 32 bytes on; the ends, up
// to 7 numbers on both sides, one by one. Here and below lanes go round loops equally often: else ptxas keeps nothing that a warp
// has alike in uniform registers (device/uniform.cuh).
template <class T, int LANES>
__device__ __forceinline__ void store_runs(const Params& p, const Runs<T>& runs, uint32_t staging) {
  constexpr int kAtOnce = 3, kEnds = kVector / LANES;
  const int lane = threadIdx.x % LANES;
#pragma unroll 1
  for (int turn = 0; turn < p.tile_rows * (kWarpChannels * LANES / 32); ++turn) {
    const int index = turn * (32 / LANES) + int(threadIdx.x & 31) / LANES;
    const Run run = run_of(runs, index);
    const int skew = run.element & (kVector - 1), low = runs.low + skew,
              high = run.there ? runs.high + skew : low;
    const int begin = (low + kVector - 1) / kVector, end = max(begin, high / kVector);
    T* const y = runs.y + (run.element - skew);
    const uint32_t from = staging + index * p.staging_pitch;
    unsigned short number[2 * kEnds];
    const auto visit_ends = [&](auto&& visit) {
#pragma unroll
      for (int i = 0; i < kEnds; ++i) {
        const int left = low + i * LANES + lane, right = end * kVector + i * LANES + lane;
        if (left < min(begin * kVector, high)) visit(number[2 * i], left);
        if (right < high) visit(number[2 * i + 1], right);
      }
    };
    visit_ends(
        [&](unsigned short& mine, int at) { mine = load_shared<unsigned short>(from + at * 2); });
    int first = begin - ((run.element / kVector + begin) & 1) + lane;
    const int vectors = (runs.high - runs.low) / kVector + 2;
#pragma unroll 1
    for (int asked = 0; asked < vectors; asked += kAtOnce * LANES, first += kAtOnce * LANES) {
      uint32_t word[kAtOnce][4];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (first + i * LANES < end) load_shared_16(from + (first + i * LANES) * 16, word[i]);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (first + i * LANES >= begin && first + i * LANES < end)
          store_words(y + (first + i * LANES) * kVector, word[i][0], word[i][1], word[i][2],
                      word[i][3]);
    }
    visit_ends(
        [&](unsigned short& mine, int at) { *reinterpret_cast<unsigned short*>(y + at) = mine; });
  }
}

// The same of up to OUTPUTS outputs each, which lie in the buffer as words of two: what starts at an odd place moves on by one
// here. With stride 1 that is faster than to move them from thread to thread before, with stride 2 it is slower.
template <class T, int OUTPUTS>
__device__ __forceinline__ void store_moving_runs(const Params& p, const Runs<T>& runs,
                                                  uint32_t staging) {
  constexpr int kLanes = OUTPUTS < 96 ? 4 : 8, kAtOnce = 3, kEnds = kVector / kLanes;
  const int lane = threadIdx.x % kLanes;
  // One vector more than fit may be begun where a run starts between two.
  static_assert(OUTPUTS < kVector * kAtOnce * kLanes);
#pragma unroll 1
  for (int turn = 0; turn < p.tile_rows * (kWarpChannels * kLanes / 32); ++turn) {
    const int index = turn * (32 / kLanes) + int(threadIdx.x & 31) / kLanes;
    const Run run = run_of(runs, index);
    const int skew = run.element & (kVector - 1), odd = skew & 1;
    const int low = runs.low + skew, high = run.there ? runs.high + skew : low;
    const int begin = (low + kVector - 1) / kVector, end = max(begin, high / kVector);
    const T* row = runs.y + (run.element - skew);
    keep_in_register(row);  // else every address is summed up anew
    T* const y = const_cast<T*>(row);
    const uint32_t from = staging + index * p.staging_pitch;
    const bool moves = __any_sync(0xffffffffu, odd);
    const uint32_t select = odd ? 0x5432 : 0x7654;
    const int first = begin - ((run.element / kVector + begin) & 1) + lane;
    const uint32_t vector = from + first * 16;
    row = y + first * kVector;
    keep_in_register(row);
    T* const to = const_cast<T*>(row);
    uint32_t word[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * kLanes < end) load_shared_16(vector + i * kLanes * 16, word[i]);
    if (moves) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        uint32_t before = __shfl_sync(0xffffffffu, word[i][3], (threadIdx.x & 31) + 31 & 31);
        if (lane == 0 && first + i * kLanes < end)
          before = load_shared_4(vector + i * kLanes * 16 - 4);
#pragma unroll
        for (int k = 3; k > 0; --k) word[i][k] = __byte_perm(word[i][k - 1], word[i][k], select);
        word[i][0] = __byte_perm(before, word[i][0], select);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * kLanes >= begin && first + i * kLanes < end)
        store_words(to + i * kLanes * kVector, word[i][0], word[i][1], word[i][2], word[i][3]);
    unsigned short number[2 * kEnds];
    const auto visit_ends = [&](auto&& visit) {
#pragma unroll
      for (int i = 0; i < kEnds; ++i) {
        const int left = low + i * kLanes + lane, right = end * kVector + i * kLanes + lane;
        if (left < min(begin * kVector, high)) visit(number[2 * i], left);
        if (right < high) visit(number[2 * i + 1], right);
      }
    };
    visit_ends([&](unsigned short& mine, int at) {
      mine = load_shared<unsigned short>(from + (at - odd) * 2);
    });
    visit_ends(
        [&](unsigned short& mine, int at) { *reinterpret_cast<unsigned short*>(y + at) = mine; });
  }
}

// What is not finite, again.
template <class T>
__device__ __noinline__ void repair_runs(const Params& p, Tile tile, Runs<T> runs, uint32_t staging,
                                         int n, int group, int first_channel, int first_column) {
  __syncwarp();
  for (int index = 0; index < p.tile_rows * kWarpChannels; ++index) {
    const Run run = run_of(runs, index);
    if (!run.there) continue;
    for (int output = runs.low + int(threadIdx.x & 31); output < runs.high; output += 32) {
      const auto number = load_shared<unsigned short>(staging + index * p.staging_pitch +
                                                      ((run.element & (kVector - 1)) + output) * 2);
      if (!is_finite(*reinterpret_cast<const T*>(&number)))
        runs.y[run.element + output] =
            plain_output<T>(p, tile, n, group, first_channel + index % kWarpChannels,
                            runs.row + index / kWarpChannels * runs.step, first_column + output);
    }
  }
}
// The same, once it is in memory: the buffer may hold something else.
template <class T>
__device__ __noinline__ void repair_runs(const Params& p, Tile tile, Runs<T> runs, int n, int group,
                                         int first_channel, int first_column) {
  __syncwarp();
  for (int index = 0; index < p.tile_rows * kWarpChannels; ++index) {
    const Run run = run_of(runs, index);
    if (!run.there) continue;
    for (int output = runs.low + int(threadIdx.x & 31); output < runs.high; output += 32) {
      T& number = runs.y[run.element + output];
      if (!is_finite(number))
        number =
            plain_output<T>(p, tile, n, group, first_channel + index % kWarpChannels,
                            runs.row + index / kWarpChannels * runs.step, first_column + output);
    }
  }
}

// `shared`: where the block's begins; `staging`: this warp's buffer; `waiting`: this thread's
// sums that slid out of the tile before, and those of this one.
template <class T, int ROW>
__device__ __forceinline__ void store_tile(const Params& p, const Scope& at, const Place& place,
                                           const Sums<ROW>& sum, uint32_t shared, uint32_t staging,
                                           uint32_t waiting) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kStride = tile.stride, kCarried = carried(tile);
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int channel = 0; channel < thread_channels(tile); ++channel) {
    const int first =
        uniform(at.column_tile * channels(tile) + channel * 32 + warp * kWarpChannels);
    if (first >= p.columns) break;
    const float bias = bias_of<ROW>(shared, channel);
    Runs<T> runs;
    runs.y = static_cast<T*>(p.destination);
    runs.plane = p.y_h * p.y_w;
    runs.y_h = p.y_h;
    runs.y_w = p.y_w;
    runs.first = ((place.n * p.groups + at.group) * p.columns + first) * runs.plane +
                 place.position * kStride - p.pad_w;
    runs.row = place.row * p.stride_h + place.phase - p.pad_h;
    runs.step = p.stride_h;
    runs.end = p.end_row - place.row;
    runs.channels = p.columns - first;
    runs.low = max(0, p.pad_w - place.position * kStride);
    runs.high = min((p.run + (place.last ? kBeyond : 0)) * kStride,
                    p.y_w + p.pad_w - place.position * kStride);

    uint32_t nan = 0;
    // Outputs of eights of positions to the buffer, from `to` on. With stride 2, where a row starts at an odd place they move
    // on by one.
    uint32_t to = 0, before = 0, select = 0;
    bool moves = false;
    const auto deposit = [&](const auto& output) {
      constexpr int kCount = sizeof(output) / sizeof(output[0]);
      uint32_t word[kCount][kStride];
#pragma unroll
      for (int i = 0; i < kCount; ++i)
#pragma unroll
        for (int k = 0; k < kStride; ++k) {
          word[i][k] = pack<T>(output[i][2 * k], output[i][2 * k + 1]);
          nan = add_zero_times_pair<T>(word[i][k], nan);
        }
      if (kStride == 2 && moves) {
        uint32_t last[kCount];
#pragma unroll
        for (int i = 0; i < kCount; ++i)
          last[i] = from_left(i ? word[i - 1][kStride - 1] : before, word[i][kStride - 1]);
        before = word[kCount - 1][kStride - 1];
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          uint32_t previous = last[i];
#pragma unroll
          for (int k = 0; k < kStride; ++k) {
            const uint32_t mine = word[i][k];
            word[i][k] = __byte_perm(previous, mine, select);
            previous = mine;
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i)
#pragma unroll
        for (int k = 0; k < kStride; ++k)
          store_shared_4(to + i * (16 * kStride) + k * 4, word[i][k]);
      to += kCount * 16 * kStride;
    };
    float kept[kCarried];
    uint32_t mine = 0;
#pragma unroll
    for (int i = 0; i < tile.width / 8; i += kTogether) {
      if ((i * 8 & (p.run - 1)) == 0) {
        const int r = i * 8 >> p.run_shift;
        const int skew = (runs.first + lane / 4 * runs.plane + (runs.row + r * runs.step) * p.y_w) &
                         (kVector - 1);
        if constexpr (kStride == 2) {
          moves = __any_sync(0xffffffffu, skew & 1);
          select = skew & 1 ? 0x5432 : 0x7654;
        }
        to = staging + (r * kWarpChannels + lane / 4) * p.staging_pitch + skew / 2 * 4 +
             (lane & 3) * (4 * kStride);
        mine = waiting + (r * thread_channels(tile) + channel) * (kCarried * kWaitingBytes);
#pragma unroll
        for (int k = 0; k < kCarried; ++k)
          kept[k] = place.first ? 0.f : load_shared<float>(mine + k * kWaitingBytes);
      }
      float output[kTogether][2 * kStride];
      slide<ROW, kTogether>(kept, output,
                            [&](int kw, int k) { return sums_of<ROW>(sum, channel, kw, i + k); });
      deposit(output);
      if (((i + kTogether) * 8 & (p.run - 1)) == 0) {
        if (place.last) {
          float beyond[1][2 * kStride];
          slide<ROW, 1>(kept, beyond, [&](int kw, int) {
            return kw < kStride ? float2{bias, bias} : float2{0.f, 0.f};
          });
          deposit(beyond);
        } else if ((lane & 3) == 3) {
          if (kStride == 2 && moves) store_shared_4(to - 12 * kStride, before >> 16);
#pragma unroll
          for (int k = 0; k < kCarried; ++k)
            store_shared_4(mine + k * kWaitingBytes, __float_as_uint(kept[k]));
        }
      }
    }
    __syncwarp();
    if constexpr (kStride == 2)
      store_runs<T, 8>(p, runs, staging);
    else
      store_moving_runs<T, tile.width + kBeyond>(p, runs, staging);
    const float all = add_pair<T>(nan);
    if (__any_sync(0xffffffffu, all != all)) {
      if constexpr (kStride == 2)
        repair_runs<T>(p, tile, runs, staging, place.n, at.group, first,
                       place.position * kStride - p.pad_w);
      else
        repair_runs<T>(p, tile, runs, place.n, at.group, first, place.position * kStride - p.pad_w);
    }
    __syncwarp();
  }
}

}  // namespace convt2d::cuda::slide
