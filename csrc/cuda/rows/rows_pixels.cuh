// The kernel of rows for channels-last tensors: pixels are the rows of an instruction, channels of y its columns. A block
// brings pixels; then each of its warps computes positions of a row of y, all channels of them, in a buffer of its own in
// which outputs lie as in memory, and stores them.
#pragma once

#include <type_traits>

#include "cuda/device/digits.cuh"
#include "cuda/rows/rows_operands.cuh"

namespace convt2d::cuda::rows {

struct Tile {
  int n, h, w;  // image, first position
};

__device__ __forceinline__ Tile tile_of(const Params& p, int tile) {
  Digits number{tile};
  Tile at;
  at.w = number.next(p.tiles_w) * p.tile_width;
  at.h = number.next(p.tiles_h) * p.tile_rows;
  at.n = number.rest;
  return at;
}

// For the sums, and as it repeats in memory, from any multiple of that on.
template <class T>
__device__ __forceinline__ void fill_bias(const Params& p, uint32_t shared) {
  const T* const bias = static_cast<const T*>(p.bias);
  for (int i = threadIdx.x; i < p.panels * kPanel; i += kThreads) {
    const int group = p.divide_group_panels.quotient(i / kPanel);
    const int column = i - group * p.group_panels * kPanel;
    const float value =
        bias && column < p.columns ? float(load(bias + group * p.columns + column)) : 0.f;
    store_shared_4(shared + p.bias_at + i * 4, __float_as_uint(value));
  }
  const int channels = p.groups * p.columns;
  for (int i = threadIdx.x; i < int(p.same.together.divisor) * kVector<T>; i += kThreads) {
    const uint32_t bits = bias ? bits_of(bias + i % channels) : 0, to = shared + p.same_at;
    if constexpr (sizeof(T) == 2) {
      store_shared_2(to + i * 2, static_cast<unsigned short>(bits));
    } else {
      store_shared_4(to + i * 4, bits);
    }
  }
}

// Pixels: rows of [group, unit][pixel]. Those beside x are zeros. Tells whether one is not finite.
template <class M>
__device__ __forceinline__ bool fill_pixels(const Params& p, const Tile& at, uint32_t shared) {
  using T = typename M::Element;
  constexpr int kVec = kVector<T>;
  const int first_pixel = at.w + p.w.first_offset, first_row = at.h + p.h.first_offset;
  const int channels = p.groups * p.reduce;
  const T* const source = static_cast<const T*>(p.source) +
                          ((int64_t{at.n} * p.h.in + first_row) * p.w.in + first_pixel) * channels;
  const int row_pieces = p.patch_pixels * p.row_units, count = p.patch_rows * row_pieces;
  uint32_t nan = 0;
  const auto fill = [&](auto whole) {
    constexpr bool kWhole = decltype(whole)::value;
    constexpr int kAtOnce = kWhole ? 4 : 2;
#pragma unroll 1
    for (int first = threadIdx.x; first < count; first += kAtOnce * kThreads) {
      uint32_t bits[kAtOnce][kWhole ? 4 : kVec], to[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = first + k * kThreads;
        const int row = p.divide_row_pieces.quotient(i), piece = i - row * row_pieces;
        const int pixel = p.divide_row_units.quotient(piece), unit = piece - pixel * p.row_units;
        to[k] = shared + p.patch_at + ((row * p.row_units + unit) * p.patch_width + pixel) * kUnit;
        const bool there = i < count && unsigned(first_row + row) < unsigned(p.h.in) &&
                           unsigned(first_pixel + pixel) < unsigned(p.w.in);
        const T* from = source + (int64_t{row} * p.w.in + pixel) * channels;
        if constexpr (kWhole) {
          bits[k][0] = bits[k][1] = bits[k][2] = bits[k][3] = 0;
          if (there) load_words<16>(from + unit * kVec, bits[k]);
        } else {
          const int group = p.divide_units.quotient(unit);
          const int channel = (unit - group * p.units) * kVec;
          const int left = there ? p.reduce - channel : 0;
          from += group * p.reduce + channel;
#pragma unroll
          for (int c = 0; c < kVec; ++c) bits[k][c] = c < left ? bits_of(from + c) : 0;
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k * kThreads >= count) break;
        if constexpr (kWhole) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            bits[k][i] = M::round(bits[k][i]);
            nan = watch<T>(bits[k][i], nan);
          }
          store_shared_16(to[k], bits[k]);
        } else {
          store_unit<M>(bits[k], to[k], nan);
        }
      }
    }
  };
  if (p.whole_units) {
    fill(std::true_type());
  } else {
    fill(std::false_type());
  }
  return saw_nan<T>(nan);
}

// Of one image and row of y: positions, and which of their phases of w.
struct Item {
  int n, row;
  int position;
  int first_phase, end_phase;
};

// TILES * 16 positions x PANELS * 8 channels of a pair of phases. A lane has positions lane / 4 and 8 more, and of eight
// channels those at lane % 4 * 2. `pixels`, `weights` and `bias` are where the first ones are, less what goes by the step;
// `to` is the buffer's place of the first output.
template <class M, int TILES, int PANELS>
__device__ __forceinline__ void multiply_pixels(const Params& p, uint32_t shared, int pair,
                                                uint32_t pixels, uint32_t weights, uint32_t bias,
                                                uint32_t to, int channels) {
  using T = typename M::Element;
  const int lane = threadIdx.x % 32, step_bytes = p.panels * kPanel * kUnit;
  const int first = p.first_step[pair], end = p.first_step[pair + 1];
  float sum[TILES][PANELS][4];
#pragma unroll
  for (int j = 0; j < PANELS; ++j) {
    uint32_t word[2];
    load_shared_8(bias + (j * kPanel + lane % 4 * 2) * 4, word);
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
      sum[i][j][0] = sum[i][j][2] = __uint_as_float(word[0]);
      sum[i][j][1] = sum[i][j][3] = __uint_as_float(word[1]);
    }
  }
  // Matrices of pixels: both halves of the positions of a step, then of the next; of weights: both steps of a panel, then
  // of the next.
  weights += (first + lane / 8 % 2) * step_bytes + (lane / 16 * kPanel + lane % 8) * kUnit;
  pixels += lane % 16 * kUnit;
  uint32_t table = shared + p.steps_at + (first + lane / 16) * 4, place = load_shared_4(table);
  int step = first;
#pragma unroll 1
  do {
    const uint32_t from = pixels + place;
    table += 2 * 4;
    place = load_shared_4(table);  // behind the last step there is something, which nobody uses
    uint32_t a[TILES][4], b[(PANELS + 1) / 2][4];
#pragma unroll
    for (int i = 0; i < TILES; ++i) ldmatrix_x4(a[i], from + i * kPositions * kUnit);
#pragma unroll
    for (int j = 0; j < PANELS; j += 2) {
      if (j + 1 < PANELS) {
        ldmatrix_x4(b[j / 2], weights + j * kPanel * kUnit);
      } else {
        ldmatrix_x2(b[j / 2][0], b[j / 2][1], weights + j * kPanel * kUnit);
      }
    }
#pragma unroll
    for (int j = 0; j < PANELS; ++j)
#pragma unroll
      for (int i = 0; i < TILES; ++i)
        M::mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    weights += 2 * step_bytes;
    step += 2;
  } while (step < end);
  to += lane / 4 * p.position_pitch + lane % 4 * 2 * int(sizeof(T));
  const int left = channels - lane % 4 * 2;
  const auto store_all = [&](auto pairs) {
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t row = to + (i * 2 + half) * 8 * p.position_pitch;
#pragma unroll
        for (int j = 0; j < PANELS; ++j) {
          const float low = sum[i][j][2 * half], high = sum[i][j][2 * half + 1];
          const uint32_t at = row + j * kPanel * int(sizeof(T));
          const bool one = j * kPanel < left, other = j * kPanel + 1 < left;
          if constexpr (sizeof(T) == 2) {
            const uint32_t both = pack<T>(low, high);
            if constexpr (decltype(pairs)::value) {
              if (one) store_shared_4(at, both);
            } else {
              if (one) store_shared_2(at, static_cast<unsigned short>(both));
              if (other) store_shared_2(at + 2, static_cast<unsigned short>(both >> 16));
            }
          } else if constexpr (decltype(pairs)::value) {
            if (one) store_shared<2>(at, {__float_as_uint(low), __float_as_uint(high)});
          } else {
            if (one) store_shared_4(at, __float_as_uint(low));
            if (other) store_shared_4(at + 4, __float_as_uint(high));
          }
        }
      }
  };
  if (p.columns % 2 == 0) {
    store_all(std::true_type());
  } else {
    store_all(std::false_type());
  }
}

// All channels of an item, to the warp's buffer. `pair` is its first one, `pixels` where the first position's are.
template <class M, int TILES, int PANELS>
__device__ __forceinline__ void compute_item(const Params& p, uint32_t shared, const Item& item,
                                             int pair, uint32_t pixels, uint32_t staging) {
  constexpr int kSize = int(sizeof(typename M::Element));
#pragma unroll 1
  for (int phase = item.first_phase; phase < item.end_phase; ++phase, ++pair) {
    uint32_t to = staging + (phase - item.first_phase) * p.groups * p.columns * kSize;
    uint32_t of_group = pixels, weights = shared + p.weights_at, bias = shared + p.bias_at;
#pragma unroll 1
    for (int group = 0; group < p.groups; ++group) {
#pragma unroll 1
      for (int panel = 0; panel < p.group_panels; panel += PANELS) {
        multiply_pixels<M, TILES, PANELS>(p, shared, pair, of_group, weights, bias,
                                          to + panel * kPanel * kSize, p.columns - panel * kPanel);
        weights += PANELS * kPanel * kUnit;
        bias += PANELS * kPanel * 4;
      }
      of_group += p.units * p.patch_width * kUnit;
      to += p.columns * kSize;
    }
  }
}

template <class T>
__device__ __noinline__ void repair_item(const Params& p, Item item, uint32_t staging) {
  const int channels = p.groups * p.columns, phases = item.end_phase - item.first_phase;
  for (int i = threadIdx.x % 32; i < p.row_tiles * kPositions * phases * channels; i += 32) {
    const int pixel = i / channels, channel = i - pixel * channels;
    const int position = pixel / phases, phase = pixel - position * phases;
    const int output = (item.position + position) * p.w.stride + item.first_phase + phase;
    if (output >= p.w.out) continue;
    repair_output<T>(
        p, staging + position * p.position_pitch + (phase * channels + channel) * int(sizeof(T)),
        item.n, channel / p.columns, channel % p.columns, item.row, output);
  }
}

template <class T>
__device__ __forceinline__ void store_number(T* to, uint32_t from) {
  if constexpr (sizeof(T) == 2) {
    *reinterpret_cast<unsigned short*>(to) = load_shared<unsigned short>(from);
  } else {
    *reinterpret_cast<uint32_t*>(to) = load_shared_4(from);
  }
}

// `count` outputs to memory, of which the first is `element`: whole 16 bytes, and up to 7 outputs at both ends. The piece
// that the first one is in is number `number` of those at `buffer`.
template <class T>
__device__ __forceinline__ void store_pieces(const Params& p, const Pieces& pieces, uint32_t buffer,
                                             int number, uint32_t element, int count) {
  constexpr int kVec = kVector<T>, kAtOnce = 4;
  const int lane = threadIdx.x % 32, first = int(element % kVec), end = first + count;
  const int first_whole = first ? 1 : 0, end_whole = max(first_whole, end / kVec);
  const int together = pieces.together.divisor;
  char* const run = static_cast<char*>(p.destination) + int64_t{element - first} * int(sizeof(T));
  // Lanes begin at a multiple of 128 bytes, up to seven pieces early, so that a sector is not written in pieces.
  constexpr int kLine = 128 / kUnit;
  int piece = lane - int(element / kVec % kLine), within = number + piece;
  const int apart = int(pieces.together.quotient(within + kLine * together)) - kLine;
  within -= apart * together;
  uint32_t from = buffer + within * kUnit + apart * (together * kUnit + pieces.shared_gap);
  char* to = run + piece * kUnit + int64_t{apart} * pieces.memory_gap;
  while (piece < end_whole) {
    uint32_t word[kAtOnce][4];
    char* place[kAtOnce];
    const int base = piece;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, piece += 32) {
      place[i] = to;
      if (piece >= first_whole && piece < end_whole) load_shared_16(from, word[i]);
      within += pieces.turn;
      const bool next = within >= together;
      if (next) within -= together;
      from += pieces.shared_way + (next ? pieces.shared_gap : 0);
      to += pieces.memory_way + (next ? pieces.memory_gap : 0);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (base + i * 32 >= first_whole && base + i * 32 < end_whole)
        store_words(place[i], word[i][0], word[i][1], word[i][2], word[i][3]);
  }
  // Only outputs that are no whole pieces have ends, and those lie side by side in memory.
  const auto store_end = [&](int i) {
    const int at = number + i / kVec, over = pieces.together.quotient(at);
    store_number(reinterpret_cast<T*>(run) + i,
                 buffer + at * kUnit + over * pieces.shared_gap + i % kVec * int(sizeof(T)));
  };
  const int left = first + lane, right = end_whole * kVec + lane;
  if (left < min(first_whole * kVec, end)) store_end(left);
  if (right < end) store_end(right);
}

// An item by as many sums at once as the planner wants.
template <class M>
__device__ __forceinline__ void compute_item(const Params& p, uint32_t shared, const Item& item,
                                             int pair, uint32_t pixels, uint32_t staging) {
  const auto compute = [&](auto tiles, auto panels) {
    constexpr int kTiles = decltype(tiles)::value, kPanels = decltype(panels)::value;
    if constexpr (kTiles * kPanels <= kMostTogether)
      compute_item<M, kTiles, kPanels>(p, shared, item, pair, pixels, staging);
  };
  const auto of_tiles = [&](auto tiles) {
    switch (p.panels_at_once) {
      case 1:
        return compute(tiles, std::integral_constant<int, 1>());
      case 2:
        return compute(tiles, std::integral_constant<int, 2>());
      case 3:
        return compute(tiles, std::integral_constant<int, 3>());
      default:
        return compute(tiles, std::integral_constant<int, kMostPanels>());
    }
  };
  switch (p.row_tiles) {
    case 1:
      return of_tiles(std::integral_constant<int, 1>());
    case 2:
      return of_tiles(std::integral_constant<int, 2>());
    default:
      return of_tiles(std::integral_constant<int, kMostRowTiles>());
  }
}

// A warp's part of a tile: positions, and all rows of y and all outputs in them that they have, so that whoever computes
// little, since a row has no taps, is not somebody else, and stores are spread over the time that products take.
template <class M>
__device__ __forceinline__ void compute_tile(const Params& p, const Tile& at, const Part& part,
                                             uint32_t shared, bool repairs) {
  using T = typename M::Element;
  const int positions = p.row_tiles * kPositions, channels = p.groups * p.columns;
  const int chunks = p.divide_chunks.divisor;
  const uint32_t buffer = shared + p.staging_at + threadIdx.x / 32 * p.warp_bytes;
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < p.tile_rows * chunks; i += kWarps) {
    const int r = p.divide_chunks.quotient(i), chunk = i - r * chunks;
    const int first_row = (at.h + r) * p.h.stride, position = at.w + chunk * positions;
    const int first_output = position * p.w.stride;
    const int outputs = min(positions * p.w.stride, p.w.out - first_output);
    if (outputs <= 0) continue;
    // Positions whose outputs all exist, and how many another one has.
    const int whole = outputs / p.w.stride, others = outputs - whole * p.w.stride;
    const uint32_t from =
        shared + p.patch_at + (r * p.row_units * p.patch_width + chunk * positions) * kUnit;
#pragma unroll 1
    for (int of_h = 0; of_h < p.part_h; ++of_h) {
      const int row = first_row + part.h + of_h;
      if (row >= p.h.out) break;
      const uint32_t run = ((at.n * p.h.out + row) * p.w.out + first_output) * channels;
      if (p.h.taps[part.h + of_h] == 0) {
        const int piece = int(run / kVector<T>), over = p.same.together.quotient(piece);
        store_pieces<T>(p, p.same, shared + p.same_at, piece - over * int(p.same.together.divisor),
                        run, outputs * channels);
        continue;
      }
#pragma unroll 1
      for (int of_w = 0; of_w < p.part_w; of_w += p.run_phases) {
        const int phase = part.w + of_w;
        const int pixels = whole * p.run_phases + max(0, min(others - phase, p.run_phases));
        if (pixels == 0) break;
        const uint32_t element = run + phase * channels;
        const uint32_t staging = buffer + element % kVector<T> * uint32_t(sizeof(T));
        const Item item = {at.n, row, position, phase, phase + p.run_phases};
        compute_item<M>(p, shared, item, of_h * p.part_w + of_w, from, staging);
        __syncwarp();
        if (repairs) {
          repair_item<T>(p, item, staging);
          __syncwarp();
        }
        store_pieces<T>(p, p.outputs, buffer, 0, element, pixels * channels);
        __syncwarp();
      }
    }
  }
}

template <class M>
__global__ __launch_bounds__(kThreads, kPixelBlocks) void convt2d_rows_pixels_kernel(
    const __grid_constant__ Params p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900  // others: declined by the planner
  using T = typename M::Element;
  extern __shared__ __align__(128) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const int walker = blockIdx.x / p.parts, number = blockIdx.x - walker * p.parts;
  const Part part = {number / p.parts_w * p.part_h, number % p.parts_w * p.part_w};
  fill_bias<T>(p, shared);
  const bool bad_weights = fill_steps<M>(p, 0, 0, part, shared);
#pragma unroll 1
  for (int tile = walker; tile < p.tiles; tile += p.walkers / p.parts) {
    const Tile at = tile_of(p, tile);
    const bool bad_pixels = fill_pixels<M>(p, at, shared);
    const bool repairs = __syncthreads_or(bad_weights || bad_pixels);
    compute_tile<M>(p, at, part, shared, repairs);
    __syncthreads();
  }
#endif
}

}  // namespace convt2d::cuda::rows
