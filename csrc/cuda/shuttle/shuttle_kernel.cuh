// The shuttle kernel; shuttle_config.h draws the GEMM, shuttle_stage.cuh brings it to shared memory.
//
// If a sum came out NaN, it is added up again, of products that exist: zeros from beside x and dY are multiplied too, and
// 0 * inf is NaN.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/shuttle/shuttle_stage.cuh"

namespace convt2d::cuda::shuttle {

// Of a thread: [cell][column 8 i + 2 t or + 1, row g or g + 8 of the warp's 16], as wgmma has them.
template <int ROW>
using Sums = float[kTiles[ROW].cells][kChannels / 2];

// A cell of a warpgroup: 64 output channels of a tap.
struct Cell {
  bool exists;
  int row_tap, kernel_w, y_block;
};
template <int ROW>
__device__ __forceinline__ Cell cell_of(const Params& p, const Scope& at, int i) {
  const int group = warpgroup_of_block() % (kTiles[ROW].groups / p.x_blocks);
  const int number = group * kTiles[ROW].cells + i, tap = number / p.y_blocks;
  const int of_unit = tap / p.unit_w, kernel_w = at.kernel_w + tap - of_unit * p.unit_w;
  const int row_tap = at.row_unit * p.unit_h + of_unit;
  return {of_unit < p.unit_h && row_tap < p.kernel_h && kernel_w < p.kernel_w, row_tap, kernel_w,
          number - tap * p.y_blocks};
}
template <int ROW>
__device__ __forceinline__ int x_block_of(const Params& p) {
  return warpgroup_of_block() / (kTiles[ROW].groups / p.x_blocks);
}

// Multiplies all of a block's K tiles, for the first CELLS of a warpgroup's cells.
template <class T, int ROW, int CELLS>
__device__ __forceinline__ void multiply(const Params& p, const Scope& at, uint32_t shared,
                                         Sums<ROW>& sum) {
  constexpr int kAtOnce = CELLS > 4 ? 2 : kSteps;  // as registers allow
  const int lane = threadIdx.x % 32;
  // Where a lane shows ldmatrix rows of x, for each step; and where the step's pixels begin in a plane of dY.
  const int row_bytes = p.tile_w * 2;
  uint32_t x_place[kSteps];
  int y_step[kSteps];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int image = s * kStep / p.tile_w, pixel = s * kStep - image * p.tile_w;
    const int channel = threadIdx.x % 128 / 32 * 16 + lane % 16;
    const uint32_t place = (image * kChannels + channel) * row_bytes + (pixel + lane / 16 * 8) * 2;
    x_place[s] =
        x_block_of<ROW>(p) * x_stage_bytes(1) + (place ^ (place >> 3 & row_bytes - 1 & 0x70));
    y_step[s] = (image * p.pitch + pixel) * (128 >> 4);
  }
  // A cell's place in the ring's first slot, and its entry's, from the first that a row of x reads.
  const uint64_t layout = turned_layout(128, 0);
  uint64_t cell_at[CELLS];
  int entry[CELLS];
#pragma unroll
  for (int i = 0; i < CELLS; ++i) {
    const Cell cell = cell_of<ROW>(p, at, i);
    const RowTap& tap = p.row_tap[cell.exists ? cell.row_tap : at.row_unit * p.unit_h];
    const int offset = cell.exists ? (cell.kernel_w - at.kernel_w) * p.dilation_w : 0;
    const int pixel = offset / p.stride_w, residue = offset - pixel * p.stride_w;
    const int block = cell.exists ? cell.y_block : 0;
    const int place =
        ((tap.residue * p.y_blocks + block) * p.stride_w + residue) * p.plane_bytes + pixel * 128;
    cell_at[i] = operand(layout, uniform(shared + p.y_at + place));
    entry[i] = uniform(int(tap.entry));
  }
  const int depth = p.row_unit[at.row_unit].depth;
  Ring stage, next;  // next: of the first entry that nobody has waited for
  int head = 0, h = Walk(p, at.begin).h;
  for (int k = at.begin; k < at.end; ++k) {
    const bool fresh = k == at.begin || h == 0;
    if (fresh) head = next.stage;
    for (int i = fresh ? depth : 1; i > 0; --i) {
      barrier_wait(slot_full(shared, next.stage), next.parity);
      next.advance(p.slots);
    }
    barrier_wait(stage_full(shared, stage.stage), stage.parity);
    const uint32_t x = shared + kXAt + stage.stage * x_stage_bytes(p.x_blocks);
    uint64_t y[CELLS];
#pragma unroll
    for (int i = 0; i < CELLS; ++i) {
      int slot = head + entry[i];
      if (slot >= p.slots) slot -= p.slots;
      y[i] = advance(cell_at[i], slot * (p.entry_bytes >> 4));
    }
#pragma unroll
    for (int first = 0; first < kSteps; first += kAtOnce) {
      uint32_t word[kAtOnce][4];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) ldmatrix_x4(word[s], x + x_place[first + s]);
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) computed(word[s]);
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s)
#pragma unroll
        for (int i = 0; i < CELLS; ++i)
          WgmmaTurned<T, kChannels>::add(sum[i], word[s], advance(y[i], y_step[first + s]));
      wgmma_commit();
      wgmma_wait<0>();
    }
    if (++h == p.x_h) h = 0;
    const int done =
        k + 1 == at.end || h == 0 ? depth : 1;  // entries that no row of x reads any more
    __syncwarp();
    for (int i = 0; i < done; ++i) {
      if (lane == 0) barrier_arrive(slot_full(shared, head) + 8);
      if (++head == p.slots) head = 0;
    }
    if (lane == 0) barrier_arrive(stage_full(shared, stage.stage) + 8);
    stage.advance(kStages);
  }
#pragma unroll
  for (int i = 0; i < CELLS; ++i) finished(sum[i]);
}

// A warpgroup's sums to shared memory, [cell][input channel][output channel].
template <int ROW>
__device__ __forceinline__ void lay_out(Sums<ROW>& sum, uint32_t to) {
  const int g = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  to += g * kSumPitch;
#pragma unroll
  for (int i = 0; i < kTiles[ROW].cells; ++i)
#pragma unroll
    for (int j = 0; j < kChannels / 2; ++j) {
      const int channel = j / 4 + kClasses * (2 * t + j % 2);
      store_shared_sum(to + i * kCellBytes + j / 2 % 2 * 8 * kSumPitch + channel * 4, sum[i][j]);
    }
}

// One sum of K tiles `begin` to `end`, of the products that exist; channels are the tensors'. Slow, and rare: somewhere is a NaN
// or an infinity.
template <class T>
__device__ __noinline__ float sum_with_care(const Params& p, int begin, int end, int input,
                                            int output, int kernel_h, int kernel_w) {
  const auto read = [](const void* from, int64_t at) {
    return Numeric<T>::widen(static_cast<const T*>(from)[at]);
  };
  float sum = 0;
  Walk walk(p, begin);
  for (int k = begin; k < end; ++k, walk.advance(p)) {
    const int row = walk.h * p.stride_h - p.pad_h + kernel_h * p.dilation_h;
    if (row < 0 || row >= p.y_h) continue;
    for (int n = walk.image; n < min(walk.image + p.tile_n, p.batch); ++n) {
      const int64_t x = (int64_t{n} * p.groups * p.rows + input) * p.x_h * p.x_w + walk.h * p.x_w;
      const int64_t y = (int64_t{n} * p.groups * p.columns + output) * p.y_h * p.y_w + row * p.y_w;
      for (int w = walk.column; w < min(walk.column + p.tile_w, p.x_w); ++w) {
        const int column = w * p.stride_w - p.pad_w + kernel_w * p.dilation_w;
        if (column >= 0 && column < p.y_w) sum = fmaf(read(p.x, x + w), read(p.y, y + column), sum);
      }
    }
  }
  return sum;
}

// And from there to dW, or to this piece's partial sums; sixteen lanes take a row of a cell. Loops and branches are all lanes'
// alike, but for the stores (device/uniform.cuh).
template <class T, int ROW>
__device__ __forceinline__ void store_sums(const Params& p, const Scope& at, uint32_t from) {
  const int first = threadIdx.x % 128 / 16, channel = threadIdx.x % 16 * 4;
  const int input = at.input + x_block_of<ROW>(p) * kChannels;
  float* const partials = p.partials ? p.partials + int64_t{at.piece} * p.piece_floats : nullptr;
#pragma unroll 1
  for (int i = 0; i < kTiles[ROW].cells; ++i) {
    const Cell cell = cell_of<ROW>(p, at, i);
    const int output = at.output + cell.y_block * kChannels + channel;
    const int kernel_h = p.row_tap[cell.exists ? cell.row_tap : 0].kernel_h;
#pragma unroll 1
    for (int row = first, turn = 0; turn < kChannels / 8; ++turn, row += 8) {
      const int left = cell.exists && input + row < p.rows ? p.columns - output : 0;
      if (left > 0) {
        uint32_t word[4];
        load_shared_16(from + i * kCellBytes + row * kSumPitch + channel * 4, word);
        const int64_t to = int64_t{at.group * p.rows + input + row} * p.stride[0] +
                           int64_t{output} * p.stride[1] + kernel_h * p.stride[2] +
                           cell.kernel_w * p.stride[3];
        float value[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          value[j] = __uint_as_float(word[j]);
          if (value[j] != value[j] && j < left)
            value[j] = sum_with_care<T>(p, at.begin, at.end, at.group * p.rows + input + row,
                                        at.group * p.columns + output + j, kernel_h, cell.kernel_w);
        }
        if (partials && p.columns % 4 == 0) {
          store_words(partials + to, __float_as_uint(value[0]), __float_as_uint(value[1]),
                      __float_as_uint(value[2]), __float_as_uint(value[3]));
        } else {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int64_t place = to + int64_t{j} * p.stride[1];
            if (j < left && partials) partials[place] = value[j];
            if (j < left && !partials) store(static_cast<T*>(p.weight) + place, value[j]);
          }
        }
      }
    }
  }
}

template <class T, int ROW>
__global__ void __launch_bounds__(threads(kTiles[ROW]), 1)
    convt2d_shuttle_grad_weight_kernel(const __grid_constant__ Params p,
                                       const __grid_constant__ Maps maps) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  constexpr Tile tile = kTiles[ROW];
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Scope at = scope_of(p);
  if (threadIdx.x < kStages) {
    barrier_init(stage_full(shared, threadIdx.x), 1);
    barrier_init(stage_full(shared, threadIdx.x) + 8, consumers(tile) / 32);
  } else if (threadIdx.x >= 32 && threadIdx.x < 32 + p.slots) {
    barrier_init(slot_full(shared, threadIdx.x - 32), kSetWarps);
    barrier_init(slot_full(shared, threadIdx.x - 32) + 8, consumers(tile) / 32);
  }
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  if (warp_of_block() >= consumers(tile) / 32) {
    fewer_registers<turner_registers(tile)>();
    Turner<tile.turners> turner(p, at, maps, shared);
    if (p.tile_n == 1 && p.stride_shift >= 0) {
      turner.template run<true>(p, at);
    } else {
      turner.template run<false>(p, at);
    }
  } else {
    more_registers<consumer_registers(tile)>();
    Sums<ROW> sum;
    clear(sum);
    if (cell_of<ROW>(p, at, tile.cells - 1).exists) {
      multiply<T, ROW, tile.cells>(p, at, shared, sum);
    } else {
      multiply<T, ROW, tile.cells - 1>(p, at, shared, sum);
    }
    barrier_among(1, consumers(tile));  // all are done with the rings
    const int group = warpgroup_of_block();
    const uint32_t sums = shared + kXAt + group * tile.cells * kCellBytes;
    lay_out<ROW>(sum, sums);
    barrier_among(2 + group, 128);
    store_sums<T, ROW>(p, at, sums);
  }
#endif
}

}  // namespace convt2d::cuda::shuttle
