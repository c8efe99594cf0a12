// direct, forward with few channels a group, strides 1 to 4 along w: all weights of a group at hand.
//
// A warp's task is `slots` x 32 neighbouring positions q of one phase of h, all phases of w, 8
// channels. A thread holds the sums of `slots` positions; sources come straight from global memory
// (lanes are neighbours along w), weights from shared memory, where a warp reads one address. A pair
// (source offset, phase of w) without a tap is left out, so nothing is multiplied for nothing; and a
// row whose phase of h has no tap is only stored. Tasks need no barrier; neighbouring tasks differ in
// channels and phase of h, so that a warp that does several in a row gets its share of the empty ones.
//
// Sources past the border are zero; a task that ends with a NaN sum is done again without them.
// Elements are counted in 32 bits (the plan sees to it): registers are what limits the tile.
#pragma once

#include "cuda/direct/direct_gather_params.cuh"

namespace convt2d::cuda::direct {

struct GroupParams {
  GatherParams gather;
  int32_t tasks, group_blocks;  // of one group
  int32_t tiles;                // of kGroupChannels channels, in a group
  int32_t tasks_a_warp;         // one after the other
  int32_t offsets;              // source offsets along w that some phase has a tap for
  int32_t offset[kGroupOffsets];
  int32_t tap[kGroupOffsets][kGroupPhases];  // along w, or -1
  FastDivide divide_tiles, divide_phases_h, divide_extent_h, divide_extent_w;
};

// By its address in the shared window: through a pointer, nvcc works out the window's start each time.
__device__ __forceinline__ Vector<float> load_shared(uint32_t address) {
  Vector<float> result;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(result.value[0]), "=f"(result.value[1]), "=f"(result.value[2]),
                 "=f"(result.value[3])
               : "r"(address));
  return result;
}

template <int phases>
struct GroupWarp {
  static constexpr int slots = kGroupSlots[phases - 1], channels = kGroupChannels;
  static constexpr int unroll = kGroupUnroll[phases - 1];
  static constexpr int pitch = 32 * phases;  // of a channel in `stage`
  static constexpr int stage_size = kGroupThreads / 32 * channels * pitch;  // of all warps
  using V = Vector<float>;
  struct alignas(phases == 3 ? 4 : 4 * phases) Neighbours {
    float value[phases];
  };

  const GroupParams& params;
  const float* x;   // at the first channel of the group
  uint32_t weight;  // address of [tile][tap][source channel][channel] in the shared window
  const float* bias;
  float* stage;  // of this warp
  int group, tile, phase_h;
  int first;  // position
  PhaseWalk walk_h;
  int source[slots];  // element at offset 0
  int source_y[slots], source_x[slots];
  float sum[slots][phases][channels];

  // Where this lane's position of a slot is; false past the end.
  __device__ bool position(int slot, int& n, int& q_h, int& q_w) const {
    const int index = first + slot * 32 + threadIdx.x % 32;
    const int row = params.divide_extent_w.quotient(index);
    n = params.divide_extent_h.quotient(row);
    q_w = index - row * params.divide_extent_w.divisor;
    q_h = row - n * params.divide_extent_h.divisor;
    return n < int(params.gather.batch) && q_h < walk_h.extent;
  }

  __device__ void locate(int task) {
    const int rest = params.divide_tiles.quotient(task);
    const int set = params.divide_phases_h.quotient(rest);
    tile = task - rest * params.divide_tiles.divisor;
    phase_h = rest - set * params.divide_phases_h.divisor;
    first = set * (slots * 32);
    walk_h = phase_walk(params.gather.h, phase_h);
  }

  __device__ void locate_sources() {
    const GatherParams& gather = params.gather;
#pragma unroll
    for (int i = 0; i < slots; ++i) {
      int n, q_h;
      const bool exists = position(i, n, q_h, source_x[i]);
      source_y[i] = exists ? q_h : INT32_MIN;
      source[i] = n * int(gather.source_n) + q_h * int(gather.h.source_stride) +
                  source_x[i] * int(gather.w.source_stride);
    }
  }

  // `count` source channels from element index[slot]; at[phase]: their weights, or 0.
  template <bool guarded, int count>
  __device__ void add_channels(int (&index)[slots], const bool (&inside)[slots],
                               uint32_t (&at)[phases]) {
    float value[count][slots];
#pragma unroll
    for (int k = 0; k < count; ++k) {
#pragma unroll
      for (int i = 0; i < slots; ++i) {
        value[k][i] = inside[i] ? __ldg(x + index[i]) : 0.0f;
        index[i] += int(params.gather.source_c);
      }
    }
#pragma unroll
    for (int phase = 0; phase < phases; ++phase) {
      if (at[phase] == 0) continue;
#pragma unroll
      for (int k = 0; k < count; ++k) {
#pragma unroll
        for (int v = 0; v < channels / V::size; ++v) {
          const V vector = load_shared(at[phase] + v * uint32_t(sizeof(V)));
#pragma unroll
          for (int j = 0; j < V::size; ++j) {
#pragma unroll
            for (int i = 0; i < slots; ++i) {
              if (guarded && !inside[i]) continue;
              sum[i][phase][v * V::size + j] += value[k][i] * vector.value[j];
            }
          }
        }
        at[phase] += channels * sizeof(float);
      }
    }
  }

  template <bool guarded>
  __device__ void accumulate() {
    const GatherAxis &h = params.gather.h, &w = params.gather.w;
    const int depth = params.gather.depth, tap_bytes = depth * channels * int(sizeof(float));
#pragma unroll
    for (int i = 0; i < slots; ++i) {
#pragma unroll
      for (int j = 0; j < phases * channels; ++j) sum[i][j / channels][j % channels] = 0;
    }
#pragma unroll 1
    for (int step = 0; step < walk_h.taps; ++step) {
      const int offset_h = walk_h.first_offset + step * h.offset_step;
      const int row = (tile * h.kernel + walk_h.first_tap + step * h.tap_step) * w.kernel;
#pragma unroll 1
      for (int o = 0; o < params.offsets; ++o) {
        const int offset_w = params.offset[o];
        const int offset = offset_h * int(h.source_stride) + offset_w * int(w.source_stride);
        int index[slots];
        bool inside[slots];
        uint32_t at[phases];
#pragma unroll
        for (int i = 0; i < slots; ++i) {
          index[i] = source[i] + offset;
          inside[i] = unsigned(source_y[i] + offset_h) < unsigned(h.source_extent) &&
                      unsigned(source_x[i] + offset_w) < unsigned(w.source_extent);
        }
#pragma unroll
        for (int phase = 0; phase < phases; ++phase) {
          const int tap = params.tap[o][phase];
          at[phase] = tap < 0 ? 0 : weight + (row + tap) * tap_bytes;
        }
        int channel = 0;
        if (!guarded) {
#pragma unroll 1
          for (; channel + unroll <= depth; channel += unroll) {
            add_channels<false, unroll>(index, inside, at);
          }
          if (unroll > 4 && channel + 4 <= depth) {
            add_channels<false, 4>(index, inside, at);
            channel += 4;
          }
        }
#pragma unroll 1
        for (; channel < depth; ++channel) add_channels<guarded, 1>(index, inside, at);
      }
    }
  }

  __device__ bool any_nan() const {
    bool found = false;
#pragma unroll
    for (int i = 0; i < slots; ++i) {
#pragma unroll
      for (int j = 0; j < phases * channels; ++j) {
        const float value = sum[i][j / channels][j % channels];
        found |= value != value;
      }
    }
    return __any_sync(~0u, found);
  }

  // One slot of every lane, turned so that a store runs along a row of the destination.
  template <bool empty>
  __device__ void store_slot(int slot, const float (&sums)[phases][channels]) const {
    const GatherParams& gather = params.gather;
    const int lane = threadIdx.x % 32;
    if (!empty && phases > 1) {
      __syncwarp();
#pragma unroll
      for (int channel = 0; channel < channels; ++channel) {
        Neighbours row;
#pragma unroll
        for (int phase = 0; phase < phases; ++phase) row.value[phase] = sums[phase][channel];
        *reinterpret_cast<Neighbours*>(stage + channel * pitch + lane * phases) = row;
      }
      __syncwarp();
    }
    int n, q_h, q_w;
    const bool exists = position(slot, n, q_h, q_w);
    const int x = exists ? q_w * gather.w.destination_step : INT32_MAX - phases;
    const int place =
        n * int(gather.destination_n) +
        (phase_h + q_h * gather.h.destination_step) * int(gather.h.destination_stride) +
        q_w * gather.w.destination_step * int(gather.w.destination_stride);
    const int first_channel = tile * channels, count = gather.columns - first_channel;
    const int channel_place = (group * gather.columns + first_channel) * int(gather.destination_c);
    int target[phases];
    bool inside[phases];
#pragma unroll
    for (int run = 0; run < phases; ++run) {
      const int from = (run * 32 + lane) / phases, phase = (run * 32 + lane) % phases;
      inside[run] = __shfl_sync(~0u, x, from) + phase < gather.w.destination_extent;
      target[run] =
          __shfl_sync(~0u, place, from) + channel_place + phase * int(gather.w.destination_stride);
    }
    float value[channels][phases];
#pragma unroll
    for (int channel = 0; channel < channels; ++channel) {
      const float add = bias[first_channel + channel];
#pragma unroll
      for (int run = 0; run < phases; ++run) {
        value[channel][run] = (empty         ? 0.0f
                               : phases == 1 ? sums[0][channel]
                                             : stage[channel * pitch + run * 32 + lane]) +
                              add;
      }
    }
#pragma unroll
    for (int channel = 0; channel < channels; ++channel) {
#pragma unroll
      for (int run = 0; run < phases; ++run) {
        if (inside[run] && channel < count) {
          // Streamed: 5 % faster than a plain store when y is larger than the L2 cache.
          __stcs(static_cast<float*>(gather.destination) + target[run], value[channel][run]);
        }
        target[run] += int(gather.destination_c);
      }
    }
  }

  __device__ void run(int task) {
    locate(task);
    if (walk_h.taps == 0 || params.offsets == 0) {
#pragma unroll 1
      for (int i = 0; i < slots; ++i) store_slot<true>(i, sum[0]);
      return;
    }
    locate_sources();
    accumulate<false>();
    if (any_nan()) accumulate<true>();
#pragma unroll
    for (int i = 0; i < slots; ++i) store_slot<false>(i, sum[i]);
  }
};

// Weights and bias of one group; channels that do not exist get zeros. A thread keeps to one tap and
// channel, so that it has several loads under way.
__device__ __forceinline__ void fill_group(const GroupParams& params, int group, float* bias,
                                           float* weight) {
  const GatherParams& gather = params.gather;
  const int taps = gather.h.kernel * gather.w.kernel, wide = params.tiles * kGroupChannels;
  for (int pair = threadIdx.x; pair < wide * taps; pair += kGroupThreads) {
    const int channel = pair / taps, tap = pair - channel * taps;
    const int tap_h = tap / gather.w.kernel, tap_w = tap - tap_h * gather.w.kernel;
    const float* from = static_cast<const float*>(gather.weight) + group * gather.weight_group +
                        channel * gather.weight_column + tap_h * gather.h.weight_stride +
                        tap_w * gather.w.weight_stride;
    float* to = weight + (channel / kGroupChannels * taps + tap) * gather.depth * kGroupChannels +
                channel % kGroupChannels;
#pragma unroll 4
    for (int depth = 0; depth < gather.depth; ++depth) {
      to[depth * kGroupChannels] =
          channel < gather.columns ? __ldg(from + depth * gather.weight_depth) : 0.0f;
    }
  }
  for (int channel = threadIdx.x; channel < wide; channel += kGroupThreads) {
    const bool exists = gather.bias && channel < gather.columns;
    const float* from = static_cast<const float*>(gather.bias);
    bias[channel] = exists ? __ldg(from + int64_t(group) * gather.columns + channel) : 0.0f;
  }
}

template <int phases>
__global__
__launch_bounds__(kGroupThreads, kGroupBlocks[phases - 1]) void convt2d_direct_group_kernel(
    const __grid_constant__ GroupParams params) {
  using Warp = GroupWarp<phases>;
  extern __shared__ float4 dynamic[];
  const int warp_index = threadIdx.x / 32;
  float* shared = reinterpret_cast<float*>(dynamic);
  float* weight = shared + Warp::stage_size;
  float* bias = weight + params.tiles * kGroupChannels * params.gather.depth *
                             params.gather.h.kernel * params.gather.w.kernel;
  Warp warp{params, nullptr, uint32_t(__cvta_generic_to_shared(weight)), bias,
            shared + warp_index * kGroupChannels * Warp::pitch};
  for (int block = blockIdx.x; block < int(params.gather.blocks); block += gridDim.x) {
    const int group = block / params.group_blocks;
    __syncthreads();
    fill_group(params, group, bias, weight);
    __syncthreads();
    warp.group = group;
    warp.x = static_cast<const float*>(params.gather.source) +
             int64_t(group) * params.gather.depth * params.gather.source_c;
    asm volatile("" : "+l"(warp.x));  // or it is worked out again for every load
    const int first = ((block - group * params.group_blocks) * (kGroupThreads / 32) + warp_index) *
                      params.tasks_a_warp;
    const int end = min(first + params.tasks_a_warp, params.tasks);
#pragma unroll 1
    for (int task = first; task < end; ++task) warp.run(task);
  }
}

}  // namespace convt2d::cuda::direct
