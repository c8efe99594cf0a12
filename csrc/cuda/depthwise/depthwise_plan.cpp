// When the family serves a problem, and how long it should take.
#include "cuda/depthwise/depthwise_plan.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "core/phases.h"
#include "cuda/depthwise/depthwise.h"
#include "cuda/depthwise/depthwise_lanes.h"
#include "cuda/depthwise/depthwise_launch.h"
#include "cuda/depthwise/depthwise_mma.h"
#include "cuda/depthwise/depthwise_strips.h"
#include "cuda/depthwise/depthwise_walks.h"
#include "cuda/weight_cost.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace depthwise {

ClassAxis class_axis(const Axis& axis) {
  ClassAxis a{};
  a.in = int(axis.in), a.out = int(axis.out), a.kernel = int(axis.kernel);
  a.stride = int(axis.stride), a.near_pad = int(axis.near_pad), a.dilation = int(axis.dilation);
  a.divisor = int(gcd(axis.stride, axis.dilation));
  a.step = a.stride / a.divisor;
  a.reach = a.dilation / a.divisor;
  a.period = a.stride * a.reach;
  // Offsets of a residue's classes lie in [lowest, lowest + 2 * reach): hence two bases. A phase
  // without taps gets the lowest, which keeps its outputs in the enumeration.
  a.lowest = int(ceil_div(axis.near_pad + axis.dilation, axis.stride)) - a.reach;
  a.taps = int(blocks_of(a.kernel, a.step));
  a.by_stride = FastDivide(a.stride);
  a.by_period = FastDivide(a.period);
  // first * reach = (phase + near_pad) / divisor modulo step, in closed form: this runs at every launch.
  int inverse = 0;
  while (a.step > 1 && int64_t{inverse} * a.reach % a.step != 1) ++inverse;
  for (int phase = 0; phase < a.stride; ++phase) {
    const int64_t from = phase + axis.near_pad, quotient = floor_div(from, a.divisor);
    const int first = int((quotient - floor_div(quotient, a.step) * a.step) * inverse % a.step);
    const bool fed = quotient * a.divisor == from && first < a.kernel;
    a.phases[phase] = {fed ? first : 0, fed ? (a.kernel - first - 1) / a.step + 1 : 0,
                       fed ? int((from - int64_t{first} * a.dilation) / a.stride) : a.lowest};
    a.ragged |= fed && a.phases[phase].taps < a.taps;
  }
  return a;
}

Geometry geometry_of(const Problem& problem, const Args& args, void* result) {
  Geometry g{};
  g.x = args.x.data, g.w = args.w.data, g.y = args.y.data, g.result = result;
  g.bias = problem.has_bias ? args.bias : nullptr;
  g.h = class_axis(problem.h), g.v = class_axis(problem.w);
  std::copy(args.x.stride, args.x.stride + 4, g.x_stride);
  std::copy(args.w.stride, args.w.stride + 4, g.w_stride);
  std::copy(args.y.stride, args.y.stride + 4, g.y_stride);
  g.batch = problem.batch;
  g.in_channels = int(problem.in_channels), g.out_channels = int(problem.out_channels);
  g.multiplier = int(problem.group_out());
  g.by_multiplier = FastDivide(g.multiplier);
  g.by_in_channels = FastDivide(g.in_channels);
  g.by_out_channels = FastDivide(g.out_channels);
  return g;
}

Problem flipped_forward(const Problem& problem) {
  Problem forward = problem;
  forward.direction = Direction::fwd;
  forward.has_bias = 0;
  for (Axis* axis : {&forward.h, &forward.w}) {
    std::swap(axis->in, axis->out);
    axis->near_pad = (axis->kernel - 1) * axis->dilation - axis->near_pad;
  }
  return forward;
}

Args flipped_args(const Problem& problem, const Args& args) {
  Args forward = args;
  std::swap(forward.x, forward.y);
  const int64_t last =
      (problem.h.kernel - 1) * args.w.stride[2] + (problem.w.kernel - 1) * args.w.stride[3];
  forward.w.data = static_cast<char*>(args.w.data) + last * element_size(problem.dtype);
  forward.w.stride[2] = -args.w.stride[2];
  forward.w.stride[3] = -args.w.stride[3];
  return forward;
}

namespace {

template <typename... Parts>
Decision decline(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return Decision::decline(text.str());
}

struct Launch {
  int64_t blocks;
  int shared_bytes;
  int threads = kThreads;
  int split = 1;
  int64_t workspace_bytes = 0;
};

// Partial sums of every weight, and of the bias once more for each group of blocks.
int64_t partial_bytes(const Problem& problem, int64_t split, int64_t groups) {
  const int64_t weights = problem.h.kernel * problem.w.kernel;
  return 4 * split * problem.out_channels * (weights + (problem.has_bias ? groups : 0));
}

Launch launch_of(const Problem& problem, int vector) {
  if (is_flipped_forward(problem)) return launch_of(flipped_forward(problem), vector);
  const bool planes = problem.y_layout == Layout::nchw;
  const ClassAxis h = class_axis(problem.h), v = class_axis(problem.w);
  switch (problem.direction) {
    case Direction::fwd: {
      if (planes) {
        const PlaneForwardTile t = plane_forward_tile(problem, h, v);
        return {t.blocks, t.shared_bytes};
      }
      const PixelForwardTile t = pixel_forward_tile(problem, h, v, vector);
      return {t.blocks, t.shared_bytes};
    }
    case Direction::grad_input: {
      if (planes) {
        const PlaneGradInputTile t = plane_grad_input_tile(problem, h, v);
        return {t.blocks, t.shared_bytes, t.threads};
      }
      const PixelGradInputTile t = pixel_grad_input_tile(problem, h, v, vector);
      return {t.blocks, t.shared_bytes};
    }
    default: {
      if (planes) {
        const PlaneGradWeightTile t = plane_grad_weight_tile(problem, h, v);
        return {t.blocks, t.shared_bytes, kThreads, t.split,
                partial_bytes(problem, t.split, t.phase_groups)};
      }
      const PixelGradWeightTile t = pixel_grad_weight_tile(problem, h, v, vector);
      return {t.blocks, t.shared_bytes, kThreads, t.split,
              partial_bytes(problem, t.split, t.class_groups)};
    }
  }
}

// The kernel that holds x in registers, if one does; the alignment of pointers is taken for granted.
std::optional<StripKernel> strips_of(const Problem& problem, const ClassAxis& h,
                                     const ClassAxis& v) {
  const int bytes = int(element_size(problem.dtype));
  const int index = strip_kernel(problem, h, v, 16 / bytes);
  if (index < 0) return std::nullopt;
  return bytes == 4 ? strip_kernels<4>()[index] : strip_kernels<2>()[index];
}

// Issue slots of one y element, in units of a multiply-add. Measured on an H200 in f16, where issue and
// not memory is the limit (2026-11-21; 12 layers with kernels 2 to 64, strides 1 to 32; strips: 27
// layers): within 1.5x for most; planes of 8x8 and strides of 32 take up to twice as long in the backward.
double slots_per_output(const Problem& problem) {
  const ClassAxis h = class_axis(problem.h), v = class_axis(problem.w);
  const bool back = problem.direction == Direction::grad_weight;
  const double share =
      double(problem.h.in) * double(problem.w.in) /
      (double(problem.h.out) * double(problem.w.out) * double(problem.group_out()));
  const double far = std::max(0, std::max(h.stride, v.stride) - 8);
  if (problem.y_layout == Layout::nchw) {
    const int taps = plane_taps(problem, h, v);
    const double blocks_h = double(blocks_of(h.taps, taps)),
                 blocks_v = double(blocks_of(v.taps, taps));
    const double macs = double(taps) * taps;
    const double unpaired = problem.w.out % kPair == 0 ? 1 : 1.4;
    if (back) {
      // A thread goes down whole runs of rows, of which there may be fewer.
      const double rows = double(blocks_of(h.out, h.period)),
                   gone = double(round_up(int64_t(rows), kRun));
      return blocks_h * blocks_v * unpaired * (15 + 10 * macs + 40 * share) * gone / rows;
    }
    if (problem.direction == Direction::grad_input) {
      return blocks_v * unpaired * (20 + 3 * macs * blocks_h + 60 * share + 4 * far);
    }
    if (const auto strips = strips_of(problem, h, v)) {
      const double products = double(strips->taps) * strips->taps;
      return strips->run == 1 ? 25 + 8 * products : 10 + 2.2 * products;
    }
    const double narrow = v.out < 32 ? 1.7 : 1;  // too few columns for a block
    return narrow * unpaired * (14 + 2.5 * macs * blocks_h * blocks_v + 47 * share);
  }
  const int vector = pixel_vector(problem), taps = pixel_taps(problem, h, v, vector);
  const double blocks_h = double(blocks_of(h.taps, taps)),
               blocks_v = double(blocks_of(v.taps, taps));
  if (back) return blocks_h * blocks_v * (vector == 1 ? 1.6 : 1) * (20 + 9 * taps * taps);
  const double narrow = vector == 1 ? 4.5 : vector == 4 ? 1.4 : 1;
  const bool forward = problem.direction == Direction::fwd;
  const double others = forward && vector > 1 ? 8 : 20;
  return narrow * (others + 3.5 * h.taps * taps * blocks_v) +
         (forward ? 0 : 6 * std::max(0, v.stride - 2));
}

double outputs_of(const Problem& problem) {
  return double(problem.batch) * double(problem.out_channels) * double(problem.h.out) *
         double(problem.w.out);
}

double launch_us(const Problem& problem) {
  return problem.direction == Direction::grad_weight ? 8
         : problem.direction == Direction::fwd       ? 5
                                                     : 4;
}

double predicted_us(const Problem& problem, const Device& device) {
  if (is_flipped_forward(problem)) return predicted_us(flipped_forward(problem), device);
  // Of the copy rate: forward 0.85 (dla_up2 f32 50 us, k3 s1 f32 61 us, floors 39.8 and 48.8), else 0.7.
  const bool forward = problem.direction == Direction::fwd;
  const double memory = tensor_bytes(problem) / ((forward ? 0.85 : 0.7) * device.copy_bytes_per_us);
  const double issue = outputs_of(problem) * slots_per_output(problem) / device.fma_f32_per_us;
  return launch_us(problem) + std::max(memory, issue);
}

// Of a lane's step in 16 bits, us: it waits for memory, whatever it moves (10 layers on an H200, 2026-11-27, fp16 forward within
// 27 %, nine of them within 12 %; grad_weight within 25 %). Not seen in grad_input, nor of words.
constexpr double kStepWait = 0.6, kStepWaitOfEight = 0.3;  // the latter of stride 8

// Row 2: on tensor cores. Issue slots are counted (sass): of a block of rows, and of each product.
std::optional<Plan> mma_plan(const Problem& problem, const Device& device) {
  const int index = mma_kernel(problem);
  if (index < 0 || !device.has_mma_f16) return std::nullopt;
  const LaneKernel& kernel = kLaneKernels[index];
  const LaneTile t = mma_tile(problem);
  if (t.blocks * kMmaWarps >= INT32_MAX) return std::nullopt;
  Plan plan;
  plan.row = 2;
  const double slots =
      (60 + 8. * kernel.stride) * 32 / (double(t.step) * t.slots * kMmaColumns * kernel.stride);
  const double memory = tensor_bytes(problem) / (0.78 * device.copy_bytes_per_us);
  const double issue = outputs_of(problem) * slots / device.fma_f32_per_us;
  plan.predicted_us = launch_us(problem) + std::max(memory, issue);
  std::ostringstream note;
  note << "mma, " << kernel.taps << " taps, " << t.rounds << " strips of " << t.rows << ", "
       << t.blocks << " blocks of " << t.threads;
  plan.note = note.str();
  return plan;
}

// Row 1, y or dY in registers, if that serves the problem; the alignment of pointers is taken for granted.
// Issue slots are counted (sass, 2026-11-23), not fitted: hence a modest share of the copy rate.
std::optional<Plan> register_plan(const Problem& problem, const Device& device) {
  if (auto products = mma_plan(problem, device)) return products;
  const bool back = problem.direction == Direction::grad_weight;
  const bool forward = problem.direction == Direction::fwd;
  const int bytes = int(element_size(problem.dtype));
  Plan plan;
  plan.row = 1;
  std::ostringstream note;
  double slots = 0, moved = tensor_bytes(problem), wait_us = 0;
  int64_t blocks = 0, part_floats = 0;
  if (const int index = lane_kernel(problem); index >= 0) {
    const LaneKernel& kernel = kLaneKernels[index];
    const LaneTile t = lane_tile(problem, kernel);
    slots =
        3 + kernel.taps * kernel.taps +
        (forward ? 40. : 60.) / (lane_columns(kernel.stride, bytes) * lane_phases(kernel.stride));
    blocks = t.blocks, plan.split = t.split * t.tiles, part_floats = t.part_floats;
    if (bytes == 2 && problem.direction != Direction::grad_input)
      wait_us = double(t.rounds) * t.by_steps.divisor *
                (kernel.stride == 8 ? kStepWaitOfEight : kStepWait);
    note << "lanes, " << kernel.taps << " taps, " << t.rounds << " strips of " << t.rows << ", "
         << blocks << " blocks of " << t.threads;
  } else if (!walks_serve(problem)) {
    return std::nullopt;
  } else if (problem.direction == Direction::grad_input) {
    const WalkInputTile t = walk_input_tile(problem);
    const double again = double(t.columns + t.taps - 1) / t.columns;  // columns fetched twice
    slots =
        again * (4 + t.taps * t.taps + 40. / (walk_rows(t.taps) * t.phases * walk_vector(bytes)));
    blocks = t.blocks;
    note << "walks, " << t.taps << " taps, " << t.channels << " channels, runs of " << t.columns
         << ", " << blocks << " blocks of " << t.threads;
  } else {
    const WalkSquareTile t = walk_square_tile(problem);
    slots = 4 + t.taps * t.taps + (forward ? 40. : 60.) / (4 * walk_vector(bytes));
    blocks = t.blocks, plan.split = t.split, part_floats = t.part_floats;
    if (back) moved += 8. * t.split * t.part_floats;  // written and read
    note << "walks, " << t.taps << " taps, " << t.channels << " channels, runs of " << t.run << ", "
         << blocks << " blocks of " << t.threads;
  }
  if (blocks >= INT32_MAX) return std::nullopt;
  if (back) {
    plan.workspace_bytes =
        4 * plan.split * (part_floats + (problem.has_bias ? problem.out_channels : 0));
    if (plan.workspace_bytes > kWorkspaceLimit) return std::nullopt;
    plan.detail[0] = device.has_wgmma;  // there the second pass may start early
    note << ", split " << plan.split;
  } else {
    plan.split = 1;
  }
  // Walks take 1.1 to 2 times what bytes and instructions say in 16 bits (2026-11-23), of words less, as lanes' grad_weight does.
  const bool walks = problem.y_layout == Layout::nhwc;
  const double late = walks && bytes == 2 ? 1.4 : !back ? 1 : walks ? 1.15 : 1.05;
  double memory = moved / (0.78 * device.copy_bytes_per_us);
  if (back) memory = (moved + std::min(moved, kLeftBehind)) / device.copy_bytes_per_us;
  const double issue = outputs_of(problem) * slots / device.fma_f32_per_us;
  plan.predicted_us = launch_us(problem) + std::max(late * std::max(memory, issue), wait_us);
  plan.note = note.str();
  return plan;
}

// Row 0: what takes everything that the family does.
Decision general_plan(const Problem& problem, const Device& device) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (problem.group_in() != 1) {
    return decline("each output reads ", problem.group_in(), " input channels, depthwise needs 1");
  }
  if (problem.group_out() > kMultiplierLimit) {
    return decline(problem.group_out(), " output channels a group, the limit is ",
                   kMultiplierLimit);
  }
  if (problem.dtype == DType::f64) return decline("f64 is not built, f16, bf16 and f32 are");
  if (problem.x_layout == Layout::strided || problem.x_layout != problem.y_layout) {
    return decline("x is ", name(problem.x_layout), " and y is ", name(problem.y_layout),
                   ", both must be nchw or both nhwc");
  }
  for (const Axis& axis : {problem.h, problem.w}) {
    if (axis.stride > kStrideLimit) {
      return decline("stride ", axis.stride, ", the limit is ", kStrideLimit);
    }
    const int64_t reach = std::max(std::abs(axis.near_pad), axis.kernel * axis.dilation);
    if (reach >= kReachLimit) {
      return decline("a pad or a dilated kernel of ", reach, ", the limit is ", kReachLimit);
    }
  }
  const bool planes = problem.y_layout == Layout::nchw;
  const int64_t image =
      std::max(problem.h.in * problem.w.in * (planes ? 1 : problem.in_channels),
               problem.h.out * problem.w.out * (planes ? 1 : problem.out_channels));
  if (image >= kMost) {
    return decline(image, planes ? " elements a plane" : " elements an image",
                   ", the limit is 2^31");
  }
  if (problem.out_channels >= kMost) return decline(problem.out_channels, " channels");

  // Pointers are not known yet: unaligned ones bring the tile for single channels.
  const Launch launch = launch_of(problem, pixel_vector(problem));
  const Launch single = launch_of(problem, 1);
  if (launch.threads > kThreads) {
    return decline("a column of x is reached by ", (problem.w.kernel - 1) * problem.w.dilation + 1,
                   " columns of y, a block has threads for ", kPair * kThreads);
  }
  const int shared_bytes = std::max(launch.shared_bytes, single.shared_bytes);
  if (shared_bytes > kSharedLimit) {
    return decline("a block needs ", shared_bytes, " bytes of shared memory for a ",
                   problem.h.kernel, "x", problem.w.kernel, " kernel, the limit is ", kSharedLimit);
  }
  const int64_t blocks = std::max(launch.blocks, single.blocks);
  if (blocks >= kMost) return decline(blocks, " blocks, the limit is 2^31");

  Plan plan;
  plan.split = launch.split;
  if (problem.direction == Direction::grad_weight) {
    plan.workspace_bytes = std::max(launch.workspace_bytes, single.workspace_bytes);
    if (plan.workspace_bytes > kWorkspaceLimit) {
      return decline("partial sums of ", plan.workspace_bytes, " bytes, the limit is ",
                     kWorkspaceLimit);
    }
  }
  plan.predicted_us = predicted_us(problem, device);
  std::ostringstream note;
  const ClassAxis h = class_axis(problem.h), v = class_axis(problem.w);
  if (const auto strips = strips_of(problem, h, v)) {
    note << "strips of " << strips->run << ", " << strips->taps << " taps";
    plan.note = note.str();
    return Decision::accept(plan);
  }
  note << (planes ? "planes, " : "pixels, ") << launch.blocks << " blocks, " << launch.shared_bytes
       << " bytes of shared memory";
  if (launch.split > 1) note << ", split " << launch.split;
  plan.note = note.str();
  return Decision::accept(plan);
}

bool launch_registers(const Problem& problem, const Plan& plan, const Args& args) {
  if (plan.row == 2) return launch_mma_grad_input(problem, args);
  const bool early = plan.detail[0] != 0;
  switch (problem.direction) {
    case Direction::fwd:
      return launch_lanes_forward(problem, args) || launch_walks_forward(problem, args);
    case Direction::grad_input:
      return launch_lanes_grad_input(problem, args) || launch_walks_grad_input(problem, args);
    default:
      return launch_lanes_grad_weight(problem, args, early) ||
             launch_walks_grad_weight(problem, args, early);
  }
}

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (plan.row > 0 && launch_registers(problem, plan, args)) return;
  if (problem.direction == Direction::grad_weight) {
    launch_grad_weight(problem, args);
  } else {
    launch_gather(problem, args);
  }
}

Decision plan(const Problem& problem, const Device& device) {
  std::string reason;
  const std::vector<Plan> both = plans(problem, device, reason);
  if (both.empty()) return Decision::decline(reason);
  // In grad_weight, which follows from the shape alone, what keeps dY in registers is taken wherever it serves.
  const bool last = both.size() > 1 && (problem.direction == Direction::grad_weight ||
                                        both[1].predicted_us < both[0].predicted_us);
  return Decision::accept(both[last]);
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  const Decision general = general_plan(problem, device);
  reason = general.reason;
  if (!general.accepted) return {};
  std::vector<Plan> both{general.plan};
  if (auto registers =
          register_plan(problem, device)) {  // other pointers than expected bring row 0
    registers->workspace_bytes = std::max(registers->workspace_bytes, general.plan.workspace_bytes);
    both.push_back(*registers);
  }
  return both;
}

}  // namespace depthwise

const Family depthwise_family = {"depthwise", depthwise::plan, depthwise::launch};

}  // namespace convt2d::cuda
