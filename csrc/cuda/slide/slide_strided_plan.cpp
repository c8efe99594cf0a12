#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/floor.h"
#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/slide/slide_plan.h"
#include "cuda/slide/slide_rows_plan.h"

namespace convt2d::cuda::slide {
namespace {

constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said: fitted to 997 plans of 40 layers (2026-11-29, H200), those more closely
// where other families take as long.
constexpr double kLaunch = 7;          // us
constexpr double kWeightByte = 0.327;  // of resident weights
constexpr double kRunByte = 0.089;     // where eight taps come at once
constexpr double kFirst = 4670;        // until the first row is there
constexpr double kMultiply = 1;        // times what the tensor core takes
constexpr double kSlot = 448;          // of a warpgroup, for a block of channels and a kernel row
constexpr double kTap = 20;            // and 16 channels of a tap
constexpr double kStoreRun = 360;      // of a row of an image, of a warp's eight channels, by words
constexpr double kStoreVectors = 1170;  // of all rows, by 16 bytes
constexpr double kTurnOctet = 138;      // of a warp that turns, for eight channels of a row
constexpr double kTurnPart = 71;        // and for 32 pixels of them
constexpr double kArrival = 750;        // from asking for them until they are there
constexpr double kCopyBytes = 23.8;     // a cycle
constexpr double kShared = 1;           // times what shared memory takes
constexpr double kFewSlots = 0.98;      // times storing, which holds up a slot, where there are two
constexpr double kSharp = 4.5;          // what takes longest hides the rest, but not all of it
constexpr double kMemoryRate = 1;       // of the copy rate
constexpr double kBeside = 0.27;        // of the lesser of work and bytes

struct Choice {
  int row, strips, depth, sets, raws, slots, walkers;
};

int reach_of(const Axis& axis) { return static_cast<int>((axis.kernel - 1) * axis.dilation); }

// Everything that follows from the problem and the choice, pointers aside.
void shape(const Problem& problem, const Choice& choice, StridedParams& p) {
  const Axis &h = problem.h, &w = problem.w;
  const int width = kWidths[choice.row - kStridedRow];
  p = {};
  set_extents(problem, p);
  p.x_h = static_cast<int32_t>(h.out);
  p.x_w = static_cast<int32_t>(w.out);
  p.y_h = static_cast<int32_t>(h.in);
  p.y_w = static_cast<int32_t>(w.in);
  p.kernel_h = static_cast<int32_t>(h.kernel);
  p.kernel_w = static_cast<int32_t>(w.kernel);
  p.low_h = static_cast<int32_t>(-h.near_pad);
  p.low_w = static_cast<int32_t>(-w.near_pad);
  p.step_h = static_cast<int32_t>(h.stride);
  p.step_w = static_cast<int32_t>(w.stride);
  p.tap_rows = static_cast<int32_t>(h.dilation);
  p.tap_columns = static_cast<int32_t>(w.dilation);
  p.reach = reach_of(h);
  for (int i = 0; i < p.kernel_h; ++i) p.used_rows |= 1 << i * p.tap_rows % p.step_h;
  for (int8_t i = 0; i < p.step_h; ++i)
    if (p.used_rows >> i & 1) p.used_row[p.used_count++] = i;
  set_channels(choice.depth, p);
  p.sets = choice.sets;
  p.column_tiles = static_cast<int32_t>(ceil_div(p.columns, tile_channels(p)));

  p.reach_w = reach_of(w);
  p.strips = choice.strips;
  p.strip = p.strips == 1 ? p.y_w : static_cast<int32_t>(round_up(ceil_div(p.y_w, p.strips), 8));
  p.steps = p.y_h;
  p.positions = p.y_w;
  p.pixels = (p.strip - 1) * p.step_w + p.reach_w + 1;
  const auto images_apart = [&](int32_t pixels) {
    return p.strips > 1 ? 1 : std::min(p.batch, std::max(1, (width - p.strip) / pixels + 1));
  };
  // Where that costs no image, rows of the result stay whole 16 bytes beside each other.
  const int32_t least = (p.pixels - 1) / p.step_w + 1;
  const auto whole = static_cast<int32_t>(round_up(least, kVector));
  p.image_pixels =
      p.y_w % kVector == 0 && images_apart(whole) == images_apart(least) ? whole : least;
  p.images = images_apart(p.image_pixels);
  set_slots(width, choice.raws, choice.slots, p);
  for (int j = 0; j < std::min(p.kernel_w, kMostKernelColumns); ++j)
    p.column[j] = (j * p.tap_columns % p.step_w * p.plane_pixels + j * p.tap_columns / p.step_w) *
                  p.depth * 2;
  p.walkers = std::min(choice.walkers, steps_of(p));

  p.tile_rows = 1;
  p.staging_pitch = kStridedPitch;
  p.aligned = p.y_w % kVector == 0 && (p.images == 1 || p.image_pixels % kVector == 0);
  p.image_magic = 65536 / p.image_pixels + 1;
  p.lanes_shift = std::clamp(shift_of(p.strip) - 1, 2, 5);
  SharedPlaces places{kRowHeader};
  p.staging_at =
      places.take(p.aligned ? 0 : int64_t{kConsumers / 32} * kWarpChannels * kStridedPitch, 128);
  take_rows(places, p);
  p.shared_bytes = static_cast<int32_t>(places.end);
}

double predict(const Problem& problem, const Device& device, const Choice& choice,
               const StridedParams& p) {
  const int width = kWidths[choice.row - kStridedRow];
  // Cycles for a row of the result of a strip.
  const double products = double(p.kernel_h) * p.kernel_w * p.slices;
  const double tensor = kMultiply * p.sets * products * width / 2;
  const double octets = double(p.used_count) * p.octets,
               copied = octets * p.copied_bytes / kCopyBytes;
  // What goes through shared memory, 128 bytes a cycle: both operands, and rows three times.
  const double shared = kShared * (p.sets * products * (kRows + width) / 4 +
                                   octets * (p.copied_bytes / 128.0 + 8 * p.parts));
  const int halves = std::min(2, (p.columns + 7) / 8);
  const double store =
      halves * (p.aligned ? kStoreVectors
                          : kStoreRun * kWarpChannels * p.images * (1 << p.lanes_shift) / 32.0);
  const double group = (kSlot * p.kernel_h * p.depths + kTap * products + store) / row_groups(p);
  const double of_octet = kTurnOctet + kTurnPart * p.parts,
               turn = octets / kRowWarps * std::max(of_octet, (of_octet + kArrival) / p.raws);
  double sum = 0;
  for (const double cost : {tensor, shared, copied, group, turn}) sum += std::pow(cost, kSharp);
  const double row = std::pow(sum, 1 / kSharp) + kFewSlots * store / row_groups(p) / (p.slots - 1);
  const double waves = std::ceil(double(p.groups) * p.column_tiles * p.walkers / device.sm_count);
  const double steps = std::ceil(double(steps_of(p)) / p.walkers);
  const double stretches = std::floor(steps / p.steps) + 1;
  const double extra = std::max(0, p.reach + 1 - p.step_h) / double(p.step_h);
  const double byte = problem.w_layout == Layout::nchw && p.kernel_h * p.kernel_w % kVector == 0
                          ? kRunByte
                          : kWeightByte;
  const double weights = byte * p.kernel_h * p.kernel_w * p.tap_bytes;
  const double busy_us =
      waves * (weights + kFirst + steps * row + stretches * extra * std::max(turn, row / 2)) /
      kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::string refusal(const Problem& problem, const Device&) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (h.stride > kMostStep || w.stride > kMostStep || w.kernel > kMostKernelColumns)
    return "a stride or a kernel row of more than 16";
  if (h.kernel * w.kernel > 256 || reach_of(h) >= kGroups * h.stride || reach_of(w) > 128)
    return "kernels that reach over " + number(reach_of(h) + 1) + " rows with stride " +
           number(h.stride) + " are more than two rows of the result share";
  if (std::abs(h.near_pad) > 1 << 14 || std::abs(w.near_pad) > 1 << 14) return "wide padding";
  if (w.in > 1 << 20) return "rows are too long";
  const int64_t last = (w.in - 1) * w.stride - w.near_pad + reach_of(w);
  if (std::max<int64_t>(0, w.near_pad) + std::max<int64_t>(0, last + 1 - w.out) > kMostBeside)
    return "more than " + number(kMostBeside) + " pixels are read that lie beside a row";
  StridedParams p;
  shape(problem, {kStridedRow, 1, 16, 1, 2, 2, 1}, p);
  if (int64_t{p.residues} * p.x_h * p.x_w > kOutside) return "planes are too large";
  if (p.reduce % p.residues != 0)
    return number(p.reduce) + " channels of planes of which " + number(p.residues) +
           " are whole 16 bytes";
  return {};
}

// Of a choice without slots or walkers: as many slots as there is room for, and what follows. Whether there are enough.
bool fill(const Problem& problem, const Device& device, Choice& choice, StridedParams& p) {
  choice.slots = 0;
  shape(problem, choice, p);
  const int room = (device.smem_optin - p.shared_bytes) / p.slot_bytes,
            least = std::max(2, most_slots_passed(p));
  choice.slots = std::min({room, kMostRowSlots, std::max({4, least, 4 * p.depths})});
  choice.walkers = std::max(1, device.sm_count / (p.groups * p.column_tiles));
  p.slots = choice.slots;
  p.walkers = std::min(choice.walkers, steps_of(p));
  return choice.slots >= least;
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int row = kStridedRow; row < kStridedRow + kWidthCount; ++row) {
    const int width = kWidths[row - kStridedRow];
    const auto least = static_cast<int>(ceil_div(problem.w.in, width));
    if (least > 1 && width % 16 != 0) continue;
    for (int strips = least, tried = 0; tried < 2 && strips <= 64 * least; ++strips) {
      StridedParams p;
      Choice choice = {row, strips, 16, 1, 2, 2, 1};
      shape(problem, choice, p);
      if (p.pitch > kMostPitch * 16 || p.parts > kMostParts || p.strip > width) {
        reason = "strips of " + std::to_string(p.strip) + " positions are too wide";
        continue;
      }
      if (strips > 1 && int64_t{p.strips - 1} * p.strip >= p.y_w) {
        if (p.strip <= 8) break;
        continue;
      }
      ++tried;
      for (const int depth : {16, 32, 64}) {
        if (depth > round_up(p.residues * p.residue_octets * 8, 32)) continue;
        for (const int sets : {1, 2}) {
          if (sets > 1 && (reach_of(problem.h) >= problem.h.stride || p.columns <= kRows)) continue;
          for (int raws = 1; raws <= kMostRaws; ++raws) {
            choice.depth = depth;
            choice.sets = sets;
            choice.raws = raws;
            if (!fill(problem, device, choice, p)) {
              reason = "weights and rows do not fit into shared memory";
              break;
            }
            if (p.slot_bytes >= 1 << 16) break;  // places are of 2 bytes
            found.push_back({choice, predict(problem, device, choice, p)});
          }
        }
      }
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  StridedParams p;
  shape(problem, c, p);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.strips, c.depth, c.sets, c.raws, c.slots, c.walkers};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = "strided rows, " + std::to_string(tile_channels(p)) + " channels x " +
              std::to_string(kWidths[c.row - kStridedRow]) + ", " + std::to_string(p.images) +
              " images x strips of " + std::to_string(p.strip) + ", blocks of " +
              std::to_string(p.depth) + ", " + std::to_string(p.raws) + " stages a warp, " +
              std::to_string(p.slots) + " slots, " + std::to_string(p.residues) + " residues, " +
              std::to_string(blocks_of(p)) + " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[0], d[1], d[2], d[3], d[4], d[5]};
}

}  // namespace

std::vector<Plan> strided_plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}
Decision strided_plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

StridedParams strided_params_of(const Problem& problem, const Plan& plan, const Args& args) {
  StridedParams p;
  shape(problem, choice_of(plan), p);
  set_tensors(problem, args, p);
  p.weight_runs = have_weight_runs(p);
  return p;
}

}  // namespace convt2d::cuda::slide
