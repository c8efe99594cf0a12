// Consumers that fetch pixels to registers, in NCHW grad_input: every number of K is a tap of a channel, and stands in
// shared memory where its pixel does. One product a chunk. While an instruction multiplies, the numbers of the next one come,
// from chunk to chunk as well; of rows of 16 bits they are asked for as soon as an instruction is under way, and become words when
// the one before it is done. A step is some 35 instructions for 32 or 64 cycles of the tensor core with four groups of consumers, or for 128 with two:
// there is no time for anything else.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/hopper/hopper_consumer.cuh"

namespace convt2d::cuda::hopper {

// The positions of a lane, of which it holds words.
template <int ROW>
__device__ __forceinline__ int position_of_lane(int operand, int row) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  return (warp / 4 * kTiles[ROW].operands + operand) * 64 + warp % 4 * 16 + row * 8 + (lane >> 2);
}

// Fetched rows: the pixels that tap (0, 0) of a lane's positions reads, if a tile starts where its rows do. Bytes.
template <class M, int ROW>
__device__ __forceinline__ void find_rows(const GatherParams& p, const int* positions,
                                          uint32_t (&pixel)[kTiles[ROW].operands][2]) {
#pragma unroll
  for (int o = 0; o < kTiles[ROW].operands; ++o)
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int position = positions[position_of_lane<ROW>(o, row)];
      const int n = position < 0 ? 0 : position >> 20, h = position < 0 ? 0 : position >> 10 & 1023,
                w = position < 0 ? 0 : position & 1023;
      pixel[o][row] = n * p.image_pitch + h * p.h.source_step * p.row_pitch +
                      w * p.w.source_step * p.pixel_channels * int(sizeof(typename M::Element));
    }
}

// What a consumer holds of one operand and slice: see WgmmaFetched. And what it loads for that: words or numbers.
using FetchedWords = uint32_t[4];
template <class M>
constexpr int kLoaded = 16 / int(sizeof(typename M::Element));
// How two numbers become a word, or one word stays what it is: bytes as __byte_perm() names them. In a register, so that the
// compiler does not take one for the other: multiplying with what is loaded meanwhile is serialized (C7513).
constexpr uint32_t kTwoNumbers = 0x5410, kOneWord = 0x3210;
// Instructions take turns with two of them, even and odd ones, in strict fp32 with four: all operands of a slice, then
// those of the next one.
template <int ROW>
CONVT2D_HOST_DEVICE constexpr int operand_of(int turn) {
  return turn % kTiles[ROW].operands;
}
template <int ROW>
CONVT2D_HOST_DEVICE constexpr bool starts_slice(int turn) {
  return operand_of<ROW>(turn) == 0;
}

// Which rows and columns of taps of a position read a pixel of the source, a bit each. `y`, `x`: what tap (0, 0) reads.
__device__ __forceinline__ uint32_t taps_there(const GatherParams& p, const Scope& at, int y,
                                               int x) {
  const AxisGroup &gh = p.h.group[at.group_h], &gw = p.w.group[at.group_w];
  uint32_t there = 0;
  for (int j = gw.count - 1; j >= 0; --j) {
    const int from = x + p.w.step[gw.first + j].offset - at.low_w;
    there = there << 1 | (from >= 0 && from < p.w.source_extent);
  }
  for (int i = gh.count - 1; i >= 0; --i) {
    const int from = y + p.h.step[gh.first + i].offset - at.low_h;
    there = there << 1 | (from >= 0 && from < p.h.source_extent);
  }
  return there;
}

// Whether all that a tile's patch reads is of the source.
__device__ __forceinline__ bool meets_no_border(const GatherParams& p, const Scope& at,
                                                TileOrigin origin) {
  const int y = origin.h * p.h.source_step + at.low_h, x = origin.w * p.w.source_step + at.low_w;
  return y >= 0 && x >= 0 && y + p.load_h <= p.h.source_extent &&
         x * p.pixel_channels + p.load_w <= p.row_elements;
}

// The numbers of the patches of a tile, slice after slice, by the tables of build_offsets().
template <class M, int ROW>
struct RowFetcher {
  using T = typename M::Element;
  static constexpr int kOperands = kTiles[ROW].operands;
  static constexpr int kNumbers = 4 / int(sizeof(T));
  uint32_t pixel[kOperands][2];   // in a patch
  uint32_t there[kOperands][2];   // taps_there(), where it matters
  uint32_t table, offsets, from;  // table: of this lane
  uint32_t offset[2][kNumbers];   // of a slice
  int first, chunk;               // first: pixel in memory of the tile's channel 0
  enum How { kNumbersApart, kInWords, kBeside };
  How how, usual;  // kBeside: threads brought what is none of the source's rows
  uint32_t bytes = kOneWord;

  __device__ __forceinline__ RowFetcher(const GatherParams& p, const Known& known,
                                        const int* positions)
      : table(shared_address(known.places.base + known.map.offsets) +
              (threadIdx.x & 3) * 2 * kNumbers * 4),
        how(p.in_words ? kInWords : kNumbersApart),
        usual(how) {
    find_rows<M, ROW>(p, positions, pixel);
    set_bytes();
  }
  __device__ __forceinline__ void set_bytes() {
    if constexpr (kNumbers == 1) return;
    bytes = kNumbers == 2 && how != kInWords ? kTwoNumbers : kOneWord;
    keep_in_register(bytes);
  }
  __device__ __forceinline__ void start_tile(const GatherParams& p, const Known& known,
                                             const int* positions, TileOrigin origin) {
    const Scope& at = known.at;
    first = fetched_pixel<T>(p, at, origin, 0);
    chunk = 0;
    offsets = table;
    if (!p.brought_pieces) return;
    const int y = origin.h * p.h.source_step + at.low_h, x = origin.w * p.w.source_step + at.low_w;
    how = meets_no_border(p, at, origin) ? usual : kBeside;
    set_bytes();
    if (how != kBeside) return;
#pragma unroll
    for (int o = 0; o < kOperands; ++o)
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int position = positions[position_of_lane<ROW>(o, row)];
        there[o][row] = position < 0
                            ? 0
                            : taps_there(p, at, y + (position >> 10 & 1023) * p.h.source_step,
                                         x + (position & 1023) * p.w.source_step);
      }
  }
  __device__ __forceinline__ void start_chunk(const GatherParams& p, uint32_t patch) {
    const int depth = chunk_bytes(p) / int(sizeof(T));
    // Rows that the copy engine brings start anew with every channel.
    const int start = p.brought_pieces
                          ? first + first_channel<T>(p, chunk) * p.h.source_extent * p.row_elements
                          : first;
    from = patch + (start & (p.row_start - 1)) * int(sizeof(T));
    if (offsets == table + p.period * depth * 4) offsets = table;  // the chunk before went through
    ++chunk;
  }
  // Table entries of this lane: for the two halves of a slice, each number of a word.
  __device__ __forceinline__ void load_entries(uint32_t address,
                                               uint32_t (&entry)[2][kNumbers]) const {
    uint32_t words[2 * kNumbers];
    if constexpr (kNumbers == 1) {
      load_shared_8(address, words);
    } else {
      load_shared_16(address, words);
    }
#pragma unroll
    for (int i = 0; i < 2 * kNumbers; ++i) entry[i / kNumbers][i % kNumbers] = words[i];
  }
  template <int TURN>
  __device__ __forceinline__ void load(const GatherParams& p, uint32_t (&loaded)[4 * kNumbers]) {
    if constexpr (starts_slice<ROW>(TURN)) {
      load_entries(offsets, offset);
#pragma unroll
      for (int i = 0; i < 2 * kNumbers; ++i) offset[i / kNumbers][i % kNumbers] += from;
      offsets += M::kRow * 4;
    }
    if (how == kNumbersApart) {
      load_numbers<TURN>(loaded, [](int, int, int) { return true; });
    } else if (kNumbers == 2 && how == kInWords) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        loaded[i * kNumbers] =
            load_shared_4(pixel[operand_of<ROW>(TURN)][i % 2] + offset[i / 2][0]);
    } else {
      uint32_t tap[2][kNumbers];
      load_entries(offsets + (p.period * chunk_bytes(p) / int(sizeof(T)) - M::kRow) * 4, tap);
      load_numbers<TURN>(loaded, [&](int row, int half, int number) {
        return (tap[half][number] & ~there[operand_of<ROW>(TURN)][row]) == 0;
      });
    }
  }
  template <int TURN, class There>
  __device__ __forceinline__ void load_numbers(uint32_t (&loaded)[4 * kNumbers],
                                               There&& is_there) const {
    const uint32_t (&mine)[2] = pixel[operand_of<ROW>(TURN)];
#pragma unroll
    for (int i = 0; i < 4 * kNumbers; ++i) {
      const int row = i / kNumbers % 2, half = i / kNumbers / 2, number = i % kNumbers;
      const uint32_t from_here = mine[row] + offset[half][number];
      if constexpr (kNumbers == 1) {
        loaded[i] = is_there(row, half, 0) ? load_shared_4(from_here) : 0;
      } else {
        loaded[i] = is_there(row, half, number) ? load_shared<unsigned short>(from_here) : 0;
      }
    }
  }
  __device__ __forceinline__ void pack(const GatherParams& p,
                                       const uint32_t (&loaded)[4 * kNumbers],
                                       FetchedWords& word) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word[i] = __byte_perm(loaded[i * kNumbers], loaded[i * kNumbers + kNumbers - 1], bytes);
    round(p, word);
  }
  // Threads that brought them rounded nothing on its way.
  __device__ __forceinline__ void round(const GatherParams& p, FetchedWords& word) const {
    if constexpr (sizeof(T) == 4) {
      if (p.brought_pieces) {
#pragma unroll
        for (int i = 0; i < 4; ++i) word[i] = M::round(word[i]);
      }
    }
  }
  // Both at once, for those who split words of 32 bits.
  template <int TURN>
  __device__ __forceinline__ void fetch(const GatherParams& p, FetchedWords& word) {
    load<TURN>(p, word);
    round(p, word);
  }
};

// How words are fetched that a position never must leave out: those of the copy engine, by p.even_step and p.odd_step or by
// the table; or what threads brought, which is rounded only now, where a tile meets no border.
enum Words { kAlike, kByTable, kBrought };

// Of one tile. A third of the instructions of RowFetcher, by which 64 columns were limited, and 128 nearly (53 for 64
// cycles of the tensor core, of which a scheduler has four).
template <class M, int ROW, Words WORDS>
struct WordFetcher {
  using T = typename M::Element;
  static constexpr int kOperands = kTiles[ROW].operands, kPiece = 16 / int(sizeof(T)),
                       kNumbers = 4 / int(sizeof(T)), kHalves = WORDS == kAlike ? 2 : 1;
  uint32_t place[kOperands][2]
                [kHalves];    // of a chunk's first slice in a patch; or as RowFetcher's `pixel`
  uint32_t lead, from, step;  // bytes before a chunk's first pixel; to the next slice
  uint32_t bytes = kOneWord;
  uint32_t table, offsets, end, offset[2];
  int first, chunk = 0;  // pixel in memory of the tile's channel 0

  __device__ __forceinline__ WordFetcher(const GatherParams& p, const Known& known,
                                         const int* positions, TileOrigin origin)
      : table(shared_address(known.places.base + known.map.offsets) +
              (threadIdx.x & 3) * 2 * kNumbers * 4),
        offsets(table),
        end(table + p.period * chunk_bytes(p) * kNumbers),
        first(fetched_pixel<T>(p, known.at, origin, 0)) {
    lead = (first & (p.row_start - 1)) * int(sizeof(T));
    if constexpr (kNumbers == 2) {
      keep_in_register(bytes);
      lead = p.spread ? 0 : lead - p.shifted * int(sizeof(T));
    }
    uint32_t pixel[kOperands][2];
    find_rows<M, ROW>(p, positions, pixel);
    if constexpr (WORDS == kAlike) load_offsets();
#pragma unroll
    for (int o = 0; o < kOperands; ++o)
#pragma unroll
      for (int row = 0; row < 2; ++row)
#pragma unroll
        for (int half = 0; half < kHalves; ++half)
          place[o][row][half] = pixel[o][row] + (WORDS == kAlike ? offset[half] : 0);
  }
  // Of the first number of each word of a slice.
  __device__ __forceinline__ void load_offsets() {
    if constexpr (kNumbers == 1) {
      load_shared_8(offsets, offset);
    } else {
      uint32_t entry[4];
      load_shared_16(offsets, entry);
      offset[0] = entry[0];
      offset[1] = entry[2];
    }
  }
  __device__ __forceinline__ void start_chunk(const GatherParams& p, uint32_t patch) {
    if constexpr (WORDS == kBrought) {
      const int start = first + first_channel<T>(p, chunk++) * p.h.source_extent * p.row_elements;
      lead = (start & (kPiece - 1)) * int(sizeof(T));
    }
    from = patch + lead;
    if constexpr (WORDS == kAlike) {
      step = p.even_step;
    } else {
      if (offsets == end) offsets = table;
    }
  }
  template <int TURN>
  __device__ __forceinline__ void fetch(const GatherParams& p, FetchedWords& word) {
    constexpr int kOperand = operand_of<ROW>(TURN);
    if constexpr (WORDS != kAlike && starts_slice<ROW>(TURN)) {
      load_offsets();
      offset[0] += from;
      offset[1] += from;
      offsets += M::kRow * 4;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word[i] = load_shared_4(WORDS == kAlike ? place[kOperand][i % 2][i / 2 % kHalves] + from
                                              : place[kOperand][i % 2][0] + offset[i / 2]);
    if constexpr (WORDS == kBrought) {
#pragma unroll
      for (int i = 0; i < 4; ++i) word[i] = M::round(word[i]);
    }
    if constexpr (WORDS == kAlike && kOperand + 1 == kOperands) {
      from += step;
      step = p.even_step + p.odd_step - step;
    }
  }
  // In two parts, of 16 bits.
  template <int TURN>
  __device__ __forceinline__ void load(const GatherParams& p, uint32_t (&loaded)[kLoaded<M>]) {
    FetchedWords word;
    fetch<TURN>(p, word);
#pragma unroll
    for (int i = 0; i < 4; ++i) loaded[i] = word[i];
  }
  __device__ __forceinline__ void pack(const GatherParams&, const uint32_t (&loaded)[kLoaded<M>],
                                       FetchedWords& word) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = __byte_perm(loaded[i], loaded[i], bytes);
  }
};

template <int ROW>
__device__ __forceinline__ uint64_t fetched_weight_layout(const GatherParams& p) {
  return p.one_chunk ? operand_layout(weight_rows(kTiles[ROW]) * kHalfBytes, kGroup * kHalfBytes)
                     : swizzled_layout(chunk_bytes(p), kGroup * chunk_bytes(p));
}

// What a tile is multiplied with, and whose turn its buffers are.
struct FetchedLoop {
  Loop loop;
  uint64_t weight_layout;
  Ring source, weight;
};

// sum += of all chunks of a tile.
template <class M, int ROW, class Fetcher>
__device__ __forceinline__ void multiply_fetched(const GatherParams& p, const Known& known,
                                                 FetchedLoop& at, Fetcher& fetcher,
                                                 Sums<ROW>& sum) {
  using Multiply = WgmmaFetched<typename M::Element, kTiles[ROW].width>;
  constexpr TileRow tile = kTiles[ROW];
  // What is made of two numbers is loaded an instruction ahead; words were slower so (htdemucs_f0 TF32 54 -> 67 us).
  constexpr bool kAhead = sizeof(typename M::Element) == 2;
  // Of 16 bits found again for each tile; of words, which have loops of few registers, they stay.
  constexpr bool kKept = !kAhead;
  const Loop loop = kKept ? at.loop : known.loop;
  const uint64_t weight_layout = kKept ? at.weight_layout : fetched_weight_layout<ROW>(p);
  Ring &source = at.source, &weight = at.weight;
  const int pairs = p.slices / slices_fetched(tile);  // of instructions, in a chunk
  const uint32_t weight_step = p.weight_slice >> 4;
  const uint32_t full_source = loop.barriers, empty_source = full_source + kMaxStages * 8,
                 full_weight = empty_source + kMaxStages * 8,
                 empty_weight = full_weight + kMaxStages * 8;
  uint32_t elected = threadIdx.x % 32 == 0;
  keep_in_register(elected);
  const auto enter_chunk = [&] {
    barrier_wait(full_source + source.stage * 8, source.parity);
    fetcher.start_chunk(p, loop.patch + source.stage * loop.patch_stage);
  };
  const auto fetch_first = [&](auto& loaded, FetchedWords& even) {
    if constexpr (kAhead) {
      fetcher.template load<0>(p, loaded);
      fetcher.pack(p, loaded, even);
    } else {
      fetcher.template fetch<0>(p, even);
    }
  };
  FetchedWords even, odd;
  uint32_t loaded[kLoaded<M>];
  enter_chunk();
  fetch_first(loaded, even);
  // Buffers whose last instruction was issued, but maybe is not finished.
  uint32_t read_source = 0, read_weight = 0;
  const auto give_back = [&] {
    if (elected) {
      if (read_source) barrier_arrive(read_source);
      if (read_weight) barrier_arrive(read_weight);
    }
    read_source = read_weight = 0;
  };
#pragma unroll 1
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    if (p.weight_stages) barrier_wait(full_weight + weight.stage * 8, weight.parity);
    const int stage = p.weight_stages ? weight.stage : chunk;
    uint64_t w = operand(weight_layout, loop.weights + stage * loop.weight_stage);
#pragma unroll 1
    for (int pair = pairs; pair > 0; --pair) {
      wgmma_fence();
      Multiply::add(sum[operand_of<ROW>(0)][0], even, w);
      wgmma_commit();
      if constexpr (kAhead) fetcher.template load<1>(p, loaded);
      wgmma_wait<1>();
      give_back();
      const bool more = pair > 1 || chunk + 1 < p.chunks;
      // All of this chunk is here; what comes is of the next one.
      const auto leave_chunk = [&] {
        if (pair > 1) return;
        read_source = empty_source + source.stage * 8;
        source.advance(p.source_stages);
        if (more) enter_chunk();
      };
      if constexpr (kAhead) {
        fetcher.pack(p, loaded, odd);
      } else {
        fetcher.template fetch<1>(p, odd);
      }
      if constexpr (starts_slice<ROW>(1)) w = advance(w, weight_step);
      wgmma_fence();
      Multiply::add(sum[operand_of<ROW>(1)][0], odd, w);
      wgmma_commit();
      w = advance(w, weight_step);
      if constexpr (kAhead) {
        leave_chunk();
        if (more) fetcher.template load<0>(p, loaded);
        wgmma_wait<1>();
        if (more) fetcher.pack(p, loaded, even);
      } else {
        wgmma_wait<1>();
        leave_chunk();
        if (more) fetch_first(loaded, even);
      }
    }
    if (p.weight_stages) {
      read_weight = empty_weight + weight.stage * 8;
      weight.advance(p.weight_stages);
    }
  }
  wgmma_wait<0>();
#pragma unroll
  for (int o = 0; o < tile.operands; ++o) finished(sum[o][0]);
  give_back();
}

// Words that threads bring and those of the copy engine have kernels of their own where registers are few: with all loops in
// one, none was left for an instruction under way, and each was waited for (C7512).
template <class M>
CONVT2D_HOST_DEVICE constexpr bool brought_apart(TileRow tile) {
  return tile.fetched && !tile.strict && !wide(tile) && sizeof(typename M::Element) == 4;
}

template <class M, int ROW, bool BROUGHT>
__device__ __forceinline__ void consume_fetched(const GatherParams& p, const TensorMaps& maps,
                                                const Known& known) {
  constexpr TileRow tile = kTiles[ROW];
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr bool kWords = sizeof(typename M::Element) == 4,
                 kHalves = has_alike_halves(tile) && sizeof(typename M::Element) == 2;
  const Scope& at = known.at;
  const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  FetchedLoop loop = {known.loop, fetched_weight_layout<ROW>(p), {}, {}};
  bring_resident_weights<M, ROW>(p, maps, known);
  if (threadIdx.x / 128 >= busy_groups(p, tile)) return;

  const int* const positions = reinterpret_cast<const int*>(smem + known.map.positions);
  TileWalk walk(p, at);
  for (int now = at.walker; now < tiles; now += at.walkers, walk.advance(p)) {
    const TileOrigin origin = walk.origin(p);
    Sums<ROW> sum;
    clear<ROW>(sum);
    const auto with = [&](auto& fetcher) {
      multiply_fetched<M, ROW>(p, known, loop, fetcher, sum);
    };
    const auto with_words = [&](auto words) {
      WordFetcher<M, ROW, decltype(words)::value> fetcher(p, known, positions, origin);
      with(fetcher);
    };
    const std::integral_constant<Words, kAlike> alike;
    const std::integral_constant<Words, kByTable> by_table;
    const std::integral_constant<Words, kBrought> brought;
    const auto with_numbers = [&] {
      RowFetcher<M, ROW> fetcher(p, known, positions);
      fetcher.start_tile(p, known, positions, origin);
      with(fetcher);
    };
    if constexpr (brought_apart<M>(tile)) {
      if constexpr (!BROUGHT) {
        with_words(by_table);
      } else if (meets_no_border(p, at, origin)) {
        with_words(brought);
      } else {
        with_numbers();
      }
    } else if constexpr (kWords) {
      if (p.even_step) {
        with_words(alike);
      } else if (!p.brought_pieces) {
        with_words(by_table);
      } else if (meets_no_border(p, at, origin)) {
        with_words(brought);
      } else {
        with_numbers();
      }
    } else if constexpr (kHalves) {
      if (p.even_step) {
        with_words(alike);
      } else {
        with_numbers();
      }
    } else {
      with_numbers();
    }
    store_sums<M, ROW>(p, known, sum, origin);
  }
}

// Strict fp32: what a consumer holds of half a part, two instructions' words: high parts, and the rest.
struct SplitWords {
  uint32_t high[2][4], low[2][4];
};
template <class M>
__device__ __forceinline__ void split(const FetchedWords (&word)[2], SplitWords& half) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int k = 0; k < 4; ++k) M::split(word[i][k], half.high[i][k], half.low[i][k]);
}

// Multiplies half a part, HALF, from whose first slice of weights, `w`, the next one is `slice` x 16 bytes: the lesser
// products, or the main ones.
template <int ROW, int HALF, bool LESSER>
__device__ __forceinline__ void add_half(float (&part)[kTiles[ROW].operands][kTiles[ROW].width / 2],
                                         const SplitWords& half, uint64_t w, uint32_t slice,
                                         uint32_t rest) {
  using Multiply = WgmmaPartial<kTiles[ROW].width>;
  constexpr int kOperands = kTiles[ROW].operands;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int turn = HALF * 2 + i;
    const uint64_t here = advance(w, turn / kOperands * slice);
    float (&to)[kTiles[ROW].width / 2] = part[operand_of<ROW>(turn)];
    if constexpr (LESSER) {
      Multiply::add(to, half.low[i], here, turn >= kOperands);
      Multiply::add(to, half.high[i], advance(here, rest), true);
    } else {
      Multiply::add(to, half.high[i], here, true);
    }
  }
}

// consume_fetched() in strict fp32: see add_strict(). A part is two halves; while the lesser products of one are
// multiplied the words of the other come, and while the main ones are those of the next part.
template <class M, int ROW>
__device__ __forceinline__ void consume_strict(const GatherParams& p, const TensorMaps& maps,
                                               const Known& known) {
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr TileRow tile = kTiles[ROW];
  const Scope& at = known.at;
  const Loop loop = known.loop;
  const int tiles = p.tiles_n * p.tiles_h * p.tiles_w;
  const int parts = p.slices / slices_fetched(tile);  // of a chunk
  const uint64_t weight_layout =
      p.one_chunk ? operand_layout(weight_rows(tile) * kHalfBytes, kGroup * kHalfBytes)
                  : swizzled_layout(chunk_bytes(p), kGroup * chunk_bytes(p));
  const uint32_t slice = p.weight_slice >> 4, rest = p.weight_low >> 4;
  const uint32_t full_source = loop.barriers, empty_source = full_source + kMaxStages * 8,
                 full_weight = empty_source + kMaxStages * 8,
                 empty_weight = full_weight + kMaxStages * 8,
                 split_weight = empty_weight + kMaxStages * 8;
  bring_resident_weights<M, ROW>(p, maps, known);
  if (threadIdx.x / 128 >= busy_groups(p, tile)) return;

  const int* const positions = reinterpret_cast<const int*>(smem + known.map.positions);
  RowFetcher<M, ROW> fetcher(p, known, positions);
  Ring source, weight;
  const auto fetch = [&](auto half, FetchedWords(&word)[2]) {
    constexpr int kTurn = decltype(half)::value * 2;
    fetcher.template fetch<kTurn>(p, word[0]);
    fetcher.template fetch<kTurn + 1>(p, word[1]);
  };
  const std::integral_constant<int, 0> first_half;
  const std::integral_constant<int, 1> second_half;
  // Of the chunk in the next buffer, its first numbers.
  const auto fetch_first = [&](FetchedWords(&word)[2]) {
    barrier_wait(full_source + source.stage * 8, source.parity);
    fetcher.start_chunk(p, loop.patch + source.stage * loop.patch_stage);
    fetch(first_half, word);
  };
  TileWalk walk(p, at);
  for (int now = at.walker; now < tiles; now += at.walkers, walk.advance(p)) {
    const TileOrigin origin = walk.origin(p);
    Sums<ROW> sum;
    clear<ROW>(sum);
    fetcher.start_tile(p, known, positions, origin);
    FetchedWords word[2];
    SplitWords even, odd;
    fetch_first(word);
    split<M>(word, even);
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      if (p.weight_stages) {
        barrier_wait(full_weight + weight.stage * 8, weight.parity);
        barrier_wait(split_weight + weight.stage * 8, weight.parity);
      }
      const int stage = p.weight_stages ? weight.stage : chunk;
      uint64_t w = operand(weight_layout, loop.weights + stage * loop.weight_stage);
#pragma unroll 1
      for (int left = parts; left > 0; --left) {
        float part[tile.operands][tile.width / 2];
        wgmma_fence();
        add_half<ROW, 0, true>(part, even, w, slice, rest);
        wgmma_commit();
        fetch(second_half, word);
        split<M>(word, odd);
        wgmma_fence();
        add_half<ROW, 1, true>(part, odd, w, slice, rest);
        add_half<ROW, 0, false>(part, even, w, slice, rest);
        wgmma_commit();
        add_half<ROW, 1, false>(part, odd, w, slice, rest);
        wgmma_commit();
        w = advance(w, slices_fetched(tile) * slice);
        uint32_t read_source = 0;  // a buffer all of which was fetched
        if (left > 1) {
          fetch(first_half, word);
        } else {
          read_source = empty_source + source.stage * 8;
          source.advance(p.source_stages);
          if (chunk + 1 < p.chunks) fetch_first(word);
        }
        wgmma_wait<1>();
        if (read_source && threadIdx.x % 32 == 0) barrier_arrive(read_source);
        split<M>(word, even);
        wgmma_wait<0>();
#pragma unroll
        for (int o = 0; o < tile.operands; ++o) {
          finished(part[o]);
#pragma unroll
          for (int k = 0; k < tile.width / 2; ++k) sum[o][0][k] += part[o][k];
        }
      }
      if (p.weight_stages) {
        if (threadIdx.x % 32 == 0) barrier_arrive(empty_weight + weight.stage * 8);
        weight.advance(p.weight_stages);
      }
    }
    store_sums<M, ROW>(p, known, sum, origin);
  }
}

}  // namespace convt2d::cuda::hopper
