// The kernel of slide's strided tiles; slide_strided.h draws them.
//
// Four warps turn, who by turns ask the copy engine for what comes next; two warpgroups multiply. Everybody goes round
// the ring of slots in the same order, and gives back what is not his at once; while one warpgroup stores the other
// multiplies.
#pragma once

#include "cuda/device/barrier.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/slide/slide_strided.h"
#include "cuda/slide/slide_strided_store.cuh"

namespace convt2d::cuda::slide {

// Which residue an eight of channels is of, and its first channel there.
__device__ __forceinline__ int residue_of(const StridedParams& p, int octet) {
  return octet >> p.residue_octets_shift;
}
__device__ __forceinline__ int channel_of(const StridedParams& p, int octet) {
  return (octet - (residue_of(p, octet) << p.residue_octets_shift)) * 8;
}
__device__ __forceinline__ bool row_used(const StridedParams& p, int row) {
  return p.used_rows >> row % p.step_h & 1;
}

// Weights of an eight of channels of dY: the first tap of the first, from one to the next, how many there are; and where a
// tap's go.
struct WeightOctet {
  const char* from;
  int64_t step;
  int left;
  uint32_t to;
};
template <class T>
__device__ __forceinline__ WeightOctet weight_octet(const StridedParams& p, const Scope& at,
                                                    uint32_t shared, int octet, int inside) {
  const int residue = residue_of(p, octet);
  const int column = at.column_tile * tile_channels(p) + inside;
  const int first = (channel_of(p, octet) << p.residue_shift) + residue;
  const T* const weight = static_cast<const T*>(p.weight) + int64_t{at.group} * p.weight_group +
                          int64_t{first} * p.weight_reduce + int64_t{column} * p.weight_column;
  return {reinterpret_cast<const char*>(weight),
          int64_t(sizeof(T)) * p.weight_reduce << p.residue_shift,
          column < p.columns && residue < p.residues
              ? (p.reduce - first + p.residues - 1) >> p.residue_shift
              : 0,
          shared + p.weights_at + octet * p.octet_bytes + inside * 16};
}
template <class T>
__device__ __forceinline__ void bring_strided_weights(const StridedParams& p, const Scope& at,
                                                      uint32_t shared) {
  const int taps = p.kernel_h * p.kernel_w, count = tile_channels(p);
#pragma unroll 4
  for (int i = threadIdx.x; i < p.octets * count * taps; i += kStridedThreads) {
    const int octet = i / (count * taps), rest = i - octet * (count * taps);
    const int inside = rest / taps, tap = rest - inside * taps;
    const int kh = tap / p.kernel_w, kw = tap - kh * p.kernel_w;
    const WeightOctet mine = weight_octet<T>(p, at, shared, octet, inside);
    const char* from = mine.from + int64_t(kh * p.weight_h + kw * p.weight_w) * sizeof(T);
    uint32_t number[8], word[4];
#pragma unroll
    for (int j = 0; j < 8; ++j, from += mine.step) number[j] = load_if<2>(from, j, mine.left);
#pragma unroll
    for (int j = 0; j < 4; ++j) word[j] = number[2 * j] | number[2 * j + 1] << 16;
    store_shared_16(mine.to + tap * p.tap_bytes, word);
  }
}
// The same where eight taps of a channel come at once. Eight lanes store what is side by side.
template <class T>
__device__ __forceinline__ void bring_strided_runs(const StridedParams& p, const Scope& at,
                                                   uint32_t shared) {
  const int runs = p.kernel_h * p.kernel_w / 8, count = tile_channels(p);
#pragma unroll 1
  for (int i = threadIdx.x; i < p.octets * count * runs; i += kStridedThreads) {
    const int rest = i / 8, rows = rest / runs, run = rest - rows * runs, eights = rows / p.octets,
              octet = rows - eights * p.octets;
    const WeightOctet mine = weight_octet<T>(p, at, shared, octet, eights * 8 + i % 8);
    const char* const from = mine.from + run * 16;
    uint32_t channel[8][4];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) channel[j][k] = 0;
      if (j < mine.left) load_words<16>(from + j * mine.step, channel[j]);
    }
#pragma unroll
    for (int tap = 0; tap < 8; ++tap) {
      uint32_t word[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        word[j] = __byte_perm(channel[2 * j][tap / 2], channel[2 * j + 1][tap / 2],
                              tap % 2 ? 0x7632 : 0x5410);
      store_shared_16(mine.to + (run * 8 + tap) * p.tap_bytes, word);
    }
  }
}

// Eights of pixels of a row of all images: where one is in a copied channel, in bytes; its first pixel in its image, and
// above that where its image's pixels are in a slot.
__device__ __forceinline__ void build_eights(const StridedParams& p, uint32_t shared) {
  constexpr int kNone = 0x7fff;  // pixels
  for (int i = threadIdx.x; i < p.parts * 4; i += kStridedThreads) {
    const int image = i / p.eights, eight = i - image * p.eights;
    const bool there = image < p.images;
    store_shared_4(shared + kEightsAt + i * 8,
                   there ? image * p.box_channels * p.pitch + eight * 16 : 0);
    store_shared_4(shared + kEightsAt + i * 8 + 4,
                   there ? uint32_t(image * p.image_pixels) << 16 | uint32_t(eight * 8) : kNone);
  }
}

// Blocks of channels of rows of dY, in the order of the walk.
struct BlockWalk {
  Stretches stretches;
  int row, rows;  // of the stretch; 0: there is none
  int block;

  __device__ __forceinline__ BlockWalk(const StridedParams& p, const Scope& at)
      : stretches(p, at), block(0) {
    enter(p);
  }
  __device__ __forceinline__ bool there() const { return rows > 0; }
  __device__ __forceinline__ void enter(const StridedParams& p) {
    row = 0;
    rows = stretches.now.count > 0 ? rows_of_steps(p, stretches.now.count) : 0;
  }
  __device__ __forceinline__ void advance(const StridedParams& p) {
    if (++block < p.depths) return;
    block = 0;
    do {
      if (++row == rows) {
        stretches.advance(p);
        enter(p);
      }
    } while (rows > 0 && !row_used(p, row));
  }
  __device__ __forceinline__ int source_row(const StridedParams& p) const {
    return stretches.now.first * p.step_h + p.low_h + row;
  }
  __device__ __forceinline__ int source_column(const StridedParams& p) const {
    return stretches.now.strip * p.strip * p.step_w + p.low_w;
  }
  // Of its first pixel in a set of planes, which may lie before them.
  __device__ __forceinline__ int pixel(const StridedParams& p, int residue) const {
    return (residue * p.x_h + source_row(p)) * p.x_w + source_column(p);
  }
};

__device__ __forceinline__ void copy_block(const StridedParams& p, const CUtensorMap& map,
                                           const Scope& at, const BlockWalk& walk, uint32_t to,
                                           uint32_t full) {
  barrier_expect(full, p.copied_bytes);
  const int octet = walk.block * (p.depth / 8), row = walk.source_row(p),
            beyond = p.residues * p.x_h * p.x_w;  // zeros
  for (int box = 0; box < p.boxes; ++box, to += p.box_bytes) {
    const int residue = residue_of(p, octet) + box;
    const bool exists = row >= 0 && row < p.x_h && residue < p.residues;
    const int pixel = exists ? walk.pixel(p, residue) : beyond + kVector;
    copy_box(to, &map, full, (pixel & -kVector) / 2,
             (at.group * p.reduce >> p.residue_shift) + channel_of(p, octet),
             walk.stretches.now.n * p.images, 0);
  }
}

// Eight channels of a block, 32 pixels at a time, from part `first` on. A lane addresses one channel of eight pixels, and
// one pixel to be written, or if that is beside the row writes zeros. `octet`: of the block.
__device__ __forceinline__ void turn_octet_parts(const StridedParams& p, const BlockWalk& walk,
                                                 uint32_t shared, uint32_t raw, uint32_t slot,
                                                 int octet, int first, int step) {
  constexpr int kAtOnce = 5;
  const int lane = threadIdx.x % 32;
  const uint32_t dump = shared + kStridedDumpAt + lane * 16,
                 eights = shared + kEightsAt + lane / 8 * 8, pixel_bytes = p.depth * 2,
                 swizzle = pixel_bytes / 16 - 1;
  const int box = octet >> p.box_octets_shift,
            channel = (octet - (box << p.box_octets_shift)) * 8 + lane % 8;
  const uint32_t from = raw + box * p.box_bytes + min(channel, p.box_channels - 1) * p.pitch,
                 to = slot + octet * 16;
  const int lead = walk.pixel(p, residue_of(p, walk.block * (p.depth / 8) + octet)) & (kVector - 1);
  const int ahead = lane % 8 - lead, column = walk.source_column(p);
#pragma unroll 1
  for (int part = first; part < p.parts; part += kAtOnce * step) {
    // All loads first, and one branch: no part waits for another.
    uint32_t eight[kAtOnce][2], there[kAtOnce], zeros[kAtOnce], word[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      load_shared_8(eights + min(part + i * step, p.parts - 1) * 32, eight[i]);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) load_tiles(from + eight[i][0], word[i]);
    bool beside = false;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int pixel = int(eight[i][1] & 0xffff) + ahead;
      const int row = int(uint32_t(pixel) * uint32_t(p.step_magic) >> 16),
                remainder = pixel - row * p.step_w;
      uint32_t mine =
          to + (remainder * p.plane_pixels + int(eight[i][1] >> 16) + row) * pixel_bytes;
      mine ^= (mine >> 7 & swizzle) << 4;
      const bool wanted = uint32_t(pixel) < uint32_t(p.pixels),
                 inside = uint32_t(column + pixel) < uint32_t(p.x_w);
      there[i] = wanted && inside ? mine : dump;
      zeros[i] = wanted && !inside ? mine : dump;
      beside |= wanted && !inside;
    }
    if (beside) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) store_shared_16(zeros[i], {0, 0, 0, 0});
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (part + i * step < p.parts) store_turned(there[i], word[i]);
  }
}

__device__ __forceinline__ void turn_blocks(const StridedParams& p, const CUtensorMap& map,
                                            const Scope& at, uint32_t shared) {
  constexpr int kWarps = kTurners / 32;
  const int thread = threadIdx.x - kConsumers, warp = thread / 32, lane = thread % 32;
  // Warps share the eights of channels of a block, or of fewer the pixels.
  const int octets = p.depth / 8, mates = max(1, kWarps / octets);
  StageRing slots{shared, shared + p.slots_at, p.slots, p.slot_bytes},
      raws{shared + kRawBarriers, shared + p.raws_at, p.raws, p.raw_bytes}, asked = raws;
  BlockWalk walk(p, at), ahead(p, at);
  // By turns: a slot is full when the last of the warps has come.
  int turn = warp;
  const auto ask = [&] {
    if (lane != 0 || !ahead.there()) return;
    if (turn == 0) {
      barrier_wait(asked.empty(), asked.parity ^ 1);
      copy_block(p, map, at, ahead, asked.stage(), asked.full());
    }
    turn = (turn + kWarps - 1) % kWarps;
    asked.advance();
    ahead.advance(p);
  };
  for (int i = 1; i < p.raws; ++i) ask();
  for (; walk.there(); walk.advance(p), slots.advance(), raws.advance()) {
    ask();  // for the stage that was left last
    __syncwarp();
    barrier_wait(raws.full(), raws.parity);
    barrier_wait(slots.empty(), slots.parity ^ 1);
    __syncwarp();
#pragma unroll 1
    for (int octet = warp / mates; octet < octets; octet += kWarps / mates)
      turn_octet_parts(p, walk, shared, raws.stage(), slots.stage(), octet, warp % mates, mates);
    fence_for_wgmma();
    __syncwarp();
    if (lane == 0) {
      barrier_arrive(slots.full());
      barrier_arrive(raws.empty());
    }
  }
}

// A warpgroup that multiplies, on its way round the ring.
struct SlotReader {
  StageRing ring;
  int row;        // of the stretch
  uint32_t left;  // `empty` of the slot that was left last, but is maybe being read

  __device__ __forceinline__ void release() {
    if (threadIdx.x % 32 == 0 && left) barrier_arrive(left);
    left = 0;
  }
  // Gives back the rows before `to`, which others read.
  __device__ __forceinline__ void pass(const StridedParams& p, int to) {
    for (; row < to; ++row) {
      if (!row_used(p, row)) continue;
      for (int block = 0; block < p.depths; ++block, ring.advance()) {
        barrier_wait(ring.full(), ring.parity);  // or it would be given back before it is there
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
      }
    }
  }
};

// The products of a row of the result, whose first row of dY is `first` of the stretch. `weights`: of the first tap.
template <class T, int WIDTH, int SLICES>
__device__ __forceinline__ void multiply_strided(const StridedParams& p, SlotReader& reader,
                                                 int first, uint32_t weights,
                                                 StridedSums<WIDTH>& sum) {
  const int pixel_bytes = p.depth * 2;
  const uint64_t w_layout = operand_layout(p.octet_bytes, 8 * 16),
                 x_layout = swizzled_layout(pixel_bytes, 8 * pixel_bytes);
  const uint32_t w_step = p.octet_bytes * 2 >> 4;
#pragma unroll 1
  for (int i = 0; i < p.kernel_h; ++i, weights += p.kernel_w * p.tap_bytes) {
    reader.pass(p, first + i * p.tap_rows);
#pragma unroll 1
    for (int block = 0; block < p.depths; ++block) {
      const uint32_t slot = reader.ring.stage(),
                     taps = weights + block * SLICES * 2 * p.octet_bytes;
      const auto multiply = [&](int j) {
        const uint64_t a = operand(w_layout, taps + j * p.tap_bytes),
                       b = operand(x_layout, slot + p.column[j]);
        wgmma_fence();
#pragma unroll
        for (int slice = 0; slice < SLICES; ++slice)
          Wgmma<T, WIDTH>::add(sum, advance(a, slice * w_step), advance(b, slice * 2));
        wgmma_commit();
      };
      barrier_wait(reader.ring.full(), reader.ring.parity);
      multiply(0);
      wgmma_wait<1>();
      reader.release();
#pragma unroll 1
      for (int j = 1; j < p.kernel_w; ++j) multiply(j);
      reader.left = reader.ring.empty();
      reader.ring.advance();
    }
    ++reader.row;
  }
  wgmma_wait<0>();
  finished(sum);
  reader.release();
}

template <class T, int WIDTH>
__device__ __forceinline__ void consume_strided(const StridedParams& p, const Scope& at,
                                                uint32_t shared) {
  const int group = warpgroup_of_block(), groups = row_groups(p), set = p.sets > 1 ? group : 0,
            turn = p.sets > 1 ? 0 : group;
  const uint32_t staging =
                     shared + p.staging_at + threadIdx.x / 32 * (kWarpChannels * kStridedPitch),
                 weights = shared + p.weights_at + set * (kRows * 16);
  const int channel = at.column_tile * tile_channels(p) + set * kRows + threadIdx.x / 32 % 4 * 16;
  SlotReader reader{{shared, shared + p.slots_at, p.slots, p.slot_bytes}, 0, 0};
  Stretches walk(p, at);
  const int start = walk.step - walk.now.count;
  for (; walk.now.count > 0; walk.advance(p)) {
    const Stretch& stretch = walk.now;
    reader.row = 0;
    // Turns go on from stretch to stretch.
    const int number = walk.step - stretch.count - start;
#pragma unroll 1
    for (int step = (turn + number) % groups; step < stretch.count; step += groups) {
      StridedSums<WIDTH> sum;
#pragma unroll
      for (int i = 0; i < WIDTH / 2; ++i) sum[i] = 0;
      const int first = step * p.step_h;
      if (p.depth == 64) {
        multiply_strided<T, WIDTH, 4>(p, reader, first, weights, sum);
      } else if (p.depth == 32) {
        multiply_strided<T, WIDTH, 2>(p, reader, first, weights, sum);
      } else {
        multiply_strided<T, WIDTH, 1>(p, reader, first, weights, sum);
      }
      store_strided<T, WIDTH>(p, at.group, channel, stretch, stretch.first + step, sum, staging);
    }
    reader.pass(p, rows_of_steps(p, stretch.count));
  }
}

template <class T, int WIDTH>
__global__ void __launch_bounds__(kStridedThreads, 1)
    convt2d_slide_strided_kernel(const __grid_constant__ StridedParams p,
                                 const __grid_constant__ CUtensorMap map) {
#ifdef CONVT2D_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const Scope at = scope_of(p);
  const int thread = threadIdx.x;
  if (thread < p.slots) {
    barrier_init(shared + thread * 16, kTurners / 32);
    barrier_init(shared + thread * 16 + 8, kConsumers / 32);
  }
  if (thread < p.raws) {
    barrier_init(shared + kRawBarriers + thread * 16, 1);
    barrier_init(shared + kRawBarriers + thread * 16 + 8, kTurners / 32);
  }
  build_eights(p, shared);
  if (p.weight_runs)
    bring_strided_runs<T>(p, at, shared);
  else
    bring_strided_weights<T>(p, at, shared);
  // What no pixel comes to is multiplied too, and would often be NaN.
  for (int i = thread * 16; i < p.slots * p.slot_bytes; i += kStridedThreads * 16)
    store_shared_16(shared + p.slots_at + i, {0, 0, 0, 0});
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (warp_of_block() >= kConsumers / 32)
    turn_blocks(p, map, at, shared);
  else
    consume_strided<T, WIDTH>(p, at, shared);
#endif
}

}  // namespace convt2d::cuda::slide
