#include "cuda/igemm/igemm_plan.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/igemm/igemm.h"
#include "cuda/igemm/igemm_weight_plan.h"
#include "cuda/strict_sums.h"

namespace convt2d::cuda::igemm {
namespace {

// Rates of one multiprocessor, in wavefronts (one 128-byte shared-memory or L1 access) a microsecond.
constexpr double kWavefronts = 1700;
constexpr double kLaunch = 10;           // us, empty kernel to finished store
constexpr double kChunkLatency = 1.2;    // us, global load to visible in shared memory, one barrier
constexpr double kChunkOverhead = 0.25;  // us, barrier and loop ends of a chunk
// What nothing above accounts for: measured over counted time. The more products a staged patch serves, the
// less it is; fitted to the forward of bench/layers.json, NCHW, on the H200, 2026-11-21 (44 + 44 + 33
// layers): at 2, 9 and 21 products tf32 2.2, 1.5, 1.2; fp16 2.6, 1.9, 1.5; strict fp32 1.95, 1.35, 1.1.
// Strided rows of pixels (grad_input of NCHW) take 1.6 times that, as measured: fragments of positions that lie a
// stride apart share banks.
double stalls(bool half, bool split, double products, bool strided) {
  const double at_two = split ? 1.95 : half ? 2.6 : 2.2, slope = split ? 0.39 : half ? 0.46 : 0.43;
  return std::clamp(at_two - slope * std::log(products / 2), 1.1, 2.9) * (strided ? 1.6 : 1.0);
}
// The same of tiles of few channels with several phases, which forward stores side by side and grad_input does not have;
// and of 32-bit vectors along channels. As measured (the plans chosen for bench/layers.json, five modes, both directions).
constexpr double kPhasesForward = 1.1, kPhasesBackward = 1.8, kWordVectors = 1.2;
constexpr double kTileLatency = 2.0;  // us, tables and epilogue of a tile that nothing overlaps
constexpr int kRegisterFile = 65536;
constexpr int kMostUnits = 60000;  // divide() in the kernel

// `at_least`: however many blocks there are, with any stages, whether weights stay or not.
double predict(const Problem& problem, const Device& device, const GatherParams& p, TileRow tile,
               int blocks_per_sm, int walkers, bool at_least = false) {
  const bool half = element_size(problem.dtype) == 2;
  const int slices = 1 << p.slice_shift;
  const AxisTotals h = totals(p.h), w = totals(p.w);
  const double combos = static_cast<double>(combinations(p)),
               tiles = static_cast<double>(tiles_of(p));
  const double phase_groups = static_cast<double>(p.h.groups) * p.w.groups;
  const double entries = h.taps * w.taps / phase_groups;  // of an average combination
  const double steps = h.steps * w.steps / phase_groups;
  const double k_slices = static_cast<double>(p.chunks) * slices;
  const double column_tiles = tile.columns / 8.0, position_tiles = positions(p) / 16.0;

  // One tile of one combination on a whole multiprocessor, three ways to be busy:
  // the tensor cores,
  const double mma =
      k_slices * entries * column_tiles * position_tiles * (is_strict(problem) ? 3 : 1);
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count;
  const double mma_us = mma * (half ? 2048 : 1024) / rate;
  // shared memory and L1 (wavefronts),
  const double patch = patch_pixels(p) / 32.0;
  const double load = p.source_mode == kVectors      ? 12
                      : p.source_mode == kWidePlanes ? 12
                      : p.source_mode == kPlanes     ? 20
                      : p.source_mode == kPixelPairs ? 16
                                                     : 40;
  // Column phases that other blocks store leave holes in this block's rows.
  const double scatter =
      problem.direction == Direction::fwd ? std::min(4.0, double(problem.w.stride) / p.w.slots) : 1;
  const bool stay = p.resident || at_least;
  const double weights = stay ? 0 : k_slices * entries * tile.columns / 32;
  const double outputs =
      positions(p) * tile.columns * std::min<double>(tile.slots, p.h.slots * p.w.slots) / 32;
  const double wavefronts =
      k_slices * (position_tiles * 4 * steps + p.warps * column_tiles * 2 * entries) +
      k_slices * patch * load + weights * (half ? 40 : 28) +
      outputs * (p.vector_stores ? 1 : 3 * scatter);
  const double lsu_us = wavefronts / kWavefronts;
  // and the four instruction schedulers.
  const double step_cost = in_planes(p) ? 24 : 12;
  const double split = is_strict(problem) ? 5 : 0;
  const double instructions =
      k_slices * p.warps *
          (steps * (step_cost + 4 * split * 4) + entries * (4 + column_tiles * (0.5 + 2 * split))) +
      mma + k_slices * patch * (p.source_mode <= kPixelPairs ? 60 : 25) + weights * 40 +
      outputs * (p.vector_stores ? 5 : 11) + p.warps * 400;
  const double issue_us = instructions / (4 * kWavefronts);
  const double busiest = std::max({mma_us, lsu_us, issue_us});
  // How well the three overlap depends on how many warps there are to choose from.
  const double warps = blocks_per_sm * p.warps;
  const double overlap = warps >= 12 || at_least ? 0.5 : warps >= 8 ? 0.6 : 1.0;
  const double tile_us =
      busiest + overlap * (mma_us + lsu_us + issue_us - busiest) + p.chunks * kChunkOverhead;

  const bool strided = p.w.source_step > 1 && p.source_mode != kVectors;
  const bool forward = problem.direction == Direction::fwd;
  const double few = tile.slots == 1 ? 1 : forward ? kPhasesForward : kPhasesBackward;
  const double words = !half && p.source_mode == kVectors ? kWordVectors : 1;
  const double bytes = tensor_bytes(problem) * 1.05;
  const double l2_bytes =
      tensor_bytes(problem) * (p.vector_stores ? 1 : scatter) +
      combos * tiles * k_slices * kRowBytes * (patch * 32 + (stay ? 0 : entries * tile.columns));
  const double memory_us = bytes / (0.88 * device.copy_bytes_per_us);
  const double l2_us = l2_bytes / (1.3 * device.copy_bytes_per_us);
  if (at_least)
    return kLaunch + 1 +
           std::max({combos * tiles / device.sm_count * tile_us * few * words *
                         stalls(half, is_strict(problem), entries, strided),
                     memory_us, l2_us});

  const double blocks = combos * walkers;
  const double waves = std::ceil(blocks / (static_cast<double>(device.sm_count) * blocks_per_sm));
  const double rounds = std::ceil(tiles / walkers) * waves;
  const double sharing = std::min<double>(blocks_per_sm, std::ceil(blocks / device.sm_count));
  const double busy_us =
      rounds * sharing * tile_us * few * words * stalls(half, is_strict(problem), entries, strided);
  const double latency_us = rounds * (p.chunks * kChunkLatency / (p.stages - 1) + kTileLatency);
  const double prologue_us =
      1 + (p.resident ? k_slices * entries * tile.columns / 32 * 50 / kWavefronts : 0);
  return kLaunch + prologue_us + std::max({busy_us, latency_us, memory_us, l2_us});
}

// Where tiles are fewer than multiprocessors, most of what a block does waits for the thing before: the terms are
// added. Fitted to 4259 plans of dcgan_g1, fcn32s, hifigan_u0, spleeter_up6 and flownet_flow on the H200, 2026-11-21
// (fp16, tf32 and strict fp32, both layouts and directions), where it errs by 13 %. Microseconds.
constexpr double kFewLaunch = 11.2;  // launch, cold code, tables, epilogue
constexpr double kFewRound = 6.7;    // another round of blocks or tiles
constexpr double kFewRanks = 2.9;    // a cluster starts, its sums are added
constexpr double kFewTeams = 0.3;    // sums of a block are added
constexpr double kFewUnit =
    0.95;  // barrier and what has to be there behind it; with 2 stages 0.03 more
constexpr double kFewCopy =
    0.023;  // an asynchronous copy of each thread; twice that for 32-bit numbers
constexpr double kFewSource = 0.38;    // a parcel of sources of each thread
constexpr double kFewWeights = 0.107;  // a parcel of weights
constexpr double kFewStep = 0.179;     // fragments from shared memory: a step of a warp
constexpr double kFewConflict =
    0.0193;  // the same, where positions that are read together share banks
constexpr double kFewMultiply = 0.0185;  // 64 positions x 8 columns
constexpr double kFewScatter = 1.4;  // column phases that other blocks store leave holes in rows
constexpr double kFewL2 = 1.85;      // rate of all copies, times that of a copy in DRAM

double predict_few(const Problem& problem, const Device& device, const GatherParams& p,
                   TileRow tile, int blocks_per_sm, int walkers, bool at_least = false) {
  const bool half = element_size(problem.dtype) == 2;
  const AxisTotals h = totals(p.h), w = totals(p.w);
  const double groups = static_cast<double>(p.h.groups) * p.w.groups * p.row_blocks;
  const double entries = h.taps * w.taps / groups, steps = h.steps * w.steps / groups;
  const double slices = 1 << p.slice_shift, patch = patch_pixels(p) * slices;
  const double weights = entries * tile.columns * slices;
  const int units = most_units(p);

  // Of each thread, or warp.
  const double threads = 32 * p.warps;
  const double source_copies = p.source_mode <= kPixelPairs ? 0
                               : p.source_mode == kPlanes   ? patch * 8
                                                            : patch * 2;
  const double copies = (source_copies + (p.weights_copied ? weights * 2 : 0)) / threads;
  const double source_parcels = p.source_mode == kPixelPairs ? patch
                                : p.source_mode == kGather   ? patch * 2
                                                             : 0;
  const double weight_parcels =
      p.weights_copied || p.resident || at_least ? 0 : weights * (half ? 2 : 1);
  const double warp_steps = slices * steps / p.teams;
  const double multiplications =
      slices * entries / p.teams * (tile.columns / 8.0) * (is_strict(problem) ? 3 : 1);
  // What the tensor cores of a multiprocessor take for one of these.
  const double rate = (half ? device.mma_f16_per_us : device.mma_tf32_per_us) / device.sm_count;
  const double tensor_us = kWarpPositions * 8 * (half ? 16 : 8) / rate;
  const int conflicts = std::min(p.patch_step_w, 8) - 1;

  // Clusters leave multiprocessors over, which come in groups that are no multiple of theirs: 26 of 4 blocks ran at
  // once and 13 of 8, 32 and 16 did not.
  const double room =
      std::floor(device.sm_count * blocks_per_sm * (1 - 0.02 * (p.ranks - 1)) / p.ranks);
  const double clusters = static_cast<double>(combinations(p)) * walkers;
  const double rounds =
      at_least ? 1
               : std::ceil(static_cast<double>(tiles_of(p)) / walkers) * std::ceil(clusters / room);
  const double sharing = at_least
                             ? 1
                             : std::sqrt(std::min<double>(
                                   blocks_per_sm, std::ceil(clusters * p.ranks / device.sm_count)));
  const double work = copies * kFewCopy * (half ? 1 : 2) +
                      (source_parcels * kFewSource + weight_parcels * kFewWeights) / threads +
                      warp_steps * (kFewStep + conflicts * kFewConflict) +
                      multiplications * std::max(kFewMultiply, p.warps * tensor_us);
  const double scatter = problem.direction == Direction::fwd && !p.vector_stores
                             ? std::clamp(double(problem.w.stride) / p.w.slots, 1.0, 4.0) - 1
                             : 0;
  // Short runs cost L2 more than their bytes.
  const double bytes = (patch + weights) * kRowBytes * units * clusters * p.ranks *
                       (p.source_mode == kVectors ? 1 + 0.3 / slices : 1);
  return kFewLaunch + (rounds - 1) * kFewRound + (p.ranks > 1 ? kFewRanks : 0) +
         (p.teams > 1 ? kFewTeams : 0) +
         rounds * (units * (kFewUnit + (p.stages == 2 ? 0.03 : 0) + sharing * work) +
                   scatter * kFewScatter) +
         bytes / (kFewL2 * device.copy_bytes_per_us);
}

// Position tiles worth looking at: widths that divide well, then as many rows and images as fit.
std::vector<GatherChoice> tile_shapes(int64_t extent_h, int64_t extent_w, int64_t batch,
                                      int warps) {
  const int64_t most = warps * kWarpPositions;
  std::vector<GatherChoice> shapes;
  const auto add = [&](int64_t w) {
    const int64_t most_h = std::max<int64_t>(1, most / w);
    for (int64_t h : {most_h, ceil_div(extent_h, ceil_div(extent_h, most_h))}) {
      h = std::min(h, extent_h);
      const bool whole = h == extent_h && w >= extent_w;
      const int64_t n = whole ? std::min(batch, most / (w * h)) : 1;
      GatherChoice shape{};
      shape.tile_n = static_cast<int>(n);
      shape.tile_h = static_cast<int>(h);
      shape.tile_w = static_cast<int>(w);
      const auto same = [&](const GatherChoice& s) {
        return s.tile_n == shape.tile_n && s.tile_h == shape.tile_h && s.tile_w == shape.tile_w;
      };
      if (std::none_of(shapes.begin(), shapes.end(), same)) shapes.push_back(shape);
    }
  };
  for (int64_t w = 8; w <= most; w *= 2)
    if (w < 2 * extent_w) add(std::min(w, extent_w));
  const int64_t pieces = ceil_div(extent_w, 64);
  add(std::min<int64_t>(most, (ceil_div(extent_w, pieces) + 3) / 4 * 4));
  if (extent_w <= most) add(extent_w);
  return shapes;
}

// A row is worth trying if no other row has its columns with fewer phases that are still enough, and
// no narrower row holds all channels.
bool worth_trying(int row, int64_t columns, int64_t phases) {
  const TileRow tile = kTiles[row];
  for (const TileRow& other : kTiles) {
    if (other.columns == tile.columns && other.slots < tile.slots && other.slots >= phases)
      return false;
    if (other.columns < tile.columns && other.columns >= columns &&
        other.slots >= std::min<int64_t>(tile.slots, phases))
      return false;
  }
  return true;
}

// How many rows of taps a unit of K may have, 0 for all. Fewer where their patches do not overlap and all units are
// alike.
std::vector<int> tap_rows_of(const Problem& problem) {
  std::vector<int> found = {0};
  const Axis& h = problem.h;
  for (int rows = 1; rows <= 8 && problem.direction == Direction::grad_input; rows *= 2)
    if (rows < h.kernel && h.kernel % rows == 0 && (rows - 1) * h.dilation < h.stride)
      found.push_back(rows);
  return found;
}

// Candidates of a tile: how deep its units of K are, how many stages they have, and how many blocks share them.
void add_depths(const Problem& problem, const Device& device, GatherChoice choice, Best* best,
                std::vector<GatherCandidate>& found, std::string& reason) {
  const TileRow tile = kTiles[choice.row];
  GatherParams params;
  choice.slice_shift = choice.resident = 0;
  choice.ranks = 1;
  choice.stages = 2;
  if (std::string why = gather_shape(problem, choice, params); !why.empty()) {
    reason = why;
    return;
  }
  // Sharing a reduction out pays where tiles are too few, and only there is it looked at; and only where there are
  // clusters, on which predict_few was measured.
  const int64_t tiles = combinations(params) * tiles_of(params);
  const bool few = device.most_ranks > 1 && tiles < device.sm_count;
  if (!few && is_shared(choice)) return;
  const int most_ranks = few && tile.shares ? device.most_ranks : 1;
  const int row_elements = kRowBytes / element_size(problem.dtype);
  const int most_stages = params.source_mode <= kPixelPairs ? 2 : 4;
  for (choice.slice_shift = 0; choice.slice_shift <= 2; ++choice.slice_shift) {
    if (choice.slice_shift > 0 && params.reduce <= row_elements << (choice.slice_shift - 1)) break;
    if (choice.slice_shift > 0 && !few && params.max_entries << choice.slice_shift > 24) break;
    if (choice.teams > params.max_steps << choice.slice_shift) continue;
    for (choice.ranks = 1; choice.ranks <= most_ranks; choice.ranks *= 2) {
      const auto time = few ? predict_few : predict;
      choice.resident = 0, choice.stages = most_stages;
      set_depth(problem, choice, params);
      const double least = best ? time(problem, device, params, tile, 1, 1, true) : 0;
      if (best && best->beats(least)) continue;
      for (choice.resident = 0; choice.resident <= !is_shared(choice); ++choice.resident)
        for (choice.stages = 2; choice.stages <= most_stages; ++choice.stages) {
          set_depth(problem, choice, params);
          if (params.units < choice.ranks || (params.shared && params.units > kMostUnits)) continue;
          if (choice.warps > most_warps(tile, is_strict(problem), params.shared)) continue;
          const int registers =
              registers_of(tile, is_strict(problem), params.shared) * 32 * choice.warps;
          const int bytes = shared_map(params, tile.columns, tile.slots).total;
          if (bytes > device.smem_optin) {
            if (!choice.resident && choice.stages == 2)
              reason = "a tile needs " + std::to_string(bytes) + " bytes of shared memory";
            continue;
          }
          const int blocks_per_sm =
              std::min(kRegisterFile / registers, device.smem_per_sm / (bytes + 1024));
          if (blocks_per_sm < 1) continue;
          const int64_t room = static_cast<int64_t>(device.sm_count) * blocks_per_sm;
          // More ranks than fill the device are not looked at.
          if (choice.ranks > 1 && tiles * choice.ranks >= 2 * room) continue;
          const int64_t walkers = std::max<int64_t>(1, room / combinations(params));
          choice.walkers = static_cast<int>(params.shared ? tiles_of(params)
                                                          : std::min(walkers, tiles_of(params)));
          found.push_back(
              {choice, time(problem, device, params, tile, blocks_per_sm, choice.walkers, false)});
          if (best) best->found(found.back().predicted_us, least);
        }
    }
  }
}

}  // namespace

std::vector<GatherCandidate> gather_candidates(const Problem& problem, const Device& device,
                                               std::string& reason, Best* best) {
  std::vector<GatherCandidate> found;
  const bool forward = problem.direction == Direction::fwd;
  const int64_t extent_h = forward ? ceil_div(problem.h.out, problem.h.stride) : problem.h.in;
  const int64_t extent_w = forward ? ceil_div(problem.w.out, problem.w.stride) : problem.w.in;
  const int64_t columns = forward ? problem.group_out() : problem.group_in();
  const int64_t phases = forward ? problem.h.stride * problem.w.stride : 1;
  Fold folded;
  const int most_folds = fold(problem, folded);
  // A folded window may have fewer rows, or one.
  const std::vector<int> tap_rows[] = {
      tap_rows_of(problem), most_folds ? tap_rows_of(folded.problem) : std::vector<int>{}};
  for (int row = is_strict(problem) ? kFirstSplitTile : 0; row < kTileCount; ++row) {
    if (!worth_trying(row, columns, phases)) continue;
    const bool shares = device.most_ranks > 1 && kTiles[row].shares;
    for (int warps = 4; warps <= most_warps(kTiles[row], is_strict(problem), shares); warps += 4)
      for (int teams = 1; teams <= (shares ? warps : 1); teams *= 2)
        for (GatherChoice choice : tile_shapes(extent_h, extent_w, problem.batch, warps / teams)) {
          choice.row = row;
          choice.warps = warps;
          choice.teams = teams;
          for (choice.folded = 0; choice.folded <= (shares ? most_folds : 0); ++choice.folded)
            for (int rows : tap_rows[choice.folded]) {
              if (rows && !shares) break;
              choice.tap_rows = rows;
              add_depths(problem, device, choice, best, found, reason);
            }
        }
  }
  return found;
}

Plan plan_of(const GatherCandidate& candidate) {
  const GatherChoice& c = candidate.choice;
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  plan.split = c.ranks;
  const int detail[] = {c.warps,    c.tile_n,  c.tile_h, c.tile_w,   c.slice_shift, c.stages,
                        c.resident, c.walkers, c.teams,  c.tap_rows, c.folded};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(kTiles[c.row].columns) + " channels x " +
              std::to_string(kTiles[c.row].slots) + " phases, tile " + std::to_string(c.tile_n) +
              "x" + std::to_string(c.tile_h) + "x" + std::to_string(c.tile_w) + ", " +
              std::to_string(c.warps) + " warps, K " + std::to_string(32 << c.slice_shift) +
              " bytes x " + std::to_string(c.stages) + " stages" +
              (c.resident ? ", weights resident" : "");
  if (c.folded) plan.note += ", rows of taps as channels";
  if (c.tap_rows) plan.note += ", " + std::to_string(c.tap_rows) + " rows of taps at once";
  if (c.teams > 1) plan.note += ", K shared by " + std::to_string(c.teams) + " teams of warps";
  if (c.ranks > 1) plan.note += ", K split over a cluster of " + std::to_string(c.ranks);
  return plan;
}

GatherChoice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], plan.split, d[8], d[9], d[10]};
}

Decision plan(const Problem& problem, const Device& device) { return search(problem, device, {}); }

Decision search(const Problem& problem, const Device& device, Best best) {
  if (!device.has_mma_f16)
    return Decision::decline("no tensor cores with fp32 accumulation of bf16/tf32 (sm_80 and up)");
  if (problem.dtype == DType::f64) return Decision::decline("fp64 is left to direct");
  if (problem.direction == Direction::grad_weight) return weight_plan(problem, device, best);
  if (std::string reason = sums_too_short(problem, kLeastSplitTerms); !reason.empty())
    return Decision::decline(reason);
  if (problem.wide_index) return Decision::decline("a tensor has more than 2^31 elements");
  std::string reason = "no tile fits";
  const std::vector<GatherCandidate> found = gather_candidates(problem, device, reason, &best);
  if (found.empty()) return Decision::decline(reason);
  GatherCandidate least = cheapest(found);
  // No more tiles make a kernel faster: what few of them cost is the least that many do.
  if (device.most_ranks > 1) least.predicted_us = std::max(least.predicted_us, kFewLaunch);
  return Decision::accept(plan_of(least));
}

}  // namespace convt2d::cuda::igemm
