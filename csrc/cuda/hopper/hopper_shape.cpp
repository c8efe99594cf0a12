#include "cuda/hopper/hopper_shape.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/remembered.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::hopper {
namespace {

constexpr int64_t kMostParcels = 60000;  // of a chunk: divide() takes 16-bit numbers
constexpr int kLongestChunk = 8;         // times 16 bytes of K
// 16-bit numbers: of a channel whose slices stand alike, or every second one; of a chunk; of a box of rows that are spread.
constexpr int kMostAlike = 32, kLongestHalves = 64, kMostSpread = 512;
constexpr int kBanks = 32, kMostCounted = 12;  // banks; instructions whose loads are counted

int32_t round_up(int number, int whole) { return (number + whole - 1) / whole * whole; }

// Planes of an axis and the extent of one: `span` is the farthest source offset from the nearest.
struct Planes {
  int count, extent;
};
Planes planes_of(const AxisTable& axis, int tile, int span) {
  return {std::min(axis.source_step, span + 1), tile + span / axis.source_step};
}

// How many source offsets of a group have the same residue, at most.
int most_of_a_residue(const AxisTable& axis, const AxisGroup& group) {
  int most = 0;
  for (int i = 0; i < group.count; ++i) {
    int same = 0;
    for (int j = 0; j < group.count; ++j)
      same += (axis.step[group.first + i].offset - axis.step[group.first + j].offset) %
                  axis.source_step ==
              0;
    most = std::max(most, same);
  }
  return most;
}

// How many elements before the first column of a patch its vectors start, at most, if they start on
// multiples of `piece`.
int lead_of(const GatherParams& p, int piece) {
  if (p.tile_w * p.w.source_step * p.pixel_channels % piece != 0 && p.tiles_w > 1) return piece - 1;
  int lead = 0;
  for (int i = 0; i < p.w.groups; ++i)
    lead = std::max(lead, (p.w.group[i].offset_low * p.pixel_channels % piece + piece) % piece);
  return lead;
}

// Whether every phase of a combination has a tap at every source offset of it: then no row of the weights
// is left out by those who walk the taps.
bool all_tapped(const GatherParams& p) {
  for (int i = 0; i < p.h.groups; ++i)
    for (int j = 0; j < p.w.groups; ++j) {
      const AxisGroup &h = p.h.group[i], &w = p.w.group[j];
      int taps_h = 0, taps_w = 0;
      for (int a = 0; a < h.phases; ++a) taps_h += h.taps[a];
      for (int a = 0; a < w.phases; ++a) taps_w += w.taps[a];
      if (taps_h * taps_w != h.count * h.phases * w.count * w.phases) return false;
    }
  return true;
}

// Whether the source offsets of an axis are its taps, in their order.
bool taps_in_order(const AxisTable& axis, int64_t kernel) {
  const AxisGroup& only = axis.group[0];
  bool in_order =
      axis.groups == 1 && only.count == kernel && only.first_tap[0] == 0 && axis.tap_step == 1;
  for (int i = 0; in_order && i < only.count; ++i)
    in_order = axis.step[only.first + i].rank[0] == i;
  return in_order;
}
// Slices of K where that is one chunk, as many as a tile fetches at once.
int32_t slices_of_all(const GatherParams& p, TileRow tile) {
  const int32_t numbers = kSliceBytes / p.element_bytes;
  return round_up((p.depth + numbers - 1) / numbers, slices_fetched(tile));
}

// How the numbers of K lie in what is fetched, and whether they are few enough to be one chunk.
void set_numbers(const Problem& problem, TileRow tile, GatherParams& p) {
  const bool fetched = tile.fetched && problem.direction == Direction::grad_input,
             side_by_side = problem.y_layout == Layout::nhwc && problem.groups == 1;
  p.pixel_channels = fetched && side_by_side && p.reduce <= kFewChannels ? p.reduce : 1;
  p.source_planes = p.groups * p.reduce / p.pixel_channels;
  p.row_elements = p.w.source_extent * p.pixel_channels;
  const int32_t row = static_cast<int32_t>(problem.w.kernel) * p.pixel_channels;
  p.shifted = p.spread = 0;
  const auto set_rows = [&](int32_t lead, int32_t numbers) {
    p.row_lead = lead;
    p.row_numbers = numbers;
    p.plane_numbers = static_cast<int32_t>(problem.h.kernel) * numbers;
    p.depth = p.reduce / p.pixel_channels * p.plane_numbers;
  };
  set_rows(0, row);
  if (!fetched || !(problem.y_layout == Layout::nchw || side_by_side)) return;
  // Words start where 4 bytes do, at every position and row: two taps, if all rows of the kernel have pairs of them.
  const bool words = p.element_bytes == 2 && problem.w.dilation == 1 &&
                     p.w.source_step * p.pixel_channels % 2 == 0;
  const bool odd = p.w.group[0].offset_low * p.pixel_channels % 2 != 0;
  if (p.reduce > kFewChannels) {
    // What starts between two words is moved, and rows that are no whole 16 bytes are spread out of planes that are, where no
    // table says where numbers stand (set_steps()).
    const bool even = words && problem.w.kernel % 2 == 0 && p.row_elements % 2 == 0,
               alike = even && has_alike_halves(tile) && kMostAlike % p.taps == 0 &&
                       (p.groups == 1 || p.depth % kLongestHalves == 0);
    const int32_t vector = 8, whole = p.row_elements % vector == 0;
    if (alike && !whole && p.row_elements * p.h.source_extent % vector == 0)
      p.spread = (kMostSpread - vector) / p.row_elements;
    p.shifted = alike && whole && odd;
    p.in_words = even && (!odd || p.shifted || p.spread);
    return;
  }
  p.in_words = words && p.row_elements % 8 == 0;
  const int32_t lead = p.in_words && odd;
  const int32_t apart = slices_of_all(p, tile);
  if (p.in_words) set_rows(lead, round_up(lead + row, 2));
  // Fetching numbers apart takes 1.4 times as long.
  if (slices_of_all(p, tile) * 10 > apart * 14) p.in_words = 0, set_rows(0, row);
  p.one_chunk = slices_of_all(p, tile) <= kMostSlices;
  if (!p.one_chunk) p.in_words = 0, set_rows(0, row);
}

// Why consumers cannot fetch pixels, or an empty string.
std::string fetched_shape(const Problem& problem, const GatherChoice& choice, const GatherParams& p,
                          TileRow tile, int slice, int vector) {
  const bool nchw = problem.x_layout == Layout::nchw && problem.w_layout == Layout::nchw &&
                    problem.y_layout == Layout::nchw;
  if (problem.direction != Direction::grad_input || !(nchw || p.one_chunk))
    return "pixels are fetched in NCHW grad_input, or of few channels";
  if (!taps_in_order(p.h, problem.h.kernel) || !taps_in_order(p.w, problem.w.kernel))
    return "taps are not in the order of the pixels they read";
  if (!p.one_chunk && (p.depth % vector != 0 || !chunks_in_groups(p, slice * slices_fetched(tile))))
    return "weights are not whole vectors, or chunks reach beyond their group";
  if (choice.operand_columns != 0) return "a tile is not rows of an image";
  if (wide(tile) && p.store_mode == kSingles)
    return "256 columns go to memory by pairs of positions";
  if (p.spread && choice.tile_w != problem.w.in) return "rows that are spread come whole";
  if (wide(tile) && p.one_chunk) return "256 columns are for more channels";
  if (p.depth > kMostParcels) return "K is too long for a table of its channels";
  if (p.row_elements % vector != 0 && problem.h.kernel + problem.w.kernel > kMaxMasked)
    return "too many taps to tell which of them read beside odd rows";
  return {};
}

// How weights come if a stage holds all products of a chunk.
WeightMode whole_weight_mode(const Problem& problem, TileRow tile, const GatherParams& p,
                             int vector) {
  const int64_t taps = problem.h.kernel * problem.w.kernel;
  const bool forward = problem.direction == Direction::fwd;
  const auto even = [&](int64_t each) {  // vectors do not straddle column tiles
    return p.columns * each % vector == 0 &&
           (p.column_tiles == 1 || p.tile_channels * each % vector == 0);
  };
  const bool half = element_size(problem.dtype) == 2;
  if (tile.fetched) return p.one_chunk ? kElements : kWeightCopied;
  if (p.source_mode == kVectors || p.source_mode == kCopied) {
    if (problem.w_layout != Layout::nhwc) return kElements;
    if (tile.columns_copied) return kColumnsCopied;
    // Rows in the order that they are stored in: dealt, or one channel after the other.
    const bool single = one_by_one(tile, p.store_mode) && stacked(p, tile) == 1 && !lean(tile),
               dealt = !one_by_one(tile, p.store_mode) && p.columns % (4 * vector) == 0,
               whole = p.source_mode == kCopied && (single || dealt) &&
                       chunks_in_groups(p, kLongestChunk * vector);
    if (!forward) return whole ? kWeightCopied : kWeightVectors;
    return half && even(1) ? kTurnedColumns : kElements;
  }
  if (!half || problem.w_layout != Layout::nchw) return kElements;
  const bool run = turnable_run(taps) && p.reduce % vector == 0 && p.source_mode != kPixels;
  if (!forward) return run ? kTurnedRuns : kElements;
  const bool kernels = even(taps) && taps <= kMaxKernelTaps && (tile.channel_rows || all_tapped(p));
  return kernels ? kTurnedKernels : kElements;
}

void set_pixels(GatherParams& p) {
  const int planes = p.planes_h * p.planes_w;
  p.plane_pixels =
      round_up(p.tile_n * p.plane_h * p.plane_w, p.source_mode == kCopied ? kSwizzleRows : 1);
  p.patch_pixels = planes / p.planes_apart * p.plane_pixels;
}

void set_patch_bytes(bool strict, GatherParams& p) {
  const bool swizzled = p.source_mode == kCopied;
  p.pixel_bytes = swizzled ? chunk_bytes(p) : kHalfBytes;
  p.source_half = p.patch_pixels * kHalfBytes;
  // The 32 over a multiple of 128 keep the slices of one pixel in different banks, which is how whole slices arrive.
  p.source_slice = swizzled ? kSliceBytes : round_up(p.patch_pixels * kSliceBytes, 128) + 32;
  p.source_low = strict ? p.source_slice : 0;
  p.source_slice += p.source_low;
  p.patch_bytes = swizzled ? p.patch_pixels * chunk_bytes(p)
                  : p.source_mode == kFetchedRows
                      ? round_up(fetched_rows_bytes(p) + (p.brought_pieces ? 16 : 0), 128) +
                            (p.spread ? p.spread_boxes * spread_box_bytes(p) : 0)
                      : p.source_slice * p.slices;
}

void set_weight_bytes(TileRow tile, GatherParams& p) {
  const int rows = weight_rows(tile);
  p.product_bytes = copied(p.weight_mode) ? rows * chunk_bytes(p) : rows * kSliceBytes + 16;
  p.weight_slice = p.weight_mode == kWeightCopied    ? kSliceBytes
                   : p.weight_mode == kColumnsCopied ? kSliceBytes / p.element_bytes * column_row(p)
                                                     : p.part_products * p.product_bytes;
  if (copied(p.weight_mode)) {
    const int part = p.part_products * p.product_bytes;
    p.weight_low = tile.strict ? part : 0;
    p.part_bytes = part + p.weight_low;
  } else {
    p.weight_low = tile.strict ? p.weight_slice : 0;
    p.weight_slice += p.weight_low;
    p.part_bytes = p.weight_slice * p.slices;
  }
}

// The least number from `least` on that is `like` but for multiples of 16.
int32_t alike(int64_t least, int64_t like) {
  return static_cast<int32_t>(least + ((like - least) % 16 + 16) % 16);
}

// Whether a position's first number stands between two words.
bool between_words(const GatherParams& p) {
  return p.element_bytes == 2 && !p.shifted && !p.spread &&
         p.w.group[0].offset_low * p.pixel_channels % 2 != 0;
}

// What is fetched: in how many turns lanes load a number, on average, if rows of a kernel and channels lie so many
// bytes apart. Eight neighbouring positions of four numbers of K, of 16 bits every second one, are loaded together; what
// they touch of a row of the patch is one run of words, and runs that meet in a bank take turns.
double count_turns(const GatherParams& p, bool words, int taps_w, int row, int channel) {
  const int size = p.element_bytes, numbers = 16 / size, each = numbers / 4,
            half = std::min(kMostCounted, p.taps / std::gcd(numbers, p.taps));
  const int reach = (kGroup - 1) * p.w.source_step * p.pixel_channels * size,
            lead = between_words(p) * size;
  int turns = 0;
  for (int i = 0; i < half; ++i) {
    struct {
      int line, first, last;
    } run[4];
    int runs = 0;
    for (int lane = 0; lane < 4; ++lane) {
      const int k = i * numbers + lane * each + (words || each == 1 ? 0 : i % 2), line = k / taps_w,
                tap_h = k % p.taps / taps_w;
      const int at = lead + k / p.taps * channel + tap_h * row + k % taps_w * size;
      if (runs == 0 || run[runs - 1].line != line) run[runs++] = {line, at / 4, 0};
      run[runs - 1].last = (at + reach) / 4;
    }
    int most = 1;
    for (int a = 0; a < runs; ++a) {
      int met = 1;
      for (int b = 0; b < a; ++b) {
        const int apart = ((run[a].first - run[b].first) % kBanks + kBanks) % kBanks;
        met += apart <= run[b].last - run[b].first || kBanks - apart <= run[a].last - run[a].first;
      }
      most = std::max(most, met);
    }
    turns += most;
  }
  return double(turns) / half;
}
// Many patches ask the same: rows of all banks more make no difference.
double turns_of_banks(const GatherParams& p, bool words, int taps_w, int row, int channel) {
  thread_local Remembered<double, 9, 256> known;
  constexpr int kAllBanks = kBanks * 4;
  return known.answer({row % kAllBanks, channel % kAllBanks, words, taps_w, p.taps, p.element_bytes,
                       p.w.source_step, p.pixel_channels, between_words(p)},
                      [&](double& turns) {
                        turns = count_turns(p, words, taps_w, row % kAllBanks, channel % kAllBanks);
                      });
}

// And how they lie best: channels of a row or rows of a channel side by side, with some 16 bytes or rows that nobody needs.
// What lanes load of a chunk for so many operands of positions is weighed against the bytes that are copied.
void set_pitches(int operands, int taps_w, int64_t row, int64_t plane, int64_t image, bool whole,
                 GatherParams& p) {
  using Question = std::array<int64_t, 17>;
  struct Answer {
    int32_t rows_inside, copied_h, row_pitch, channel_pitch;
    double turns;
  };
  thread_local Question last{};
  thread_local Answer best{};
  const int64_t vector = 16 / p.element_bytes, line = p.load_w * p.element_bytes;
  const bool sectors = whole && p.row_start > vector;
  // Rows start anywhere in their first piece, have a piece more than some of them need, and share none.
  const int64_t pieces =
      whole ? ceil_div(p.load_w + (p.spread ? 0 : lead_of(p, p.row_start)), vector) : 0;
  const int64_t least = whole ? pieces * 16 : line + 3 * 16;
  const Question question = {between_words(p), operands, least,           whole,
                             p.window,         p.load_h, taps_w,          p.taps,
                             p.slices,         p.tile_n, p.w.source_step, p.pixel_channels,
                             p.element_bytes,  row % 16, plane % 16,      p.in_words + 2 * sectors};
  if (question != last) {
    last = question;
    constexpr int more_rows = 3, more_units = 7;
    constexpr double kLateRows = 1.0 / 60;  // cycles a byte of the copy engine's: see TensorBox
    const double loads = double(p.slices) * operands * 4 * (p.in_words ? 4 : 16 / p.element_bytes);
    double cheapest = 0;
    for (int rows_inside = 0; rows_inside <= 1; ++rows_inside)
      for (int rows = 0; rows <= (rows_inside ? more_rows : 0); ++rows)
        for (int units = 0; units <= more_units; ++units) {
          const int64_t inner = least + units * 16;
          if (units > 0 && whole && inner / p.element_bytes > kMostSpan) break;
          if (rows > 0 && p.load_h + rows > kMostSpan) break;
          Answer answer{rows_inside, p.load_h + rows, 0, 0, 1};
          if (rows_inside) {
            answer.row_pitch = whole ? static_cast<int32_t>(inner) : alike(inner, row);
            answer.channel_pitch = alike(int64_t{answer.copied_h} * answer.row_pitch, plane);
          } else {
            answer.channel_pitch = whole ? static_cast<int32_t>(inner) : alike(inner, plane);
            answer.row_pitch = alike(int64_t{p.window} * answer.channel_pitch, row);
          }
          const double bytes = double(p.tile_n) * answer.copied_h * p.window *
                               (rows_inside ? answer.row_pitch : answer.channel_pitch),
                       late = sectors && inner % 32 != 0 ? kLateRows : 0,
                       copied = bytes * (2.0 / 128 + late);
          // More of the same is no better.
          if (cheapest > 0 && loads + copied >= cheapest) break;
          answer.turns =
              turns_of_banks(p, p.in_words, taps_w, answer.row_pitch, answer.channel_pitch);
          const double cost = loads * answer.turns + copied;
          if (cheapest == 0 || cost < cheapest) cheapest = cost, best = answer;
        }
  }
  p.rows_inside = best.rows_inside;
  p.copied_h = best.copied_h;
  p.row_pitch = best.row_pitch;
  p.channel_pitch = best.channel_pitch;
  p.turns = static_cast<float>(best.turns);
  p.image_pitch = alike(
      p.rows_inside ? int64_t{p.window} * p.channel_pitch : int64_t{p.load_h} * p.row_pitch, image);
  if (whole) p.copied_w = (p.rows_inside ? p.row_pitch : p.channel_pitch) / p.element_bytes;
}

// Fetched rows of words: even_step and odd_step, where there are any.
void set_steps(TileRow tile, GatherParams& p) {
  constexpr int kMostLooked = 8;
  const int of_slice = kSliceBytes / p.element_bytes;
  p.even_step = p.odd_step = 0;
  if (p.brought_pieces || p.period != 1 ||
      (p.element_bytes == 4 ? p.slices < 2 : !p.in_words || !has_alike_halves(tile)))
    return;
  // Behind the last number of words, and of a group, a table says what to read instead. (Behind the last channel are zeros.)
  if (p.chunks == 1 && p.depth != p.slices * of_slice && (p.element_bytes == 4 || p.groups > 1))
    return;
  const AxisGroup &gh = p.h.group[0], &gw = p.w.group[0];
  const auto place = [&](int number) {  // as build_offsets() has it
    const int plane = number / p.plane_numbers, of_plane = number - plane * p.plane_numbers,
              tap_h = of_plane / p.row_numbers, of_row = of_plane - tap_h * p.row_numbers,
              tap_w = of_row / p.pixel_channels;
    const int row = p.h.step[gh.first + tap_h].offset - gh.offset_low,
              pixel = p.w.step[gw.first + tap_w].offset - gw.offset_low;
    return row * p.row_pitch + plane * p.channel_pitch +
           (pixel * p.pixel_channels + of_row - tap_w * p.pixel_channels) * p.element_bytes;
  };
  const int even = place(of_slice) - place(0),
            odd = p.slices > 2 ? place(2 * of_slice) - place(of_slice) : even;
  int from = 0;
  for (int slice = 1; slice < std::min(p.slices, kMostLooked); ++slice) {
    from += slice % 2 ? even : odd;
    for (int k = 0; k < of_slice; ++k)
      if (place(slice * of_slice + k) - place(k) != from) return;
  }
  // Every further slice is some channels behind one of these.
  if (p.slices > kMostLooked && p.taps > kMostLooked * of_slice / 2) return;
  p.even_step = even;
  p.odd_step = odd;
}

// Rows that are spread: boxes, all of which start as far behind a multiple of 16 bytes.
void set_spread(GatherParams& p) {
  constexpr int kVector = 8;
  if (!p.spread) return;
  const int alike = kVector / std::gcd(kVector, p.row_elements);
  p.spread_rows = p.load_h <= p.spread ? p.load_h : p.spread / alike * alike;
  p.spread_boxes = p.spread_rows ? (p.load_h + p.spread_rows - 1) / p.spread_rows : 0;
  p.spread_words = round_up(p.spread_rows * p.row_elements + kVector - 2, kVector) / 2;
  p.spread_count = p.tile_n * p.window * p.load_h;
}

// Fetched rows: the planes that a chunk touches, and the chunks after which one starts at the same tap again; and how
// they lie in shared memory.
void set_window(int64_t chunk, TileRow tile, GatherParams& p) {
  if (!tile.fetched) return;
  const int64_t common = std::gcd<int64_t, int64_t>(chunk, p.taps);
  p.window = p.one_chunk ? p.reduce / p.pixel_channels
                         : static_cast<int32_t>((p.taps - common + chunk - 1) / p.taps + 1);
  p.period = static_cast<int32_t>(std::min<int64_t>(p.taps / common, p.chunks));
  p.window_magic = magic_of(p.window);
  const int64_t size = p.element_bytes, row = p.row_elements * size,
                plane = row * p.h.source_extent, image = plane * p.source_planes;
  const bool whole = row % 16 == 0 || p.spread;
  const int64_t line = p.load_w * size;
  p.row_start = static_cast<int32_t>((row % 32 == 0 ? 32 : 16) / size);
  set_pitches(consumer_groups(tile) * tile.operands, p.w.group[0].count, p.spread ? 0 : row, plane,
              image, whole, p);
  set_spread(p);
  p.row_pieces = whole ? 0 : static_cast<int32_t>(ceil_div(line + 16 - size, int64_t{16}));
  p.row_pieces_magic = magic_of(std::max(p.row_pieces, 1));
  p.brought_pieces = p.tile_n * p.load_h * p.window * p.row_pieces;
  p.reach = static_cast<int32_t>(
      ((p.tile_n - 1) * image + (p.window - 1) * plane + (p.load_h - 1) * row + line + 32) / size);
  set_steps(tile, p);
}

}  // namespace

void set_buffers(const GatherChoice& choice, GatherParams& params) {
  params.slice_shift = choice.slice_shift;
  params.slices =
      params.one_chunk ? slices_of_all(params, kTiles[choice.row]) : 1 << choice.slice_shift;
  set_window(chunk_bytes(params) / params.element_bytes, kTiles[choice.row], params);
  set_patch_bytes(kTiles[choice.row].strict, params);
  params.source_stages = choice.source_stages;
  params.weight_stages = choice.weight_stages;
  params.part_products =
      std::max(1, choice.weight_stages ? choice.part_products : params.max_products);
  params.parts =
      std::max<int>(1, static_cast<int>(ceil_div(params.max_products, params.part_products)));
  const bool turned = params.whole_weight_mode >= kTurnedKernels;
  params.weight_mode = turned && params.parts > 1 ? kElements : params.whole_weight_mode;
  set_weight_bytes(kTiles[choice.row], params);
  const int block = column_row(params) / params.element_bytes;
  const bool whole = params.columns % block == 0 && params.tile_channels % block == 0;
  const bool at_once = params.weight_mode == kColumnsCopied && whole;
  params.blocks_at_once = at_once ? params.tile_channels / block : 0;
}

int32_t most_lead(TileRow tile) {
  return tile.weights_fetched ? INT16_MAX : by_steps(tile) ? 2 : 0;
}

void set_least_buffers(int slice_shift, TileRow tile, GatherParams& params) {
  const int32_t slice = kSliceBytes / params.element_bytes;
  params.slice_shift = slice_shift;
  params.slices = params.one_chunk ? slices_of_all(params, tile) : 1 << slice_shift;
  params.chunks =
      params.one_chunk
          ? 1
          : static_cast<int32_t>(ceil_div(int64_t{params.depth}, int64_t{slice} << slice_shift));
  params.source_stages = kMaxStages;
  params.weight_mode = params.whole_weight_mode;
  params.part_products = std::max(1, params.max_products);
  params.parts = 1;
  params.patch_bytes = params.patch_pixels * chunk_bytes(params);
  params.product_bytes = params.part_bytes = 0;
  params.operand_columns = 0;
  params.lead = most_lead(tile);
  // What is fetched: no two lanes meet, no table is read; and what threads bring lies in the source altogether.
  params.turns = 1;
  params.even_step = 1;
  params.brought_pieces = tile.fetched && params.row_elements * params.element_bytes % 16 != 0;
  params.load_h = params.load_w = -(1 << 30);
  if (tile.fetched && params.store_mode == kSingles) params.store_mode = kFours;
}

bool chunks_in_groups(const GatherParams& params, int depth_of_chunk) {
  return params.groups == 1 || params.depth % depth_of_chunk == 0;
}

namespace {

// Whether all pixels of dY that a kernel row reads are its own, and their channels no whole chunks of K, which are as well
// read one by one. Few channels are fetched otherwise (set_numbers()).
bool rows_are_pixels(const Problem& problem) {
  constexpr int kWholeChunk = 128;  // bytes
  const Axis& w = problem.w;
  const bool own = w.kernel > 1 && w.kernel == w.stride && w.near_pad == 0 && w.dilation == 1 &&
                   w.out == w.in * w.stride;
  return own && problem.direction == Direction::grad_input && problem.groups == 1 &&
         problem.out_channels > kFewChannels &&
         problem.out_channels * element_size(problem.dtype) % kWholeChunk != 0 &&
         problem.x_layout == Layout::nhwc && problem.w_layout == Layout::nhwc &&
         problem.y_layout == Layout::nhwc;
}

Problem rows_as_pixels(Problem problem) {
  if (!rows_are_pixels(problem)) return problem;
  problem.out_channels *= problem.w.kernel;
  problem.w.out = problem.w.in;
  problem.w.kernel = problem.w.stride = 1;
  return problem;
}

Problem images_as_rows(const Problem& problem) {
  const Axis& h = problem.h;
  const bool alone =
      h.near_pad == 0 && (h.kernel - 1) * h.dilation < h.stride && h.out == h.in * h.stride;
  if (!alone || problem.x_layout != Layout::nhwc || problem.y_layout != Layout::nhwc)
    return problem;
  Problem tall = problem;
  tall.batch = 1;
  tall.h.in *= problem.batch;
  tall.h.out *= problem.batch;
  return tall;
}

}  // namespace

Problem as_walked(const Problem& problem) { return images_as_rows(rows_as_pixels(problem)); }

Args as_walked(const Problem& problem, const Args& args) {
  Args walked = args;
  if (rows_are_pixels(problem)) {
    walked.w.stride[1] = walked.y.stride[1] = 1;
    walked.w.stride[3] = walked.y.stride[3] = problem.out_channels * problem.w.kernel;
  }
  return walked;
}

std::string refused_tile(const Problem& problem, TileRow tile) {
  const bool forward = problem.direction == Direction::fwd, half = element_size(problem.dtype) == 2;
  const int64_t vector = half ? 8 : 4, reduce = forward ? problem.group_in() : problem.group_out(),
                columns = forward ? problem.group_out() : problem.group_in();
  const Layout source = forward ? problem.x_layout : problem.y_layout,
               destination = forward ? problem.y_layout : problem.x_layout;
  const auto all = [&](Layout layout) {
    return source == layout && destination == layout && problem.w_layout == layout;
  };
  if (tile.fetched && (forward || !(all(Layout::nchw) || reduce <= kFewChannels)))
    return "pixels are fetched in NCHW grad_input, or of few channels";
  if (by_channel(tile) && !(source == Layout::nhwc && reduce % vector == 0))
    return "the source's channels are not whole vectors";
  const int64_t row = forward ? problem.w.in : problem.w.out;
  if (tile.turned && !(half && source == Layout::nchw && row % vector == 0))
    return "the source's rows are not whole vectors of 16-bit numbers";
  const bool to_vectors = forward && destination == Layout::nhwc && columns % vector == 0;
  if (tile.weights_fetched && !(!half && to_vectors))
    return "weights are fetched in TF32 NHWC forward, whole vectors of channels";
  const bool rows = !forward && !tile.columns_copied,
             columns_come = to_vectors && tile.columns_copied;
  if (by_channel(tile) && (tile.columns_copied || lean(tile)) &&
      !(problem.w_layout == Layout::nhwc &&
        (rows || (columns_come && (half || tile.weights_fetched)))))
    return "the copy engine cannot bring these weights";
  return {};
}

namespace {

// Planes of an axis and the extent of one. What consumers fetch has an address for each position.
Planes planes_of(const AxisTable& axis, int tile, TileRow row) {
  return row.fetched ? Planes{1, tile} : planes_of(axis, tile, span_of(axis));
}

// Numbers for divisions, which the kernel alone wants.
void set_magics(GatherParams& p) {
  p.taps_magic = magic_of(p.taps);
  p.tiles_h_magic = magic_of(p.tiles_h);
  p.tiles_w_magic = magic_of(p.tiles_w);
  p.plane_h_magic = magic_of(p.plane_h);
  p.plane_w_magic = magic_of(p.plane_w);
  p.load_h_magic = magic_of(p.load_h);
  p.load_w_magic = magic_of(p.load_w);
  p.planes_h_magic = magic_of(p.planes_h);
  p.planes_w_magic = magic_of(p.planes_w);
  p.operand_columns_magic = magic_of(std::max(p.operand_columns, 1));
  p.kernel_taps_magic = magic_of(std::max(p.kernel_taps, 1));
}

// How what is fetched in NCHW goes to memory.
StoreMode store_of_fetched(const Problem& problem, const GatherChoice& choice) {
  const int64_t whole = std::gcd(problem.w.in, int64_t{choice.tile_w});  // positions of a row
  return whole % 4 == 0 ? kFours : whole % 2 == 0 ? kTwos : kSingles;
}
bool fetched_planes(const Problem& problem, TileRow tile) {
  return tile.fetched && (problem.direction == Direction::fwd ? problem.y_layout
                                                              : problem.x_layout) == Layout::nchw;
}

}  // namespace

std::string tile_shape(const Problem& problem, const GatherChoice& choice, GatherParams& params) {
  const TileRow tile = kTiles[choice.row];
  const bool forward = problem.direction == Direction::fwd;
  const bool half = element_size(problem.dtype) == 2;
  const int vector = half ? 8 : 4;  // elements of 16 bytes
  params = {};
  params.element_bytes = static_cast<int32_t>(element_size(problem.dtype));
  set_extents(problem, params);
  params.teams = choice.teams;
  params.taps = static_cast<int32_t>(problem.h.kernel * problem.w.kernel);

  const auto slots = [&](const Axis& axis, int most) {
    return static_cast<int>(std::min<int64_t>(most, phases_of(problem, axis)));
  };
  const int slots_h = tile.channel_rows ? 1 : slots(problem.h, choice.stack_h);
  const int slots_w = slots(problem.w, tile.channel_rows ? tile.slots : choice.stack_w);
  if (std::string reason = set_axes(problem, slots_h, slots_w, params); !reason.empty())
    return reason;
  set_numbers(problem, tile, params);
  if (!tile.fetched) params.depth = params.reduce;

  const int room = tile.width / (slots_h * slots_w);
  const Layout destination = forward ? problem.y_layout : problem.x_layout;
  // Of a phase, what four lanes deal to each other. Where columns have the channels' order and those are half of that, half: the least
  // that the copy engine swizzles. (Of more channels whole pieces of 64 bytes of a pixel go faster to memory: k3s2_c80.)
  const int dealt = 4 * vector,
            whole_runs = tile.columns_copied && params.columns == dealt / 2 ? dealt / 2 : dealt;
  const bool runs = !tile.channel_rows && destination == Layout::nhwc &&
                    params.columns % vector == 0 && room % whole_runs == 0;
  const bool lines = has_lines(tile) && !forward && destination == Layout::nhwc &&
                     params.columns * params.element_bytes % 4 == 0;
  params.store_mode = !runs ? (lines ? kLines : kSingles) : tile.columns_copied ? kTraded : kDealt;
  if (choice.teams > 1 && !may_be_teams(tile)) return "consumers of this tile are one team";
  params.tile_channels = tile.channel_rows ? kChannelRows
                         : runs            ? room
                                           : std::min<int>(room, params.columns);
  if (params.tile_channels == 0)
    return std::to_string(slots_h * slots_w) + " phases do not fit " + std::to_string(tile.width) +
           " columns";
  params.column_tiles = static_cast<int32_t>(ceil_div(params.columns, params.tile_channels));

  const Layout source = forward ? problem.x_layout : problem.y_layout;
  const int step = params.w.source_step;
  params.planes_h = planes_of(params.h, 1, tile).count;
  params.planes_w = planes_of(params.w, 1, tile).count;
  const bool turned = half && source == Layout::nchw && params.w.source_extent % 2 == 0 &&
                      params.planes_w == step && vector % step == 0;
  const bool channels_last = source == Layout::nhwc && params.reduce % vector == 0;
  if (by_channel(tile) && !channels_last) return "the source's channels are not whole vectors";
  // Boxes are whole rows of neighbouring pixels, so every residue is there.
  if (tile.turned && (params.planes_h != params.h.source_step || params.planes_w != step))
    return "the copied rows have pixels that no tap reads";
  if (tile.turned && !(half && source == Layout::nchw && params.w.source_extent % vector == 0))
    return "the source's rows are not whole vectors of 16-bit numbers";
  params.source_mode = tile.turned                            ? kCopiedRows
                       : tile.fetched                         ? kFetchedRows
                       : tile.copied                          ? kCopied
                       : channels_last                        ? kVectors
                       : !turned                              ? kPixels
                       : params.w.source_extent % vector == 0 ? kTurned
                                                              : kTurnedWords;
  params.planes_apart = params.source_mode == kCopied ? params.planes_h * params.planes_w : 1;
  if (tile.weights_fetched &&
      !(!half && forward && destination == Layout::nhwc && params.columns % vector == 0))
    return "weights are fetched in TF32 NHWC forward, whole vectors of channels";
  if (tile.columns_copied &&
      !((tile.weights_fetched || (half && runs)) && forward && problem.w_layout == Layout::nhwc &&
        chunks_in_groups(params, kLongestChunk * vector)))
    return "the copy engine cannot bring these weights";
  if (by_channel(tile) && std::max(params.h.source_step, step) > kMostStep)
    return "the copy engine steps over 7 pixels at most";

  for (int i = 0; i < params.h.groups; ++i)
    for (int j = 0; j < params.w.groups; ++j) {
      const AxisGroup &gh = params.h.group[i], &gw = params.w.group[j];
      int products = 0;
      params.plane_products = std::max(
          params.plane_products, most_of_a_residue(params.h, gh) * most_of_a_residue(params.w, gw));
      for (int a = 0; a < gh.phases; ++a)
        for (int b = 0; b < gw.phases; ++b) products += gh.taps[a] * gw.taps[b];
      if (!tile.channel_rows) products = gh.count * gw.count;
      if (tile.fetched) products = params.plane_products = 1;
      params.max_products = std::max(params.max_products, products);
    }
  params.whole_weight_mode = whole_weight_mode(problem, tile, params, vector);
  if (lean(tile) && !copied(params.whole_weight_mode))
    return "the copy engine cannot bring these weights";
  const bool kernels = params.whole_weight_mode == kTurnedKernels;
  params.kernel_taps = kernels || params.whole_weight_mode == kTurnedRuns ? params.taps : 0;
  return {};
}

std::string positions_shape(const Problem& problem, const GatherChoice& choice,
                            GatherParams& params) {
  const TileRow tile = kTiles[choice.row];
  const bool half = element_size(problem.dtype) == 2;
  const int slice = half ? 16 : 8;  // channels
  const int vector = half ? 8 : 4;  // elements of 16 bytes
  set_tiles(problem, choice, params);
  if (fetched_planes(problem, tile)) params.store_mode = store_of_fetched(problem, choice);
  const int step = params.w.source_step;
  const Planes h = planes_of(params.h, choice.tile_h, tile),
               w = planes_of(params.w, choice.tile_w, tile);
  if (tile.fetched)
    if (std::string reason = fetched_shape(problem, choice, params, tile, slice, vector);
        !reason.empty())
      return reason;
  params.plane_h = h.extent;
  params.plane_w = w.extent;
  params.load_h = h.extent * h.count;
  params.load_w = w.extent * w.count;
  set_pixels(params);
  if (tile.fetched) {
    params.load_h = (choice.tile_h - 1) * params.h.source_step + span_of(params.h) + 1;
    params.load_w = (choice.tile_w - 1) * step * params.pixel_channels +
                    std::max((span_of(params.w) + 1) * params.pixel_channels,
                             params.row_numbers - params.row_lead);
  }
  params.copied_h = params.load_h;
  if (params.source_mode >= kTurned) {
    const int lead = lead_of(params, params.source_mode == kTurned ? vector : 2);
    params.load_w = static_cast<int32_t>(ceil_div(lead + w.extent * w.count, vector));
  }

  params.copied_w =
      static_cast<int32_t>(ceil_div(params.load_w + lead_of(params, vector), vector) | 1) * vector;
  // Of what the copy engine brings at once, skipped pixels included.
  if ((tile.turned || tile.fetched) &&
      std::max({params.copied_w, params.load_h, choice.tile_n}) > kMostSpan)
    return "a tile is too long for the copy engine";
  if (by_channel(tile) && std::max({(h.extent - 1) * params.h.source_step + 1,
                                    (w.extent - 1) * step + 1, choice.tile_n}) > kMostSpan)
    return "a tile is too long for the copy engine";

  params.operand_columns = choice.operand_columns;
  params.lead = choice.lead;
  const int positions = operand_positions(tile);
  const int operands = block_positions(tile) / positions / params.teams;
  if (choice.operand_columns == 0) {
    const int last =
        ((choice.tile_n - 1) * h.extent + choice.tile_h - 1) * w.extent + choice.tile_w;
    if (last > operands * positions) return "the tile is larger than a block";
  } else if (choice.tile_n > 1 || choice.tile_w > choice.operand_columns * kGroup ||
             choice.tile_h > operands / choice.operand_columns * (positions / kGroup)) {
    return "the tile is larger than a block";
  }
  // The farthest pixel an operand reads, used or not.
  const int rows = choice.operand_columns ? operands / choice.operand_columns : 0;
  const int last = choice.operand_columns ? (rows * (positions / kGroup) - 1) * w.extent +
                                                choice.operand_columns * kGroup
                                          : operands * positions;
  const int farthest = last + (params.patch_pixels - params.plane_pixels) +
                       span_of(params.h) / params.h.source_step * w.extent +
                       span_of(params.w) / step;
  params.overrun = tile.fetched ? 0 : std::max(0, farthest - params.patch_pixels);

  params.chunks = params.one_chunk
                      ? 1
                      : static_cast<int32_t>(ceil_div(params.depth, static_cast<int64_t>(slice)
                                                                        << choice.slice_shift));
  set_buffers(choice, params);
  if (params.spread && params.spread_rows == 0) return "rows that are spread are too long";
  if (std::max({params.tile_n, params.tile_h, params.tile_w}) > 1023) return "a tile is too long";
  if (params.brought_pieces > kMostParcels)
    return "a patch has too many pieces (" + std::to_string(params.brought_pieces) + ")";
  const int64_t units = static_cast<int64_t>(params.tile_n) * params.load_h * params.load_w;
  const int64_t neighbours = params.whole_weight_mode == kTurnedKernels
                                 ? static_cast<int64_t>(params.tile_channels) * params.kernel_taps
                                 : 0;
  const int64_t parcels =
      std::max<int64_t>(
          {tile.copied ? 0 : 8 * units, params.part_products * weight_rows(tile), neighbours + 32})
      << (choice.slice_shift + 1);
  if (parcels > kMostParcels)
    return "a chunk has too many pieces (" + std::to_string(parcels) + ")";
  if (params.source_half >= 1 << 18 || params.patch_pixels > kMostParcels)
    return "the source patch is too large";
  return {};
}

std::string gather_shape(const Problem& given, const GatherChoice& choice, GatherParams& params) {
  const Problem problem = as_walked(given);
  std::string reason = tile_shape(problem, choice, params);
  if (reason.empty()) reason = positions_shape(problem, choice, params);
  if (reason.empty()) set_magics(params);
  return reason;
}

}  // namespace convt2d::cuda::hopper
