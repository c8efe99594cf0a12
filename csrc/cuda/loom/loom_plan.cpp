#include "cuda/loom/loom_plan.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"
#include "cuda/walkers.h"

namespace convt2d::cuda::loom {
namespace {

constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said: counted by hand, and what is dated measured (2026-11-23).
constexpr double kLaunch = 7;         // us: tables, barriers, the first loads, the last stores
constexpr double kBanks = 128 * .85;  // bytes of shared memory a cycle
constexpr double kTensor = .76;       // of the tensor core's rate at that clock: a large matmul
constexpr double kInstructions = 4;   // a cycle
constexpr double kStep = 44;          // instructions of a warp for a step of one tap
constexpr double kTap = 12;           // of one more that is fetched with it
constexpr double kHalves =
    8;  // of a tap of 16 bits, whose weights are of two channels, above these
constexpr double kTurned = 26;       // for 32 pixels of a slice
constexpr double kTurnedAlone = 70;  // the same, cycles, of a warp that waits for what it loads
// grad_input in 16 bits, over what is counted, by 1477 times (2026-11-23): of a slice, and where positions step; and cycles of
// a tile.
constexpr double kHalvesInput = 1.4, kHalvesStepped = 1.15;
constexpr double kTileOfHalves = 6000;
constexpr double kTurnedEights = 16;  // the same in 16 bits
constexpr double kEightsAlone = 45;
constexpr double kBrought = 85;        // both, if these warps bring them too
constexpr double kBroughtAlone = 830;  // by kernelbench_1_57 and 2_5, grad_input (2026-11-23)
constexpr double kUnderWay = 1200;     // from asking for a patch to having it
constexpr double kBox = 30;            // to ask for a box
constexpr double kLeastRow = 64;       // bytes of a box's row, as which it counts
constexpr double kChunk = 60;          // barriers of a chunk
constexpr double kStart = 1500;        // of a block: until the first products are there
// Strict fp32, counted: instructions to split the weights of a tap and for two more products; to split 32 pixels of a slice;
// cycles of a batch in which its warpgroup multiplies nothing.
constexpr double kSplit = 22, kTurnedSplit = 28, kAlone = 300;
constexpr double kStored = 22;  // instructions of a warp for a pair of positions of a channel
constexpr double kLineWord =
    9;  // the same for 32 outputs that go by way of shared memory (2026-11-24, counted)
constexpr double kHidden = 0.5;   // of stores, behind the multiplications of the other group
constexpr double kL2Bytes = 24;   // a cycle, of a multiprocessor
constexpr double kShort = 4;      // for rows of 16 bytes (2026-11-23)
constexpr double kStepped = 1.6;  // where a step of positions is several pixels (2026-11-23)
constexpr double kParted = 1.2;   // the same, of patches that come in parts (not measured)
// grad_input in strict fp32, over what is counted, by 1560 times (2026-11-23): of a slice, with one phase, with two, where a
// step of positions is several pixels, by kernel rows, tap by tap, and where threads bring these; and cycles of a tile.
constexpr double kStrictOne = 0.87, kStrictTwo = 1.12, kStrictStepped = 0.8, kStrictTaps = 1.15,
                 kStrictBrought = 1.25;
constexpr double kStrictTileInput = 12000;
constexpr double kTwoStages = 1.1;  // of weights, over three, with two phases (2026-11-23)
// Bytes of weights of blocks that run at once: more than these L2 does not keep between tiles; if it does not, so many; and
// cycles between two blocks (2026-11-24, not measured).
constexpr double kHeld = 24e6, kHeldShared = 12e6, kBlockOfMany = 5000;
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kByPhases =
    0.6;  // of that, where rows of the result are of several blocks (2026-11-23)
constexpr double kLesser = 0.1;  // of the lesser of work and bytes
constexpr double kTorn = 300;    // bytes, where tiles meet in a row of y that is no whole sectors

// Forward, by 2625 times of plans for 52 layers on an H200 (2026-11-24), in 16 bits, TF32 and strict fp32. Of the plans that
// were measured those chosen take 1.02 of the best one's time in the mean (before: 1.06, 1.06, 1.03), and are 1.09, 1.16 and 1.03
// times off what is predicted (before: 1.17, 1.24, 1.13). Found together: none of them is a cost by itself.
struct Forward {
  // Over what is counted of a slice, by phases: of taps of a kernel row at once, and tap by tap.
  double taps[2], single[2];
  // From asking for weights that come in turn to having them, cycles; and of what a chunk of them is multiplied in.
  double asked, held;
  double l2_bytes;   // a cycle, of a multiprocessor
  double long_rows;  // of weights of two phases that come tap by tap
  // Of what waits for a patch; of a slice, with one stage of them, with two of turned ones.
  double alone, one_stage, two_turned;
  double chunk;  // cycles
  // Of a tile, cycles, by phases: of what lanes have, of lines, of lines of rows that start anywhere; and for a row of lines.
  double tile[2], lined[2], anywhere[2], line;
  double by_phases,
      lines_by_phases;     // of the copy rate, where rows of the result are of several blocks
  double torn, torn_line;  // as kTorn, and where rows start anywhere
};
constexpr Forward kForward[] = {
    {{0.71, 0.81},
     {0.83, 0.96},
     2000,
     1.26,
     43,
     3.8,
     1,
     1.054,
     1.084,
     630,
     {9000, 6200},
     {4800, 4600},
     {1500, 1500},
     138,
     0.55,
     1,
     103,
     225},
    {{0.77, 0.86},
     {0.79, 1.46},
     3200,
     0.89,
     40,
     3.1,
     1.67,
     1.104,
     1.054,
     350,
     {6000, 5000},
     {1600, 4200},
     {3000, 2500},
     150,
     0.73,
     0.7,
     176,
     450},
    {{0.73, 1.07},
     {0.78, 1.03},
     3400,
     0.69,
     37,
     3.2,
     2.01,
     1,
     1.043,
     590,
     {4200, 2100},
     {1900, 1900},
     {4500, 1900},
     31,
     0.55,
     0.78,
     0,
     71},
};

// TF32, two phases, rows that start anywhere: over that, so that hopper, which predicts too little, does not come first
// (2026-11-24: kernelbench_2_5 1728 to 2146 us by loom; hopper, slower, predicts 1760).
constexpr double kOddRows = 0.76;
// A warpgroup that multiplies alone, over two; bytes that it gets from L2, a cycle: htdemucs_f0, lama_up1 and stylegan2_mid, which
// wait for these, have 20; and in 16 bits over all that is predicted, so that slide, which was measured, comes first
// (2026-11-24: tiles of each warpgroup were not).
constexpr int64_t kManyWeights = 128 * 128;
constexpr double kOneGroup = 1.1, kL2OfOne = 22;

struct Choice {
  int row;  // of kTiles
  int tile_n, tile_h, tile_w;
  int sets;  // of 64 channels, or 0: 32 channels of two phases of rows
  int layout, own_rows, row_phases;
  int slices, x_stages, turned_stages, weight_stages;  // of weights: 0 if they stay
  int lined, parted, own_tiles;
  int walkers[kMostGroups];
  int walkers_first = 0;
};

// How often lanes that fetch weights meet in a bank: words, or 16 bytes by eight lanes at a time; in 16 bits 8 by sixteen.
int most_in_a_bank(int bytes, int row_pitch, int number_pitch) {
  const int lanes = 128 / bytes;
  int most = 0;
  for (int first = 0; first < 32; first += lanes) {
    int units[32], met[32] = {};
    for (int i = 0; i < lanes; ++i) {
      const int lane = first + i;
      units[i] = (lane / 4 * row_pitch + lane % 4 * number_pitch) / bytes;
      if (std::find(units, units + i, units[i]) != units + i) continue;
      most = std::max(most, ++met[units[i] % lanes]);
    }
  }
  return most;
}

int unit_bytes(Tile tile, const GatherParams& p) {
  return tile.taps == 4 ? 4 * p.element_bytes : 4;
}

// Rows of a box, and words from one to the next, that meet in the fewest banks and are copied with the fewest words. Each choice
// of a problem asks the same, so the last answer is kept.
struct RowsOfWeights {
  int box_rows, pitch;
};
RowsOfWeights rows_of_weights(Tile tile, const GatherParams& p, int apart) {
  using Question = std::array<int, 5>;
  thread_local Question last{};
  thread_local RowsOfWeights rows{};
  const Question question = {tile.taps, p.forward, p.element_bytes, p.taps, apart};
  if (question == last) return rows;
  last = question;
  const int tap_bytes = p.taps * p.element_bytes, bytes = unit_bytes(tile, p);
  int best = 0;
  for (const int box_rows : {32, 16, 8}) {
    const int least = p.forward ? box_rows / kEight * p.box_step : p.box_step;
    for (int words = least; words <= std::min(kMostRow, least + 28); words += 4) {
      const bool fewer = words * rows.box_rows < rows.pitch * box_rows;
      if (best == 1 && !fewer) break;
      const int met = p.forward ? most_in_a_bank(bytes, tap_bytes, apart * words * 4)
                                : most_in_a_bank(bytes, words * 4, apart * tap_bytes);
      if (best == 0 || met < best || (met == best && fewer)) best = met, rows = {box_rows, words};
    }
    if (!p.forward) break;
  }
  return rows;
}

// Where weights lie in a stage.
std::string set_weights(Tile tile, GatherParams& p) {
  const int sets = p.tile_channels / kRows;
  p.weight_barrier = 16;
  if (p.own_rows) {
    int rows = 0;
    for (int g = 0; g < p.h.groups; ++g) rows = std::max<int>(rows, p.h.group[g].taps[0]);
    p.pitch = slice_of(4) * p.slices * (p.resident ? p.chunks : 1) + 4;
    if (p.pitch > kMostSpan) return "weights that stay are too long for the copy engine";
    p.box_bytes = p.pitch * 16 * p.tile_channels;
    p.row_pitch = p.pitch * 16;
    p.number_pitch = 16;
    p.far_row = 8 * p.row_pitch;
    p.far_number = 4 * p.number_pitch;
    p.slice_pitch = slice_of(4) * 16;
    p.warp_pitch = 16 * p.row_pitch;
    p.two_warps_pitch = 2 * p.warp_pitch;
    p.set_pitch = sets > 1 ? kRows * p.row_pitch : 0;
    p.weight_bytes = p.resident ? p.slices * p.slice_pitch : rows * p.box_bytes;
    p.all_weights = p.resident ? rows * p.box_bytes : p.weight_stages * p.weight_bytes;
    if (p.resident) p.weight_barrier = 0;
    return {};
  }
  const int slice = slice_of(p.element_bytes), tap_bytes = p.taps * p.element_bytes;
  // Of two planes that are copied together, a half of K has those of one.
  const int apart = p.lines == 2 && p.element_bytes == 2 ? 2 : 1;
  p.box_step = (p.forward ? kEight : slice) * tap_bytes / 4;
  const RowsOfWeights rows = rows_of_weights(tile, p, apart);
  p.box_rows = rows.box_rows, p.pitch = rows.pitch;
  if (p.forward) {
    p.box_bytes = p.pitch * 4 * slice * p.slices;
    p.row_pitch = tap_bytes;
    p.number_pitch = p.pitch * 4;
    const auto row_at = [&](int row) {
      return row / p.box_rows * p.box_bytes + row % p.box_rows * tap_bytes;
    };
    p.far_row = row_at(8);
    p.slice_pitch = slice * p.number_pitch;
    p.warp_pitch = row_at(16);
    p.two_warps_pitch = row_at(32);
    p.weight_bytes = row_at(p.tile_channels);
  } else {
    p.box_bytes = p.pitch * 4 * p.tile_channels;
    p.row_pitch = p.pitch * 4;
    p.number_pitch = tap_bytes;
    p.far_row = 8 * p.row_pitch;
    p.slice_pitch = p.box_bytes;
    p.warp_pitch = 16 * p.row_pitch;
    p.two_warps_pitch = 2 * p.warp_pitch;
    p.weight_bytes = p.slices * p.box_bytes;
  }
  p.far_number = apart > 1 ? p.number_pitch : slice / 2 * p.number_pitch;
  p.number_pitch *= apart;
  p.set_pitch = sets > 1 ? 2 * p.two_warps_pitch : 0;
  if (p.halved) p.two_warps_pitch = 0;
  p.all_weights = p.weight_stages * p.weight_bytes;
  return {};
}

// A source offset as a place in a half of a patch, in units of 16 bytes.
int unit_of_row(const GatherParams& p, int offset) {
  if (p.parts > 1) return offset / p.parts * p.plane_w;
  return offset % p.steps_h * p.steps_w * p.plane_units + offset / p.steps_h * p.plane_w;
}
int unit_of_column(const GatherParams& p, int offset) {
  return offset % p.steps_w * p.plane_units + offset / p.steps_w;
}

// Phase and place of each tap of a kernel row.
struct Place {
  int phase = -1, unit = 0;
};
std::vector<Place> places_of_row(const Problem& problem, const GatherParams& p) {
  const AxisGroup& group = p.w.group[0];
  std::vector<Place> places(problem.w.kernel);
  for (int i = group.first; i < group.first + group.count; ++i)
    for (int slot = 0; slot < group.phases; ++slot)
      if (const AxisStep& step = p.w.step[i]; step.rank[slot] >= 0)
        places[group.first_tap[slot] + step.rank[slot] * p.w.tap_step] = {
            slot, unit_of_column(p, step.offset - group.offset_low)};
  return places;
}

// Steps of all groups of phases, or why there are none.
std::string set_steps(const Problem& problem, Tile tile, GatherParams& p) {
  const std::vector<Place> places = places_of_row(problem, p);
  const int width = static_cast<int>(problem.w.kernel);
  if (tile.taps > 1) {
    if (width % tile.taps != 0) return "a kernel row is not taps by " + std::to_string(tile.taps);
    p.swapped = tile.phases > 1 && places[0].phase == 1;
    for (int i = 0; i < width; ++i) {
      const int tap = i % tile.taps;
      if (places[i].phase != (tile.phases > 1 ? (tap + p.swapped) % 2 : 0) ||
          places[i].unit - places[i - tap].unit != places[tap].unit - places[0].unit)
        return "taps of a kernel row are not of phases by turns";
    }
    for (int i = 0; i < tile.taps; ++i) p.column[i] = places[i].unit - places[0].unit;
  }
  int steps = 0;
  const int runs = p.h.groups * p.row_phases * p.parts;
  if (runs > kMostRuns) return "parts of patches are more than " + std::to_string(kMostRuns);
  for (int run = 0; run < runs; ++run) {
    const int row = run / p.parts, part = run % p.parts, slot = row % p.row_phases;
    const AxisGroup& group = p.h.group[row / p.row_phases];
    p.first_step[run] = static_cast<int16_t>(steps);
    for (int i = group.first; i < group.first + group.count; ++i) {
      const AxisStep& h = p.h.step[i];
      // Halves of a group go together.
      if (h.rank[slot] < 0 && !p.halved) continue;
      if ((h.offset - group.offset_low) % p.parts != part) continue;
      // Of the weights of a lane.
      const int first = p.own_rows ? h.rank[slot] * p.box_bytes
                                   : (group.first_tap[slot] + h.rank[slot] * p.h.tap_step) * width *
                                         p.element_bytes;
      const int unit = unit_of_row(p, h.offset - group.offset_low);
      for (int j = 0; j < width; j += tile.taps) {
        if (places[j].phase < 0) continue;
        const int phase = tile.taps == 1 ? places[j].phase : 0;
        if (steps == kMostSteps) return "two phases of rows have too many taps";
        p.step[steps++] = {
            static_cast<uint32_t>(unit + places[j].unit),
            (h.rank[slot] < 0 ? kNoTap : static_cast<uint32_t>(first + j * p.element_bytes)) |
                static_cast<uint32_t>(phase) << kPhaseShift};
      }
    }
  }
  p.first_step[runs] = static_cast<int16_t>(steps);
  for (int run = 0; p.parts > 1 && run < runs; ++run)
    if (p.first_step[run] == p.first_step[run + 1]) return "a part of a patch has no taps";
  for (int row = 0; p.row_phases > 1 && row < p.h.groups * p.row_phases; ++row)
    if (p.h.group[row / p.row_phases].taps[row % p.row_phases] == 0)
      return "a phase of rows has no taps";
  return {};
}

// Units of 16 bytes that instructions read from where a half starts.
int units_read(const GatherParams& p, Tile tile) {
  const auto farthest = [&](const AxisTable& axis, const auto& unit_of) {
    int far = 0;
    for (int g = 0; g < axis.groups; ++g)
      for (int i = axis.group[g].first; i < axis.group[g].first + axis.group[g].count; ++i)
        far = std::max(far, unit_of(p, axis.step[i].offset - axis.group[g].offset_low));
    return far;
  };
  return farthest(p.h, unit_of_row) + farthest(p.w, unit_of_column) + p.beside / 16 +
         (positions(tile) / kEight - 1) * (p.column_pitch / 16) + kEight;
}

// Planes of neighbouring channels, if they are one or two, that are whole 16 bytes together, where rows are not; or 0.
int planes_of_line(const GatherParams& p) {
  const int64_t plane = int64_t{p.w.source_extent} * p.h.source_extent;
  return plane % kEight == 0 ? 1 : plane * 2 % kEight == 0 && p.reduce % 2 == 0 ? 2 : 0;
}

// How the copy engine brings patches of words: rows of a plane that follow each other as one, where these are whole 16 bytes,
// and planes of neighbouring channels; lines stays 0 where rows are. Or why it cannot.
std::string set_rows_of_words(GatherParams& p) {
  const int width = p.w.source_extent, height = p.h.source_extent;
  p.period = 4 / std::gcd(4, width);
  p.period_shift = p.period / 2;
  int planes = 1;
  while (planes * height % p.period != 0) planes *= 2;
  if (p.period > 1) p.lines = planes;
  if (p.reduce % planes != 0) return "channels are not whole sets of " + std::to_string(planes);
  // Rows of a part that start equally far into 16 bytes. Large patches come in two stages at least.
  p.row_sets = p.period / std::gcd(p.period, p.parts);
  if (p.parts > 1 && p.row_sets == 1 && 2 * p.parts / p.period <= kMostStep) p.row_sets = 2;
  p.set_step = p.parts * p.row_sets / p.period;
  if (p.load_h < p.row_sets) return "a tile has fewer rows than sets of these";
  p.copied_h = static_cast<int32_t>(ceil_div(p.load_h, p.row_sets));
  if ((p.copied_h - 1) * p.set_step >= kMostSpan) return "a tile is too long for the copy engine";
  return {};
}

// Where they lie in a stage; how many bytes that has, of which the copy engine brings `copied_bytes`.
void place_words(GatherParams& p) {
  const int planes = std::max(p.lines, 1), channel = p.channel_words * 4,
            box = slice_of(4) * p.slices / planes * p.tile_n * channel;
  p.set_bytes = static_cast<int32_t>(round_up(box, 128));
  p.copied_bytes = planes * box;
  p.x_bytes = planes * p.set_bytes;
  for (int k = 0; k < 4; ++k) {
    p.word_place[k] = k % planes * p.set_bytes + k / planes * channel;
  }
  p.word_far = 4 / planes * channel;
}

// Rows and eights of pixels of a copied patch of 16 bits: more than it needs, where eight channels, which are turned together,
// would meet in few banks.
void widen_patch(GatherParams& p) {
  const auto cost = [](int rows, int eights) {
    int met = 8;
    while (rows * eights % met != 0) met /= 2;
    return rows * eights * (2 + met);
  };
  const int rows = p.load_h, eights = p.copied_w / kEight;
  if (p.lines) {  // each row by itself
    p.copied_w = (eights | 1) * kEight;
    return;
  }
  for (const int more_rows : {0, 1})
    for (const int more_eights : {0, 1})
      if (cost(rows + more_rows, eights + more_eights) < cost(p.copied_h, p.copied_w / kEight))
        p.copied_h = rows + more_rows, p.copied_w = (eights + more_eights) * kEight;
}

// Whether what a lane has side by side does not start at multiples of itself.
bool starts_anywhere(const GatherParams& p, Tile tile) {
  return p.w.destination_extent % (2 * tile.phases) != 0 || (p.tile_w % 2 != 0 && p.tiles_w > 1);
}

// Positions are pairs of neighbours along an axis of one phase: these are two phases then, whose taps are a step apart.
std::string pair_rows(AxisTable& axis) {
  AxisTable pairs = axis;
  AxisGroup& group = pairs.group[0];
  pairs.slots = group.phases = 2;
  pairs.source_step *= 2;
  pairs.destination_step *= 2;
  group.first_tap[1] = group.first_tap[0];
  group.taps[1] = group.taps[0];
  int used = group.count;
  for (int i = 0; i < group.count; ++i) {
    const int offset = axis.step[i].offset + axis.source_step;
    int found = 0;
    while (found < used && pairs.step[found].offset != offset) ++found;
    if (found == used) {
      if (used == kMaxAxisSteps) return "pairs of rows have too many taps";
      pairs.step[used] = axis.step[i];
      pairs.step[used].offset = static_cast<int16_t>(offset);
      pairs.step[used++].rank[0] = -1;
    }
    pairs.step[found].rank[1] = axis.step[i].rank[0];
  }
  group.count = static_cast<int16_t>(used);
  if (used) group.offset_span = static_cast<int16_t>(group.offset_span + axis.source_step);
  axis = pairs;
  return {};
}

// Everything that follows from the problem and the choice, pointers aside; or why there is nothing.
std::string shape(const Problem& problem, const Choice& choice, GatherParams& p) {
  const Tile tile = kTiles[choice.row];
  p = {};
  p.forward = problem.direction == Direction::fwd;
  p.strict = tile.strict;
  set_extents(problem, p);
  p.element_bytes = static_cast<int32_t>(element_size(problem.dtype));
  p.row_phases = choice.row_phases;
  p.halved = choice.sets == 0;
  p.own_tiles = choice.own_tiles;
  const bool pairs = p.row_phases > 1 && phases_of(problem, problem.h) == 1;
  if (std::string reason = set_axes(problem, pairs ? 1 : p.row_phases, tile.phases, p);
      !reason.empty())
    return reason;
  if (pairs) {
    if (!p.halved || (!p.forward && p.element_bytes == 2)) return "there is one phase of rows";
    if (std::string reason = pair_rows(p.h); !reason.empty()) return reason;
  } else if (phases_of(problem, problem.h) % p.row_phases != 0) {
    return "phases of rows are not pairs";
  }
  if (p.h.groups * p.row_phases > kMostGroups)
    return std::to_string(p.h.groups) + " groups of phases are more than " +
           std::to_string(kMostGroups);
  set_tiles(problem, choice, p);
  std::copy(std::begin(choice.walkers), std::end(choice.walkers), p.walkers);
  p.walkers_first = choice.walkers_first;
  p.taps = static_cast<int32_t>(problem.h.kernel * problem.w.kernel);
  p.tile_channels = p.halved ? kRows / 2 : kRows * choice.sets;
  p.column_tiles = static_cast<int32_t>(ceil_div(p.columns, p.tile_channels));
  p.layout = choice.layout;
  p.slices = choice.slices;
  p.chunks = static_cast<int32_t>(ceil_div(p.reduce, slice_of(p.element_bytes) * p.slices));

  p.steps_h = p.h.source_step;
  p.steps_w = p.w.source_step;
  p.parts = choice.parted ? p.steps_h : 1;
  p.load_h = static_cast<int32_t>(ceil_div(p.steps_h * (p.tile_h - 1) + span_of(p.h) + 1, p.parts));
  if (p.parts > 1) p.steps_h = 1;
  p.load_w = p.steps_w * (p.tile_w - 1) + span_of(p.w) + 1;
  const bool halves = p.element_bytes == 2;
  const int vector = 16 / p.element_bytes, low = p.w.group[0].offset_low & (vector - 1);
  const bool odd = p.w.source_extent % vector != 0;
  if (p.parts > 1 && (halves || p.own_tiles))
    return "16 bits, and tiles of a group, are of one part";
  p.row_sets = 1;
  if (!halves) {
    const std::string unlike = set_rows_of_words(p);
    p.brought = odd && !unlike.empty();
    if (!odd && !unlike.empty()) return unlike;
    if (p.brought) p.lines = 0, p.row_sets = 1;
  }
  if (halves && odd) p.lines = planes_of_line(p);
  // What all places where a tile may start have in common, in 16 bytes. Rows of words do not start alike.
  int common = p.lines && !halves ? 1 : vector;
  if (p.tiles_w > 1) common = std::gcd(common, p.steps_w * p.tile_w);
  if (p.lines && p.tiles_h > 1)
    common = std::gcd(common, int(p.steps_h * p.tile_h * p.w.source_extent % vector));
  const int lead = p.lines ? vector - 1 : vector - common + low % common;
  p.tables = vector / common;
  while (1 << p.lead_shift < common) ++p.lead_shift;
  p.octets = static_cast<int32_t>(ceil_div(lead + p.load_w, kEight));
  if (halves || p.brought) p.copied_h = p.load_h;
  p.copied_w = static_cast<int32_t>(round_up(lead + p.load_w, vector));
  if (halves) widen_patch(p);
  if (std::max({p.copied_w * p.element_bytes / 4, p.copied_h, p.tile_n}) > kMostSpan)
    return "a tile is too long for the copy engine";
  if (p.brought && (p.tile_n > 1 || p.slices > 1 || p.parts > 1))
    return "patches that are brought are of one image, slice and part";
  p.items = p.tile_n * (halves      ? p.load_h * p.octets * kEight
                        : p.brought ? p.load_h * p.load_w
                                    : p.copied_h * p.load_w);
  p.channel_words = (p.lines && halves ? 1 : p.copied_h) * p.copied_w * p.element_bytes / 4;
  if (p.lines && halves) p.line_bytes = slice_of(2) * p.slices / p.lines * p.channel_words * 4;
  p.second_items = p.lines == 2 ? p.items : 0;
  p.table_items = p.items + p.second_items;
  p.second_bytes = p.lines == 2 ? p.load_h * p.tile_n * p.line_bytes : kEight * p.channel_words * 4;
  p.next_bytes = slice_of(2) / std::max(p.lines, 1) * p.channel_words * 4;
  p.x_stages = p.brought ? 1 : choice.x_stages;
  p.x_bytes = p.brought ? kTurners * kBatches * kBatchBytes
              : p.lines ? p.lines * p.load_h * p.tile_n * p.line_bytes
                        : slice_of(p.element_bytes) * p.slices * 4 * p.tile_n * p.channel_words;
  p.copied_bytes = p.x_bytes;
  if (!halves && !p.brought) place_words(p);

  p.plane_h = static_cast<int32_t>(ceil_div(p.load_h, p.steps_h));
  // Two neighbours of a run are never of two rows.
  p.plane_w = static_cast<int32_t>(ceil_div(p.load_w, p.steps_w));
  if (p.layout == kRuns) p.plane_w += p.plane_w % 2;
  // Neighbours that go to different planes meet no bank twice.
  const int planes = p.steps_h * p.steps_w, apart = p.steps_w > 1 ? kEight / p.steps_w : 0;
  p.plane_units = p.tile_n * p.plane_h * p.plane_w;
  while (p.steps_w > 1 && p.plane_units % kEight != apart) ++p.plane_units;
  const int dump = halves ? kEight : 0;
  p.half_bytes = (planes * p.plane_units + dump) * 16;
  p.turned_stages = choice.turned_stages;
  p.turned_slice = (tile.strict ? 4 : 2) * p.half_bytes;
  p.turned_bytes = p.turned_slice * p.slices;
  p.column_pitch = p.layout == kRuns ? kEight * 16 : p.plane_w * 16;
  if (!p.own_tiles && (p.halved || (choice.sets == 1 && p.row_phases == 1)))
    p.beside = p.layout == kBeside ? kEight * 16 : positions(tile) / kEight * p.column_pitch;

  p.resident = choice.weight_stages == 0;
  p.weight_stages = p.resident ? p.chunks : choice.weight_stages;
  if (p.weight_stages > kMostWeights) return "weights that stay are too many chunks";
  p.own_rows = choice.own_rows;
  if (p.own_rows && p.row_phases > 1) return "kernel rows are of several phases";
  if (p.own_rows &&
      (halves || tile.taps != 4 || problem.w.kernel != 4 || p.h.groups == 1 || !p.forward))
    return "kernel rows are not of 16 bytes, or are all of one phase";
  if (std::string reason = set_weights(tile, p); !reason.empty()) return reason;
  if (std::string reason = set_steps(problem, tile, p); !reason.empty()) return reason;
  if (p.turned_stages < least_turned(tile, p) ||
      (!p.resident && p.weight_stages < least_weights(tile, p)))
    return "chunks of one step want three stages";
  p.lined = choice.lined || starts_anywhere(p, tile);
  SharedPlaces places{kHeader};
  p.items_at = places.take(
      int64_t{halves ? p.tables * p.table_items : p.row_sets * p.items} * (p.lines ? 8 : 4), 16);
  p.weights_at = places.take(p.all_weights, 128);
  p.x_at = places.take(int64_t{p.x_stages} * p.x_bytes, 128);
  p.zeros = p.halved ? (p.far_row + p.far_number + 4 * p.number_pitch) / 4 + kMostFetched : 0;
  p.zeros_at = places.take(int64_t{p.zeros} * 4, 16);
  p.lines_at = places.take(p.lined ? kConsumers / 32 * kLineBytes : 0, 128);
  p.turned_at = places.take(int64_t{p.turned_stages} * p.turned_bytes, 128);
  // Of the last slice: what instructions read, and that again if halves followed each other (compute-sanitizer thinks so).
  const int read = units_read(p, tile) * 16;
  places.take(std::max({0, read - p.half_bytes, read + positions(tile) * 16 - 2 * p.half_bytes}),
              16);
  p.shared_bytes = static_cast<int32_t>(places.end);
  return {};
}

const Forward& forward_of(const GatherParams& p) {
  return kForward[p.element_bytes == 2 ? 0 : p.strict ? 2 : 1];
}

double strict_rate(const GatherParams& p, Tile tile) {
  if (p.steps_w == 1 || p.parts > 1) return tile.phases == 2 ? kStrictTwo : kStrictOne;
  return p.brought ? kStrictBrought : tile.taps == 1 ? kStrictTaps : kStrictStepped;
}

// A tile whose phases are those of a group.
double tile_cycles(const Problem& problem, const GatherParams& p, Tile tile, int group) {
  // Steps of both warpgroups.
  const int runs = p.row_phases * p.parts, first = group * runs,
            warpgroups = p.own_tiles ? 1 : kGroups;
  const double steps = double(warpgroups) / p.row_phases *
                       (p.first_step[first + runs] - p.first_step[first]),
               taps = steps * tile.taps, width = positions(tile);
  const int met = most_in_a_bank(unit_bytes(tile, p), p.row_pitch, p.number_pitch),
            products = tile.strict ? 3 : 1, split = tile.strict ? kTurnedSplit : 0;
  const double weight_bytes = p.resident ? 0 : double(p.weight_bytes) / p.slices,
               turned_bytes = double(p.parts * p.row_sets) * p.items * kSliceBytes;
  // Rows end inside sectors.
  const bool halves = p.element_bytes == 2;
  const bool words = !halves && !p.brought;
  const double x_bytes = p.tile_n * double(words ? p.parts * p.copied_h * p.row_sets : p.copied_h) *
                         slice_of(p.element_bytes) *
                         std::max(p.copied_w * p.element_bytes + 16., halves ? kLeastRow : 0);
  // 16 bits are loaded by as many loads as words, if they are, or by some more than half of these.
  const double loads = !halves ? 1 : tile.taps == 1 ? 2 : tile.taps == 3 ? 4. / 3 : 1;
  // Of a slice.
  const double tensor = taps * products * width / 2 / kTensor;
  const double banks = (taps * kSliceBytes * (products * width + kRows * loads * met) +
                        weight_bytes + x_bytes + (tile.strict ? 3 : 2) * turned_bytes) /
                       kBanks;
  const double turns = p.parts * p.row_sets * ceil_div(p.items, 32);
  // Of strict fp32 also sums that are joined: batches of a warpgroup.
  const double batches =
      tile.strict ? ceil_div(steps / warpgroups * p.slices, batch_steps(tile)) / double(p.slices)
                  : 0;
  const double issued =
      (4 * (steps * (kStep + (tile.taps - 1) * kTap + (halves ? tile.taps * kHalves : 0)) +
            (tile.strict ? taps * kSplit + kGroups * batches * kStrictColumns / 2 : 0)) +
       turns * ((p.brought ? kBrought
                 : halves  ? kTurnedEights
                           : kTurned) +
                split)) /
      kInstructions;
  const double turned = p.parts * p.row_sets * ceil_div(p.items, 32 * kTurners) *
                        ((p.brought ? kBroughtAlone
                          : halves  ? kEightsAlone
                                    : kTurnedAlone) +
                         split);
  // A warpgroup's products, where it waits for them before it has others.
  const double waited = tile.strict && tile.phases == 1 ? tensor / kGroups + batches * kAlone : 0;
  // Of a patch, what lies in the source.
  const double wide = std::min<double>(p.copied_w, p.w.source_extent) / p.copied_w,
               high =
                   std::min<double>(p.parts * p.load_h, p.h.source_extent) / (p.parts * p.load_h);
  const double patch = x_bytes * wide * high / kL2Bytes;
  const double brought = patch + weight_bytes * (p.own_rows ? kShort : 1) / kL2Bytes;
  // Where a patch is turned before the next one is asked for; of many stages, where one is before it is used again.
  const double alone =
      p.parts * p.row_sets > 1
          ? (double(p.parts * p.row_sets) * kUnderWay / p.slices + patch + turned) / p.x_stages
      : p.brought || p.x_stages > 1 ? 0
                                    : kUnderWay / p.slices + turned + (halves ? patch : 0);
  const double stepped = p.steps_w == 1 || halves ? 1 : p.parts > 1 ? kParted : kStepped;
  const double waiting = !p.resident && p.weight_stages == 2 && tile.phases == 2 ? kTwoStages : 1;
  const double asked =
      double(p.lines) * (words ? p.parts * p.row_sets : p.load_h) * kBox / p.slices;
  const double computed = std::max({tensor, banks, issued, turned, waited}),
               waits = std::max({brought, alone, asked});
  const double counted = tile.strict ? strict_rate(p, tile) : stepped;
  const double over = !halves ? 1 : p.steps_w == 1 ? kHalvesInput : kHalvesStepped;
  const double slice = std::max(computed * counted, waits * stepped) * waiting * over;
  const double pairs = warpgroups * 4 * width / kEight * 2;
  const bool anywhere = starts_anywhere(p, tile);
  if (p.forward) {
    const Forward& fit = forward_of(p);
    const int phases = tile.phases - 1;
    const double work = computed * (tile.taps > 1 ? fit.taps : fit.single)[phases] *
                        (p.own_tiles ? kOneGroup : 1),
                 weights = weight_bytes * (p.own_rows ? kShort : 1) *
                           (tile.taps == 1 && tile.phases == 2 ? fit.long_rows : 1);
    // A stage of weights is asked for when its last ones were multiplied.
    const double in_turn =
        p.resident ? 0 : (fit.asked / p.slices + fit.held * work) / p.weight_stages;
    const double longest =
        std::max({work, (patch * kL2Bytes + weights) / (p.own_tiles ? kL2OfOne : fit.l2_bytes),
                  alone * fit.alone, asked, in_turn}) *
        (p.x_stages == 1 && !p.brought ? fit.one_stage : 1) *
        (p.turned_stages == 2 ? fit.two_turned : 1);
    const double shown = anywhere || p.own_tiles ? 1 : 1 - kHidden;
    const double stored = p.lined ? shown * pairs * 2 * tile.phases * kLineWord / kInstructions +
                                        p.tile_n * p.tile_h * fit.line
                                  : shown * pairs * kStored / kInstructions;
    const double store = stored + (anywhere  ? fit.anywhere
                                   : p.lined ? fit.lined
                                             : fit.tile)[phases];
    if (!p.own_tiles) return p.chunks * (p.slices * longest + fit.chunk) + store;
    // A tile's products, or those and what is stored of the other warpgroup's.
    const double products = p.chunks * (p.slices * longest + fit.chunk / kGroups);
    return std::max(products, (products + store) / kGroups);
  }
  const double store = (anywhere ? 2 : 1) * (1 - kHidden) * pairs * kStored / kInstructions;
  const double more = tile.strict ? kStrictTileInput : halves ? kTileOfHalves : 0;
  return p.chunks * (p.slices * slice + p.parts * kChunk) + store + more;
}

// Weights that stream come from L2 again for each tile, unless those of all blocks that run are more than it holds: then every
// combination gets more blocks, and those of few combinations run at once (ncu, stylegan2_mid: 1.4 GB from memory for 0.1).
void share_weights(const Device& device, double cycles, GatherParams& p) {
  const int64_t combos = combinations(p), tiles = tiles_of(p),
                most = p.own_tiles ? std::max<int64_t>(1, tiles / kGroups) : tiles;
  p.walkers_first = 0;
  const double bytes = double(p.reduce) * p.tile_channels * p.taps * p.element_bytes;
  if (p.resident || p.h.groups > 1 || bytes * std::min<double>(combos, device.sm_count) <= kHeld)
    return;
  double best = 0;
  for (int64_t walkers = 1; walkers <= most; ++walkers) {
    if (bytes * ceil_div(device.sm_count, walkers) > kHeldShared && walkers < most) continue;
    const double took = ceil_div(combos * walkers, device.sm_count) *
                        (kBlockOfMany + ceil_div(tiles, walkers) * cycles);
    if (best > 0 && took >= best) continue;
    best = took;
    p.walkers[0] = static_cast<int32_t>(walkers);
    p.walkers_first = 1;
  }
}

// What plans took over what is counted (H200, 2026-11-24): grad_input of 32-bit words, by the taps of a part (60 layers and modes);
// forward with tiles of each warpgroup, by phases, the rows of a tile, and whether weights stay (17 layers).
double over_of(const GatherParams& p, Tile tile) {
  if (p.own_tiles) {
    if (tile.phases == 1) return p.resident ? 1.3 : 1.4;
    return p.layout == kRuns ? 1.2 + 0.6 / p.tile_h : 1.5;
  }
  if (p.forward && p.strict && p.lines) return 1.3;
  if (p.forward || p.element_bytes == 2) return 1;
  if (p.parts == 1) {
    if (p.steps_w > 1) return !p.strict ? 1.1 : p.lines ? 1.25 : 0.95;
    return !p.lines ? 1 : p.strict ? 0.88 : 1.17;
  }
  const int taps = p.taps / p.parts;
  if (p.strict) return taps <= 5 ? 1.4 : 1.08;
  return taps <= 5 ? 1.45 : 1.1;
}

// With the best numbers of blocks, which it leaves in the parameters.
double predict(const Problem& problem, const Device& device, Tile tile, GatherParams& p) {
  std::vector<double> cycles;
  for (int g = 0; g < p.h.groups; ++g) cycles.push_back(tile_cycles(problem, p, tile, g));
  set_walkers(device, cycles, p);
  share_weights(device, cycles[0], p);
  const Forward& fit = forward_of(p);
  const double combos = double(combinations(p)) / p.h.groups;
  double longest = 0, all = 0;
  for (int g = 0; g < p.h.groups; ++g) {
    const double once =
        kStart + (p.resident ? double(p.all_weights) / (p.forward ? fit.l2_bytes : kL2Bytes) : 0);
    const double block = once + ceil_div(tiles_of(p), p.walkers[g]) * cycles[g];
    longest = std::max(longest, block);
    all += block * p.walkers[g] * combos;
  }
  const double busy_us = std::max(longest, all / device.sm_count) / kClock;
  const bool anywhere = starts_anywhere(p, tile);
  const double rate = kMemoryRate * (p.h.groups == 1 ? 1
                                     : !p.forward    ? kByPhases
                                     : anywhere      ? fit.lines_by_phases
                                                     : fit.by_phases);
  double memory_us = tensor_bytes(problem) / (rate * device.copy_bytes_per_us);
  const double rows = double(problem.batch) * p.columns * p.groups * p.h.destination_extent;
  const int sector = 32 / p.element_bytes;
  const bool whole = p.w.destination_extent % sector == 0 &&
                     (p.tiles_w == 1 || p.tile_w * tile.phases % sector == 0);
  const double torn = whole ? 0 : !p.forward ? kTorn : anywhere ? fit.torn_line : fit.torn;
  double torn_us = torn * rows * p.tiles_w / device.copy_bytes_per_us;
  // Three products leave time for those bytes as well.
  if (tile.strict) memory_us += std::exchange(torn_us, 0);
  if (p.own_tiles) memory_us += std::exchange(torn_us, 0) / 2;
  double us =
      kLaunch + std::max(busy_us, memory_us) + kLesser * std::min(busy_us, memory_us) + torn_us;
  us *= over_of(p, tile);
  // The same for all plans.
  const bool odd = p.w.destination_extent % (2 * tile.phases) != 0;
  if (p.forward && odd && tile.phases == 2 && p.element_bytes == 4 && !p.strict) us *= kOddRows;
  return us;
}

// Patches come in parts where that was proved: in forward positions step by two where they are pairs of rows.
bool may_part(const Problem& problem) {
  return problem.direction != Direction::fwd && element_size(problem.dtype) == 4;
}

// Where the warpgroups would have other positions of one tile; in 16 bits it took 2.1 times what is counted.
bool may_own_tiles(const Problem& problem, Tile tile, int sets, int row_phases, int layout) {
  return problem.direction == Direction::fwd && !tile.strict && element_size(problem.dtype) == 4 &&
         layout != kBeside && (sets == 0 || (sets == 1 && row_phases == 1));
}

// Blocks of 32 channels ask for fewer weights than others, where these come anew for each tile.
bool may_halve(const Problem& problem, Tile tile, int64_t columns) {
  return problem.direction == Direction::fwd && !tile.strict && element_size(problem.dtype) == 4 &&
         columns % kRows == 0 && phases_of(problem, problem.h) % 2 == 0 &&
         columns * problem.group_in() >= kManyWeights;
}

bool chunks_in_groups(const Problem& problem, int slices) {
  return problem.groups == 1 || problem.direction != Direction::fwd ||
         problem.group_in() % (slice_of(element_size(problem.dtype)) * slices) == 0;
}

// The tiles of one layout: as many rows as fit.
void add_tiles(const Problem& problem, const Device& device, Tile tile, Choice choice,
               std::vector<Choice>& found) {
  GatherParams p;
  choice.tile_n = 1;
  choice.tile_h = choice.tile_w = kEight;
  if (!shape(problem, choice, p).empty()) {
    choice.turned_stages = choice.weight_stages = 3;
    if (!shape(problem, choice, p).empty()) return;
  }
  if (choice.parted && p.parts == 1) return;
  const int64_t extent_h = position_extent(p.h), extent_w = position_extent(p.w);
  const bool other_positions = choice.sets == 0 || (choice.sets == 1 && choice.row_phases == 1);
  const int all = positions(tile) * (other_positions && !choice.own_tiles ? kGroups : 1);
  std::vector<int> widths;
  if (choice.layout == kRuns) {
    for (int pieces = 1; pieces <= 12; ++pieces) {
      const int64_t width = ceil_div(extent_w, pieces);
      add_once(widths, width);
      add_once(widths, std::min(round_up(width, 4), extent_w));
      add_once(widths, std::min(round_up(width, 8), extent_w));
    }
  } else {
    add_once(widths, std::min<int64_t>(extent_w, choice.layout == kBeside ? 2 * kEight : kEight));
  }
  for (const int width : widths) {
    if (width > all || width < std::min<int64_t>(extent_w, kEight)) continue;
    const int64_t across = choice.layout == kRuns
                               ? round_up(width + span_of(p.w) / p.w.source_step, 2)
                           : choice.layout == kBeside ? 2 * kEight
                                                      : kEight;
    // Rows of patches, between the first of the tile and its last.
    const int64_t lines = choice.layout == kRuns ? (all - width) / across + 1 : all / across;
    const int64_t most_h = std::min(lines, extent_h);
    choice.tile_w = width;
    choice.tile_h = static_cast<int>(ceil_div(extent_h, ceil_div(extent_h, most_h)));
    choice.tile_n = 1;
    if (width == extent_w && choice.tile_h == extent_h && !p.brought) {
      const int64_t image = extent_h + span_of(p.h) / p.h.source_step;
      choice.tile_n =
          static_cast<int>(std::min<int64_t>(problem.batch, (lines - extent_h) / image + 1));
    }
    // Fewer rows, where the least that a tile needs is too much for a block.
    while (choice.tile_h > 1 && shape(problem, choice, p).empty() &&
           p.shared_bytes > device.smem_optin)
      choice.tile_h = choice.tile_h * 3 / 4, choice.tile_n = 1;
    found.push_back(choice);
  }
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int64_t phases_w = phases_of(problem, problem.w);
  const int slice = slice_of(element_size(problem.dtype));
  const int64_t columns =
      problem.direction == Direction::fwd ? problem.group_out() : problem.group_in();
  // Those that fetch most taps at once first: others have more to do for the same.
  for (int row = kTileCount; row-- > 0 && found.empty();) {
    const Tile tile = kTiles[row];
    if (tile.phases != phases_w || tile.strict != is_strict(problem)) continue;
    std::vector<Choice> tiles;
    for (const auto& [sets, row_phases] : {std::pair{1, 1}, {2, 1}, {1, 2}, {0, 2}})
      for (const int layout : {kRuns, kStacked, kBeside})
        if (sets == 0
                ? (columns + kRows / 2 - 1) / (kRows / 2) % 2 == 1 ||
                      may_halve(problem, tile, columns)
                : columns * 2 > kRows && (sets * row_phases == 1 ||
                                          ((sets == 1 || columns > kRows) && layout != kBeside)))
          for (const auto& [parted, own_tiles] : {std::pair{0, 0}, {1, 0}, {0, 1}})
            if ((!parted || may_part(problem)) &&
                (!own_tiles || may_own_tiles(problem, tile, sets, row_phases, layout)))
              add_tiles(
                  problem, device, tile,
                  {row, 1, 1, 1, sets, layout, 0, row_phases, 1, 1, 2, 2, 0, parted, own_tiles, {}},
                  tiles);
    for (Choice choice : tiles)
      for (const int slices : {1, 2, kMostSlices}) {
        if (!chunks_in_groups(problem, slices)) continue;
        if (slices > 1 &&
            slices * slice / 2 >=
                (problem.direction == Direction::fwd ? problem.group_in() : problem.group_out()))
          continue;
        choice.slices = slices;
        for (const auto& [weights, turned] : {std::pair{0, 2}, {0, 3}, {2, 2}, {3, 2}, {3, 3}})
          for (const int own_rows : {0, 1}) {
            if (own_rows && tile.taps != 4) continue;
            choice.own_rows = own_rows;
            choice.weight_stages = weights;
            choice.turned_stages = turned;
            // Lines, and what lanes have, where both are possible: lines of grad_input were not measured.
            for (const int lined : {1, 0}) {
              if (lined && problem.direction != Direction::fwd) continue;
              choice.lined = lined;
              choice.x_stages = 1;
              GatherParams p;
              if (std::string why = shape(problem, choice, p); !why.empty()) {
                reason = why;
                break;
              }
              if (p.lined != lined && problem.direction == Direction::fwd) break;
              if (p.shared_bytes > device.smem_optin) {
                if (found.empty())
                  reason =
                      "a tile needs " + std::to_string(p.shared_bytes) + " bytes of shared memory";
                continue;
              }
              if (!p.brought)
                choice.x_stages =
                    std::min(kMostRing, 1 + (device.smem_optin - p.shared_bytes) / p.x_bytes);
              shape(problem, choice, p);
              const double predicted = predict(problem, device, tile, p);
              std::copy(std::begin(p.walkers), std::end(p.walkers), choice.walkers);
              choice.walkers_first = p.walkers_first;
              found.push_back({choice, predicted});
            }
          }
      }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  GatherParams p;
  shape(problem, c, p);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.tile_n,
                        c.tile_h,
                        c.tile_w,
                        c.walkers_first * 1024 + c.own_tiles * 512 + c.parted * 256 +
                            c.lined * 128 + c.row_phases * 32 + c.own_rows * 16 + c.sets * 4 +
                            c.layout,
                        c.slices,
                        c.x_stages,
                        c.turned_stages,
                        c.weight_stages};
  std::copy(std::begin(c.walkers), std::end(c.walkers),
            std::copy(std::begin(detail), std::end(detail), plan.detail));
  const char* const layouts[] = {"runs", "columns", "columns beside each other"};
  plan.note = std::to_string(p.tile_channels) + " channels, " +
              std::to_string(kTiles[c.row].phases) + " phases" +
              (c.row_phases > 1 ? " of two rows, tile " : ", tile ") + std::to_string(c.tile_n) +
              "x" + std::to_string(c.tile_h) + "x" + std::to_string(c.tile_w) + " in " +
              layouts[c.layout] + ", K " + std::to_string(slice_of(p.element_bytes) * c.slices) +
              " x " + std::to_string(c.x_stages) + " and " + std::to_string(c.turned_stages) +
              " stages, weights " +
              (c.weight_stages ? std::to_string(c.weight_stages) + " stages" : "resident") +
              (c.own_rows ? " of own rows, " : ", ") + std::to_string(blocks_of(p)) + " blocks" +
              (p.lined ? ", lines" : "") + (p.own_tiles ? ", tiles of each group" : "") +
              (p.parts > 1 ? ", parts" : "") + (p.brought ? ", brought" : "");
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row,       d[0],           d[1],           d[2],
          d[3] / 4 % 4,   d[3] % 4,       d[3] / 16 % 2,  d[3] / 32 % 4,
          d[4],           d[5],           d[6],           d[7],
          d[3] / 128 % 2, d[3] / 256 % 2, d[3] / 512 % 2, {d[8], d[9], d[10], d[11]},
          d[3] / 1024};
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (!device.has_wgmma) return "no wgmma (sm_90a)";
  if (problem.direction == Direction::grad_weight) return "loom is for forward and grad_input";
  if (problem.dtype == DType::f64) return "loom is not for fp64";
  if (problem.x_layout != Layout::nchw || problem.w_layout != Layout::nchw ||
      problem.y_layout != Layout::nchw)
    return "loom is for NCHW";
  const bool forward = problem.direction == Direction::fwd;
  const int64_t taps = problem.h.kernel * problem.w.kernel,
                phases_w = phases_of(problem, problem.w);
  if (taps > kMostTaps) return number(taps) + " taps are more than " + number(kMostTaps);
  const int64_t bytes = element_size(problem.dtype), vector = 16 / bytes;
  if (problem.group_out() * taps % vector != 0)
    return number(problem.group_out()) + " kernels are not whole vectors of " + number(vector);
  const int64_t row = forward ? problem.w.in : problem.w.out;
  const int64_t plane = row * (forward ? problem.h.in : problem.h.out),
                sources = forward ? problem.group_in() : problem.group_out();
  if (bytes == 2 && row % vector != 0 && plane % vector != 0 &&
      (plane * 2 % vector != 0 || sources % 2 != 0))
    return "rows of " + number(row) + " pixels, and planes of " + number(plane) +
           " in pairs, are no whole 16 bytes";
  // Then each pixel has one product for each output, and nothing is won by turning it: fold and hopper leave it as it lies.
  if (forward && problem.h.kernel == problem.h.stride && problem.w.kernel == problem.w.stride)
    return "the kernel is its stride";
  if (phases_w > 2 || (phases_w > 1 && phases_w != problem.w.stride))
    return "a row of the result has " + number(phases_w) + " phases";
  if (is_strict(problem) && phases_w > 1 && problem.w.kernel % 3 != 0 && problem.w.kernel % 4 != 0)
    return "strict fp32 of two phases takes 3 or 4 taps of a kernel row at once, not " +
           number(problem.w.kernel);
  if (!forward && std::max(problem.h.stride, problem.w.stride) > 4)
    return "a stride of " + number(std::max(problem.h.stride, problem.w.stride)) + " is above 4";
  const int64_t columns = forward ? problem.group_out() : problem.group_in();
  const int64_t phases_h = phases_of(problem, problem.h);
  if (columns * 2 <= kRows &&
      (columns * 4 < kRows || (forward ? phases_h > 1 && phases_h % 2 != 0 : bytes == 2)))
    return "channels of the result fill less than half of a tile";
  if (!chunks_in_groups(problem, 1))
    return number(problem.group_in()) + " channels of a group are not whole slices of " +
           number(slice_of(bytes));
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return sums_too_short(problem, forward ? kLeastWgmmaTerms : kLeastWgmmaTermsOfInput);
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

GatherParams params_of(const Problem& problem, const Plan& plan, const Args& args) {
  GatherParams p;
  shape(problem, choice_of(plan), p);
  set_strided_tensors(problem, args, p);
  return p;
}

int64_t blocks_of(const GatherParams& p) { return walking_blocks(p); }

TensorMaps maps_of(const GatherParams& p) {
  // 16 bits by two, as words, of which a box may have as many.
  const int64_t bytes = p.element_bytes, row = p.w.source_extent * bytes,
                plane = row * p.h.source_extent, channels = int64_t{p.groups} * p.reduce,
                kernels = int64_t{p.forward ? p.columns : p.reduce} * p.taps * bytes,
                inputs = int64_t{p.groups} * (p.forward ? p.reduce : p.columns);
  const int slice = slice_of(p.element_bytes);
  const bool rounded = bytes == 4 && !p.strict;
  TensorMaps maps{};
  if (p.lines && bytes == 2)
    maps.source = encode({p.source,
                          4,
                          4,
                          {p.lines * plane / 4, channels / p.lines, p.batch, 1},
                          {4, p.lines * plane, plane * channels, plane * channels * p.batch},
                          {p.copied_w / 2, slice * p.slices / p.lines, p.tile_n, 1},
                          {1, 1, 1, 1},
                          false,
                          false});
  else if (bytes == 2)
    maps.source = encode({p.source,
                          4,
                          4,
                          {row / 4, p.h.source_extent, channels, p.batch},
                          {4, row, plane, plane * channels},
                          {p.copied_w / 2, p.copied_h, slice * p.slices, p.tile_n},
                          {1, 1, 1, 1},
                          false,
                          false});
  else if (!p.brought) {
    const int planes = std::max(p.lines, 1);
    maps.source =
        encode({p.source,
                4,
                4,
                {int64_t{p.period} * p.w.source_extent,
                 int64_t{planes} * p.h.source_extent / p.period, channels / planes, p.batch},
                {4, p.period * row, planes * plane, plane * channels},
                {p.copied_w, p.copied_h, slice * p.slices / planes, p.tile_n},
                {1, p.set_step, 1, 1},
                false,
                rounded});
  }
  if (p.own_rows)
    maps.weight = encode({p.weight,
                          4,
                          4,
                          {4, inputs, p.columns, p.taps / 4},
                          {4, kernels, p.taps * 4, 16},
                          {4, p.pitch, p.tile_channels, 1},
                          {1, 1, 1, 1},
                          false,
                          !p.strict});
  else
    maps.weight = encode({p.weight,
                          4,
                          4,
                          {kernels / 4, inputs, 1, 1},
                          {4, kernels, kernels * inputs, kernels * inputs},
                          {p.pitch, p.forward ? slice * p.slices : p.tile_channels, 1, 1},
                          {1, 1, 1, 1},
                          false,
                          rounded});
  return maps;
}

}  // namespace convt2d::cuda::loom
