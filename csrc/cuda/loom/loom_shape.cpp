#include "cuda/loom/loom_shape.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <vector>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/remembered.h"
#include "cuda/shared_memory.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::loom {

namespace {

int count_in_a_bank(int bytes, int row_pitch, int number_pitch) {
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

}  // namespace

int most_in_a_bank(int bytes, int row_pitch, int number_pitch) {
  thread_local Remembered<int, 3, 32> known;
  return known.answer({bytes, row_pitch, number_pitch},
                      [&](int& most) { most = count_in_a_bank(bytes, row_pitch, number_pitch); });
}

int unit_bytes(Tile tile, const GatherParams& p) {
  return tile.taps == 4 ? 4 * p.element_bytes : 4;
}

bool starts_anywhere(const GatherParams& p, Tile tile) {
  return p.w.destination_extent % (2 * tile.phases) != 0 || (p.tile_w % 2 != 0 && p.tiles_w > 1);
}

bool torn(const GatherParams& p, Tile tile) {
  const int sector = 32 / p.element_bytes;
  return p.w.destination_extent % sector != 0 ||
         (p.tiles_w > 1 && p.tile_w * tile.phases % sector != 0);
}

namespace {

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

// Whether weights come in segments. Halves of rows, and pairs of planes, have other places. Of three taps, which start in the
// middle of a word, an address costs more than the copy engine gains (H200, 2026-11-26: stylegan2_mid 555 us for 530,
// lama_up1 227 for 224), and so does one of single taps (htdemucs_f0 75 for 71).
bool in_segments(Tile tile, const GatherParams& p) {
  return p.forward && p.element_bytes == 2 && tile.taps == 4 && !p.halved && p.lines < 2 &&
         p.columns * p.taps * p.element_bytes % kSegment == 0;
}

// Where weights lie in a stage.
std::string set_weights(Tile tile, GatherParams& p) {
  const int sets = p.tile_channels / kRows;
  p.weight_barrier = 16;
  if (tile.laid) {
    p.weight_barrier = 0;
    p.laid_step = p.slices * p.chunks * kMatrix + 16;
    return {};
  }
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
  p.woven = p.forward && p.element_bytes == 4 && !tile.strict && tile.taps == 4 && p.taps == 16 &&
            p.columns % 2 == 0 && !p.halved;
  if (p.woven) {
    p.row_pitch = slice * p.slices * 128;  // of two channels out
    p.far_row = 4 * p.row_pitch;
    p.warp_pitch = 8 * p.row_pitch;
    p.two_warps_pitch = 2 * p.warp_pitch;
    p.set_pitch = sets > 1 ? 2 * p.two_warps_pitch : 0;
    p.slice_pitch = slice * 128;
    p.far_number = slice / 2 * 128;
    p.weight_bytes = p.tile_channels / 2 * p.row_pitch;
    p.all_weights = p.weight_stages * p.weight_bytes;
    return {};
  }
  // Of two planes that are copied together, a half of K has those of one.
  const int apart = p.lines == 2 && p.element_bytes == 2 ? 2 : 1;
  if (in_segments(tile, p)) {
    p.segment_bytes = slice * p.slices * kSegment;
    p.segment_mask = kSegment - 1;
    // Words have channels that are four apart.
    p.flip = 4 * 16;
    p.far_channel = 4 * kSegment;
    p.number_pitch = kSegment;
    p.far_number = slice / 2 * kSegment;
    p.slice_pitch = slice * kSegment;
    // Places in what a channel in has.
    p.row_pitch = tap_bytes;
    p.far_row = 8 * tap_bytes;
    p.warp_pitch = 16 * tap_bytes;
    p.two_warps_pitch = 32 * tap_bytes;
    p.set_pitch = sets > 1 ? kRows * tap_bytes : 0;
    p.weight_bytes = p.tile_channels * tap_bytes / kSegment * p.segment_bytes;
    p.all_weights = p.weight_stages * p.weight_bytes;
    return {};
  }
  p.segment_mask = ~0u;
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
  p.far_channel = 4 * p.number_pitch;
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

// Laid weights are multiplied phase by phase, so steps are sorted by that; what they take.
std::string set_laid(Tile tile, GatherParams& p) {
  const auto phase = [](const Step& step) { return step.weights >> kPhaseShift & 1; };
  int most = 0;
  for (int row = 0; row < p.h.groups * p.row_phases; ++row) {
    Step *const first = p.step + p.first_step[row], *const end = p.step + p.first_step[row + 1];
    Step* const second = std::stable_partition(first, end, [&](Step s) { return !phase(s); });
    if (first == end) continue;
    if (second == first) return "a first phase has no taps";
    p.middle[row] =
        static_cast<int16_t>((tile.phases > 1 ? second : first + (end - first + 1) / 2) - p.step);
  }
  for (int g = 0; g < p.h.groups; ++g) {
    const int first = g * p.row_phases;
    most =
        std::max(most, p.first_step[first + (p.halved ? 1 : p.row_phases)] - p.first_step[first]);
  }
  p.laid_set = p.tile_channels > kRows ? most * p.laid_step : 0;
  p.all_weights = most * p.laid_step + p.laid_set;
  if (p.all_weights > kMostLaid)
    return "laid weights of " + std::to_string(p.all_weights) + " bytes leave no room for patches";
  return {};
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
  if (std::string reason = tile.laid ? set_laid(tile, p) : ""; !reason.empty()) return reason;
  for (int run = 0; p.parts > 1 && run < runs; ++run)
    if (p.first_step[run] == p.first_step[run + 1]) return "a part of a patch has no taps";
  for (int row = 0; p.row_phases > 1 && row < p.h.groups * p.row_phases; ++row)
    if (p.h.group[row / p.row_phases].taps[row % p.row_phases] == 0)
      return "a phase of rows has no taps";
  return {};
}

// Whether what a warp has of a tile are boxes of the result, which end where channels, rows and images do.
bool fills_boxes(Tile tile, const GatherParams& p) {
  const bool all_positions =
      p.tile_channels > kRows || (p.row_phases > 1 && !p.halved) || p.own_tiles;
  return p.forward && p.element_bytes == 2 && tile.phases == 2 && p.layout == kStacked &&
         all_positions && p.tile_n == 1 && !p.lined && p.w.destination_extent % kEight == 0 &&
         p.h.destination_extent % p.h.destination_step == 0 &&
         (p.groups == 1 || p.columns % kBoxChannels == 0);
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

}  // namespace

std::string shape_but_stages(const Problem& problem, const Choice& choice, GatherParams& p) {
  const Tile tile = kTiles[choice.row];
  p = {};
  p.forward = problem.direction == Direction::fwd;
  p.strict = tile.strict;
  p.laid = tile.laid;
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
  const int vector = 16 / p.element_bytes;
  const bool odd = p.w.source_extent % vector != 0;
  if (p.parts > 1 && (halves || p.own_tiles))
    return "16 bits, and tiles of a group, are of one part";
  if (p.own_tiles && !p.laid) return "tiles of a group want weights that are laid";
  if (p.laid && (!p.forward || choice.weight_stages != 0 || choice.own_rows))
    return "laid weights are those of forward, and stay";
  // Of eight columns each, such tiles took four times what runs take (kernelbench_2_5, stylegan2_hi; H200, 2026-11-24).
  if (p.laid && p.layout != kRuns && p.w.destination_extent * p.element_bytes % 32 != 0)
    return "laid weights in columns want rows of y that are whole sectors";
  // Blocks drift apart unless they wait for patches, and then twice as many bytes come from memory (kernelbench_2_5 1354 to 2844
  // us, 2_19 2334 to 4581; H200, 2026-11-24). In rounds some still take twice as long, and the best gain little over fetched words.
  if (p.laid && !halves && p.own_tiles && p.layout == kRuns)
    return "laid weights of words and tiles of a group are for columns";
  p.row_sets = 1;
  if (!halves) {
    const std::string unlike = set_rows_of_words(p);
    p.brought = odd && !unlike.empty();
    if (!odd && !unlike.empty()) return unlike;
    if (p.brought) p.lines = 0, p.row_sets = 1;
    if (p.brought && p.laid) return "with laid weights the copy engine brings patches";
  }
  if (halves && odd) p.lines = planes_of_line(p);
  // From multiples of 32 bytes on where they can (TensorBox); laid weights leave no room for longer rows.
  p.row_start = !halves && !p.lines && !p.laid && p.w.source_extent % 8 == 0 ? 8 : vector;
  // What all places where a tile may start have in common, of where rows start. Rows of words do not start alike.
  int common = p.lines && !halves ? 1 : p.row_start;
  if (p.tiles_w > 1) common = std::gcd(common, p.steps_w * p.tile_w);
  if (p.lines && p.tiles_h > 1)
    common = std::gcd(common, int(p.steps_h * p.tile_h * p.w.source_extent % vector));
  const int low = p.w.group[0].offset_low & (p.row_start - 1);
  const int lead = p.lines ? vector - 1 : p.row_start - common + low % common;
  p.tables = vector / common;
  while (1 << p.lead_shift < common) ++p.lead_shift;
  p.octets = static_cast<int32_t>(ceil_div(lead + p.load_w, kEight));
  if (halves || p.brought) p.copied_h = p.load_h;
  p.copied_w = static_cast<int32_t>(round_up(lead + p.load_w, p.row_start));
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
  p.turned_slice = (tile.strict ? 4 : 2) * p.half_bytes;
  p.turned_bytes = p.turned_slice * p.slices;
  p.column_pitch = p.layout == kRuns ? kEight * 16 : p.plane_w * 16;
  if (!p.own_tiles && (p.halved || (choice.sets == 1 && p.row_phases == 1)))
    p.beside = p.layout == kBeside ? kEight * 16 : positions(tile) / kEight * p.column_pitch;

  p.resident = static_cast<int16_t>(choice.weight_stages == 0);
  p.weight_stages = p.resident ? p.chunks : choice.weight_stages;
  if (p.weight_stages > kMostWeights) return "weights that stay are too many chunks";
  p.own_rows = static_cast<int16_t>(choice.own_rows);
  if (p.own_rows && p.row_phases > 1) return "kernel rows are of several phases";
  if (p.own_rows &&
      (halves || tile.taps != 4 || problem.w.kernel != 4 || p.h.groups == 1 || !p.forward))
    return "kernel rows are not of 16 bytes, or are all of one phase";
  if (std::string reason = set_weights(tile, p); !reason.empty()) return reason;
  return set_steps(problem, tile, p);
}

std::string set_stages(const Choice& choice, GatherParams& p) {
  const Tile tile = kTiles[choice.row];
  const bool halves = p.element_bytes == 2;
  std::copy(std::begin(choice.walkers), std::end(choice.walkers), p.walkers);
  p.walkers_first = static_cast<int16_t>(choice.walkers_first);
  p.rounds = static_cast<int16_t>(choice.rounds);
  p.x_stages = p.brought ? 1 : choice.x_stages;
  p.turned_stages = choice.turned_stages;
  if (p.turned_stages < least_turned(tile, p) ||
      (!p.resident && p.weight_stages < least_weights(tile, p)))
    return "chunks of one step want three stages";
  p.lined = choice.lined || starts_anywhere(p, tile);
  if (tile.laid && halves && p.lined != laid_lines(tile))
    return p.lined ? "laid weights of 16 bits and two phases store no lines"
                   : "laid weights of 16 bits and one phase store lines";
  p.boxed = choice.boxed;
  if (p.boxed && !fills_boxes(tile, p)) return "outputs are no boxes of rows of two phases";
  SharedPlaces places{kHeader};
  p.items_at = places.take(
      int64_t{halves ? p.tables * p.table_items : p.row_sets * p.items} * (p.lines ? 8 : 4), 16);
  p.weights_at = places.take(p.all_weights, p.segment_bytes ? 8 * kSegment : p.woven ? 1024 : 128);
  p.x_at = places.take(int64_t{p.x_stages} * p.x_bytes, 128);
  p.laid_at = places.take(p.laid ? int64_t{p.taps} * 8 : 0, 16);
  p.zeros =
      p.halved && !p.laid ? (p.far_row + p.far_number + 4 * p.number_pitch) / 4 + kMostFetched : 0;
  p.zeros_at = places.take(int64_t{p.zeros} * 4, 16);
  p.lines_at = places.take(kConsumers / 32 * (p.lined ? kLineBytes : p.boxed ? kBoxBytes : 0), 128);
  p.turned_at = places.take(int64_t{p.turned_stages} * p.turned_bytes, 128);
  // Of the last slice: what instructions read, and that again if halves followed each other (compute-sanitizer thinks so).
  const int read = units_read(p, tile) * 16;
  places.take(std::max({0, read - p.half_bytes, read + positions(tile) * 16 - 2 * p.half_bytes}),
              16);
  p.shared_bytes = static_cast<int32_t>(places.end);
  return {};
}

std::string shape(const Problem& problem, const Choice& choice, GatherParams& p) {
  std::string reason = shape_but_stages(problem, choice, p);
  return reason.empty() ? set_stages(choice, p) : reason;
}

}  // namespace convt2d::cuda::loom
