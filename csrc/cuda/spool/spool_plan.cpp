#include "cuda/spool/spool_plan.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_weight_plan.h"
#include "cuda/tensor_map.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda::spool {
namespace {

// Fitted to 40 layers on an H200, 2026-11-26.
constexpr double kTurn = 3.2;         // us, of the kernel that turns beside its bytes,
constexpr double kTurnRate = 0.78;    // of the copy rate,
constexpr double kCachedWrite = 0.5;  // and what is written, which stays in L2, counts less
constexpr double kReturn = 1;         // us, the third one, of a piece that is rounded
constexpr double kReturnRate = 1.1;   // of the copy rate
// Of the reel: fitted to 778 plans of 25 layers on an H100, 2026-11-26.
constexpr double kClock = 1700;     // cycles a microsecond
constexpr double kTogether = 4.5;   // us, of a launch that waits until the GPU is free
constexpr double kReelFirst = 2.6;  // times as long: the first slice, turned by three warps a block
constexpr double kReelMultiply = .75;  // of hopper's time: slices come from L2
constexpr double kReelTile = 1050;     // cycles, to turn one beside the product
constexpr double kReelSlice = 5000;    // and of a slice, for which all blocks wait

constexpr int64_t kMostSummed = 65536;  // pixels, in one register

int64_t weight_elements(const Problem& problem) {
  return problem.in_channels * problem.group_out() * problem.h.kernel * problem.w.kernel;
}

// What the last kernel takes in place.
int32_t return_elements(const Problem& problem) {
  const int64_t columns = problem.group_out();
  return static_cast<int32_t>(columns * std::max<int64_t>(1, kReturnElements / columns));
}
bool is_rounded(const Problem& problem, int split) {
  const int64_t taps = problem.h.kernel * problem.w.kernel;
  return split == 1 && problem.group_out() % kOctet == 0 &&
         problem.group_out() <= kMostReturnBytes &&
         taps * return_pitch(return_elements(problem)) <= kMostReturnBytes;
}

struct Choice {
  hopper::WeightChoice slice;
  int64_t images;  // of a slice
};
int64_t slices_of(const Problem& problem, const Choice& choice) {
  return ceil_div(problem.batch, choice.images);
}
int64_t blocks_of(const Problem& problem, const hopper::WeightChoice& c) {
  const auto blocks = [](int64_t channels, int64_t of_block) {
    return ceil_div(channels, of_block * hopper::kCellChannels);
  };
  return problem.groups * blocks(problem.group_in(), c.x_blocks) *
         blocks(problem.group_out(), c.y_blocks) *
         ceil_div(problem.h.kernel * problem.w.kernel, c.unit_taps) * c.split;
}

// Where the copies, the sums and the counters are in the workspace.
struct Places {
  int64_t y, sums, counters, end;
};
int64_t copy_bytes(int64_t images, int64_t channels, const Axis& h, const Axis& w, bool of_x) {
  const int64_t pixels = of_x ? h.in * w.in : h.out * w.out;
  return round_up(images * pixels * round_up(channels, kOctet) * 2, 256);
}
int64_t copies_bytes(const Problem& p, int64_t images) {
  return copy_bytes(images, p.in_channels, p.h, p.w, true) +
         copy_bytes(images, p.out_channels, p.h, p.w, false);
}
// Slices that have room at once: three, but of large images.
constexpr int64_t kRing = kWorkspaceLimit / 8 * 7;  // bytes of three, and the rest are sums
int buffers_of(const Problem& problem, int64_t images) {
  return 3 * copies_bytes(problem, images) <= kRing ? 3 : 2;
}

Places places_of(const Problem& p, const Choice& choice) {
  const bool reel = choice.images < p.batch;
  const int split = choice.slice.split;
  const int64_t images = choice.images * (reel ? buffers_of(p, choice.images) : 1);
  Places places;
  places.y = copy_bytes(images, p.in_channels, p.h, p.w, true);
  places.sums = places.y + copy_bytes(images, p.out_channels, p.h, p.w, false);
  places.counters =
      places.sums + (is_rounded(p, split) ? 0 : round_up(weight_bytes(p) * split, 256));
  places.end = places.counters + (reel ? 2 * 4 * slices_of(p, choice) : 0);
  return places;
}

// Images of a slice worth looking at: all, or as many as leave room for three slices, or fewer, so that less is turned before
// the first product, or one; whole K tiles are of one slice, so whole twos, fours or eights where there are as many.
std::vector<int64_t> image_counts(const Problem& problem) {
  std::vector<int64_t> counts;
  if (copies_bytes(problem, problem.batch) <= kWorkspaceLimit) counts.push_back(problem.batch);
  const auto whole_lines = [](const Axis& h, const Axis& w, bool of_x) {
    return (of_x ? h.in * w.in : h.out * w.out) % kOctet == 0;
  };
  if (!whole_lines(problem.h, problem.w, true) || !whole_lines(problem.h, problem.w, false))
    return counts;
  int64_t most = std::min(kRing / (3 * copies_bytes(problem, 1)), ceil_div(problem.batch, 2));
  if (most == 0 && 2 * copies_bytes(problem, 1) <= kWorkspaceLimit) most = 1;
  for (int i = 0; i < 3 && most >= 1; ++i, most /= 2) {
    int64_t whole = 8;
    while (whole > most) whole /= 2;
    if (const int64_t images = most / whole * whole; images < problem.batch)
      add_once(counts, images);
  }
  return counts;
}

// What hopper is given: the images of a slice.
Problem turned_problem(const Problem& problem, int64_t images) {
  Problem turned = problem;
  turned.batch = images;
  turned.x_layout = turned.y_layout = Layout::nhwc;
  turned.has_bias = 0;
  return turned;
}

// `most_pixels`: of a block; those that start between 16 bytes take one vector more.
Turned turned_of(const void* from, void* to, int64_t images, int64_t batch, int64_t channels,
                 int64_t pixels, int most_pixels) {
  Turned t{};
  t.from = from, t.to = to;
  t.channels = static_cast<int32_t>(channels), t.pixels = static_cast<int32_t>(pixels);
  t.pitch = static_cast<int32_t>(round_up(channels, kOctet));
  t.channel_blocks = static_cast<int32_t>(ceil_div(channels, kTurnChannels));
  // As few blocks as there must be, of pixels alike.
  const int64_t most = pixels % kOctet == 0 ? most_pixels : most_pixels - kOctet;
  const int64_t fewest = ceil_div(pixels, most);
  t.block_pixels = static_cast<int32_t>(round_up(ceil_div(pixels, fewest), kOctet));
  t.pixel_blocks = static_cast<int32_t>(ceil_div(pixels, t.block_pixels));
  t.images = static_cast<int32_t>(images), t.batch = static_cast<int32_t>(batch);
  t.elements = batch * channels * pixels;
  return t;
}
// Both tensors; to nowhere, for who counts.
void set_turned(const Problem& p, const Args& args, int64_t images, int most_pixels, void* x,
                void* y, Turned (&t)[2]) {
  t[0] = turned_of(args.x.data, x, images, p.batch, p.in_channels, p.h.in * p.w.in, most_pixels);
  t[1] = turned_of(args.y.data, y, images, p.batch, p.out_channels, p.h.out * p.w.out, most_pixels);
}
int32_t units_of(const Turned& t) { return t.images * t.channel_blocks * t.pixel_blocks; }

// What is beside multiplying at least, and how much that counts.
struct Beside {
  double us, factor;
};
Beside beside(const Problem& problem, const Device& device, int64_t images) {
  const double turn = (1 + kCachedWrite) * double(copies_bytes(problem, images)) /
                      (kTurnRate * device.copy_bytes_per_us);
  return images < problem.batch ? Beside{kTogether + kReelFirst * turn, kReelMultiply}
                                : Beside{kTurn + turn, 1};
}

// hopper's time for all images.
double multiply_time(const Problem& problem, const Device& device, const Choice& choice) {
  return hopper::weight_time(turned_problem(problem, problem.batch), device, choice.slice, true);
}

double predict(const Problem& problem, const Device& device, const Choice& choice,
               double multiply) {
  const hopper::WeightChoice& slice = choice.slice;
  const double rate = device.copy_bytes_per_us, slices = double(slices_of(problem, choice));
  const double turn =
      (1 + kCachedWrite) * double(copies_bytes(problem, choice.images)) / (kTurnRate * rate);
  const double dense = double(weight_elements(problem)) * 2;
  const double back =
      is_rounded(problem, slice.split) ? kReturn + 2 * dense / (kReturnRate * rate) : 0;
  if (slices == 1) return kTurn + turn + multiply + back;
  // A piece has whole K tiles of each slice.
  const auto tiles = [&](int64_t images) {
    return double(ceil_div(ceil_div(images, slice.tile_n) * ceil_div(problem.h.in, slice.tile_h) *
                               ceil_div(problem.w.in, slice.tile_w),
                           slice.split));
  };
  const double uneven = slices * tiles(choice.images) / tiles(problem.batch);
  Turned t[2];
  set_turned(problem, {}, choice.images, kReelSide, nullptr, nullptr, t);
  const double units =
      std::ceil((units_of(t[0]) + units_of(t[1])) / double(blocks_of(problem, slice)));
  const double beside = (slices - 1) * units * kReelTile / kClock;
  return kTogether + kReelFirst * turn + std::max(kReelMultiply * multiply * uneven, beside) +
         (slices - 1) * kReelSlice / kClock + back;
}

// Every tile that fits, in no order: the same for all devices. `reason` says why there is none.
std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason, Best* best) {
  std::vector<Candidate<Choice>> found;
  const int64_t pixels = problem.batch * problem.h.in * problem.w.in;
  for (int64_t images : image_counts(problem)) {
    const bool reel = images < problem.batch;
    // All images take no less than those of a slice.
    const auto [beside_us, factor] = beside(problem, device, images);
    Best multiply = best ? best->of_part(beside_us, factor) : Best{};
    for (const hopper::WeightCandidate& of : hopper::weight_candidates(
             turned_problem(problem, images), device, reason, true,
             reel ? kReelBytes + kReelAlignment : 0, best ? &multiply : nullptr)) {
      const double least = beside_us + factor * of.predicted_us;
      if (best && best->beats(least)) continue;
      const Choice choice = {of.choice, images};
      if (reel && images % of.choice.tile_n != 0) {
        reason = "a K tile has " + std::to_string(of.choice.tile_n) + " images";
        continue;
      }
      if (reel && blocks_of(problem, of.choice) > device.sm_count) {
        reason = std::to_string(blocks_of(problem, of.choice)) + " blocks are not there at once";
        continue;
      }
      if (pixels > kMostSummed * of.choice.split) {
        reason = "a sum has too many terms";
        continue;
      }
      const int64_t bytes = places_of(problem, choice).end;
      if (bytes > kWorkspaceLimit) {
        reason = "copies of the tensors and sums take " + std::to_string(bytes) + " bytes";
        continue;
      }
      const double multiplied = reel ? multiply_time(problem, device, choice) : of.predicted_us;
      found.push_back({choice, predict(problem, device, choice, multiplied)});
      if (best) best->found(found.back().predicted_us, least);
    }
  }
  return found;
}

std::vector<Candidate<Choice>> all_candidates(const Problem& problem, const Device& device,
                                              std::string& reason) {
  return candidates(problem, device, reason, nullptr);
}

Plan plan_of(const Problem& problem, const Device& device, const Choice& choice) {
  Plan plan = hopper::weight_plan_of(
      turned_problem(problem, choice.images), device,
      {choice.slice, predict(problem, device, choice, multiply_time(problem, device, choice))},
      true);
  plan.detail[kImagesAt] = static_cast<int32_t>(choice.images);
  plan.workspace_bytes = places_of(problem, choice).end;
  const int64_t slices = slices_of(problem, choice);
  plan.note =
      (slices > 1 ? "a reel of " + std::to_string(slices) + " slices, " : "turned, ") + plan.note;
  add_grad_bias(problem, device, kTurn, plan);
  return plan;
}

Choice choice_of(const Plan& plan) {
  return {hopper::weight_choice_of(plan), plan.detail[kImagesAt]};
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (!device.has_wgmma) return "spool is for sm_90a";
  if (problem.direction != Direction::grad_weight) return "spool is for grad_weight";
  if (element_size(problem.dtype) != 2) return "spool is for 16 bits";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "spool is for NCHW";
  if (problem.group_out() % 4 != 0)
    return number(problem.group_out()) + " output channels are no whole fours";
  // The copy engine starts at whole 16 bytes.
  if (problem.groups > 1 && (problem.group_in() % kOctet != 0 || problem.group_out() % kOctet != 0))
    return "groups of " + number(problem.group_in()) + " and " + number(problem.group_out()) +
           " channels are no whole 16 bytes";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  if (image_counts(problem).empty())
    return "copies of an image take " + number(copies_bytes(problem, 1)) +
           " bytes, or planes are no whole 16 bytes";
  return {};
}

}  // namespace

int slices_of(const Problem& problem, const Plan& plan) {
  return static_cast<int>(slices_of(problem, choice_of(plan)));
}

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, on_reference(all_candidates),
                   at_hand(device, plan_of));
}

Decision plan(const Problem& problem, const Device& device) { return search(problem, device, {}); }

Decision search(const Problem& problem, const Device& device, Best best) {
  Best there = best_on_reference(device, best);
  const auto find = [&there](const Problem& p, const Device& reference, std::string& reason) {
    return candidates(p, reference, reason, &there);
  };
  Decision least =
      best_plan(problem, device, refusal, on_reference(find), at_hand(device, plan_of));
  if (!least.accepted || slices_of(problem, least.plan) == 1) return least;
  const int64_t blocks = blocks_of(problem, choice_of(least.plan).slice);
  if (blocks <= device.sm_count) return least;
  return Decision::decline("a reel's " + std::to_string(blocks) + " blocks are more than " +
                           std::to_string(device.sm_count) + " multiprocessors");
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p{};
  const Choice choice = choice_of(plan);
  const int slices = slices_of(problem, plan);
  const Places places = places_of(problem, choice);
  char* const workspace = static_cast<char*>(args.workspace);
  char* const y = workspace + places.y;
  p.x = workspace, p.y = y;
  p.weight = *static_cast<const hopper::WeightParams*>(plan.prepared.get());
  p.weight.x = p.x;
  p.weight_blocks = hopper::weight_combinations(p.weight) * p.weight.split;

  set_turned(problem, args, choice.images, kTurnPixels, workspace, y, p.turn.tensor);
  p.turn.first_blocks = units_of(p.turn.tensor[0]);
  p.turn_blocks = p.turn.first_blocks + units_of(p.turn.tensor[1]);
  p.reel.slices = slices;
  if (slices > 1) {
    set_turned(problem, args, choice.images, kReelSide, workspace, y, p.reel.tensor);
    for (int i = 0; i < 2; ++i) {
      p.reel.tensor[i].pixel_blocks =
          static_cast<int32_t>(ceil_div(p.reel.tensor[i].pixels, kReelSide));
      p.reel.by_channels[i] = FastDivide(p.reel.tensor[i].channel_blocks);
      p.reel.by_pixels[i] = FastDivide(p.reel.tensor[i].pixel_blocks);
    }
    p.reel.buffers = buffers_of(problem, choice.images);
    p.reel.first_units = units_of(p.reel.tensor[0]);
    p.reel.units = p.reel.first_units + units_of(p.reel.tensor[1]);
    const int64_t last = problem.batch - (slices - 1) * choice.images;
    p.reel.last_tiles_n = static_cast<int32_t>(ceil_div(last, p.weight.tile_n));
    p.reel.blocks = static_cast<int32_t>(p.weight_blocks);
    p.reel.turned = reinterpret_cast<uint32_t*>(workspace + places.counters);
    p.reel.read = p.reel.turned + slices;
    p.reel.tiles_at = static_cast<int32_t>(round_up(
        hopper::weight_shared_bytes(p.weight, hopper::kWeightTiles[plan.row]), kReelAlignment));
    p.reel_bytes = p.reel.tiles_at + kReelBytes;
    p.weight.batch *= p.reel.buffers;  // for the copy engine
  }

  p.rounded = is_rounded(problem, plan.split);
  char* const sums = workspace + places.sums;
  p.weight.weight = args.w.data;
  p.weight.partials = p.rounded ? nullptr : reinterpret_cast<float*>(sums);
  const auto columns = static_cast<int32_t>(problem.group_out()),
             matrix = static_cast<int32_t>(problem.in_channels) * columns;
  const int32_t stride[] = {columns * p.weight.taps, 1,
                            static_cast<int32_t>(problem.w.kernel) * columns, columns};
  std::copy(std::begin(stride), std::end(stride), p.weight.weight_stride);
  p.weight.weight_quads = 1;

  SumParams& sum = p.sum;
  sum.pieces = sums, sum.weight = args.w.data;
  sum.elements = matrix, sum.columns = columns;
  sum.taps = p.weight.taps, sum.count = plan.split;
  sum.piece_quads = static_cast<int32_t>(weight_bytes(problem) / 16);
  sum.by_taps = FastDivide(sum.taps);
  if (p.rounded) {
    sum.block_elements = return_elements(problem);
    sum.by_octets = FastDivide(columns / kOctet);
  } else {
    sum.parts = 1;
    while (sum.parts * 2 * sum.taps <= kSumSlots && sum.parts * 4 <= plan.split) sum.parts *= 2;
    int slots = sum.parts;
    while (slots < kSumSlots && slots < sum.parts * sum.taps) slots *= 2;
    sum.block_elements = kSumThreads / slots * 4;
  }
  p.sum_blocks = ceil_div(matrix, sum.block_elements);
  return p;
}

ReelMaps reel_maps_of(const ReelParams& reel) {
  constexpr int64_t kBytes = 2;
  ReelMaps maps;
  for (int i = 0; i < 2; ++i) {
    const Turned& t = reel.tensor[i];
    const int64_t image = t.pixels * kBytes * t.channels, copy = t.pixels * kBytes * t.pitch;
    maps.from[i] = encode({t.from,
                           kBytes,
                           4,
                           {t.pixels, t.channels, t.batch, 1},
                           {kBytes, t.pixels * kBytes, image, image * t.batch},
                           {kReelSide, kReelSide, 1, 1},
                           {1, 1, 1, 1}});
    const int64_t copies = int64_t{reel.buffers} * t.images;
    maps.to[i] = encode({t.to,
                         kBytes,
                         5,
                         {t.channels, t.pixels, copies, 1, 1},
                         {kBytes, t.pitch * kBytes, copy, copy * copies, copy * copies},
                         {kReelSide, kReelSide, 1, 1, 1},
                         {1, 1, 1, 1, 1}});
  }
  return maps;
}

}  // namespace convt2d::cuda::spool
