#include "cuda/hopper/hopper_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper.h"
#include "cuda/hopper/hopper_fetched_weight.h"
#include "cuda/hopper/hopper_packed_weight.h"
#include "cuda/hopper/hopper_predict.h"
#include "cuda/hopper/hopper_weight_plan.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::hopper {
namespace {

// Of grad_input. Fetched tiles are held to the error that others have of 96 products (kLeastWgmmaTermsOfInput), by a
// model of a tensor core that cuts off (not measured): theirs grows with the part that is summed apart, four slices of 128
// columns and two of 64 or fewer, and is least where threads round both parts of the weights, those of few channels.
constexpr int64_t kLeastTermsOfWide = 128, kLeastTermsOfFew = 48;
int64_t least_terms(TileRow tile, bool one_chunk) {
  return !tile.fetched       ? kLeastWgmmaTermsOfInput
         : tile.width == 128 ? kLeastTermsOfWide
         : one_chunk         ? kLeastTermsOfFew
                             : kLeastWgmmaTermsOfInput;
}

// Position tiles worth looking at for operands that are runs of pixels, and for columns of them.
std::vector<GatherChoice> tile_shapes(const Problem& problem, int row, int teams) {
  const TileRow tile = kTiles[row];
  const bool forward = problem.direction == Direction::fwd;
  const int64_t step_h = forward ? problem.h.stride : 1, step_w = forward ? problem.w.stride : 1;
  const int64_t extent_h = ceil_div(forward ? problem.h.out : problem.h.in, step_h);
  const int64_t extent_w = ceil_div(forward ? problem.w.out : problem.w.in, step_w);
  const int positions = block_positions(tile) / teams, operand = operand_positions(tile);
  const int operands = positions / operand;
  std::vector<GatherChoice> shapes;
  shapes.reserve(128);
  const auto add = [&](int64_t n, int64_t h, int64_t w, int columns) {
    GatherChoice choice{};
    choice.row = row;
    choice.teams = teams;
    choice.tile_n = static_cast<int>(n);
    choice.tile_h = static_cast<int>(h);
    choice.tile_w = static_cast<int>(w);
    choice.operand_columns = columns;
    shapes.push_back(choice);
  };
  for (int columns = 1; columns <= operands; columns *= 2) {
    const int64_t w = columns * kGroup, h = operands / columns * (operand / kGroup);
    add(1, std::min(h, extent_h), w, columns);
  }
  // Runs hold the pixels between the rows' ends too; gather_shape refuses what does not fit, so offer
  // fewer and fewer rows.
  const auto runs = [&](int64_t w) {
    const int64_t most_h = std::min(extent_h, std::max<int64_t>(1, positions / w));
    for (int64_t h = most_h; h >= std::max<int64_t>(1, most_h - 6); --h) {
      if (h == extent_h && w == extent_w) {
        const int64_t most = std::min(problem.batch, std::max<int64_t>(1, positions / (w * h)));
        for (int64_t n = most; n >= 1; n = n > 16 ? n * 7 / 8 : n - 1) {
          n = ceil_div(problem.batch, ceil_div(problem.batch, n));  // as few as make so many tiles
          add(n, h, w, 0);
        }
      } else {
        add(1, h, w, 0);
      }
    }
  };
  if (extent_w <= positions) runs(extent_w);
  // Fetched rows of several images, where they fill a tile better than rows of one: nine images x 2 x 14 positions are 252 of
  // 256, whole images of 14 x 14 are 196.
  // Not where tiles of rows read each other's: kprcnn, of 17 channels of 4 x 4 taps, 375 us for 283.
  const bool apart = (problem.h.kernel - 1) * problem.h.dilation < problem.h.stride;
  // Nor where what they read of a plane is short: maskrcnn 9 x 1 x 14 414 us, 4 x 2 x 14, of 448 bytes, 351.
  constexpr int64_t kLeastRun = 400;
  if (tile.fetched && apart && extent_w * 2 <= positions) {
    const int64_t row = problem.h.stride * problem.w.out * element_size(problem.dtype);
    const auto tiles = [&](int64_t n, int64_t h) {
      return ceil_div(problem.batch, n) * ceil_div(extent_h, h);
    };
    const int64_t rows = std::min(extent_h, positions / extent_w), of_one = tiles(1, rows),
                  whole = tiles(positions / (extent_w * rows), rows);
    for (int64_t h = ceil_div(kLeastRun, row); h < extent_h && h * extent_w * 2 <= positions; ++h)
      if (const int64_t n = std::min(problem.batch, positions / (h * extent_w));
          tiles(n, h) < std::min(of_one, whole))
        add(n, h, extent_w, 0);
  }
  // What is left of a power of two by the pixels beside it is good where rows of the source are positions too. Fetched
  // ones have an address each, and had better write whole sectors.
  const auto good = [&](int64_t w) {
    return !tile.fetched || w * element_size(problem.dtype) % 32 == 0;
  };
  for (int64_t w : {16, 30, 32, 62, 64, 126, 128, 254, 256, 510, 512})
    if (w < extent_w && w <= positions && good(w)) runs(w);
  for (int64_t pieces = 2; pieces <= 4; ++pieces) {
    const int64_t w = ceil_div(ceil_div(extent_w, pieces), 2) * 2;
    if (w >= 16 && w <= positions && good(w)) runs(w);
  }
  return shapes;
}

bool same_shape(const GatherChoice& a, const GatherChoice& b) {
  return a.tile_h == b.tile_h && a.tile_w == b.tile_w && a.tile_n == b.tile_n &&
         a.operand_columns == b.operand_columns;
}

// Of Plan.detail, beside the operands and the lead.
constexpr int kSecondTeamBit = 1 << 24;

// How many phases lie side by side in the columns.
std::vector<std::pair<int, int>> stacks(const Problem& problem, TileRow tile) {
  if (tile.channel_rows) return {{1, 1}};
  std::vector<std::pair<int, int>> found;
  const int most_h = static_cast<int>(std::min<int64_t>(kMaxSlots, phases_of(problem, problem.h)));
  const int most_w = static_cast<int>(std::min<int64_t>(kMaxSlots, phases_of(problem, problem.w)));
  for (const auto& [h, w] : {std::pair{1, 1}, {1, most_w}, {most_h, most_w}})
    if (found.empty() || found.back() != std::pair{h, w}) found.push_back({h, w});
  return found;
}

// Bytes of shared memory that a block may have; each takes 1024 beside them.
int memory_of(const Device& device, TileRow tile) {
  return std::min(device.smem_optin, device.smem_per_sm / blocks_together(tile) - 1024);
}

// Whether a shape fits with the smallest buffers there are, and all weights where those of teams stay.
// It leaves the buffers changed.
bool fits_somehow(GatherChoice choice, GatherParams& params, TileRow tile, const Device& device) {
  const int32_t chunks = params.chunks;
  choice.slice_shift = 0;
  choice.source_stages = 2;
  choice.weight_stages = choice.teams > 1 ? 0 : 2;
  choice.part_products =
      (std::max(1, params.planes_apart > 1 ? params.plane_products : params.max_products) + 7) / 8;
  if (choice.teams == 1) params.chunks = 1;
  set_buffers(choice, params);
  const bool fits = shared_map(params, tile).total <= memory_of(device, tile);
  params.chunks = chunks;
  return fits;
}

// The few shapes whose tiles promise most with buffers of any size, so that the search stays short.
std::vector<GatherChoice> best_shapes(const Problem& problem, const Device& device, int row,
                                      int stack_h, int stack_w, int teams, std::string& reason) {
  constexpr size_t kShapes = 4;
  const TileRow tile = kTiles[row];
  std::vector<std::pair<double, GatherChoice>> ranked;
  ranked.reserve(128);
  GatherParams params;
  GatherChoice common{};
  common.row = row, common.teams = teams, common.stack_h = stack_h, common.stack_w = stack_w;
  if (std::string why = tile_shape(problem, common, params); !why.empty()) {
    reason = why;
    return {};
  }
  for (GatherChoice choice : tile_shapes(problem, row, teams)) {
    choice.stack_h = stack_h;
    choice.stack_w = stack_w;
    choice.source_stages = 2;
    // Shapes come from several lists, so some come twice.
    const auto before = std::find_if(ranked.begin(), ranked.end(), [&](const auto& other) {
      return same_shape(other.second, choice);
    });
    if (before != ranked.end()) {
      const auto again = *before;
      ranked.push_back(again);
      continue;
    }
    if (std::string why = positions_shape(problem, choice, params); !why.empty()) {
      reason = why;
      continue;
    }
    if (!fits_somehow(choice, params, tile, device)) {
      reason = "a tile needs more shared memory than a block has";
      continue;
    }
    if (by_steps(tile)) {  // with buffers as they will be
      choice.slice_shift = 2;
      choice.source_stages = 4;
      params.chunks = static_cast<int32_t>(ceil_div(int64_t{params.chunks}, int64_t{4}));
    }
    set_buffers(choice, params);
    ranked.push_back({predict(problem, device, params, tile), choice});
  }
  const size_t count = std::min(kShapes, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + count, ranked.end(),
                    [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<GatherChoice> best;
  for (size_t i = 0; i < count; ++i) {
    const GatherChoice& choice = ranked[i].second;
    if (std::none_of(best.begin(), best.end(),
                     [&](const GatherChoice& other) { return same_shape(other, choice); }))
      best.push_back(choice);
  }
  return best;
}

}  // namespace

const char* rows_of(const GatherParams& p) {
  return p.brought_pieces ? "rows brought"
         : p.spread       ? "rows copied, spread"
         : p.shifted      ? "rows copied, shifted"
                          : "rows copied";
}

namespace {

// The candidates of a tile with some phases side by side.
struct Group {
  int row, stack_h, stack_w;
  int order;     // among all, by which the first of equals is known
  double least;  // us, that any of them takes
};

std::vector<Group> groups_of(const Problem& problem, std::string& reason) {
  const bool forward = problem.direction == Direction::fwd;
  const Layout destination = forward ? problem.y_layout : problem.x_layout;
  const int64_t columns = forward ? problem.group_out() : problem.group_in(),
                phases_w = phases_of(problem, problem.w);
  std::vector<Group> groups;
  for (int row = kTileCount - 1; row >= 0; --row) {
    const TileRow tile = kTiles[row];
    const bool few = tile.fetched && !forward && problem.group_out() <= kFewChannels;
    // What is fetched in words takes a pixel to 16 columns in the time that memory takes, however few of 64 are used.
    const bool words_fetched = tile.fetched && !tile.strict && problem.dtype == DType::f32;
    if (tile.strict != is_strict(problem)) continue;
    if (tile.channel_rows && columns <= 32) continue;
    if (std::string why = refused_tile(problem, tile); !why.empty()) {
      reason = why;
      continue;
    }
    if (staged(tile) &&
        (destination == Layout::nhwc || tile.slots != (phases_w > 2 ? 4 : phases_w)))
      continue;
    if (tile.channel_rows && tile.slots > phases_w) continue;
    for (const auto& [stack_h, stack_w] : stacks(problem, tile)) {
      // Columns that would be less than half used are left to a smaller tile.
      const int64_t used = columns * stack_h * stack_w;
      if (!tile.channel_rows && tile.width > (few || words_fetched ? 64 : 8) &&
          used * 2 <= tile.width)
        continue;
      if (!tile.channel_rows && tile.width / (stack_h * stack_w) < std::min<int64_t>(columns, 8))
        continue;
      groups.push_back({row, stack_h, stack_w, static_cast<int>(groups.size()), 0});
    }
  }
  return groups;
}

double least_of(const Problem& problem, const Device& device, const Group& group) {
  const TileRow tile = kTiles[group.row];
  double us = INFINITY;
  for (int teams = 1; teams <= 1 + may_be_teams(tile); ++teams) {
    GatherChoice choice{};
    choice.row = group.row, choice.teams = teams;
    choice.stack_h = group.stack_h, choice.stack_w = group.stack_w;
    GatherParams params;
    if (!tile_shape(problem, choice, params).empty()) continue;
    us = std::min(us, least(problem, device, params, tile));
  }
  return us;
}

// Those that say what need not be looked at in others come before these; of the same kind, those that promise most.
int kind_of(TileRow tile) {
  return by_steps(tile)        ? (tile.columns_copied ? 0 : 1)
         : tile.columns_copied ? 2
         : tile.copied         ? 3
                               : 4;
}
void order_by_promise(const Problem& problem, const Device& device, std::vector<Group>& groups) {
  for (Group& group : groups) group.least = least_of(problem, device, group);
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    return std::pair{kind_of(kTiles[a.row]), a.least} < std::pair{kind_of(kTiles[b.row]), b.least};
  });
}

// `columns_copied`: whether the copy engine can bring columns of weights by another tile. `told`: whether nobody wants to know if there
// is a candidate at all.
void add_candidates(const Problem& problem, const Device& device, const Group& group,
                    bool columns_copied, bool told, Best* best, std::vector<GatherCandidate>& found,
                    std::string& reason) {
  const size_t before = found.size();
  const bool forward = problem.direction == Direction::fwd, strict = is_strict(problem);
  const TileRow tile = kTiles[group.row];
  const int slice = element_size(problem.dtype) == 2 ? 16 : 8, memory = memory_of(device, tile);
  std::vector<GatherChoice> shapes;
  for (int teams = 1; teams <= 1 + may_be_teams(tile); ++teams)
    for (const GatherChoice& shape :
         best_shapes(problem, device, group.row, group.stack_h, group.stack_w, teams, reason))
      shapes.push_back(shape);
  for (GatherChoice choice : shapes) {
    const int teams = choice.teams;
    GatherParams params;
    gather_shape(problem, choice, params);
    if (strict && !forward) {
      if (std::string why = sums_too_short(problem, least_terms(tile, params.one_chunk));
          !why.empty()) {
        reason = why;
        continue;
      }
    }
    const int least_shift = tile.weights_fetched;  // consumers that fetch them take two slices
    for (int shift = 0; shift <= 2; ++shift) {
      if (shift < least_shift) continue;
      if (shift > least_shift && (params.one_chunk || params.depth <= slice << (shift - 1))) break;
      if (tile.fetched && !params.one_chunk &&
          (1 << shift < slices_fetched(tile) || !chunks_in_groups(params, slice << shift)))
        continue;
      choice.slice_shift = shift;
      if (!params.one_chunk)
        params.chunks =
            static_cast<int32_t>(ceil_div(params.depth, static_cast<int64_t>(slice) << shift));
      choice.weight_stages = choice.part_products = 0;
      set_buffers(choice, params);
      const double at_least = best ? least_of_depth(problem, device, params, tile) : 0;
      if (best && best->beats(at_least) && (told || found.size() > before)) continue;
      // All weights, or parts of a chunk's; then as many patches as there is room for.
      const int products =
          std::max(1, params.planes_apart > 1 ? params.plane_products : params.max_products);
      int part_before = -1;
      for (int part : {0, products, (products + 1) / 2, (products + 3) / 4, (products + 7) / 8}) {
        if (part > 0 && (params.one_chunk || teams > 1)) break;
        if (part == std::exchange(part_before, part)) continue;  // of few products
        // Where the copy engine can bring them, threads bring none but those that stay.
        if (part > 0 && tile.copied && !tile.columns_copied && columns_copied) break;
        for (int weight_stages : {2, 3, 4}) {
          if (part == 0 && weight_stages > 2) break;
          if (weight_stages == 3 && !tile.twin) continue;
          choice.weight_stages = part ? weight_stages : 0;
          choice.part_products = part;
          choice.source_stages = 1;
          set_buffers(choice, params);
          if ((params.part_products * weight_rows(tile) << (shift + 1)) > 60000) continue;
          const int one = shared_map(params, tile).total;
          const int patch = params.patch_bytes;
          // An even number, so that each producer group owns half of them; twins have one, and little room.
          const int most = std::min({teams > 1 ? kTeamStages : kMaxStages,
                                     1 + (memory - 128 - one) / patch / teams,
                                     std::max(2, 4 * params.chunks * params.planes_apart)}),
                    stages = tile.twin || teams > 1 ? most : most / 2 * 2;
          if (one > memory || stages < 2) {
            if (found.empty())
              reason = "a tile needs " + std::to_string(one + patch) + " bytes of shared memory";
            continue;
          }
          choice.source_stages = params.source_stages = stages;
          if (shared_map(params, tile).total > memory) continue;
          const int furthest = lead_of(problem, params, tile);
          for (int lead = 0; lead <= furthest;
               lead += tile.weights_fetched && furthest > 0 ? furthest : 1) {
            choice.lead = params.lead = lead;
            GatherCandidate candidate{
                choice,
                {},
                predict(problem, device, params, tile) * over_of(problem, tile, params),
                params.slices,
                rows_of(params),
                over_for_others(problem, tile),
                group.order};
            std::copy(std::begin(params.walkers), std::end(params.walkers), candidate.walkers);
            found.push_back(candidate);
            if (best) best->found(candidate.predicted_us, std::max(at_least, group.least));
          }
          choice.lead = params.lead = 0;
        }
      }
    }
  }
}

}  // namespace

std::vector<GatherCandidate> gather_candidates(const Problem& given, const Device& device,
                                               std::string& reason, Best* best) {
  const Problem problem = as_walked(given);
  const bool forward = problem.direction == Direction::fwd;
  std::vector<Group> groups = groups_of(problem, reason);
  if (best) order_by_promise(problem, device, groups);
  std::vector<GatherCandidate> found;
  found.reserve(1024);
  bool columns_copied = false, by_engine = false;
  for (const Group& group : groups) {
    const TileRow tile = kTiles[group.row];
    // In forward threads never promised more than the copy engine, where that brings channels (20000 problems; in
    // grad_input they did in 10).
    if (best && forward && by_engine && !tile.copied) continue;
    const bool told = (columns_copied || !tile.columns_copied) &&
                      (by_engine || !by_steps(tile) || !forward);  // what others want to know
    if (best && told && best->beats(group.least)) continue;
    const size_t before = found.size();
    add_candidates(problem, device, group, columns_copied, told, best, found, reason);
    if (found.size() == before) continue;
    columns_copied |= tile.columns_copied;
    by_engine |= by_steps(tile);
  }
  return found;
}

Plan plan_of(const GatherCandidate& candidate) {
  const GatherChoice& c = candidate.choice;
  const TileRow tile = kTiles[c.row];
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us * candidate.over;
  const int detail[] = {c.tile_n,
                        c.tile_h,
                        c.tile_w,
                        (c.teams - 1) * kSecondTeamBit + c.lead * 256 + c.operand_columns,
                        c.stack_h * 256 + c.stack_w,
                        c.slice_shift * 256 + c.source_stages,
                        c.weight_stages * 65536 + c.part_products};
  std::copy(std::begin(candidate.walkers), std::end(candidate.walkers),
            std::copy(std::begin(detail), std::end(detail), plan.detail));
  plan.note =
      (tile.channel_rows
           ? "64 channels x " + std::to_string(tile.operands * tile.width * consumer_groups(tile)) +
                 " positions x " + std::to_string(tile.slots) + " phases"
           : (c.teams > 1 ? "2 x " : "") + std::to_string(block_positions(tile) / c.teams) +
                 " positions x " + std::to_string(tile.width) + " columns (" +
                 std::to_string(c.stack_h * c.stack_w) + " phases)") +
      ", tile " + std::to_string(c.tile_n) + "x" + std::to_string(c.tile_h) + "x" +
      std::to_string(c.tile_w) + (c.operand_columns ? " in columns" : " in runs") + ", K " +
      std::to_string(kSliceBytes * candidate.slices) + " bytes x " +
      std::to_string(c.source_stages) + " stages, " +
      (tile.turned            ? "copied and turned, "
       : tile.fetched         ? candidate.rows + std::string(" and fetched, ")
       : tile.weights_fetched ? "copied, weights fetched, "
       : tile.copied          ? "copied, "
                              : "") +
      (c.weight_stages ? "weights " + std::to_string(c.part_products) + " products x " +
                             std::to_string(c.weight_stages) + " stages"
                       : "weights resident") +
      (tile.twin ? ", two blocks together" : "") +
      (c.lead ? ", half " + std::to_string(c.lead) + " products ahead" : "");
  if (candidate.walkers[1] > 0) {  // phases have numbers of their own
    plan.note += ", blocks " + std::to_string(candidate.walkers[0]);
    for (int i = 1; i < kMaxShares && candidate.walkers[i] > 0; ++i)
      plan.note += " + " + std::to_string(candidate.walkers[i]);
  }
  return plan;
}

GatherChoice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row,
          d[4] / 256,
          d[4] % 256,
          d[0],
          d[1],
          d[2],
          d[3] % 256,
          d[5] / 256,
          d[5] % 256,
          d[6] / 65536,
          d[6] % 65536,
          d[3] % kSecondTeamBit / 256,
          d[3] / kSecondTeamBit + 1};
}

void set_walkers(const Plan& plan, GatherParams& params) {
  constexpr int kBefore = 7;  // numbers of the choice
  for (params.shares = 0; params.shares < kMaxShares; ++params.shares) {
    const int32_t walkers = plan.detail[kBefore + params.shares];
    if (walkers == 0) break;
    params.walkers[params.shares] = walkers;
  }
}

Decision plan(const Problem& problem, const Device& device) { return search(problem, device, {}); }

Decision search(const Problem& problem, const Device& device, Best best) {
  if (!device.has_wgmma) return Decision::decline("no wgmma (sm_90a)");
  if (problem.dtype == DType::f64) return Decision::decline("fp64 is left to direct");
  const bool of_input = problem.direction == Direction::grad_input;
  if (std::string reason = sums_too_short(problem, of_input ? kLeastTermsOfFew : kLeastWgmmaTerms);
      !reason.empty())
    return Decision::decline(reason);
  if (problem.direction == Direction::grad_weight) {
    if (is_fetched_weight(problem)) return fetched_weight_plan(problem, device);
    Decision least = weight_plan(problem, device, best);
    if (!may_be_turned(problem)) return least;
    for (const auto other : {fetched_weight_plan, packed_weight_plan}) {
      const Decision found = other(problem, device);
      if (found.accepted && (!least.accepted || found.plan.predicted_us < least.plan.predicted_us))
        least = found;
    }
    return least;
  }
  if (problem.wide_index) return Decision::decline("a tensor has more than 2^31 elements");
  std::string reason = "no tile fits";
  const std::vector<GatherCandidate> found = gather_candidates(problem, device, reason, &best);
  if (found.empty()) return Decision::decline(reason);
  return Decision::accept(plan_of(*std::min_element(
      found.begin(), found.end(), [](const GatherCandidate& a, const GatherCandidate& b) {
        return std::pair{a.predicted_us, a.order} < std::pair{b.predicted_us, b.order};
      })));
}

}  // namespace convt2d::cuda::hopper
