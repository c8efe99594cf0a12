// How turned rows come to shared memory; slide_rows.h draws them.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/elect.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/slide/slide_rows.h"
#include "cuda/slide/slide_scope.cuh"

namespace convt2d::cuda::slide {

// Which residue an eight of channels is of, and its first channel there.
__device__ __forceinline__ int residue_of(const RowParams& p, int octet) {
  return octet >> p.residue_octets_shift;
}
__device__ __forceinline__ int channel_of(const RowParams& p, int octet) {
  return (octet - (residue_of(p, octet) << p.residue_octets_shift)) * 8;
}
// Weights of an eight of channels of the source: the first tap of the first, from one to the next, how many there are; and where a
// tap's go.
struct WeightOctet {
  const char* from;
  int64_t step;
  int left;
  uint32_t to;
};
template <class T>
__device__ __forceinline__ WeightOctet weight_octet(const RowParams& p, const Scope& at,
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
__device__ __forceinline__ void bring_row_weights(const RowParams& p, const Scope& at,
                                                  uint32_t shared) {
  const int taps = p.kernel_h * p.kernel_w, count = tile_channels(p);
#pragma unroll 4
  for (int i = threadIdx.x; i < p.octets * count * taps; i += kRowThreads) {
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
__device__ __forceinline__ void bring_row_runs(const RowParams& p, const Scope& at,
                                               uint32_t shared) {
  const int runs = p.kernel_h * p.kernel_w / 8, count = tile_channels(p);
#pragma unroll 1
  for (int i = threadIdx.x; i < p.octets * count * runs; i += kRowThreads) {
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

// Where a pixel's channels are in a slot, before they are swizzled.
__device__ __forceinline__ uint32_t line_of(const RowParams& p, int remainder, int pixel) {
  return (remainder * p.plane_pixels + pixel) * p.depth * 2;
}

// Where pixels of a row, as copied, go in a slot, the first eight channels of them; and where parts of it start.
__device__ __forceinline__ void build_places(const RowParams& p, uint32_t shared) {
  const uint32_t pixel_bytes = p.depth * 2, swizzle = pixel_bytes / 16 - 1;
  const int count = places_of(p);
  for (int i = threadIdx.x; i < count; i += kRowThreads) {
    const int part = (i - kPlacesBefore) / 32, image = part / p.image_parts;
    const int pixel = i - kPlacesBefore - image * p.image_parts * 32;
    const int row = pixel / p.step_w, remainder = pixel - row * p.step_w;
    const uint32_t line = line_of(p, remainder, image * p.image_pixels + row);
    const bool read = i >= kPlacesBefore && pixel < p.pixels && image < p.images;
    store_shared_2(shared + p.places_at + i * 2,
                   read ? line ^ (line >> 7 & swizzle) << 4 : p.nowhere + i % 8 * 16);
  }
  for (int i = threadIdx.x; i < p.parts; i += kRowThreads) {
    const int image = i / p.image_parts, part = i - image * p.image_parts;
    store_shared_2(shared + p.places_at + (count + i) * 2,
                   image < p.images ? image * p.box_channels * p.pitch + part * 64 : 0);
  }
}

// Of an eight of channels: where their planes are in a set of planes, which of these, where they go in a slot and in which.
struct Octet {
  int number, channel;
  uint32_t chunk;
  int block;
};
__device__ __forceinline__ void build_octets(const RowParams& p, const Scope& at, uint32_t shared) {
  for (int i = threadIdx.x; i < p.octets; i += kRowThreads) {
    const int residue = residue_of(p, i), block = i >> p.block_shift;
    const int channel = (at.group * p.reduce >> p.residue_shift) + channel_of(p, i);
    store_shared_16(
        shared + p.octets_at + i * 16,
        {uint32_t(residue < p.residues ? residue * p.x_h * p.x_w : kOutside), uint32_t(channel),
         uint32_t(i - (block << p.block_shift)) * 16, uint32_t(block)});
  }
}
__device__ __forceinline__ Octet load_octet(const RowParams& p, uint32_t shared, int i) {
  uint32_t word[4];
  load_shared_16(shared + p.octets_at + i * 16, word);
  return {int(word[0]), int(word[1]), word[2], int(word[3])};
}

__device__ __forceinline__ Octet uniform_octet(const Octet& octet) {
  return {uniform(octet.number), uniform(octet.channel), uniform(octet.chunk),
          uniform(octet.block)};
}

// A warp that turns: eights of channels of every so many rows of the source, of one stretch after the other, some asked for ahead.
class Turner {
 public:
  __device__ __forceinline__ Turner(const RowParams& p, uint32_t shared)
      : shared_(shared),
        number_(warp_of_block() - kConsumers / 32),
        mate_(number_ & p.team - 1),
        sets_(kRowWarps / p.team) {
    raws_ = shared + p.raws_at + number_ * p.raws * p.raw_bytes;
    barriers_ = shared + kRawBarriers + number_ * (kMostRaws * 8);
    places_ = shared + p.places_at + kPlacesBefore * 2;
  }

  // `SIMPLE`: a slot is of one image, and the step along columns is 1, 2 or 4.
  template <bool SIMPLE>
  __device__ __forceinline__ void run(const RowParams& p, const CUtensorMap& map, const Scope& at) {
    StageRing slot{shared_, shared_ + p.slots_at, p.slots, p.slot_bytes};
    const int set = number_ / p.team;
    skip(slot, set * p.depths);
    Ring asked, full;
    int rows_before = 0, block = 0;  // of the block that `slot` stands at
    // Mostly a warp has one eight of a row.
    const bool several = p.octets > p.team;
    Octet octet = uniform_octet(load_octet(p, shared_, mate_)), asked_octet = octet;
    for (Stretches walk(p, at); walk.now.count > 0; walk.advance(p)) {
      const Stretch& now = walk.now;
      const int rows = rows_of_steps(p, now.count), first_row = now.first * p.step_h + p.low_h,
                column = now.strip * p.strip * p.step_w + p.low_w,
                number = first_row * p.x_w + column;
      const Beside beside(p, places_, column, min(p.strip, p.positions - now.strip * p.strip));
      Cursor next(p, mate_, set - rows_before & sets_ - 1), here = next;
      rows_before += used_rows(p, rows);
      // Of a set of planes, where a row starts; nowhere, if there is none.
      const auto start_of = [&](const Cursor& cursor, const Octet& octet) {
        const bool exists = uint32_t(first_row + cursor.row) < uint32_t(p.x_h);
        return exists ? octet.number + number + cursor.row * p.x_w : kOutside;
      };
      // `read`: a word of what was there before.
      const auto ask = [&](uint32_t read) {
        if (next.row >= rows) return;
        if (elected()) {
          const uint32_t barrier = barriers_ + asked.stage * 8;
          barrier_expect(barrier, p.copied_bytes);
          if (several) asked_octet = load_octet(p, shared_, next.octet);
          copy_box(raws_ + asked.stage * p.raw_bytes, &map, barrier,
                   (start_of(next, asked_octet) & -kVector) / 2, asked_octet.channel,
                   now.n * p.images, read & p.zero);
        }
        __syncwarp();
        asked.advance(p.raws);
        next.advance(p, mate_, sets_);
      };
      for (int i = 0; i < p.raws; ++i) ask(0);
#pragma unroll 1
      while (here.row < rows) {
        if (several) octet = load_octet(p, shared_, here.octet);
        skip(slot, octet.block - block);
        block = octet.block;
        barrier_wait(barriers_ + full.stage * 8, full.parity);
        turn<SIMPLE>(p, raws_ + full.stage * p.raw_bytes, slot, octet.chunk,
                     start_of(here, octet) & kVector - 1, beside, ask);
        fence_for_wgmma();
        __syncwarp();
        if (elected()) barrier_arrive(slot.full());
        full.advance(p.raws);
        if (here.advance(p, mate_, sets_)) {
          skip(slot, sets_ * p.depths - block);
          block = 0;
        }
      }
    }
  }

 private:
  // An eight of channels of a row of a stretch. Of rows, those that anything reads.
  struct Cursor {
    int row, octet;
    int period,
        used;  // the first row of `step_h`; the row's number among those of them that are read
    __device__ __forceinline__ Cursor(const RowParams& p, int mate, int rows)
        : octet(mate), period(0), used(0) {
      skip_rows(p, rows);
    }
    __device__ __forceinline__ void skip_rows(const RowParams& p, int count) {
      for (used += count; used >= p.used_count; used -= p.used_count) period += p.step_h;
      row = period + p.used_row[used];
    }
    // Whether another row follows.
    __device__ __forceinline__ bool advance(const RowParams& p, int mate, int sets) {
      octet += p.team;
      if (octet < p.octets) return false;
      octet = mate;
      skip_rows(p, sets);
      return true;
    }
  };
  static __device__ __forceinline__ int used_rows(const RowParams& p, int rows) {
    int used = rows / p.step_h * p.used_count;
    for (int i = 0; i < p.used_count; ++i) used += p.used_row[i] < rows % p.step_h;
    return used;
  }

  // Pixels of a row that are read, but lie beside the source: a lane has one of them.
  struct Beside {
    bool any, mine;
    uint32_t place, first;  // where it says where the pixel goes; of the first image, what it says
    __device__ __forceinline__ Beside(const RowParams& p, uint32_t places, int column,
                                      int positions) {
      const int before = min(max(0, -column), p.pixels),
                behind = min(max(0, p.x_w - column), p.pixels),
                end = (positions - 1) * p.step_w + p.reach_w + 1,
                count = before + max(0, end - behind), lane = threadIdx.x % 32;
      any = count > 0;
      mine = lane < count;
      place = places + (lane < before ? lane : behind + lane - before) * 2;
      first = mine ? load_shared<unsigned short>(place) : 0;
    }
  };

  __device__ __forceinline__ static uint32_t found(uint32_t place, uint32_t slot, uint32_t chunk) {
    return slot + (load_shared<unsigned short>(place) ^ chunk);
  }

  // Turns one, 32 pixels at a time: a lane addresses one channel of eight pixels, and one pixel to be written. As soon as the
  // last of them are in registers, asks for what comes next.
  template <bool SIMPLE, class Ask>
  __device__ __forceinline__ void turn(const RowParams& p, uint32_t raw, const StageRing& ring,
                                       uint32_t chunk, int lead, const Beside& beside,
                                       Ask&& ask) const {
    constexpr int kMany = 3 * kPartsAtOnce;
    const int lane = threadIdx.x % 32;
    const uint32_t slot = ring.stage(), nowhere = slot + p.nowhere + lane % 8 * 16;
    uint32_t from = raw + min(lane % 8, p.box_channels - 1) * p.pitch + lane / 8 * 16;
    // SIMPLE: 32 pixels on, a pixel is as far among eight lines as before.
    const int pixel_bytes = p.depth * 2, step = 32 * pixel_bytes >> max(0, p.step_shift);
    int pixel = lane - lead;
    uint32_t to = 0, place = places_ + pixel * 2, start = places_ + p.parts * 64;
    if constexpr (SIMPLE) {
      to = slot + line_of(p, pixel & p.step_w - 1, pixel >> p.step_shift);
      to = (to ^ (to >> 7 & pixel_bytes / 16 - 1) << 4) ^ chunk;
    }
#pragma unroll 1
    for (int left = p.parts; left > 0; left -= kMany) {
      uint32_t word[kMany][4];
#pragma unroll
      for (int i = kPartsAtOnce - 1; i < kMany; i += kPartsAtOnce) word[i][3] = 0;
#pragma unroll
      for (int first = 0; first < kMany; first += kPartsAtOnce)
        if (first < left) {
#pragma unroll
          for (int i = first; i < first + kPartsAtOnce; ++i)
            load_tiles(from + (SIMPLE ? i * 64 : load_shared<unsigned short>(start + i * 2)),
                       word[i]);
        }
      __syncwarp();  // all have read it
      if (left <= kMany) ask(word[2][3] | word[5][3] | word[8][3]);
      if (left == p.parts) barrier_wait(ring.empty(), ring.parity ^ 1);
#pragma unroll
      for (int first = 0; first < kMany; first += kPartsAtOnce)
        if (first < left) {
#pragma unroll
          for (int i = first; i < first + kPartsAtOnce; ++i) {
            const bool wanted = uint32_t(pixel + i * 32) < uint32_t(p.pixels);
            store_turned(
                SIMPLE ? wanted ? to + i * step : nowhere : found(place + i * 64, slot, chunk),
                word[i]);
          }
        }
      from += SIMPLE ? kMany * 64 : 0;
      pixel += kMany * 32;
      to += kMany * step;
      place += kMany * 64;
      start += kMany * 2;
    }
    if (!beside.any) return;
    __syncwarp();
    if constexpr (SIMPLE) {
      if (beside.mine) store_shared_16(slot + (beside.first ^ chunk), {0, 0, 0, 0});
    } else {
      for (int image = 0; image < p.images; ++image)
        if (beside.mine)
          store_shared_16(found(beside.place + image * p.image_parts * 64, slot, chunk),
                          {0, 0, 0, 0});
    }
  }

  const uint32_t shared_;
  const int number_, mate_, sets_;
  uint32_t raws_, barriers_, places_;
};

// What all threads of a block do first, barriers aside.
template <class T>
__device__ __forceinline__ void prepare_rows(const RowParams& p, const Scope& at, uint32_t shared) {
  const int thread = threadIdx.x;
  if (thread < p.slots) {
    barrier_init(shared + thread * 16, p.depth / 8);
    barrier_init(shared + thread * 16 + 8, kConsumers / 32);
  }
  if (thread < kRowWarps * kMostRaws) barrier_init(shared + kRawBarriers + thread * 8, 1);
  build_places(p, shared);
  build_octets(p, at, shared);
  if (p.weight_runs)
    bring_row_runs<T>(p, at, shared);
  else
    bring_row_weights<T>(p, at, shared);
  // What no pixel comes to is multiplied too, and would often be NaN.
  for (int i = thread * 16; i < p.slots * p.slot_bytes; i += kRowThreads * 16)
    store_shared_16(shared + p.slots_at + i, {0, 0, 0, 0});
}

__device__ __forceinline__ void turn_rows(const RowParams& p, const CUtensorMap& map,
                                          const Scope& at, uint32_t shared) {
  Turner turner(p, shared);
  if (p.images == 1 && p.step_shift >= 0) {
    turner.run<true>(p, map, at);
  } else {
    turner.run<false>(p, map, at);
  }
}

}  // namespace convt2d::cuda::slide
