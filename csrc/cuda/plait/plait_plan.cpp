#include "cuda/plait/plait_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/floor.h"
#include "cuda/gather_params.h"
#include "cuda/plait/plait_shape.h"

namespace convt2d::cuda::plait {
namespace {

constexpr const char* kRawNames[] = {"planes", "runs", "boxes", "memory"};
constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said; counted where the machine says so (instructions in SASS), the others
// fitted to 90 plans of 45 layers on an H200 (2026-11-26).
constexpr double kLaunch = 4.2, kLaunchRaw = 9;  // us
constexpr double kFirst = 1000;                  // until the first chunk is there
constexpr double kMultiply = 128;                // an instruction
constexpr double kMultiplyReads = 80;  // of it, of shared memory: 2 KB of weights, 8 KB of columns
// Instructions of a warp: of a row; of each word of it, which is moved by a number that is known or not; of a tap, and where
// kernel rows do not start at multiples of their taps; of a team, of a chunk.
constexpr double kRowIssue = 45, kWordIssue = 1.5, kMovedIssue = 4.2, kTapIssue = 8,
                 kPlaceIssue = 9, kChunkIssue = 1000;
// The same where the warps that sort load, by 108 plans of 44 layers (2026-11-25, 9 % root mean square).
constexpr double kLoadRowIssue = 110, kLoadWordIssue = 15.7, kMoveIssue = 0.5, kLoadIssue = 1.4,
                 kLoadStore = 1.7, kLoadedOver = 0.6;
constexpr double kIssue = 1.2;    // instructions a cycle of all schedulers
constexpr double kShared = 1.15;  // what passes through shared memory, against 128 bytes a cycle
constexpr double kStoreVectors = 400;  // of a tile, both warpgroups
constexpr double kStoreWords = 3500;
constexpr double kStoreHalves = 6000;
constexpr double kCopied =
    0.72;  // what is measured over that, of rows that the copy engine brings sorted
constexpr double kMemoryRate = 0.8;                   // of the copy rate
constexpr double kBeside = 0.2, kBesideCopied = 0.5;  // of the lesser of work and bytes

double predict(const Problem& problem, const Device& device, const Params& p) {
  const Taps taps = kTaps[p.kind];
  // Of a chunk: rows of warps, which load and store in shared memory; and pieces. What two kernel rows read comes once, where
  // they are of one tile.
  const double rows =
      (p.paired ? kPairedChannels * kPairs / 2.0 : double(kDepth) / taps.kernel) * p.halves;
  const double turns = taps.step % 2 == 0 ? 2 : 1;  // that lanes meet in banks
  const int owners = p.turns ? 1 : kGroups;
  const double slices = double(depth_multiplied(p)) / p.chunks / kSlice;
  const double shared =
      kShared *
      (slices / 4 * (p.copied ? rows * 4 : rows * 4 * (vectors_of(taps) * turns + taps.kernel)) +
       owners * slices * kMultiplyReads + (p.resident ? 0 : weight_bytes(p) / 128.0));
  const double row = kRowIssue + (taps.lead < 0 ? kMovedIssue : kWordIssue) * words_of(taps) +
                     (kTapIssue + (kDepth % taps.kernel == 0 ? 0 : kPlaceIssue)) * taps.kernel;
  const bool loaded = !p.copied && p.raw == kLoaded;
  const double issue =
      p.copied ? 0
      : loaded ? slices / 4 * rows *
                     (kLoadRowIssue + (taps.lead < 0 ? kMoveIssue : 0) * words_of(taps) +
                      kLoadWordIssue * (words_of(taps) + 2 * taps.kernel)) /
                     kLoadIssue
               : (slices / 4 * rows * row + kChunkIssue) / kIssue;
  const double level2 =
      ((p.resident ? 0 : weight_bytes(p)) +
       (p.copied || loaded ? slices / 4 * rows * 512 * taps.step * 0.8 : p.raw_stage_bytes)) /
      kLevel2;
  const double pieces = raw_pieces(p) * kPiece;
  const double tensor = owners * slices * kMultiply;
  double chunk = 0;
  for (const double cost : {tensor, shared, issue, level2, pieces}) chunk += std::pow(cost, 5);
  chunk = std::pow(chunk, 0.2);
  const double store = (p.store_vectors ? kStoreVectors
                        : p.store_words ? kStoreWords
                                        : kStoreHalves) *
                       (loaded ? kLoadStore : 1);
  const double tile = p.turns ? std::max(p.chunks * chunk, (p.chunks * tensor + store) / 2)
                              : p.chunks * chunk + store;
  const double waves = std::ceil(double(blocks_of(p)) / device.sm_count);
  const double tiles = std::ceil(double(p.tiles) / p.walkers);
  const double busy_us = (p.copied ? kCopied
                          : loaded ? kLoadedOver
                                   : 1) *
                         waves * (kFirst + tiles * tile + (p.turns ? store : 0)) / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return (p.copied || loaded ? kLaunch : kLaunchRaw) + std::max(busy_us, memory_us) +
         (p.copied || loaded ? kBesideCopied : kBeside) * std::min(busy_us, memory_us);
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "no wgmma (sm_90a)";
  if (problem.direction != Direction::grad_input) return "plait is for grad_input";
  if (element_size(problem.dtype) != 2) return "plait is for 16 bits";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "plait is for NCHW";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  if (kind_of(problem) < 0)
    return "kernel rows of " + number(w.kernel) + " with stride " + number(w.stride) +
           " are none of those that are written out";
  if (w.dilation != 1) return "plait takes kernel rows without dilation";
  const int64_t depth = problem.group_out() * h.kernel * w.kernel;
  if (problem.batch * problem.out_channels * h.out * w.out % kEight != 0)
    return "the output's gradient is no whole 16 bytes";
  // Pixels of rows that are not there are counted too, if not read.
  const int64_t beside = (h.kernel * h.dilation + h.near_pad + h.stride) * w.out + 64;
  if (std::abs(h.near_pad) > 1 << 12 || std::abs(w.near_pad) > 1 << 12 ||
      problem.batch * problem.out_channels * h.out * w.out + beside * 2 > INT32_MAX / 2 ||
      problem.batch * problem.in_channels * h.in * w.in > INT32_MAX / 2 * 2 ||
      problem.batch * h.in * (w.in + kBlock) > INT32_MAX - 1024 || depth > 1 << 24)
    return "sizes are too large";
  return {};
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int number = 0; number < 2 * kForms; ++number) {
    const int form = number / 2, most = number % 2 ? 0 : kMostRawStages,
              fewest = std::min(most, kLeastRawStages);
    Params p;
    shape(problem, {form, 2, INT32_MAX, most}, p);
    if ((form == kWide && p.columns <= kRows) || (p.copied && most == 0)) continue;
    bool fits = false, resident = false;
    int stages = 0, raw_stages = 0;
    // Two teams sort while a third stage is multiplied, if there is room.
    for (const int least : {3, 2})
      for (const bool stay : {true, false})
        for (int some = most; some >= fewest && !fits; --some) {
          if ((form == kTurns || p.uneven) && !stay) continue;
          raw_stages = some;
          shape(problem, {form, 2, INT32_MAX, raw_stages}, p);
          resident = stay;
          for (stages = kMostStages; stages >= least && !fits; --stages) {
            place(stay, stages, p);
            fits = p.shared_bytes <= device.smem_optin;
          }
        }
    stages = p.stages;
    if (!fits) {
      reason = form == kTurns || p.uneven
                   ? "weights of " + std::to_string(p.depth) + " numbers do not stay"
                   : "rows of dY of " + std::to_string(p.raw_stage_bytes) + " bytes have no room";
      continue;
    }
    const Choice choice = {form, resident ? -stages : stages,
                           std::max(1, device.sm_count / (p.groups * p.column_tiles)), raw_stages};
    shape(problem, choice, p);
    place(resident, stages, p);
    found.push_back({choice, predict(problem, device, p)});
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  const Params p = shape_of(problem, c);
  Plan plan;
  plan.row = c.form;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.stages, c.walkers, c.raw_stages};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(tile_channels(p)) + " channels x " +
              std::to_string(tile_eights(p) * kEight) + " positions" +
              (p.turns ? " by turns" : "") + ", rows of " + std::to_string(kTaps[p.kind].kernel) +
              " taps " +
              (p.copied ? "copied" : std::string("written out from ") + kRawNames[p.raw]) +
              (p.paired ? " in pairs, " : ", ") + std::to_string(p.stages) + " stages, weights " +
              (p.resident ? "stay" : "come") + ", " + std::to_string(blocks_of(p)) + " blocks";
  return plan;
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}
Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p = shape_of(problem, {plan.row, plan.detail[0], plan.detail[1], plan.detail[2]});
  set_tensors(problem, args, p);
  return p;
}

}  // namespace convt2d::cuda::plait
