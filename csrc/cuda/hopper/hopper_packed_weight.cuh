// The kernel of hopper's grad_weight whose columns are packed; hopper_packed_weight.h draws the tiling.
//
// Two rings. One warp asks the copy engine for x, a team of three writes columns of dY: `full` of a stage is both, `empty` when
// every warp that multiplies has read it. Another warp asks for lines, `full` when they are there, `empty` when the team has
// written them out. If a sum came out NaN, all of it once more, with care.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/barrier.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/start_stages.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/hopper/hopper_packed_weight.h"
#include "cuda/hopper/hopper_weight_store.cuh"

namespace convt2d::cuda::hopper {

// The channels, kernel rows and K tiles of a block.
struct PackedScope {
  int first_channel, kernel_h, kernel_rows;
  int piece, begin, end;

  // Neighbouring blocks read the same pixels, at about the same time.
  __device__ __forceinline__ explicit PackedScope(const PackedWeightParams& p) {
    int rest = blockIdx.x;
    kernel_h = rest % p.units * p.unit_rows;
    rest /= p.units;
    first_channel = rest % p.row_blocks * kPackedGroups * kCellChannels;
    piece = rest / p.row_blocks;
    kernel_rows = min(p.unit_rows, p.kernel_h - kernel_h);
    const int64_t tiles = int64_t{p.tiles_n} * p.tiles_h * p.tiles_w;
    begin = static_cast<int>(tiles * piece / p.split);
    end = static_cast<int>(tiles * (piece + 1) / p.split);
  }
};

// Where a tile's patch of dY starts, for the block's first tap: the row and column, the number, which may lie before dY, and
// how far into 16 bytes that is.
struct PackedPatch {
  int row, column, number;
  __device__ __forceinline__ PackedPatch(const PackedWeightParams& p, const PackedScope& at,
                                         const TileStart& start)
      : row(start.h * p.stride_h - p.pad_h + at.kernel_h * p.dilation_h),
        column(start.w * p.stride_w - p.pad_w),
        number(((start.n * p.y_h + row) * p.y_w + column) * p.columns) {}
  __device__ __forceinline__ uint32_t lead() const { return number * 2 & 15; }
};

// Once a block, since it takes divisions. Of each pixel of a tile, how far its first segment is from the first line's start,
// in bytes, and its image, row and column in steps of the stride (8, 12 and 12 bits; what is not of the tile is of no image).
__device__ __forceinline__ void list_pixels(const PackedWeightParams& p, uint32_t table) {
  const int pixel = threadIdx.x, row = pixel / p.tile_w, n = row / p.tile_h;
  const int h = row - n * p.tile_h, w = (pixel - row * p.tile_w) * p.stride_w;
  const bool used = pixel < p.tile_n * p.tile_h * p.tile_w;
  const uint32_t from = n * p.image_bytes + h * p.row_lines * p.line_bytes + w * p.columns * 2;
  store_shared<2>(
      table + pixel * 8,
      {used ? from : 0, used ? uint32_t(n << 24 | h * p.stride_h << 12 | w) : 0xff000000u});
}
// And of each column the kernel row, from the block's first, and the number in dY's row, from that of the first tap; or no
// such thing.
constexpr uint32_t kNoColumn = ~0u;
constexpr int kColumnRow = 24;  // bits
template <int ROW>
__device__ __forceinline__ void list_columns(const PackedWeightParams& p, const PackedScope& at,
                                             uint32_t table) {
  for (int i = threadIdx.x; i < packed_columns(kPackedWeightTiles[ROW]); i += kPackedThreads) {
    const int segment = i / p.segment_columns, number = i - segment * p.segment_columns - p.ahead;
    const int row = segment / p.segments, in_row = segment - row * p.segments;
    const bool there = row < at.kernel_rows && number >= 0 && number < p.segment_numbers;
    store_shared_4(
        table + i * 4,
        there ? uint32_t(row << kColumnRow | in_row * p.segment_step + number) : kNoColumn);
  }
}

// All of a block's tiles of x, by one thread.
__device__ __forceinline__ void copy_packed_rows(const PackedWeightParams& p, const CUtensorMap& x,
                                                 const PackedScope& at, StageRing& ring) {
  const int box = p.tile_n * p.tile_h * p.tile_w * kRowBytes;
  TileStart start(p, at.begin);
  for (int tile = at.begin; tile < at.end; ++tile, start.advance(p), ring.advance()) {
    barrier_wait(ring.empty(), ring.parity ^ 1);
    barrier_expect(ring.full(), kPackedGroups * box);
#pragma unroll
    for (int i = 0; i < kPackedGroups; ++i)
      copy_box(ring.stage() + i * kTilePixels * kRowBytes, &x, ring.full(),
               at.first_channel + i * kCellChannels, start.w, start.h, start.n);
  }
}

// All lines, by a warp, of which each lane takes some.
__device__ __forceinline__ void copy_lines(const PackedWeightParams& p, const PackedScope& at,
                                           StageRing& ring) {
  const char* const source = static_cast<const char*>(p.y);
  TileStart start(p, at.begin);
  for (int tile = at.begin; tile < at.end; ++tile, start.advance(p), ring.advance()) {
    const PackedPatch patch(p, at, start);
    // visit(shared address, bytes before which in dY, how many) for what there is of a lane's lines.
    const auto visit_lines = [&](auto&& visit) {
      for (int i = threadIdx.x % 32; i < p.tile_n * p.lines; i += 32) {
        const int image = i / p.lines, line = i - image * p.lines;
        const int row = patch.row + line * p.line_step;
        const bool on_image = p.one_run || (row >= 0 && row < p.y_h);
        if (start.n + image >= p.batch || !on_image) continue;
        const int first = patch.number + (image * p.y_h + line * p.line_step) * p.y_w * p.columns;
        const int from = first * 2 & -16;
        const int begin = max(from, 0),
                  end = min((first + p.line_numbers) * 2 + 15 & -16, p.y_bytes);
        const uint32_t to =
            ring.stage() + patch.lead() + image * p.image_bytes + line * p.line_bytes & ~15u;
        if (begin < end) visit(to + (begin - from), begin, end - begin);
      }
    };
    int bytes = 0;
    visit_lines([&](uint32_t, int, int many) { bytes += many; });
    barrier_wait(ring.empty(), ring.parity ^ 1);
    barrier_expect(ring.full(), bytes);
    visit_lines(
        [&](uint32_t to, int begin, int many) { copy_run(to, source + begin, many, ring.full()); });
  }
}

// What a lane writes of every pixel: a word of columns each pass, without conditions, so that all are under way at once. Columns
// that the kernel does not have get a pixel's first word; a lane that no column is left for writes its word before again.
template <int ROW>
struct PackedWords {
  static constexpr int kPasses = packed_passes(kPackedWeightTiles[ROW]);
  int from[kPasses];  // bytes from a pixel's first segment on
  uint32_t column
      [kPasses];  // as list_columns() has it, of a word's first number, which may be one before: plus one
  int last;  // the pass whose place the last word has

  __device__ __forceinline__ PackedWords(const PackedWeightParams& p, const PackedScope& at) {
    constexpr int kWords = packed_columns(kPackedWeightTiles[ROW]) / 2;
    const int lane = threadIdx.x % 32, words = p.segment_columns / 2;
    last = (kPasses - 1) * 32 + lane < kWords ? kPasses - 1 : kPasses - 2;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int word = min(i, last) * 32 + lane;
      const int segment = word / words, number = (word - segment * words) * 2 - p.ahead;
      const int row = segment / p.segments;
      const int in_row = (segment - row * p.segments) * p.segment_step + number;
      const bool there = row < at.kernel_rows;
      from[i] = there ? row * p.tap_lines * p.line_bytes + in_row * 2 : -p.ahead * 2;
      column[i] = there ? row << kColumnRow | in_row + 1 : 0;
    }
  }
};

// The words of some pixels; where segments start anywhere, each of two words of memory.
template <int ROW, int COUNT>
__device__ __forceinline__ void load_words(const PackedWeightParams& p,
                                           const PackedWords<ROW>& words,
                                           const uint32_t (&source)[COUNT],
                                           uint32_t (&word)[COUNT][PackedWords<ROW>::kPasses]) {
  constexpr int kPasses = PackedWords<ROW>::kPasses;
  if (p.two_words) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        const uint32_t from = source[k] + words.from[i];
        word[k][i] = __byte_perm(load_shared_4(from & ~3u), load_shared_4((from & ~3u) + 4),
                                 from & 2 ? 0x5432 : 0x3210);
      }
  } else {
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
#pragma unroll
      for (int i = 0; i < kPasses; ++i) word[k][i] = load_shared_4(source[k] + words.from[i]);
  }
}

// Calls visit(COUNT lanes) for the lanes of a mask, the last of which may come more than once.
template <int COUNT, class Visit>
__device__ __forceinline__ void visit_lanes(unsigned mask, Visit&& visit) {
#pragma unroll 1
  while (mask) {
    int lane[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      lane[i] = mask || i == 0 ? __ffs(mask) - 1 : lane[i - 1];
      mask &= mask - 1;
    }
    visit(lane);
  }
}

// A K tile's columns, by a team: a warp takes every so many pixels. A lane finds out about one of them, for all lanes; several
// are under way at once, since a warp alone waits for each instruction.
template <int ROW>
__device__ __forceinline__ void write_columns(const PackedWeightParams& p,
                                              const PackedWords<ROW>& words, const PackedScope& at,
                                              const TileStart& start, int first, uint32_t table,
                                              uint32_t lines, uint32_t columns) {
  constexpr int kPasses = PackedWords<ROW>::kPasses;
  constexpr int kInside = 3, kBeside = 2;  // pixels at once
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = threadIdx.x % 32, mine = first + lane * kPackedTeam;
  const PackedPatch patch(p, at, start);
  columns += lane / 4 * kColumnsBytes + lane % 4 * 4 + first * 16;
  uint32_t listed[2] = {0, ~0u};
  if (mine < kTilePixels) load_shared_8(table + mine * 8, listed);
  const int n = listed[1] >> 24, h = listed[1] >> 12 & 0xfff, w = listed[1] & 0xfff;
  const uint32_t source = lines + patch.lead() + listed[0];
  const int row = patch.row + h, column = patch.column + w;
  const int last_row = row + (at.kernel_rows - 1) * p.dilation_h;
  const bool used = n != 0xff, there = n < p.batch - start.n &&
                                       h < (p.x_h - start.h) * p.stride_h &&
                                       w < (p.x_w - start.w) * p.stride_w;
  const bool inside =
      there && row >= 0 && last_row < p.y_h && column >= 0 && column + p.reach_w < p.y_w;
  const auto load = [&](auto& of, auto& word) {
    constexpr int kCount = sizeof(of) / sizeof(of[0]);
    uint32_t from[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) from[k] = __shfl_sync(kAll, source, of[k]);
    load_words<ROW>(p, words, from, word);
  };
  const auto write = [&](int which, const uint32_t (&word)[kPasses]) {
    const uint32_t to = columns + which * kPackedTeam * 16;
#pragma unroll
    for (int i = 0; i < kPasses - 1; ++i) store_shared_4(to + i * 8 * kColumnsBytes, word[i]);
    store_shared_4(to + words.last * 8 * kColumnsBytes, word[kPasses - 1]);
  };
  visit_lanes<kInside>(__ballot_sync(kAll, used && inside), [&](const int (&of)[kInside]) {
    uint32_t word[kInside][kPasses];
    load(of, word);
#pragma unroll
    for (int k = 0; k < kInside; ++k) write(of[k], word[k]);
  });
  // Zeros for what is not of dY, whatever else came.
  const int before = column * p.columns - 1, of_row = there ? row : INT32_MIN / 2;
  visit_lanes<kBeside>(__ballot_sync(kAll, used && !inside), [&](const int (&of)[kBeside]) {
    uint32_t word[kBeside][kPasses];
    load(of, word);
#pragma unroll
    for (int k = 0; k < kBeside; ++k) {
      const int its_row = __shfl_sync(kAll, of_row, of[k]),
                its_first = __shfl_sync(kAll, before, of[k]);
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        const int y_h = its_row + int(words.column[i] >> kColumnRow) * p.dilation_h;
        const int number = its_first + int(words.column[i] & (1 << kColumnRow) - 1);
        const bool on_row = unsigned(y_h) < unsigned(p.y_h);
        const auto is_number = [&](int which) {
          return on_row && unsigned(which) < unsigned(p.y_w * p.columns);
        };
        word[k][i] &= (is_number(number) ? 0xffffu : 0) | (is_number(number + 1) ? 0xffff0000u : 0);
      }
      write(of[k], word[k]);
    }
  });
}

// A team takes every so many tiles: what it finds out about one serves more pixels of a warp. Of a ring's barriers it may have
// missed a turn of another team's, whose end looks like that of the turn before: so it waits for the stage first, since whoever
// has read that has seen all tiles before (the planner sees to the rest).
template <int ROW>
__device__ __forceinline__ void write_all_columns(const PackedWeightParams& p,
                                                  const PackedScope& at, uint32_t table,
                                                  StageRing& ring, StageRing& lines) {
  const PackedWords<ROW> words(p, at);
  const int warp = threadIdx.x / 32 - (kPackedThreads / 32 - kPackedBuilders);
  const int team = warp / kPackedTeam;
  TileStart start(p, at.begin);
  for (int tile = at.begin; tile < at.end;
       ++tile, start.advance(p), ring.advance(), lines.advance()) {
    if ((tile - at.begin) % kPackedTeams != team) continue;
    barrier_wait(ring.empty(), ring.parity ^ 1);
    barrier_wait(lines.full(), lines.parity);
    write_columns<ROW>(p, words, at, start, warp % kPackedTeam, table, lines.stage(),
                       ring.stage() + kPackedRowsBytes);
    fence_for_wgmma();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      barrier_arrive(ring.full());
      barrier_arrive(lines.empty());
    }
  }
}

// Of a thread: [column 8 i + 2 t or + 1, row g or g + 8 of the warp's 16], as wgmma has them.
template <int ROW>
struct PackedSums {
  static constexpr PackedWeightTile tile = kPackedWeightTiles[ROW];
  float wide[1][tile.wide / 2], narrow[1][tile.narrow ? tile.narrow / 2 : 1];

  __device__ __forceinline__ void clear_all() {
    clear(wide);
    clear(narrow);
  }
  // visit(column, its four sums: rows g and g + 8 of the column and of the next one)
  template <class Visit>
  __device__ __forceinline__ void visit(Visit&& visit) {
    const int first = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < tile.wide / 8; ++i) visit(first + 8 * i, wide[0] + 4 * i);
#pragma unroll
    for (int i = 0; i < tile.narrow / 8; ++i) visit(first + tile.wide + 8 * i, narrow[0] + 4 * i);
  }
};

// Multiplies all of a block's K tiles. A stage is given back when the next one's multiplications are under way.
template <class T, int ROW>
__device__ __forceinline__ void multiply_packed(const PackedScope& at, PackedSums<ROW>& sum,
                                                StageRing& ring) {
  constexpr PackedWeightTile tile = kPackedWeightTiles[ROW];
  const bool speaker = threadIdx.x % 32 == 0;
  const uint64_t x =
      operand(turned_layout(kRowBytes, 0), threadIdx.x / 128 * kTilePixels * kRowBytes);
  const uint64_t y = operand(operand_layout(128, kColumnsBytes), kPackedRowsBytes);
  uint32_t read = 0;  // the stage before, to be given back
  for (int k = at.begin; k < at.end; ++k, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    const uint32_t stage = ring.stage() >> 4;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step) {
      const uint64_t rows = advance(x, stage + step * (kStepPixels * kRowBytes >> 4));
      const uint64_t columns = advance(y, stage + step * kStepPixels);
      WgmmaTurned<T, tile.wide>::add(sum.wide[0], rows, columns);
      if constexpr (tile.narrow > 0)
        WgmmaTurned<T, tile.narrow>::add(sum.narrow[0], rows,
                                         advance(columns, tile.wide / 8 * (kColumnsBytes >> 4)));
    }
    wgmma_commit();
    if (read) {
      wgmma_wait<1>();
      if (speaker) barrier_arrive(read);
    }
    read = ring.empty();
  }
  wgmma_wait<0>();
  finished(sum.wide[0]);
  if constexpr (tile.narrow > 0) finished(sum.narrow[0]);
  if (read && speaker) barrier_arrive(read);
}

// The same with care: plain multiply-adds, of two pixels that exist, since zeros from outside of dY are multiplied above, and
// 0 * inf is NaN. Slow, and rare: somewhere is a NaN or an infinity.
template <class T, int ROW>
__device__ __forceinline__ void multiply_packed_with_care(const PackedWeightParams& p,
                                                          const PackedScope& at,
                                                          PackedSums<ROW>& sum, uint32_t pixels,
                                                          uint32_t table, StageRing& ring) {
  const auto read = [](uint32_t from) {
    const unsigned short bits = load_shared<unsigned short>(from);
    return Numeric<T>::widen(*reinterpret_cast<const T*>(&bits));
  };
  const int g = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  sum.clear_all();
  TileStart start(p, at.begin);
  for (int k = at.begin; k < at.end; ++k, start.advance(p), ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    const PackedPatch patch(p, at, start);
#pragma unroll 1
    for (int pixel = 0; pixel < p.tile_n * p.tile_h * p.tile_w; ++pixel) {
      uint32_t listed[2];
      load_shared_8(pixels + pixel * 8, listed);
      const int n = listed[1] >> 24, h = listed[1] >> 12 & 0xfff, w = listed[1] & 0xfff;
      if (start.n + n >= p.batch || h >= (p.x_h - start.h) * p.stride_h ||
          w >= (p.x_w - start.w) * p.stride_w)
        continue;
      float x[2];
      for (int i = 0; i < 2; ++i) {
        const uint32_t plain =
            ring.stage() + (threadIdx.x / 128 * kTilePixels + pixel) * kRowBytes + (g + 8 * i) * 2;
        x[i] = read(plain ^ (plain >> 3 & 0x70));
      }
      const int first = (patch.column + w) * p.columns;
      const uint32_t of_pixel = ring.stage() + kPackedRowsBytes + pixel * 16;
      sum.visit([&](int column, float* sums) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const uint32_t which = load_shared_4(table + (column + j) * 4);
          const int y_h = patch.row + h + int(which >> kColumnRow) * p.dilation_h;
          const int number = first + int(which & (1 << kColumnRow) - 1);
          if (which == kNoColumn || y_h < 0 || y_h >= p.y_h || number < 0 ||
              number >= p.y_w * p.columns)
            continue;
          const float y = read(of_pixel + (column + j) / 8 * kColumnsBytes + (column + j) % 8 * 2);
#pragma unroll
          for (int i = 0; i < 2; ++i) sums[2 * i + j] = fmaf(x[i], y, sums[2 * i + j]);
        }
      });
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
  }
}

// Named barriers: all, who agree whether the sums are good; who multiply; one group of them.
enum { kPackedVerdict = 1, kPackedMultiply = 2, kPackedGroup0 = 3 };

// A group's sums, by way of shared memory, to dW or to this piece's partial sums: lanes take neighbouring columns.
template <class T, int ROW>
__device__ __forceinline__ void store_packed(const PackedWeightParams& p, const PackedScope& at,
                                             PackedSums<ROW>& sum, uint32_t table, uint32_t sums) {
  constexpr PackedWeightTile tile = kPackedWeightTiles[ROW];
  constexpr int kPitch = packed_sum_pitch(tile), kWarps = 4;
  const int group = threadIdx.x / 128, g = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  sums += group * kCellChannels * kPitch;
  sum.visit([&](int column, float* of) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      store_shared<2>(sums + (g + 8 * i) * kPitch + column * 4,
                      {__float_as_uint(of[2 * i]), __float_as_uint(of[2 * i + 1])});
  });
  barrier_among(kPackedGroup0 + group, 128);
  const int warp = threadIdx.x % 128 / 32, first = at.first_channel + group * kCellChannels;
  const int rows = min(kCellChannels, p.rows - first);
  const int32_t* const stride = p.weight_stride;
#pragma unroll 1
  for (int column = threadIdx.x % 32; column < packed_columns(tile); column += 32) {
    const uint32_t which = load_shared_4(table + column * 4);
    if (which == kNoColumn) continue;
    const int kernel_h = at.kernel_h + int(which >> kColumnRow);
    const int number = which & (1 << kColumnRow) - 1;
    // From tap to tap it is as far as from segment to segment, or in a segment as many numbers as there are channels.
    const int apart = p.segments > 1 ? p.segment_step : p.columns;
    const int kernel_w = number / apart, channel = number - kernel_w * apart;
    float* partial =
        p.partials + int64_t{at.piece} * p.piece_floats +
        (int64_t{kernel_h * p.kernel_w + kernel_w} * p.rows + first + warp) * p.columns + channel;
    T* to = static_cast<T*>(p.weight) + int64_t{first + warp} * stride[0] +
            int64_t{channel} * stride[1] + kernel_h * stride[2] + kernel_w * stride[3];
    uint32_t from = sums + warp * kPitch + column * 4;
#pragma unroll 4
    for (int row = warp; row < rows; row += kWarps, from += kWarps * kPitch) {
      const float value = load_shared<float>(from);
      if (p.partials) {
        *partial = value;
      } else {
        store(to, value);
      }
      partial += kWarps * p.columns;
      to += int64_t{kWarps} * stride[0];
    }
  }
}

template <class T, int ROW>
__global__ void __launch_bounds__(kPackedThreads, 1)
    convt2d_hopper_packed_grad_weight_kernel(const __grid_constant__ PackedWeightParams p,
                                             const __grid_constant__ CUtensorMap x) {
#ifdef CONVT2D_HAS_WGMMA  // other chips: declined by the planner
  constexpr PackedWeightTile tile = kPackedWeightTiles[ROW];
  extern __shared__ __align__(1024) unsigned char smem[];
  const PackedScope at(p);
  const uint32_t shared = shared_address(smem);
  const uint32_t pixels = shared + kPackedPixelsAt, columns = shared + kPackedColumnsAt;
  StageRing ring{shared, shared + kPackedStagesAt, p.stages, packed_stage_bytes(tile)};
  StageRing lines{shared + kLineBarriersAt, ring.stages + p.stages * ring.bytes, p.line_stages,
                  p.lines_bytes};
  start_stages(ring.barriers, p.stages, 1 + kPackedTeam, kPackedConsumers / 32);
  start_stages(lines.barriers, p.line_stages, 32, kPackedTeam);
  if (threadIdx.x < kTilePixels) list_pixels(p, pixels);
  list_columns<ROW>(p, at, columns);
  // Pixels that no tile uses are multiplied as well, so they are zero.
  if (p.tile_n * p.tile_h * p.tile_w < kTilePixels)
    for (int i = threadIdx.x * 16; i < p.stages * ring.bytes; i += kPackedThreads * 16)
      store_shared_16(ring.stages + i, {0, 0, 0, 0});
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  let_successor_start();  // the sum of the pieces; there is no place for it until a block ends
  const int warp = threadIdx.x / 32 - kPackedConsumers / 32;
  if (warp >= 0) {
    fewer_registers<kPackedProducerRegisters>();
    for (bool again = false;; again = true) {
      if (warp == 0) {
        if (threadIdx.x % 32 == 0) copy_packed_rows(p, x, at, ring);
      } else if (warp == 1) {
        copy_lines(p, at, lines);
      } else {
        write_all_columns<ROW>(p, at, pixels, ring, lines);
      }
      __syncwarp();
      if (again || barrier_all(kPackedVerdict, kPackedThreads, true)) return;
    }
  } else {
    more_registers<kPackedConsumerRegisters>();
    PackedSums<ROW> sum;
    sum.clear_all();
    multiply_packed<T, ROW>(at, sum, ring);
    bool good = true;
    sum.visit([&](int column, float* of) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (of[i] != of[i]) good &= load_shared_4(columns + (column + i % 2) * 4) == kNoColumn;
    });
    if (!barrier_all(kPackedVerdict, kPackedThreads, good)) {
      multiply_packed_with_care<T, ROW>(p, at, sum, pixels, columns, ring);
      barrier_among(kPackedMultiply, kPackedConsumers);  // all are done with the stages
    }
    store_packed<T, ROW>(p, at, sum, columns, ring.stages);
  }
#endif
}

}  // namespace convt2d::cuda::hopper
