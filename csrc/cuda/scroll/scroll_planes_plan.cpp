#include "cuda/scroll/scroll_planes_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/scroll/scroll_plan.h"

namespace convt2d::cuda::scroll {
namespace {

// Cycles where nothing else is said; fitted to 298 plans of 36 layers on the H200 (2026-11-28), fp16 and TF32, forward and
// grad_input: 7 % in the root mean square.
constexpr double kClock = 1700;    // cycles a microsecond
constexpr double kLaunch = 11.5;   // us: launch, the first rows, last stores
constexpr double kWeights = 6550;  // of 16 bytes of weights that each thread brings, eight times,
constexpr double kDeepWeights = 14600;  // and where they are grad_input's
constexpr double kTensorTime = 0.837;   // over an instruction's least at this clock
constexpr double kSharedBytes = 127;    // a cycle
constexpr double kChunk = 50;           // of a warpgroup alone, beside a chunk's instructions,
constexpr double kLine = 20;            // and a line,
constexpr double kPiece = 5;            // and its words of 16 channels of a row of y,
constexpr double kTornPiece = 165;      // or these with halves at their ends;
// what instructions of all warpgroups take of such
constexpr double kLineIssue = 354, kPieceIssue = 14.8, kTornIssue = 132;
constexpr double kTurnedChunk = 731;  // of a warp that turns, of a chunk,
constexpr double kCopies = 24;        // of up to 32 copies at once,
constexpr double kTurnHalves = 5;     // and of 256 numbers
constexpr double kTurnWords = 41;
// Where words are fetched (126 plans, 8 %): a warpgroup alone, beside each instruction and beside a chunk; what fetching for an
// instruction takes of all; a chunk of the warp that brings; of what neither of these hides; and times the bytes, where four
// strips are brought at once.
constexpr double kFetchedStep = 68.5;
constexpr double kFetchedChunk = 112;
constexpr double kFetchedIssue = 13;
constexpr double kBroughtChunk = 241;
constexpr double kFetchedLesser = 0.334;
constexpr double kCrowded = 1.18;
constexpr double kLesser = 0.418;     // of what neither of these hides
constexpr double kMemoryRate = 0.84;  // of the copy rate
constexpr double kAgain = 0.847;      // of x for more channels
constexpr double kShortRuns = 1.19;   // times y, in 16 bits
constexpr double kBeside = 0.236;     // of the lesser of work and bytes

// Kernel columns: each fetches anew, so of more turned rows are faster (1_69 1590 us for 1720).
constexpr int kMostFetched = 4;
constexpr int kMostReach = 24;  // of kernel rows: copies of a line are kMostSets times 32 at most
constexpr int kMostTurnedStages = 4;
constexpr int kMostParts = 64;  // of a strip
constexpr int kAlignedBytes = 32;
constexpr int kMostWidth = 64;  // of a block: channels whose biases have room

struct Choice {
  int row, rings, sharers, turners;
  int line;  // bytes of a chunk's channels
  int stages = 1, raw_stages = 1, walkers = 1, parts = 1;
};

// Strips into so many parts.
void cut(int parts, PlaneParams& p) {
  p.task_rows = static_cast<int32_t>(ceil_div(p.steps, parts));
  p.tasks = p.strips_w * static_cast<int32_t>(ceil_div(p.steps, p.task_rows));
}

void shape(const Problem& problem, const Choice& choice, PlaneParams& p) {
  const Tile tile = kTiles[choice.row];
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  p = {};
  set_problem(problem, tile, p);
  p.fetched = are_fetched(tile, p.number_bytes);
  p.rings = choice.rings;
  p.sharers = choice.sharers;
  p.turners = choice.turners;
  p.warpgroups = p.rings * p.sharers;
  p.turning_warps = lends(tile, p.number_bytes) ? 4 : p.turners * p.rings;
  p.column_tiles = number(ceil_div(p.columns, tile.width * p.sharers));
  p.walkers[0] = choice.walkers;
  int32_t high = INT32_MIN;
  p.low = INT32_MAX;
  for (int phase = 0; phase < tile.phases; ++phase) {
    const Taps& taps = p.taps[phase];
    p.low = std::min(p.low, taps.low);
    high = std::max(high, taps.low + (taps.count - 1) * taps.shift);
  }
  p.line = choice.line;
  set_chunks(p);
  p.slices = p.line / kSliceBytes;
  p.pieces = pieces_of(tile, p.number_bytes, p.turners);
  const int32_t turned = turned_channels(p);
  // The tape: images are kept apart by what their neighbours' outputs reach over.
  p.positions = number(ceil_div(p.y_w, p.stride_w));
  const int32_t apart = std::max(-p.low, p.positions + high - p.x_w);
  p.tape = number(round_up(std::max(p.positions, p.x_w + std::max(apart, 0)), 8));
  p.by_tape = FastDivide(p.tape);
  p.copy_bytes = p.x_w * p.number_bytes % 16 == 0 ? 16 : 4;
  const int32_t together = p.copy_bytes / p.number_bytes;
  const int32_t aligned = p.copy_bytes == 16 ? kAlignedBytes / p.number_bytes : together;
  p.lead = number(p.low - floor_div(p.low, together) * together);
  p.early = number(p.low - p.lead - floor_div(p.low, aligned) * aligned);
  const int32_t needed = p.lead + kPositions + high - p.low;
  p.copies = number(round_up(p.early + needed, aligned)) / together;
  for (int32_t first = 0; first < p.copies; ++p.sets) {
    const int32_t left = p.copies - first;
    p.set_first[p.sets] = first;
    p.set_copies[p.sets] = left > 32 ? 32 : left > 16 && p.sets == 0 ? 16 : left;
    p.set_channels[p.sets] = 32 / p.set_copies[p.sets];
    p.set_turns[p.sets] = turned / p.set_channels[p.sets];
    first += p.set_copies[p.sets];
  }
  p.raw_pixels = number(round_up(needed, p.number_bytes == 2 && turned == 16 ? 16 : 8));
  // An odd number of 16 bytes, which keeps channels in different banks; of words, of which a warp fetches eight in each of four
  // channels, of 32 bytes.
  const int32_t apart_in_banks = p.fetched ? 32 : 16;
  p.raw_pitch = number(round_up((p.early + p.raw_pixels) * p.number_bytes, apart_in_banks));
  p.raw_pitch = std::max(p.raw_pitch, number(round_up(p.copies * p.copy_bytes, apart_in_banks)));
  if (p.raw_pitch / apart_in_banks % 2 == 0) p.raw_pitch += apart_in_banks;
  p.raw_bytes = turned * p.raw_pitch;
  p.raw_stages = choice.raw_stages;
  p.whole_words = p.y_w * p.number_bytes % 4 == 0;
  p.strips_w = number(ceil_div(int64_t{p.batch} * p.tape, kPositions));
  cut(choice.parts, p);
  p.by_strips = FastDivide(p.strips_w);
  p.stages = choice.stages;
  p.stage_bytes = p.fetched ? number(round_up(p.raw_bytes, 128))
                            : number(round_up(p.raw_pixels * p.line, 1024));
  SharedPlaces places{kPlanesHeader};
  const auto weights = [&](const Taps& taps) {
    return taps.count * p.chunks * columns_of(tile) * p.line;
  };
  p.phase_bytes = weights(p.taps[0]);
  p.share_bytes = p.phase_bytes + weights(p.taps[1]);
  p.weights_at = places.take(int64_t{p.sharers} * p.share_bytes, 1024);
  p.stages_at = places.take(int64_t{p.rings} * p.stages * p.stage_bytes, 1024);
  if (!p.fetched)
    p.raw_at = places.take(int64_t{p.rings} * p.turners * p.raw_stages * p.raw_bytes, 128);
  p.staging_at =
      places.take(int64_t{p.warpgroups} * staging_bytes(tile.phases, p.number_bytes), 16);
  p.shared_bytes = number(places.end);
}

// Lines that a warpgroup multiplies.
double lines_of(const PlaneParams& p, Tile tile) {
  return double(ceil_div(p.tasks, int64_t{p.walkers[0]} * p.rings)) *
         (p.task_rows + reach_of(tile));
}

// Cycles of a line of each of a multiprocessor's warpgroups.
double line_cycles(const PlaneParams& p, Tile tile) {
  const double width = columns_of(tile);
  double products = 0;
  for (const Taps& taps : p.taps) products += double(taps.count) * p.chunks;
  const double steps = products * p.slices,
               shared = (kPositions + width) * kSliceBytes / kSharedBytes,
               instructions = steps * std::max(kTensorTime * width / 2, shared);
  const int turned = turned_channels(p);
  // Of rows of y, by words of a warp's channels; where these are torn, halves at their ends.
  const double pieces =
      tile.step * std::ceil(double(tile.width) / kPieceChannels) * tile.phases * p.number_bytes / 2;
  const bool torn = p.number_bytes == 2 && !p.whole_words;
  double copies = 0;
  for (int i = 0; i < p.sets; ++i) copies += ceil_div(turned, p.set_channels[i]);
  const double turning =
      double(p.raw_pixels) * turned / 256 * (p.number_bytes == 2 ? kTurnHalves : kTurnWords);
  const double chunk = p.fetched ? kFetchedChunk : kChunk,
               fetch = p.fetched ? steps * kFetchedStep : 0,
               fetch_issue = p.fetched ? steps * kFetchedIssue : 0,
               feeding = p.fetched ? kBroughtChunk : kTurnedChunk + turning;
  const double together = p.warpgroups * instructions,
               alone = kLine + p.chunks * chunk + pieces * (torn ? kTornPiece : kPiece) +
                       instructions + fetch,
               issue = p.warpgroups *
                       (kLineIssue + pieces * (torn ? kTornIssue : kPieceIssue) + fetch_issue),
               fed = double(p.chunks) * p.pieces / p.turners * (feeding + copies * kCopies);
  const double most = std::max({together, alone, fed, issue});
  return most + (p.fetched ? kFetchedLesser : kLesser) * (together + alone + fed + issue - most);
}

double predict(const Problem& problem, const Device& device, const PlaneParams& p, Tile tile,
               bool deep) {
  double taps = 0;
  for (const Taps& each : p.taps) taps += each.count;
  const double weights = taps * p.vectors * p.sharers * columns_of(tile) / 8 / (128 * p.warpgroups),
               work = (lines_of(p, tile) * line_cycles(p, tile) +
                       weights * (deep ? kDeepWeights : kWeights)) /
                      kClock;
  const double pixels = double(p.batch) * p.number_bytes,
               x_bytes = pixels * p.reduce * p.x_h * p.x_w,
               y_bytes = pixels * p.columns * p.y_h * p.y_w;
  const double bytes = tensor_bytes(problem) + x_bytes * kAgain * (p.column_tiles - 1) +
                       (p.number_bytes == 2 ? y_bytes * (kShortRuns - 1) : 0);
  const double memory =
      (p.fetched && p.rings == 4 ? kCrowded : 1) * bytes / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(work, memory) + kBeside * std::min(work, memory);
}

std::string refusal(const Problem& given, const Device& device) {
  if (std::string reason = common_refusal(given, device); !reason.empty()) return reason;
  const Problem problem = as_forward(given);
  const Axis &h = problem.h, &w = problem.w;
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw)
    return "scroll takes x and y of one layout, NCHW or NHWC";
  if (std::none_of(std::begin(kTiles), std::end(kTiles), [&](const Tile& tile) {
        return serves(tile, problem, w.stride) &&
               has_planes(tile, int(element_size(problem.dtype)));
      }))
    return "no tile has " + std::to_string(h.kernel) + " kernel rows, strides " +
           std::to_string(h.stride) + " and " + std::to_string(w.stride);
  if (w.in * element_size(problem.dtype) % 4 != 0)
    return "rows of " + std::to_string(w.in) + " pixels are no whole words";
  if (w.kernel < w.stride || (w.stride > 1 && w.dilation % w.stride == 0))
    return "a phase of columns has no tap";
  if (problem.dtype != DType::f32 && h.out * w.out * problem.out_channels % 2 != 0)
    return "images of an odd number of outputs";
  if ((w.kernel - 1) * w.dilation > kMostReach)
    return "kernel rows reach over " + std::to_string((w.kernel - 1) * w.dilation) + " pixels";
  if (w.near_pad > (w.kernel - 1) * w.dilation) return "outputs begin inside the image";
  return {};
}

// Into how many parts strips are cut, for the fewest lines of a warpgroup.
int parts_of(PlaneParams p, Tile tile) {
  int best = 1;
  double least = INFINITY;
  for (int parts = 1; parts <= kMostParts; ++parts) {
    cut(parts, p);
    const double lines = lines_of(p, tile);
    if (lines < least) least = lines, best = parts;
    if (p.task_rows == 1) break;
  }
  return best;
}

// Every number of strips at a time, of warpgroups that share one, and of warps that turn for it; words that are fetched
// come by one warp, in chunks of either length.
std::vector<Choice> teams_of(int row, int number_bytes, int64_t reduce, int64_t channels) {
  const Tile tile = kTiles[row];
  constexpr int kLeastGroups = 2;
  const bool fetched = are_fetched(tile, number_bytes);
  const int most = fetched ? 1 : 2;  // turners of a strip
  const int64_t bytes = reduce * number_bytes;
  const int line = bytes <= 64 || (bytes > 128 && round_up(bytes, 64) % 128 != 0) ? 64 : 128;
  const int groups = plane_groups(tile, number_bytes), turning = most_turners(tile, number_bytes);
  std::vector<Choice> found;
  for (int sharers = 1; sharers <= groups; ++sharers) {
    const bool idle = sharers > 1 && (sharers - 1) * tile.width >= channels;
    if (idle || sharers * tile.width > kMostWidth) break;
    for (int rings = std::min(groups / sharers, turning); rings >= 1; --rings)
      for (int turners = 1; turners <= std::min(most, turning / rings); ++turners)
        for (int each = fetched ? 64 : line; each <= line; each *= 2)
          if (rings * sharers >= kLeastGroups)
            found.push_back({row, rings, sharers, turners, each});
  }
  return found;
}

// As many stages as there is room for; false if there is none for the least.
bool add_stages(const Problem& problem, const Device& device, Choice& choice) {
  constexpr int kLeastStages = 2, kLeastRaw = 2;
  const bool shared = choice.sharers > 1;  // warpgroups of a ring are apart by what it holds
  PlaneParams p;
  choice.stages = kLeastStages;
  if (are_fetched(kTiles[choice.row], int(element_size(problem.dtype)))) {
    shape(problem, choice, p);
    choice.stages += (device.smem_optin - p.shared_bytes) / (choice.rings * p.stage_bytes);
    choice.stages = std::min(choice.stages, kMostStages);
    return p.shared_bytes <= device.smem_optin;
  }
  for (choice.raw_stages = shared ? kLeastRaw : kMostRawStages;; --choice.raw_stages) {
    if (choice.raw_stages < kLeastRaw) return false;
    shape(problem, choice, p);
    if (p.shared_bytes <= device.smem_optin) break;
  }
  choice.stages = std::clamp(
      kLeastStages + (device.smem_optin - p.shared_bytes - 1024) / (choice.rings * p.stage_bytes),
      kLeastStages, shared ? kMostStages : kMostTurnedStages);
  return true;
}

std::vector<Candidate<Choice>> candidates(const Problem& given, const Device& device,
                                          std::string& reason) {
  const Problem problem = as_forward(given);
  const int number_bytes = static_cast<int>(element_size(problem.dtype));
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < kTileCount; ++row) {
    const Tile tile = kTiles[row];
    if (!serves(tile, problem, problem.w.stride) || !has_planes(tile, number_bytes)) continue;
    if (are_fetched(tile, number_bytes) && problem.w.kernel > kMostFetched) {
      reason = "words of " + std::to_string(problem.w.kernel) + " kernel columns";
      continue;
    }
    for (Choice choice :
         teams_of(row, number_bytes, problem.in_channels / problem.groups, problem.out_channels)) {
      if (!add_stages(problem, device, choice)) {
        reason = "weights and rows of " + std::to_string(choice.rings) + " x " +
                 std::to_string(choice.sharers) + " warpgroups do not fit in " +
                 std::to_string(device.smem_optin) + " bytes of shared memory";
        continue;
      }
      PlaneParams p;
      shape(problem, choice, p);
      choice.walkers = p.walkers[0] = std::max(1, device.sm_count / p.column_tiles);
      choice.parts = parts_of(p, tile);
      shape(problem, choice, p);
      found.push_back(
          {choice, predict(problem, device, p, tile, given.direction == Direction::grad_input)});
    }
  }
  return found;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[4], d[5], d[6], d[7], d[1], d[0], d[2], d[3]};
}

Plan plan_of(const Problem& given, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  const Tile tile = kTiles[c.row];
  PlaneParams p;
  shape(as_forward(given), c, p);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.raw_stages, c.stages,  c.walkers, c.parts,
                        c.rings,      c.sharers, c.turners, c.line};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(c.rings) + " strips of 64 positions x " + std::to_string(tile.rows) +
              " rows x " + std::to_string(c.sharers) + " x " + std::to_string(tile.width) +
              " channels of planes, " +
              (p.fetched ? std::to_string(c.stages) + " stages of " + std::to_string(c.line) +
                               " bytes of channels, "
                         : std::to_string(c.turners) + " turning, " + std::to_string(c.raw_stages) +
                               " and " + std::to_string(c.stages) + " stages, ") +
              std::to_string(blocks_of(p)) + " blocks of " + std::to_string(p.shared_bytes) +
              " bytes";
  return plan;
}

}  // namespace

std::vector<Plan> plane_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plane_plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

PlaneParams plane_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  PlaneParams p;
  shape(as_forward(problem), choice_of(plan), p);
  set_operands(problem, args, p);
  return p;
}

}  // namespace convt2d::cuda::scroll
