// What a block of quilt works on, and its chunks on their way to shared memory: four warps ask for them, a few ahead, and
// move pixels of x to where they belong.
#pragma once

#include <type_traits>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/elect.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/strict_product.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/quilt/quilt_config.h"

namespace convt2d::cuda::quilt {

struct Scope {
  int group, row, column;  // the first input and output channel of the group's
  int piece, begin, end;   // chunks
};
// Neighbouring blocks read the same pixels of dY, at about the same time.
__device__ __forceinline__ Scope scope_of(const Params& p, Tile tile) {
  Digits number{int(blockIdx.x)};
  Scope at;
  at.row = number.next(p.row_blocks) * tile.width;
  at.column = number.next(p.column_blocks) * p.channels;
  at.group = number.next(p.groups);
  at.piece = number.rest;
  const int64_t chunks = int64_t{p.batch} * p.image_chunks;
  at.begin = static_cast<int>(chunks * at.piece / p.split);
  at.end = static_cast<int>(chunks * (at.piece + 1) / p.split);
  return at;
}

// A chunk, and then the next ones.
struct Chunk {
  int image, part;  // of the image's
  __device__ __forceinline__ Chunk(const Params& p, int chunk) {
    image = chunk / p.image_chunks;
    part = chunk - image * p.image_chunks;
  }
  __device__ __forceinline__ void advance(const Params& p) {
    if (++part == p.image_chunks) part = 0, ++image;
  }
  __device__ __forceinline__ bool last(const Params& p) const { return part == p.image_chunks - 1; }
  __device__ __forceinline__ int rows(const Params& p) const {
    return last(p) ? p.last_rows : p.chunk_rows;
  }
  // Of the tables of places in dY (list_pixels()).
  __device__ __forceinline__ int table_set(const Params& p) const {
    return last(p) ? kTableSets - 1 : part & 1;
  }
  __device__ __forceinline__ int steps(const Params& p) const {
    return last(p) ? p.last_steps : p.steps;
  }
  // The block's first channel of x, among all; the chunk's first number in a plane.
  __device__ __forceinline__ int channel(const Params& p, const Scope& at) const {
    return (image * p.groups + at.group) * p.rows + at.row;
  }
  __device__ __forceinline__ int first(const Params& p) const {
    return part * p.chunk_rows * p.x_w;
  }
  __device__ __forceinline__ int first_x(const Params& p, const Scope& at) const {
    return channel(p, at) * p.x_h * p.x_w + first(p);
  }
  __device__ __forceinline__ int first_y(const Params& p, const Scope& at, int channel) const {
    const int all = (image * p.groups + at.group) * p.columns + at.column + channel;
    return all * p.y_plane + part * p.chunk_rows * p.kernel_h * p.y_row;
  }
};

// Beside `full`, when dY is there, and `empty`: when x has come as it lies, and when it is as it is multiplied.
__device__ __forceinline__ uint32_t come_barrier(const StageRing& ring, int index) {
  return ring.barriers + kRawAt + index * 8;
}
__device__ __forceinline__ uint32_t raw_at(const Params& p, const StageRing& ring, int index) {
  return ring.stages + p.stages * p.stage_bytes + index * p.raw_bytes;
}
__device__ __forceinline__ uint32_t shifted_barrier(const StageRing& ring) {
  return ring.barriers + kShiftedAt + ring.index * 8;
}

// Channels of a block that start alike. Those of class c are columns c * alike and after.
template <class T, int ROW>
constexpr int kAlike = kTiles[ROW].width / classes(sizeof(T));
// The channel of a column of the sum.
template <class T, int ROW>
__device__ __forceinline__ int channel_of(int column) {
  constexpr int alike = kAlike<T, ROW>;
  return column % alike * classes(sizeof(T)) + column / alike;
}

// In words of a plane of dY, where a chunk starts, and where what is copied of it does.
__device__ __forceinline__ int first_word(const Params& p, int part) {
  return part * p.chunk_rows * (p.run_bytes / 4);
}
__device__ __forceinline__ int first_copied(const Params& p, int part) {
  return first_word(p, part) & -kSector / 4;
}

// Where in dY pixels stand, for a kernel row and a word of x: bytes, of two pixels whose places do not follow each other
// eighths, the second one's in the upper half. What does not exist is zero in x: any pixel will do. By all threads.
template <class T, int ROW>
__device__ __forceinline__ void list_pixels(const Params& p, uint32_t shared) {
  constexpr int kSize = sizeof(T), kPixels = 4 / kSize, kTap = kTiles[ROW].taps * kSize;
  const int words = p.steps * kWords;
  for (int i = threadIdx.x; i < kTableSets * p.kernel_h * words; i += kThreads) {
    const int table = p.by_words.quotient(i), word = i - table * words;
    const int set = (table >= p.kernel_h) + (table >= 2 * p.kernel_h),
              row = table - set * p.kernel_h;
    const bool of_last = set == kTableSets - 1;
    const int pixels = (of_last ? p.last_rows : p.chunk_rows) * p.x_w,
              part = of_last ? p.image_chunks - 1 : set,
              lead = (first_word(p, part) - first_copied(p, part)) * 4;
    const auto place_of = [&](int pixel) -> uint32_t {
      if (pixel >= pixels) return 0;
      const int h = p.by_width.quotient(pixel);
      const int in_run =
          lead + (h * p.kernel_h + row) * p.y_row * kSize + (pixel - h * p.x_w) * kTap;
      const int box = p.by_pitch.quotient(in_run);
      return box * p.y_box_bytes + in_run - box * p.y_pitch;
    };
    uint32_t where = place_of(word * kPixels);
    if (kPixels == 2 && kTap == 8) where = where / 8 | place_of(word * kPixels + 1) / 8 << 16;
    store_shared_4(shared + kTablesAt + table * p.table_bytes + word * 4, where);
  }
}

// Asks for x of a class of a chunk as it lies; one thread.
template <class T, int ROW>
__device__ __forceinline__ void bring_raw(const Params& p, const Maps& maps, const Scope& at,
                                          uint32_t raw, uint32_t barrier, const Chunk& chunk,
                                          int which) {
  constexpr int kSize = sizeof(T), kClasses = classes(kSize), kBox = kAlike<T, ROW>;
  barrier_expect(barrier, kBox * p.raw_pitch);
  const int channel = chunk.channel(p, at) + which, map = channel % kClasses;
  copy_box(raw + which * kBox * p.raw_pitch, &maps.x[map], barrier,
           ((chunk.first(p) + p.lead[map]) * kSize & ~15) / 4, channel / kClasses, 0, 0);
}

// Asks for dY of a chunk, a box after the other; one thread.
__device__ __forceinline__ void ask(const Params& p, const Maps& maps, const Scope& at,
                                    const StageRing& ring, const Chunk& chunk) {
  barrier_expect(ring.full(), p.y_boxes * p.y_box_bytes);
  const int channel = (chunk.image * p.groups + at.group) * p.columns + at.column;
  const int first = first_copied(p, chunk.part);
  for (int i = 0; i < p.y_boxes; ++i)
    copy_box(ring.stage() + p.y_at + i * p.y_box_bytes, &maps.y, ring.full(),
             first + i * (p.y_pitch / 4), channel, 0, 0);
}

// 32 bytes of pixels at a time that start WORD words, or a pixel more, behind a multiple of 16 bytes; a lane has those of
// a channel, from the first of `steps` on, every `apart` of them.
template <class M, int ROW, int WORD>
__device__ __forceinline__ void move_words(const Params& p, uint32_t from, uint32_t to, int step,
                                           int steps, int apart, int numbers, bool odd) {
  using T = typename M::Element;
  constexpr int kSize = sizeof(T), kPixels = 4 / kSize, kNumbers = kStep / kSize;
  constexpr Tile tile = kTiles[ROW];
  const uint32_t select = odd ? 0x5432 : 0x3210;
  from += step * kStep;
  to += step * step_bytes(tile);
#pragma unroll 1
  for (; step < steps; step += apart, from += apart * kStep, to += apart * step_bytes(tile)) {
    uint32_t come[3][4], pixels[2][4];
#pragma unroll
    for (int i = 0; i < 3; ++i) load_shared_16(from + i * 16, come[i]);
    const auto word = [&](int i) { return come[(WORD + i) / 4][(WORD + i) % 4]; };
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      pixels[i / 4][i % 4] = kSize == 2 ? __byte_perm(word(i), word(i + 1), select) : word(i);
    const int left = numbers - step * kNumbers;
    if (left < kNumbers)
#pragma unroll
      for (int i = 0; i < kWords; ++i)
        pixels[i / 4][i % 4] &= left >= (i + 1) * kPixels ? ~0u : left > i * kPixels ? 0xffffu : 0u;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      store_shared_16(to ^ half * 16, pixels[half]);
      if constexpr (tile.strict) {
        uint32_t rest[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) rest[i] = cut_off(pixels[half][i]);
        store_shared_16((to ^ half * 16) + p.steps * step_bytes(tile), rest);
      }
    }
  }
}

// Pixels of a chunk to where they belong, by all helpers: each warp has a class, or every second step of one.
template <class M, int ROW>
__device__ __forceinline__ void shift(const Params& p, const Scope& at, uint32_t stage,
                                      uint32_t raw, const Chunk& chunk, int warp) {
  using T = typename M::Element;
  constexpr int kSize = sizeof(T), kClasses = classes(kSize), kColumns = kAlike<T, ROW>;
  constexpr int kParts = kHelpers / 32 / kClasses;
  const int lane = threadIdx.x % 32, which = warp % kClasses;
  const int map = (chunk.channel(p, at) + which) % kClasses;
  const int behind = (chunk.first(p) + p.lead[map]) * kSize & 15;
  const int row = which * kColumns + lane % kColumns;
  const uint32_t from = raw + row * p.raw_pitch;
  const uint32_t to = stage + row * kStep + ((row & 4) << 2);  // swizzled: every second 128 bytes
  const auto move = [&](auto word) {
    move_words<M, ROW, decltype(word)::value>(
        p, from, to, lane / kColumns * kParts + warp / kClasses, chunk.steps(p),
        32 / kColumns * kParts, chunk.rows(p) * p.x_w, behind & 2);
  };
  switch (behind / 4) {
    case 0:
      move(std::integral_constant<int, 0>());
      break;
    case 1:
      move(std::integral_constant<int, 1>());
      break;
    case 2:
      move(std::integral_constant<int, 2>());
      break;
    default:
      move(std::integral_constant<int, 3>());
  }
}

// All of a block's chunks, by the helpers. A chunk is moved before another one is asked for, whose stage may be that of
// the chunk that is multiplied.
constexpr int kHelpersMeet = 1, kConsumersMeet = 2;  // named barriers
template <class M, int ROW>
__device__ __forceinline__ void help(const Params& p, const Maps& maps, const Scope& at,
                                     StageRing& ring) {
  using T = typename M::Element;
  const int warp = warp_of_block() - kConsumers / 32;
  StageRing asked = ring;
  Ring raw;
  Chunk next(p, at.begin), next_raw = next, here = next;
  int ahead = at.begin;
  const auto ask_next = [&] {
    if (ahead == at.end) return;
    barrier_wait(asked.empty(), asked.parity ^ 1);
    if (warp == 0 && elected()) ask(p, maps, at, asked, next);
    asked.advance();
    next.advance(p);
    ++ahead;
  };
  const auto bring_next_raw = [&](int index) {
    if (warp < classes(sizeof(T)) && elected())
      bring_raw<T, ROW>(p, maps, at, raw_at(p, ring, index), come_barrier(ring, index), next_raw,
                        warp);
    next_raw.advance(p);
  };
  for (int i = 0; i < kRaws && at.begin + i < at.end; ++i) bring_next_raw(i);
  for (int i = 1; i < p.stages; ++i) ask_next();
  for (int k = at.begin; k < at.end; ++k, ring.advance(), here.advance(p)) {
    barrier_wait(come_barrier(ring, raw.stage), raw.parity);
    shift<M, ROW>(p, at, ring.stage(), raw_at(p, ring, raw.stage), here, warp);
    fence_for_wgmma();
    barrier_arrive(shifted_barrier(ring));
    barrier_among(kHelpersMeet, kHelpers);  // all have moved theirs
    if (k + kRaws < at.end) bring_next_raw(raw.stage);
    raw.advance(kRaws);
    ask_next();
  }
}

}  // namespace convt2d::cuda::quilt
