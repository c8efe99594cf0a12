#include "cuda/loom/loom_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/loom/loom_shape.h"
#include "cuda/strict_sums.h"
#include "cuda/walkers.h"

namespace convt2d::cuda::loom {
namespace {

// Patches come in parts where that was proved: in forward positions step by two where they are pairs of rows.
bool may_part(const Problem& problem) {
  return problem.direction != Direction::fwd && element_size(problem.dtype) == 4;
}

// Where the warpgroups would have other positions of one tile, and weights are laid.
bool owns_tiles(Tile tile, int sets, int row_phases) {
  return tile.laid && (sets == 0 || (sets == 1 && row_phases == 1));
}

// Blocks that walk many tiles drift apart, until what neighbours share, sectors of a row of the result and pixels, does not meet
// in L2 any more; so where there are many, new blocks start after so many tiles (H100, TF32, 2026-11-25: with 10 rounds
// kernelbench_2_5 took 1851 us for 2212; with 2, of 80 tiles in all, 2_91 1034 for 939).
constexpr int kTilesOfRound = 16, kLeastRounds = 8;
int rounds_of(Tile tile, const GatherParams& p) {
  if (!p.forward || p.element_bytes != 4 || tile.strict || p.walkers_first || !torn(p, tile))
    return 1;
  const int64_t rounds = tiles_of(p) / (int64_t{p.walkers[0]} * kTilesOfRound);
  return rounds < kLeastRounds ? 1 : static_cast<int>(std::min<int64_t>(rounds, kMostRounds));
}

bool chunks_in_groups(const Problem& problem, int slices) {
  return problem.groups == 1 || problem.direction != Direction::fwd ||
         problem.group_in() % (slice_of(element_size(problem.dtype)) * slices) == 0;
}

// How outputs go to memory: laid out as they lie there, by lanes or by the copy engine, or what lanes have.
enum Store { kLines, kLanes, kBoxes };

// The tiles of one layout: as many rows as fit.
void add_tiles(const Problem& problem, const Device& device, Tile tile, Choice choice,
               std::vector<Choice>& found) {
  GatherParams p;
  choice.tile_n = 1;
  choice.tile_h = choice.tile_w = kEight;
  if (!shape(problem, choice, p).empty()) {
    choice.turned_stages = 3;
    if (!tile.laid) choice.weight_stages = 3;
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

// Choices that differ in stages, ways of weights and ways of storing: all of them take `least` us at least.
struct Bundle {
  Choice choice;
  int order;  // among all, by which the first of equals is known
  double least;
};

// Offers each choice of a bundle that fits, and its parameters, until `offer` wants no more. Returns whether there was one.
template <class Offer>
bool each_choice(const Problem& problem, const Device& device, Choice choice, std::string& reason,
                 Offer&& offer) {
  const Tile tile = kTiles[choice.row];
  const bool one_way = tile.laid && element_size(problem.dtype) == 2;  // of storing
  struct Known {
    int weight_stages = -1;
    std::string reason;
    GatherParams p;
  } known[2];  // of weights of own rows or not, by the last number of stages
  bool any = false;
  for (const auto& [weights, turned] : {std::pair{0, 2}, {0, 3}, {0, 5}, {2, 2}, {3, 2}, {3, 3}})
    for (const int own_rows : {0, 1}) {
      if (own_rows && tile.taps != 4) continue;
      if (tile.laid ? weights > 0 : turned > 3) continue;
      choice.own_rows = own_rows;
      choice.weight_stages = weights;
      choice.turned_stages = turned;
      Known& here = known[own_rows];
      GatherParams& p = here.p;
      if (here.weight_stages != weights)
        here.weight_stages = weights, here.reason = shape_but_stages(problem, choice, p);
      if (!here.reason.empty()) {
        reason = here.reason;
        continue;
      }
      // Lines, and what lanes have, where both are possible: lines of grad_input were not measured.
      for (const Store way : {kLines, kLanes, kBoxes}) {
        const int lined = way == kLines;
        if (way != kLanes && problem.direction != Direction::fwd) continue;
        if (one_way && lined != laid_lines(tile)) continue;
        choice.lined = lined;
        choice.boxed = way == kBoxes;
        choice.x_stages = choice.rounds = 1;
        if (std::string why = set_stages(choice, p); !why.empty()) {
          reason = why;
          break;
        }
        if (p.lined != lined && problem.direction == Direction::fwd) break;
        if (p.shared_bytes > device.smem_optin) {
          reason = "a tile needs " + std::to_string(p.shared_bytes) + " bytes of shared memory";
          continue;
        }
        any = true;
        if (!p.brought)
          p.x_stages = choice.x_stages =
              std::min(kMostRing, 1 + (device.smem_optin - p.shared_bytes) / p.x_bytes);
        if (!offer(choice, p)) return true;
      }
    }
  return any;
}

// All bundles there are, and, for a search, what they take at least.
std::vector<Bundle> bundles(const Problem& problem, const Device& device, bool bounds,
                            std::string& reason) {
  std::vector<Bundle> found;
  const int64_t phases_w = phases_of(problem, problem.w);
  const int slice = slice_of(element_size(problem.dtype));
  const int64_t columns =
      problem.direction == Direction::fwd ? problem.group_out() : problem.group_in();
  // Those that fetch most taps at once first: others have more to do for the same. And, whatever these are, laid weights.
  bool fetched = false;
  for (int row = kTileCount; row-- > 0;) {
    const Tile tile = kTiles[row];
    if (tile.phases != phases_w || tile.strict != is_strict(problem)) continue;
    if (tile.laid ? problem.direction != Direction::fwd : fetched) continue;
    const bool one_way = tile.laid && element_size(problem.dtype) == 2;  // of storing
    const size_t before = found.size();
    std::vector<Choice> tiles;
    for (const auto& [sets, row_phases] : {std::pair{1, 1}, {2, 1}, {1, 2}, {0, 2}})
      for (const int layout : {kRuns, kStacked, kBeside})
        if (sets == 0
                ? (columns + kRows / 2 - 1) / (kRows / 2) % 2 == 1
                : columns * 2 > kRows && (sets * row_phases == 1 ||
                                          ((sets == 1 || columns > kRows) && layout != kBeside)))
          for (const int parted : {0, 1}) {
            const int own_tiles = owns_tiles(tile, sets, row_phases);
            if ((!parted || may_part(problem)) && (!own_tiles || layout != kBeside))
              add_tiles(problem, device, tile,
                        {row,
                         1,
                         1,
                         1,
                         sets,
                         layout,
                         0,
                         row_phases,
                         1,
                         1,
                         2,
                         tile.laid ? 0 : 2,
                         one_way && laid_lines(tile),
                         parted,
                         own_tiles,
                         {}},
                        tiles);
          }
    for (Choice choice : tiles)
      for (const int slices : {1, 2, kMostSlices}) {
        if (!chunks_in_groups(problem, slices)) continue;
        if (slices > 1 &&
            slices * slice / 2 >=
                (problem.direction == Direction::fwd ? problem.group_in() : problem.group_out()))
          continue;
        choice.slices = slices;
        Bundle bundle{choice, static_cast<int>(found.size()), 0};
        const auto first = [&](const Choice&, const GatherParams& p) {
          if (bounds) bundle.least = least(problem, device, tile, p);
          return false;
        };
        if (each_choice(problem, device, choice, reason, first)) found.push_back(bundle);
      }
    fetched |= !tile.laid && found.size() > before;
  }
  return found;
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason, Best* best) {
  struct Found {
    Candidate<Choice> candidate;
    int order;
  };
  std::vector<Found> all;
  std::vector<Bundle> searched = bundles(problem, device, best != nullptr, reason);
  std::stable_sort(searched.begin(), searched.end(),
                   [](const Bundle& a, const Bundle& b) { return a.least < b.least; });
  for (const Bundle& bundle : searched) {
    if (best && best->beats(bundle.least)) break;
    const Tile tile = kTiles[bundle.choice.row];
    each_choice(problem, device, bundle.choice, reason, [&](Choice choice, GatherParams& p) {
      double predicted = predict(problem, device, tile, p);
      choice.rounds = rounds_of(tile, p);
      if (choice.rounds > 1) {
        p.rounds = static_cast<int16_t>(choice.rounds);
        predicted = predict(problem, device, tile, p);
      }
      std::copy(std::begin(p.walkers), std::end(p.walkers), choice.walkers);
      choice.walkers_first = p.walkers_first;
      all.push_back({{choice, predicted}, bundle.order});
      if (best) best->found(predicted, bundle.least);
      return true;
    });
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Found& a, const Found& b) { return a.order < b.order; });
  std::vector<Candidate<Choice>> found;
  for (const Found& one : all) found.push_back(one.candidate);
  return found;
}

// For all_plans() and best_plan().
auto candidates_of(Best* best) {
  return [best](const Problem& problem, const Device& device, std::string& reason) {
    return candidates(problem, device, reason, best);
  };
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
                        (c.rounds - 1) * 2048 + c.walkers_first * 1024 + c.own_tiles * 512 +
                            c.parted * 256 + c.lined * 128 + c.row_phases * 32 + c.own_rows * 16 +
                            c.sets * 4 + c.layout,
                        c.slices + c.boxed * 16,
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
              (c.weight_stages      ? std::to_string(c.weight_stages) + " stages"
               : kTiles[c.row].laid ? "laid"
                                    : "resident") +
              (c.own_rows ? " of own rows, " : ", ") + std::to_string(blocks_of(p)) + " blocks" +
              (p.lined   ? ", lines"
               : p.boxed ? ", boxes"
                         : "") +
              (p.own_tiles ? ", tiles of each group" : "") + (p.parts > 1 ? ", parts" : "") +
              (p.brought ? ", brought" : "") +
              (p.rounds > 1 ? ", " + std::to_string(p.rounds) + " rounds" : "");
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row,
          d[0],
          d[1],
          d[2],
          d[3] / 4 % 4,
          d[3] % 4,
          d[3] / 16 % 2,
          d[3] / 32 % 4,
          d[4] % 16,
          d[5],
          d[6],
          d[7],
          d[3] / 128 % 2,
          d[3] / 256 % 2,
          d[3] / 512 % 2,
          {d[8], d[9], d[10], d[11]},
          d[3] / 1024 % 2,
          d[3] / 2048 + 1,
          d[4] / 16};
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
  // Then each pixel has one product for each output, and nothing is won by turning it: fold and tuft leave it as it lies.
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
  return all_plans(problem, device, reason, refusal, candidates_of(nullptr), plan_of);
}

Decision plan(const Problem& problem, const Device& device) { return search(problem, device, {}); }

Decision search(const Problem& problem, const Device& device, Best best) {
  return best_plan(problem, device, refusal, candidates_of(&best), plan_of);
}

GatherParams params_of(const Problem& problem, const Plan& plan, const Args& args) {
  GatherParams p;
  shape(problem, choice_of(plan), p);
  set_strided_tensors(problem, args, p);
  return p;
}

int64_t blocks_of(const GatherParams& p) { return walking_blocks(p) * p.rounds; }

}  // namespace convt2d::cuda::loom
