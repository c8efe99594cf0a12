#include "cuda/rows/rows_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/remembered.h"
#include "cuda/rows/rows.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda {
namespace rows {
namespace {

// Products of the shortest sums that strict fp32 takes: with 24 the error is below torch's, with 12 it may be above (H200, 2026-11-27).
constexpr int64_t kLeastTerms = 24;

constexpr double kClock = 1700;  // cycles a microsecond

// On tensor cores a block is a few warps that wait for one thing after the other: weights, pixels, then steps of rows. Cycles,
// fitted to 2374 plans of 70 layers in fp16 and TF32 on an H200 (2026-11-26): chosen ones are 1.11 times off (before: 1.8).
constexpr double kTensorLaunch = 9.5;  // us
constexpr double kWeightLine = 1.34;   // a line of memory that a warp's load of weights meets,
constexpr double kWeightPass = 932;    // or a unit of each thread on its way
constexpr double kPixelPass = 1240;    // of pixels, as many of a warp as it loads at once
constexpr double kStepWait = 91.5;  // from two steps to the next two, as two read their operands,
constexpr double kStrictStepWait = 250;  // in strict fp32
// Beside them (205 of one phase was fitted; divided by instructions): of an item, and of each of its phases, whose outputs are
// stored in pairs, or apart.
constexpr double kItemWait = 100, kPhaseWait = 40, kApartWait = 105, kStrictItemWait = 205;
// Of a row of y (936 was fitted; its instructions are a third fewer since),
constexpr double kRowWait = 800;
constexpr double kMeeting = 200;      // and where its warps meet once more
constexpr double kStoreWait = 184;    // and 16 bytes of each thread on their way
constexpr double kTogether = 1.21;    // of two blocks beside each other
constexpr double kLastRound = 0.288;  // of which few blocks are left
constexpr double kTensorMemoryRate = 0.825, kTensorBeside = 0.259;  // as below

// The same of channels-last tensors: counted, and fitted to 1760 plans of 56 layers in fp16 on an H200 (2026-11-26): chosen ones are 1.08
// times off (before: 1.47; a block alone was thought to be slower than it is).
// What words have of their own is from 476 plans of 52 layers in TF32 (2026-11-27).
constexpr double kPixelLaunch = 10.5, kPixelLaunchHalves = 7.6;
constexpr double kFetch = 0.541;       // us for a unit of weights of each thread
constexpr double kPixelItem = 141;     // instructions of a warp, its way to memory included, beside
constexpr double kPixelMultiply = 44;  // those of a pair of phases, a group and panels,
constexpr double kPixelStep = 16;      // of two steps of it, beside what loads and multiplies,
constexpr double kPixelSum = 4;        // of two sums of each lane, to the buffer,
constexpr double kOddSum = 5.5;        // where channels are odd;
constexpr double kPixelPiece = 11;     // of 16 bytes of each lane, to memory,
constexpr double kPixelUnit = 83;      // and of a unit of pixels of each lane
// Of the instructions that a multiprocessor could start,
constexpr double kPixelUsed = 0.57, kPixelUsedHalves = 0.615;
constexpr double kPixelAlone = 0.77;   // and of that, of a block that has it to itself
constexpr double kPixelProduct = 1.6;  // its cycles for an instruction of 16 x 8 sums
// Cycles that a warp waits: between the start and the end of a multiplication, and for two steps of it; for 16 bytes of each
// lane on their way; and a block, for pixels, how much of it beside another one.
constexpr double kPixelWait = 316, kPixelStepWait = 46, kPixelPieceWait = 28, kPixelFill = 3730;
constexpr double kFillBeside = 0.59;
constexpr double kAgainRate = 2.36;  // of the copy rate: what is in L2
// Of the copy rate: rows of whole sectors, others, and pixels that are parts of lines, one by one.
constexpr double kSectorRate = 1.05, kOddRate = 0.555, kPartRate = 0.68;
constexpr double kPixelBeside = 0.15, kPixelBesideHalves = 0.363;  // as kTensorBeside

// `buffers` of planes, those after it of pixels; see Params.
struct Choice {
  int tile_rows, tile_width, buffers, row_tiles, run_phases, part_h, part_w;
};

int64_t positions(const Axis& axis) { return ceil_div(axis.out, axis.stride); }

// Returns why it cannot be done, or an empty string.
std::string find_axis(const Axis& axis, int most_taps, int most_phases, AxisTaps& taps) {
  if (axis.kernel > most_taps) return "kernels of more than " + std::to_string(most_taps);
  if (axis.stride > most_phases) return "strides of more than " + std::to_string(most_phases);
  taps = {static_cast<int32_t>(axis.in),       static_cast<int32_t>(axis.out),
          static_cast<int32_t>(axis.kernel),   static_cast<int32_t>(axis.stride),
          static_cast<int32_t>(axis.near_pad), static_cast<int32_t>(axis.dilation)};
  taps.phases = static_cast<int32_t>(std::min(axis.stride, axis.out));
  int64_t offset[kMostTaps], first = INT64_MAX, last = INT64_MIN;
  for (int tap = 0; tap < axis.kernel; ++tap) {
    const int64_t reach = tap * axis.dilation - axis.near_pad;  // of pixel 0
    offset[tap] = -floor_div(reach, axis.stride);
    const int64_t phase = reach + offset[tap] * axis.stride;
    const bool used = phase < taps.phases;
    taps.phase[tap] = static_cast<int8_t>(used ? phase : -1);
    if (!used) continue;
    taps.rank[tap] = taps.taps[phase]++;
    first = std::min(first, offset[tap]);
    last = std::max(last, offset[tap]);
  }
  for (int phase = 0, count = 0; phase < taps.phases; ++phase) {
    for (int tap = 0; tap < axis.kernel; ++tap)
      if (taps.phase[tap] == phase) taps.order[count++] = static_cast<int8_t>(tap);
    taps.begin[phase + 1] = static_cast<int8_t>(count);
  }
  if (first > last) first = last = 0;
  if (last - first > INT16_MAX) return "taps lie too far apart";
  taps.first_offset = static_cast<int32_t>(first);
  taps.reach = static_cast<int32_t>(last - first);
  for (int tap = 0; tap < axis.kernel; ++tap)
    if (taps.phase[tap] >= 0) taps.offset[tap] = static_cast<int16_t>(offset[tap] - first);
  return {};
}

// The same, which every choice asks again.
std::string set_axis(const Axis& axis, int most_taps, int most_phases, AxisTaps& taps) {
  struct Answer {
    AxisTaps taps;
    std::string reason;
  };
  thread_local Remembered<Answer, 8, 4> known;
  const Answer& found = known.answer({axis.in, axis.out, axis.kernel, axis.stride, axis.near_pad,
                                      axis.dilation, most_taps, most_phases},
                                     [&](Answer& answer) {
                                       answer.reason =
                                           find_axis(axis, most_taps, most_phases, answer.taps);
                                     });
  if (found.reason.empty()) taps = found.taps;
  return found.reason;
}

// Pieces of which so many lie together, with a gap before the next ones in shared memory, and in global.
Pieces pieces_of(int64_t together, int64_t shared_gap, int64_t memory_gap) {
  const int64_t whole = 32 / together;
  Pieces pieces;
  pieces.together = FastDivide(together);
  pieces.turn = static_cast<int32_t>(32 % together);
  pieces.shared_gap = static_cast<int32_t>(shared_gap);
  pieces.memory_gap = static_cast<int32_t>(memory_gap);
  pieces.shared_way = static_cast<int32_t>(32 * kUnit + whole * shared_gap);
  pieces.memory_way = static_cast<int32_t>(32 * kUnit + whole * memory_gap);
  return pieces;
}

// Whether every phase of an axis has the same taps, but for where they read.
bool alike(const AxisTaps& taps) {
  return taps.phases == taps.stride &&
         std::count(taps.taps, taps.taps + taps.phases, taps.taps[0]) == taps.phases;
}

// Whether runs of so many pixels of each position begin and end at multiples of 16 bytes, wherever they are.
bool are_pieces(const Problem& problem, int64_t pixels) {
  const int64_t bytes = problem.out_channels * element_size(problem.dtype);
  return pixels * bytes % kUnit == 0 && problem.w.stride * bytes % kUnit == 0 &&
         problem.w.out * bytes % kUnit == 0;
}

// Where strict fp32 reads pixels, sorted by phases of h and groups of phases of w; see Reading. Returns the blocks of weights, or
// -1 where places are too many.
int64_t set_readings(const Params& p, Readings& all) {
  std::fill(std::begin(all.of_tap), std::end(all.of_tap), int16_t{-1});
  int readings = 0;
  int64_t blocks = 0;
  for (int pair = 0; pair < p.h.phases * p.row_parts; ++pair) {
    const int phase_h = pair / p.row_parts, first_w = pair % p.row_parts * p.phases_at_once;
    all.first[pair] = static_cast<int16_t>(readings);
    for (int tap_h = 0; tap_h < p.h.kernel; ++tap_h) {
      if (p.h.phase[tap_h] != phase_h) continue;
      const int first = readings;
      for (int phase = first_w; phase < std::min(first_w + p.phases_at_once, p.w.phases); ++phase)
        for (int tap_w = 0; tap_w < p.w.kernel; ++tap_w) {
          if (p.w.phase[tap_w] != phase) continue;
          int which = first;
          while (which < readings && all.reading[which].column != p.w.offset[tap_w]) ++which;
          if (which == kMostReadings) return -1;
          if (which == readings)
            all.reading[readings++] = {p.h.offset[tap_h], p.w.offset[tap_w], 0, 0, 0};
          Reading& reading = all.reading[which];
          const int tap = tap_h * p.w.kernel + tap_w;
          all.of_tap[tap] = static_cast<int16_t>(which);
          all.place[tap] = reading.count++;
          reading.phases |= 1 << (phase - first_w);
        }
      for (int which = first; which < readings; ++which) {
        all.reading[which].first_block = static_cast<int16_t>(blocks);
        blocks += all.reading[which].count * p.units / 2;
      }
    }
    all.first[pair + 1] = static_cast<int16_t>(readings);
  }
  return blocks <= INT16_MAX ? blocks : -1;
}

// What a block of channels-last tensors has beside planes.
void set_pixels(const Problem& problem, const Choice& choice, Params& p) {
  const int64_t size = element_size(problem.dtype), pixel_bytes = problem.out_channels * size;
  const int64_t panels = ceil_div(p.columns, kPanel),
                turns = ceil_div(panels, std::min(kMostPanels, kMostTogether / choice.row_tiles));
  p.row_tiles = choice.row_tiles;
  p.run_phases = choice.run_phases;
  p.parts_w = p.w.phases / p.part_w;
  p.parts = p.h.phases / p.part_h * p.parts_w;
  p.panels_at_once = static_cast<int32_t>(ceil_div(panels, turns));
  p.group_panels = static_cast<int32_t>(p.panels_at_once * turns);
  p.panels = p.groups * p.group_panels;
  p.row_units = p.groups * p.units;
  p.x_channel = 1;
  p.x_pixel = problem.in_channels;
  p.whole_units = p.reduce * size % kUnit == 0;
  // Neighbouring units of a pixel and their next are written at once: to different banks.
  p.patch_pixels = p.patch_width;
  while (p.row_units > 1 && p.patch_width % 8 != std::max(1, 8 / p.row_units)) ++p.patch_width;
  // The positions of an instruction too, where outputs are whole pieces, which then may lie apart.
  const int64_t step = problem.w.stride * pixel_bytes;
  const int64_t segment = p.run_phases == p.w.phases ? step : p.run_phases * pixel_bytes;
  const bool pieces = are_pieces(problem, segment / pixel_bytes);
  p.position_pitch = static_cast<int32_t>(std::min<int64_t>(segment, INT32_MAX / 64));
  const int banks = static_cast<int>(size / 2);  // of 16 bytes, that one has
  while (pieces && p.position_pitch / kUnit % (2 * banks) != banks) p.position_pitch += kUnit;
  p.warp_bytes = p.row_tiles * kPositions * p.position_pitch + kUnit;
  p.warp_bytes = static_cast<int32_t>(round_up(p.warp_bytes, kUnit));
  p.outputs = pieces ? pieces_of(segment / kUnit, p.position_pitch - segment, step - segment)
                     : pieces_of(1 << 24, 0, 0);
  const int64_t same = pixel_bytes / gcd(pixel_bytes, kUnit);
  p.same = pieces_of(same, -same * kUnit, 0);
  p.divide_row_units = FastDivide(p.row_units);
  p.divide_row_pieces = FastDivide(int64_t{p.patch_pixels} * p.row_units);
  p.divide_chunks = FastDivide(p.tile_width / (p.row_tiles * kPositions));
}

// Which phases of w of NCHW are an item: so many, alike, that half of the warps have one; the other block's fill the gaps.
void set_items(const Problem& problem, int tile_width, Params& p) {
  int most = is_strict(problem) ? kMostStrictPhases
                                : most_phases(static_cast<int>(element_size(problem.dtype)));
  const auto parts = [&] { return static_cast<int>(ceil_div(p.w.phases, most)); };
  if (!is_strict(problem))
    while (most > 1 && tile_width / kChunk * parts() < kWarps / 2) --most;
  p.row_parts = parts();
  p.phases_at_once = static_cast<int32_t>(ceil_div(p.w.phases, p.row_parts));
  p.divide_chunks = FastDivide(tile_width / kChunk);
}

// Everything that follows from the problem and the choice, pointers aside. Returns why it cannot be done, or an empty
// string.
std::string shape(const Problem& problem, const Choice& choice, Params& p) {
  p = {};
  set_extents(problem, p);
  const bool pixels = is_pixels(problem);
  const int most_taps = pixels ? kMostTaps : kMostPlaneTaps;
  const int most_phases = pixels ? kMostPhases : kMostPlanePhases;
  std::string reason = set_axis(problem.h, most_taps, most_phases, p.h);
  if (reason.empty()) reason = set_axis(problem.w, most_taps, most_phases, p.w);
  if (!reason.empty()) return reason;
  p.part_h = choice.part_h ? choice.part_h : p.h.phases;
  p.part_w = choice.part_w ? choice.part_w : p.w.phases;
  if (p.part_h * p.part_w > kMostPairs)
    return std::to_string(p.part_h * p.part_w) + " phases, more than " + std::to_string(kMostPairs);
  const int64_t vector = kUnit / element_size(problem.dtype);
  p.units = static_cast<int32_t>(ceil_div(p.reduce, vector));
  if (is_strict(problem)) p.units = static_cast<int32_t>(round_up(p.units, 2));
  int64_t steps = 0;
  for (int h = 0; h < p.part_h; ++h)
    for (int w = 0; w < p.part_w; ++w) {
      const int64_t taps = int64_t{p.h.taps[h]} * p.w.taps[w], here = taps * p.units;
      steps += round_up(here, 2);
      // Sums have a step at least.
      if (here == 0 && p.h.taps[h] > 0) steps += 2;
      if (steps > INT16_MAX) return "too many products in a sum";
      p.first_step[h * p.part_w + w + 1] = static_cast<int16_t>(steps);
    }
  if (!pixels) set_items(problem, choice.tile_width, p);
  if (is_strict(problem)) {
    const int64_t blocks = set_readings(p, p.readings);
    if (blocks < 0) return "too many places where pixels are read";
    steps = 4 * blocks;  // in both parts
  }
  p.column_tiles = static_cast<int32_t>(ceil_div(p.columns, kChannels));
  p.tile_rows = choice.tile_rows;
  p.tile_width = choice.tile_width;
  p.buffers = choice.buffers;
  p.tiles_h = static_cast<int32_t>(ceil_div(positions(problem.h), p.tile_rows));
  p.tiles_w = static_cast<int32_t>(ceil_div(positions(problem.w), p.tile_width));
  p.tiles =
      static_cast<int32_t>(std::min<int64_t>(int64_t{p.batch} * p.tiles_h * p.tiles_w, INT32_MAX));
  p.patch_rows = p.tile_rows + p.h.reach;
  p.patch_width = p.tile_width + p.w.reach;
  p.divide_units = FastDivide(p.units);
  p.divide_patch_width = FastDivide(p.patch_width);
  if (pixels) {
    set_pixels(problem, choice, p);
  } else {
    p.parts = p.groups * p.column_tiles;
    p.panels = p.group_panels = kChannels / kPanel;
    p.row_units = p.units;
    p.x_channel = problem.h.in * problem.w.in;
    p.x_pixel = 1;
    // Rows of outputs that begin anywhere within a line; with an odd stride, what lanes store at once, words or of words two, is
    // in 32 banks, wherever the next plane begins.
    const int size = static_cast<int>(element_size(problem.dtype)), line = line_bytes(size);
    const int64_t plane = problem.h.out * problem.w.out * size;
    const int64_t width = p.tile_width * problem.w.stride * size;
    const int64_t lead = plane % line / kUnit * kUnit;  // of the next plane's line
    p.staging_pitch = static_cast<int32_t>(round_up(width + line, kLineBytes) +
                                           ((size == 4 ? 32 : 48) - lead & kLineBytes - 1));
    p.joined = line == kLineBytes && p.tiles_w == 1 && problem.w.out * size >= 2 * line;
  }
  p.divide_panels = FastDivide(p.panels);
  p.divide_group_panels = FastDivide(p.group_panels);
  SharedPlaces places{0};
  p.weights_at = places.take(steps * p.panels * kPanel * kUnit, kUnit);
  p.patch_at = places.take(int64_t{p.patch_rows} * p.row_units * p.patch_width * kUnit, kUnit);
  p.staging_at = places.take(
      pixels ? int64_t{kWarps} * p.warp_bytes : int64_t{p.buffers} * kChannels * p.staging_pitch,
      kUnit);
  p.steps_at = places.take(steps * 4, 4);
  p.bias_at = places.take(p.panels * kPanel * 4, kUnit);
  if (pixels) p.same_at = places.take(int64_t{p.same.together.divisor} * kUnit, kUnit);
  p.shared_bytes = static_cast<int32_t>(places.end);
  return {};
}

int resident_blocks(const Device& device, const Params& p, int most) {
  return std::min(most, std::max(1, device.smem_per_sm / (p.shared_bytes + 1024)));
}

// Blocks that walk tiles, of which each stays as long as there are any.
int walkers_of(const Device& device, const Params& p) {
  const int most = device.sm_count * resident_blocks(device, p, kPixelBlocks);
  return std::min(p.tiles, std::max(1, most / p.parts)) * p.parts;
}

// Of planes, how many blocks walk the tiles, so many that it takes the least time, and that. What a block begins with and what a
// tile takes are cycles.
double walk(const Device& device, double begin, double tile, Params& p) {
  const double slots = double(device.sm_count) * resident_blocks(device, p, kBlocks);
  double least = INFINITY;
  for (const int fill :
       {0, 1, 2, 3, 4}) {  // 0: a block a tile; otherwise they fill the GPU so many times
    const double each = fill == 0 ? 1 : std::ceil(double(p.tiles) * p.parts / (slots * fill)),
                 walks = std::ceil(p.tiles / each);
    const double blocks = walks * p.parts / slots,
                 rounds = std::max(blocks, std::ceil(blocks) - kLastRound),
                 time = rounds * (begin + each * tile);
    if (time < least) {
      least = time;
      p.walkers = static_cast<int32_t>(walks * p.parts);
    }
  }
  return least;
}

// Settles how many blocks walk, too.
double predict_planes(const Problem& problem, const Device& device, Params& p) {
  const double size = double(element_size(problem.dtype)), vector = kUnit / size;
  const bool strict = is_strict(problem);
  const double step_wait = strict ? kStrictStepWait : kStepWait, parts = p.row_parts;
  const double phase_wait = p.phases_at_once == p.w.stride ? kPhaseWait : kApartWait;
  const double item_wait = strict ? kStrictItemWait : kItemWait + p.phases_at_once * phase_wait;
  double taps = 0, rows = 0;
  const double turns = std::ceil(double(p.tile_width / kChunk) * parts / kWarps),
               stores = std::ceil(kChannels * double(p.tile_width) * p.w.stride * size / kUnit /
                                  kThreads);
  for (int h = 0; h < p.h.phases; ++h) {
    for (int w = 0; w < p.w.phases; ++w) taps += double(p.h.taps[h]) * p.w.taps[w];
    const double steps = p.first_step[(h + 1) * p.w.phases] - p.first_step[h * p.w.phases];
    rows += kRowWait + stores * kStoreWait;
    if (p.h.taps[h] > 0)
      rows += turns * (item_wait + steps / parts / 2 * step_wait) + (p.buffers == 1 ? kMeeting : 0);
  }
  // A warp loads a number of the units of two taps or eights of channels, of sixteen channels each, which lie a kernel apart.
  const double kernels = kChannels * double(problem.h.kernel * problem.w.kernel) * size,
               lines = std::min(32., 2 * std::ceil(kernels / kLineBytes)),
               units = taps * p.units * kChannels / 32;
  const double weights =
      std::max(units * vector * lines * kWeightLine, std::ceil(units / kWarps) * kWeightPass);
  // A warp has a unit of a row, 128 pixels or 256 at once.
  const double pixels = std::ceil(double(p.patch_rows) * p.units / kWarps) *
                        std::ceil(p.patch_width * vector / 1024) * kPixelPass;
  const double busy_us = walk(device, weights, pixels + p.tile_rows * rows, p) *
                         (resident_blocks(device, p, kBlocks) < 2 ? 1 : kTogether) / kClock;
  const double memory_us = tensor_bytes(problem) / (kTensorMemoryRate * device.copy_bytes_per_us);
  return kTensorLaunch + std::max(busy_us, memory_us) +
         kTensorBeside * std::min(busy_us, memory_us);
}

// The shape of a choice that leaves out what is stored at once and how phases are shared out: all, or if those are too many
// and alike, one.
std::string pixel_shape(const Problem& problem, Choice choice, Params& p) {
  choice.run_phases = static_cast<int>(std::min(problem.w.stride, problem.w.out));
  const std::string reason = shape(problem, choice, p);
  if (reason.empty() || p.h.phases * p.w.phases <= kMostPairs || !alike(p.h) || !alike(p.w))
    return reason;
  choice.run_phases = choice.part_h = choice.part_w = 1;
  return shape(problem, choice, p);
}

double predict_pixels(const Problem& problem, const Device& device, const Params& p) {
  const double size = double(element_size(problem.dtype)), row_tiles = p.row_tiles,
               at_once = p.panels_at_once, chunks = p.divide_chunks.divisor;
  const bool half = size == 2;
  const double launch = half ? kPixelLaunchHalves : kPixelLaunch,
               used = half ? kPixelUsedHalves : kPixelUsed,
               beside = half ? kPixelBesideHalves : kPixelBeside;
  const double multiplies = double(p.groups) * p.group_panels / p.panels_at_once;  // of a pair
  const double pixel = double(problem.out_channels) * size;
  const double run = row_tiles * kPositions * p.part_w * pixel;
  const double sums = row_tiles * at_once * 2;  // pairs of each lane
  // Of a row of positions: instructions, wavefronts of shared memory and products of the whole block, and how long it takes
  // a warp.
  double issued = 0, wavefronts = 0, products = 0, wait = 0;
  for (int h = 0; h < p.part_h; ++h) {
    const double turns = std::ceil(chunks * p.tile_rows / kWarps) / p.tile_rows;
    const double pieces = run / kUnit / 32;
    issued += chunks * (kPixelItem + pieces * kPixelPiece);
    wavefronts += chunks * pieces * 4;
    double waits = pieces * kPixelPieceWait + kPixelWait;
    for (int w = 0; p.h.taps[h] > 0 && w < p.part_w; ++w) {
      const int pair = h * p.part_w + w;
      const double steps = (p.first_step[pair + 1] - p.first_step[pair]) / 2;
      issued += chunks * multiplies *
                (kPixelMultiply + sums * (p.columns % 2 ? kOddSum : kPixelSum) +
                 steps * (kPixelStep + row_tiles + at_once / 2 + row_tiles * at_once));
      wavefronts += chunks * multiplies * (sums * size / 2 + steps * (row_tiles * 4 + at_once * 2));
      products += chunks * multiplies * steps * row_tiles * at_once;
      waits += multiplies * (kPixelWait + steps * (kPixelStepWait + 8 * row_tiles * at_once));
    }
    if (p.h.taps[h] > 0) {
      const double more = p.part_w / p.run_phases - 1;
      issued += chunks * more * kPixelItem;
      waits += more * kPixelWait;
    }
    wait += turns * waits;
  }
  const double units = double(p.patch_rows) * p.patch_pixels * p.row_units / 32;
  issued = issued * p.tile_rows + units * kPixelUnit;
  wavefronts = wavefronts * p.tile_rows + units * 8;
  products *= p.tile_rows;
  wait = wait * p.tile_rows + kPixelFill + units / kWarps * kPixelUnit;
  const double rounds = std::ceil(double(p.tiles) / (p.walkers / p.parts));
  const double a_multiprocessor = rounds * std::ceil(double(p.walkers) / device.sm_count);
  const bool alone = resident_blocks(device, p, kPixelBlocks) == 1;
  const double cycles =
      std::max(a_multiprocessor / (alone ? kPixelAlone : 1) *
                   std::max({issued / (4 * used), wavefronts, products * kPixelProduct}),
               rounds * wait);
  const double busy_us = cycles / kClock;
  const double rate = p.run_phases < p.w.phases && int(p.run_phases * pixel) % 128 != 0 ? kPartRate
                      : int64_t(pixel) * problem.w.out % 32 == 0 ? kSectorRate
                                                                 : kOddRate;
  // Parts read x from L2.
  const double again = double(p.parts - 1) * problem.batch * problem.in_channels * problem.h.in *
                       problem.w.in * size / kAgainRate;
  const double memory_us = tensor_bytes(problem) / (rate * device.copy_bytes_per_us) +
                           again / device.copy_bytes_per_us +
                           rounds * kPixelFill * (alone ? 1 : kFillBeside) / kClock;
  const double weights = double(p.first_step[p.part_h * p.part_w]) * p.panels * kPanel;
  return launch + std::ceil(weights / kThreads) * kFetch + std::max(busy_us, memory_us) +
         beside * std::min(busy_us, memory_us);
}

std::string refuse(const Problem& problem, const Device& device) {
  if (problem.direction != Direction::fwd) return "forward only";
  if (problem.dtype == DType::f64) return "no double precision";
  if (problem.x_layout != problem.y_layout || problem.x_layout == Layout::strided)
    return "x and y are not both contiguous NCHW or channels last";
  if (is_pixels(problem) && is_strict(problem)) return "strict fp32 in NCHW only";
  if (!device.has_wgmma) return "was measured on sm_90a alone";
  if (problem.wide_index) return "offsets need 64 bits";
  Params params;
  if (std::string reason = sums_too_short(problem, kLeastTerms); !reason.empty()) return reason;
  if (!is_pixels(problem)) return shape(problem, {1, kChunk, 1}, params);
  return pixel_shape(problem, {1, kPositions, 1, 1}, params);
}

// What of y is stored at once and how phases are shared out, in a choice that leaves that open.
std::vector<Choice> runs_of(const Problem& problem, const Params& p, const Choice& choice) {
  std::vector<Choice> found;
  const auto add = [&](int run_phases, int part_h, int part_w) {
    found.push_back(choice);
    found.back().run_phases = run_phases;
    found.back().part_h = part_h;
    found.back().part_w = part_w;
  };
  if (p.h.phases * p.w.phases <= kMostPairs) {
    add(p.w.phases, 0, 0);
    const bool sectors = problem.out_channels * element_size(problem.dtype) % 32 == 0;
    if (sectors && p.w.phases > 1) add(1, 0, 0);
  }
  if (alike(p.h) && alike(p.w))
    for (int phases = 1; phases <= p.w.phases; phases *= 2)
      if (p.w.phases % phases == 0 && are_pieces(problem, phases)) add(phases, 1, phases);
  return found;
}

std::vector<Candidate<Choice>> pixel_candidates(const Problem& problem, const Device& device,
                                                std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int64_t most_rows = positions(problem.h), most_width = positions(problem.w);
  Params params;
  for (int row_tiles = 1; row_tiles <= kMostRowTiles; row_tiles *= 2) {
    std::vector<int> widths, heights = {1, 2, 4, 8, 16};
    for (int64_t tiles = 1; tiles <= most_width; tiles *= 2)
      add_once(widths, round_up(ceil_div(most_width, tiles), row_tiles * kPositions));
    if (most_rows <= 2 * heights.back()) add_once(heights, most_rows);
    for (const int width : widths)
      for (const int rows : heights) {
        if (rows > 1 && rows / 2 >= most_rows) continue;
        pixel_shape(problem, {rows, width, 1, row_tiles}, params);
        for (const Choice& choice : runs_of(problem, Params(params), {rows, width, 1, row_tiles})) {
          if (!shape(problem, choice, params).empty()) continue;
          if (params.shared_bytes > device.smem_optin) {
            reason = "operands of " + std::to_string(params.shared_bytes) + " bytes do not fit";
            continue;
          }
          if (params.tiles == INT32_MAX) continue;
          params.walkers = walkers_of(device, params);
          found.push_back({choice, predict_pixels(problem, device, params)});
        }
      }
  }
  return found;
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  if (is_pixels(problem)) return pixel_candidates(problem, device, reason);
  std::vector<Candidate<Choice>> found;
  const int64_t most_rows = positions(problem.h), most_width = positions(problem.w);
  std::vector<int> widths;
  for (int64_t tiles = 1; tiles <= most_width; tiles *= 2)
    add_once(widths, round_up(ceil_div(most_width, tiles), kChunk));
  for (const int width : widths)
    for (const int rows : {1, 2, 4, 8})
      for (const int buffers : {1, 2}) {
        if (rows > 1 && rows / 2 >= most_rows) continue;
        Params params;
        shape(problem, {rows, width, buffers}, params);
        if (params.shared_bytes > device.smem_optin) {
          reason = "operands of " + std::to_string(params.shared_bytes) + " bytes do not fit";
          continue;
        }
        if (int64_t{params.tiles} * params.parts > INT32_MAX / 2) continue;
        found.push_back({{rows, width, buffers}, predict_planes(problem, device, params)});
      }
  return found;
}

// `detail` has the numbers of a Choice, and how many blocks walk.
constexpr int kWalkers = 6;

Choice choice_of(const Plan& plan) {
  const auto& of = plan.detail;
  return {plan.row, of[0], of[1], of[2], of[3], of[4], of[5]};
}

Plan plan_of(const Problem& problem, const Device& device, const Candidate<Choice>& candidate) {
  const Choice& choice = candidate.choice;
  Params params;
  shape(problem, choice, params);
  Plan plan;
  plan.row = choice.tile_rows;
  plan.split = 1;
  plan.detail[0] = choice.tile_width;
  plan.detail[1] = choice.buffers;
  plan.detail[2] = choice.row_tiles;
  plan.detail[3] = choice.run_phases;
  plan.detail[4] = choice.part_h;
  plan.detail[5] = choice.part_w;
  plan.predicted_us = candidate.predicted_us;
  char note[128];
  if (is_pixels(problem)) {
    plan.detail[kWalkers] = walkers_of(device, params);
    std::snprintf(note, sizeof note,
                  "%d x %d positions, warps of %d, %d of %d phases in a row, %d bytes, %d blocks",
                  plan.row, choice.tile_width, choice.row_tiles * kPositions, params.run_phases,
                  params.part_w, params.shared_bytes, plan.detail[kWalkers]);
  } else {
    predict_planes(problem, device, params);
    plan.detail[kWalkers] = params.walkers;
    std::snprintf(note, sizeof note, "%d x %d positions, %d buffers, %d bytes, %d blocks", plan.row,
                  choice.tile_width, choice.buffers, params.shared_bytes, params.walkers);
  }
  plan.note = note;
  return plan;
}

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  launch_kernel(problem, params_of(problem, plan, args), args.stream);
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refuse, candidates,
                   [&](const Problem& of, const Candidate<Choice>& candidate) {
                     return plan_of(of, device, candidate);
                   });
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refuse, candidates,
                   [&](const Problem& of, const Candidate<Choice>& candidate) {
                     return plan_of(of, device, candidate);
                   });
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params params;
  shape(problem, choice_of(plan), params);
  params.walkers = plan.detail[kWalkers];
  params.source = args.x.data;
  params.destination = args.y.data;
  params.weight = args.w.data;
  params.bias = problem.has_bias ? args.bias : nullptr;
  std::copy(std::begin(args.w.stride), std::end(args.w.stride), params.weight_stride);
  return params;
}

}  // namespace rows

const Family rows_family = {"rows", rows::plan, rows::launch};

}  // namespace convt2d::cuda
