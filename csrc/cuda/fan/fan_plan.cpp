#include "cuda/fan/fan_plan.h"

#include <algorithm>
#include <iterator>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"
#include "cuda/walkers.h"

namespace convt2d::cuda::fan {
namespace {

constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said: counted by hand. What they come to was then fitted to 1000 times
// on the H200 (kernel_bench sweep of bench/layers.json, 2026-11-23; see over_counted() and kTorn).
constexpr double kLaunch = 7;        // us: tables, barriers, the first loads, the last stores
constexpr double kBanks = 128;       // bytes of shared memory a cycle
constexpr double kInstructions = 4;  // a cycle
constexpr double kStep = 26;         // instructions of a warp for a step
constexpr double kIssued = 8;        // and for each of its products
constexpr double kProduct =
    12;                         // at the least, of the tensor core, over half of what a product has
constexpr double kTurned = 18;  // of a warp, for 32 pieces of 16 bytes that are turned
constexpr double kTurnedAlone = 35;   // the same, cycles: three warps have no others beside them
constexpr double kUnderWay = 1200;    // from asking for weights to having them
constexpr double kChunk = 100;        // barriers of a chunk
constexpr double kStart = 1500;       // of a tile: until the first products are there
constexpr double kStored = 40;        // bytes a cycle to L2
constexpr double kApart = 2;          // over that: neighbours that go one by one
constexpr double kHidden = 0.5;       // of stores, behind the multiplications of other warpgroups
constexpr double kL2Bytes = 24;       // a cycle, of a multiprocessor
constexpr double kBusy = 1.15;        // what nothing above accounts for
constexpr double kMemoryRate = 0.85;  // of the copy rate
constexpr double kBeside = 0.1;       // of the lesser of work and bytes
constexpr double kTorn = 185;  // bytes, where tiles meet in a row of y that is no whole sectors

struct Choice {
  int row;  // of kTiles
  int tile_n, tile_h, tile_w;
  int slices, x_stages, raw_stages, turned_stages;
  int walkers[kMostGroups];
};

// Phases that the kernel multiplies with at once; others are several steps.
constexpr int kBatches[] = {15, 3, 12, 5, 10, 1, 2, 4, 8};

// Steps of a group of phases, and where their weights are. Returns whether there is room for all.
bool set_steps(Tile tile, GatherParams& p) {
  const AxisGroup& gw = p.w.group[0];
  int steps = 0;
  for (int g = 0; g < p.h.groups; ++g) {
    const AxisGroup& gh = p.h.group[g];
    p.first_step[g] = steps;
    std::fill_n(p.place[g], kMostTaps, int8_t{-1});
    int used = 0;
    for (int i = 0; i < gh.count; ++i)
      for (int j = 0; j < gw.count; ++j) {
        const AxisStep &h = p.h.step[gh.first + i], &w = p.w.step[gw.first + j];
        int there = 0, places[4] = {};
        for (int sh = 0; sh < gh.phases; ++sh)
          for (int sw = 0; sw < gw.phases; ++sw) {
            if (h.rank[sh] < 0 || w.rank[sw] < 0) continue;
            const int tap_h = gh.first_tap[sh] + h.rank[sh] * p.h.tap_step,
                      tap_w = gw.first_tap[sw] + w.rank[sw] * p.w.tap_step;
            const int phase = sh * tile.w + sw;
            places[phase] = tap_h * (p.taps / p.taps_h) + tap_w;
            there |= 1 << phase;
          }
        for (const int batch : kBatches) {
          if ((there & batch) != batch) continue;
          if (steps == kMostSteps) return false;
          there &= ~batch;
          p.step[steps++] = {static_cast<uint32_t>((h.offset - gh.offset_low) * p.row_pitch +
                                                   (w.offset - gw.offset_low) * 4),
                             static_cast<uint32_t>(used * tap_bytes(p.tile_channels) >> 4 |
                                                   batch << kPhasesShift)};
          for (int phase = 0; phase < 4; ++phase)
            if (batch >> phase & 1) p.place[g][places[phase]] = static_cast<int8_t>(used++);
        }
      }
    p.group_taps[g] = used;
  }
  p.first_step[p.h.groups] = steps;
  return true;
}

// Everything that follows from the problem and the choice, pointers aside; or why there is nothing.
std::string shape(const Problem& problem, const Choice& choice, GatherParams& p) {
  const Tile tile = kTiles[choice.row];
  p = {};
  set_extents(problem, p);
  if (std::string reason = set_axes(problem, tile.h, tile.w, p); !reason.empty()) return reason;
  if (p.h.groups > kMostGroups)
    return std::to_string(p.h.groups) + " groups of phases are more than " +
           std::to_string(kMostGroups);
  set_tiles(problem, choice, p);
  std::copy(std::begin(choice.walkers), std::end(choice.walkers), p.walkers);
  p.taps_h = static_cast<int32_t>(problem.h.kernel);
  p.taps = static_cast<int32_t>(problem.h.kernel * problem.w.kernel);
  p.tile_channels = channels(tile);
  p.column_tiles = static_cast<int32_t>(ceil_div(p.columns, p.tile_channels));
  p.slices = choice.slices;
  p.chunks = static_cast<int32_t>(ceil_div(p.reduce, kSlice * p.slices));
  p.load_h = choice.tile_h + span_of(p.h);
  const int low = ((p.w.group[0].offset_low % 4) + 4) % 4;
  const int lead = choice.tile_w % 4 == 0 || p.tiles_w == 1 ? low : 3;
  p.copied_w = static_cast<int32_t>(round_up(lead + choice.tile_w + span_of(p.w) - 8, 16)) + 8;
  if (std::max({p.copied_w, p.load_h, p.tile_n}) > kMostSpan)
    return "a tile is too long for the copy engine";
  p.channel_pitch = p.copied_w * 4;
  p.row_pitch = p.channel_pitch * kSlice * p.slices;
  p.image_pitch = p.row_pitch * p.load_h;
  p.far = p.channel_pitch * 4;
  if (!set_steps(tile, p)) return "more than " + std::to_string(kMostSteps) + " source offsets";
  p.x_stages = choice.x_stages;
  p.x_bytes = p.image_pitch * p.tile_n;
  p.raw_stages = choice.raw_stages;
  p.box_bytes = kEight * p.taps * 4 * kSlice * p.slices;
  p.raw_bytes = p.tile_channels / kEight * p.box_bytes;
  p.resident = choice.turned_stages == 0;
  p.turned_stages = p.resident ? p.chunks : choice.turned_stages;
  p.slice_bytes =
      *std::max_element(p.group_taps, p.group_taps + p.h.groups) * tap_bytes(p.tile_channels);
  p.turned_bytes = p.slice_bytes * p.slices;
  SharedPlaces places{kHeader};
  p.raw_at = places.take(int64_t{p.raw_stages} * p.raw_bytes, 128);
  p.turned_at = places.take(int64_t{p.turned_stages} * p.turned_bytes, 128);
  p.x_at = places.take(int64_t{p.x_stages} * p.x_bytes, 128);
  p.shared_bytes = static_cast<int32_t>(places.end);
  if (p.turned_stages > kMostStages) return "weights that stay are too many chunks";
  return {};
}

// Turning the weights of a slice: pieces of 16 bytes, and the cycles that it takes three warps.
double turned_pieces(const GatherParams& p) { return 2.0 * p.tile_channels * p.taps; }
double turning(const GatherParams& p) { return turned_pieces(p) / 32 * kTurnedAlone / kTurners; }

// A tile whose phases are those of a group.
double tile_cycles(const Problem& problem, const GatherParams& p, Tile tile, int group,
                   bool streams) {
  const double steps = p.first_step[group + 1] - p.first_step[group], taps = p.group_taps[group];
  const double stream = streams ? 1 : 0, groups = kGroups * tile.operands;
  const double raw_bytes = stream * p.tile_channels * p.taps * kSlice * 4;
  const double x_bytes = double(p.x_bytes) / p.slices;
  // Of a slice, all warpgroups.
  const double tensor =
      groups * taps * std::max(p.tile_channels / 2.0, p.tile_channels / 4.0 + kProduct);
  const double ends = p.tile_w % 8 != 0 ? 1 + 8.0 / p.tile_w : 1;
  const double banks =
      (groups * (ends * steps * kRows * kSlice * 4 + taps * tap_bytes(p.tile_channels)) +
       stream * turned_pieces(p) * 16 + 2 * raw_bytes + x_bytes) /
      kBanks;
  const double issued =
      (groups * 4 * (steps * kStep + taps * kIssued) + stream * turned_pieces(p) / 32 * kTurned) /
      kInstructions;
  // Of a patch, what lies in the source.
  const double wide = std::min<double>(p.copied_w, problem.w.in) / p.copied_w,
               high = std::min<double>(p.load_h, problem.h.in) / p.load_h;
  const double brought = (x_bytes * wide * high + raw_bytes) / kL2Bytes;
  const double slice = std::max({tensor, banks, issued, stream * turning(p), brought}) * kBusy;
  // Eight positions are what a store writes side by side, and what meets no bank twice, unless a row ends there.
  const bool odd = problem.w.out % (p.w.slots > 1 ? p.w.slots : 8) != 0;
  const double store = positions(tile) * double(phases(tile)) * channels(tile) * 4 / kStored *
                       ends * (odd ? kApart : 1);
  const double alone = p.raw_stages > 1 ? 0 : stream * (kUnderWay + p.slices * turning(p));
  return kStart + p.chunks * (std::max(p.slices * slice, alone) + kChunk) + (1 - kHidden) * store;
}

// What a block took over what is counted: the more, the more its weights and pixels are waited for.
double over_counted(const Problem& problem, const GatherParams& p, Tile tile) {
  if (problem.h.stride * problem.w.stride > 1)
    return p.resident ? 1.5 : p.slices == kMostSlices || p.x_stages > 5 ? 2.1 : 1.78;
  return channels(tile) == 32 ? 0.95 : channels(tile) == 64 && !p.resident ? 1.2 : 1.45;
}

double time_of(const Problem& problem, const Device& device, const GatherParams& p,
               double busy_us) {
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  const double rows = double(problem.batch) * problem.out_channels * problem.h.out;
  const double torn_us =
      problem.w.out % 8 == 0 ? 0 : kTorn * rows * p.tiles_w / device.copy_bytes_per_us;
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us) + torn_us;
}

// With the best numbers of blocks, which it leaves in the parameters.
double predict(const Problem& problem, const Device& device, Tile tile, GatherParams& p) {
  std::vector<double> cycles;
  for (int g = 0; g < p.h.groups; ++g)
    cycles.push_back(tile_cycles(problem, p, tile, g, !p.resident));
  set_walkers(device, cycles, p);
  const double combos = double(combinations(p)) / p.h.groups;
  const double bring = p.raw_stages > 1 ? 0 : kUnderWay;  // where nothing is brought meanwhile
  double longest = 0, all = 0;
  for (int g = 0; g < p.h.groups; ++g) {
    const double once = p.resident ? p.chunks * (p.slices * turning(p) + bring) : 0;
    const double block = once + ceil_div(tiles_of(p), p.walkers[g]) * cycles[g];
    longest = std::max(longest, block);
    all += block * p.walkers[g] * combos;
  }
  return time_of(
      problem, device, p,
      over_counted(problem, p, tile) * std::max(longest, all / device.sm_count) / kClock);
}

// Whatever the stages and whether weights stay.
double least(const Problem& problem, const Device& device, Tile tile, const GatherParams& p) {
  double longest = 0, all = 0;
  for (int g = 0; g < p.h.groups; ++g) {
    const double cycles = tile_cycles(problem, p, tile, g, false);
    longest = std::max(longest, cycles);
    all += cycles;
  }
  all *= double(combinations(p)) / p.h.groups * double(tiles_of(p)) / device.sm_count;
  const double over = problem.h.stride * problem.w.stride > 1 ? 1.5
                      : channels(tile) == 32                  ? 0.95
                      : channels(tile) == 64                  ? 1.2
                                                              : 1.45;
  return time_of(problem, device, p, over * std::max(longest, all) / kClock);
}

bool chunks_in_groups(const Problem& problem, int slices) {
  return problem.groups == 1 || problem.group_in() % (kSlice * slices) == 0;
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason, Best* best) {
  std::vector<Candidate<Choice>> found;
  const int64_t phases_h = phases_of(problem, problem.h), phases_w = phases_of(problem, problem.w);
  for (int row = 0; row < kTileCount; ++row) {
    const Tile tile = kTiles[row];
    if (tile.w != phases_w || tile.h > phases_h) continue;
    // Columns that would be less than half used are left to others.
    if (problem.group_out() * 2 <= channels(tile)) {
      reason = std::to_string(problem.group_out()) + " channels fill less than half of a tile";
      continue;
    }
    Choice choice = {row, 1, 1, 1, 1, 2, 2, 2, {}};
    GatherParams p;
    if (reason = shape(problem, choice, p); !reason.empty()) continue;
    const int64_t extent_h = position_extent(p.h), extent_w = position_extent(p.w);
    std::vector<int> widths;
    for (int pieces = 1; pieces <= 8; ++pieces) {
      const int64_t width = ceil_div(extent_w, pieces);
      add_once(widths, width);
      add_once(widths, round_up(width, 4));
      add_once(widths, round_up(width, 8));
    }
    for (const int width : {16, 32, 64, 128}) add_once(widths, width);
    const int most = positions(tile);
    for (const int width : widths) {
      if (width > most || width > round_up(extent_w, 8) || width < std::min<int64_t>(extent_w, 16))
        continue;
      const int64_t most_h = std::min<int64_t>(most / width, extent_h);
      const int64_t rows = ceil_div(extent_h, ceil_div(extent_h, most_h));  // evenly
      choice.tile_w = width;
      choice.tile_h = static_cast<int>(rows);
      choice.tile_n = static_cast<int>(width >= extent_w && rows == extent_h
                                           ? std::min<int64_t>(problem.batch, most / (rows * width))
                                           : 1);
      for (const int slices : {1, 2, kMostSlices}) {
        if (!chunks_in_groups(problem, slices)) continue;
        if (slices > 1 && slices * kSlice / 2 >= problem.group_in()) continue;
        choice.slices = slices;
        double at_least = 0;  // with any stages, once it is known
        for (const auto& [turned, raw] :
             {std::pair{0, 1}, {0, 2}, {2, 1}, {2, 2}, {3, 2}, {3, 3}}) {
          choice.turned_stages = turned;
          choice.raw_stages = raw;
          choice.x_stages = 2;
          if (std::string why = shape(problem, choice, p); !why.empty()) {
            reason = why;
            continue;
          }
          if (p.shared_bytes > device.smem_optin) {
            if (found.empty())
              reason = "a tile needs " + std::to_string(p.shared_bytes) + " bytes of shared memory";
            continue;
          }
          if (best && at_least == 0) at_least = least(problem, device, tile, p);
          if (best && best->beats(at_least)) break;
          p.x_stages = choice.x_stages =
              std::min(kMostRing, 2 + (device.smem_optin - p.shared_bytes) / p.x_bytes);
          const double predicted = predict(problem, device, tile, p);
          std::copy(std::begin(p.walkers), std::end(p.walkers), choice.walkers);
          found.push_back({choice, predicted});
          if (best) best->found(predicted, at_least);
        }
      }
    }
  }
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
  const Tile tile = kTiles[c.row];
  GatherParams p;
  shape(problem, c, p);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.tile_n,   c.tile_h,     c.tile_w,       c.slices,
                        c.x_stages, c.raw_stages, c.turned_stages};
  std::copy(std::begin(c.walkers), std::end(c.walkers),
            std::copy(std::begin(detail), std::end(detail), plan.detail));
  plan.note = std::to_string(tile.h) + " x " + std::to_string(tile.w) + " phases of " +
              std::to_string(p.tile_channels) + " channels, tile " + std::to_string(c.tile_n) +
              "x" + std::to_string(c.tile_h) + "x" + std::to_string(c.tile_w) + ", K " +
              std::to_string(kSlice * c.slices) + " x " + std::to_string(c.x_stages) +
              " stages, weights " +
              (c.turned_stages ? std::to_string(c.turned_stages) + " stages" : "resident") + ", " +
              std::to_string(blocks_of(p)) + " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[0], d[1], d[2], d[3], d[4], d[5], d[6], {d[7], d[8], d[9], d[10]}};
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (!device.has_wgmma) return "no wgmma (sm_90a)";
  if (problem.direction != Direction::fwd) return "fan is for forward";
  if (problem.dtype != DType::f32 || is_strict(problem)) return "fan is for TF32";
  if (problem.x_layout != Layout::nchw || problem.w_layout != Layout::nchw ||
      problem.y_layout != Layout::nchw)
    return "fan is for NCHW";
  if (problem.w.in % 4 != 0)
    return "rows of " + number(problem.w.in) + " are not whole vectors of 4";
  const int64_t taps = problem.h.kernel * problem.w.kernel,
                phases_w = phases_of(problem, problem.w);
  if (taps > kMostTaps) return number(taps) + " taps are more than " + number(kMostTaps);
  if (problem.group_out() * taps % 4 != 0)
    return number(problem.group_out()) + " kernels are not whole vectors of 4";
  if (phases_w > 4 || phases_w == 3 || (phases_w > 1 && phases_w != problem.w.stride))
    return "a row of the result has " + number(phases_w) + " phases";
  if (!chunks_in_groups(problem, 1))
    return number(problem.group_in()) + " channels of a group are not whole slices of 8";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return sums_too_short(problem, kLeastWgmmaTerms);
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

int64_t blocks_of(const GatherParams& p) { return walking_blocks(p); }

TensorMaps maps_of(const GatherParams& p) {
  const int64_t row = int64_t{p.w.source_extent} * 4, plane = row * p.h.source_extent,
                channels = int64_t{p.groups} * p.reduce, kernels = int64_t{p.columns} * p.taps;
  TensorMaps maps{};
  maps.source = encode({p.source,
                        4,
                        4,
                        {p.w.source_extent, channels, p.h.source_extent, p.batch},
                        {4, plane, row, plane * channels},
                        {p.copied_w, kSlice * p.slices, p.load_h, p.tile_n},
                        {1, 1, 1, 1},
                        false});
  maps.weight = encode({p.weight,
                        4,
                        4,
                        {kernels, channels, 1, 1},
                        {4, kernels * 4, kernels * 4 * channels, kernels * 4 * channels},
                        {kEight * p.taps, kSlice * p.slices, 1, 1},
                        {1, 1, 1, 1},
                        false});
  return maps;
}

}  // namespace convt2d::cuda::fan
