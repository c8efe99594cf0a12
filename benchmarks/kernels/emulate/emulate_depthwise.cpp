// What depthwise keeps in registers, on a CPU: indices, shuffles, barriers, the NaN rule.
//
//   emulate_depthwise CASES TYPE LAYOUT DIRECTION SEED [NAME]     TYPE: fp16, bf16, fp32; DIRECTION: fwd, ...
//
// Each case that the kernels of lanes (NCHW) and walks (NHWC) serve, on integers, every other time with an infinity or a
// NaN among the operands; outputs and partial sums hold NaN before.
#include <cstdlib>
#include <limits>
#include <string>

#include "core/phases.h"
#include "cuda/depthwise/depthwise_config.h"

namespace convt2d::cuda::depthwise {
namespace lanes {
alignas(1024) float4 shared[(232 << 10) / 16];  // the kernels declare it extern
}
namespace walks {
alignas(1024) float4 shared[(232 << 10) / 16];
}
}  // namespace convt2d::cuda::depthwise

#include "cuda/depthwise/depthwise_lanes.cuh"
#include "cuda/depthwise/depthwise_launch.h"
#include "cuda/depthwise/depthwise_mma.cuh"
#include "cuda/depthwise/depthwise_walks.cuh"
#include "cuda/visit_row.h"
#include "fibers.h"
#include "problems.h"

namespace convt2d::cuda::depthwise {  // nobody launches here
void launch_gather(const Problem&, const Args&) {}
void launch_grad_weight(const Problem&, const Args&) {}
bool launch_lanes_forward(const Problem&, const Args&) { return false; }
bool launch_lanes_grad_input(const Problem&, const Args&) { return false; }
bool launch_lanes_grad_weight(const Problem&, const Args&, bool) { return false; }
bool launch_mma_grad_input(const Problem&, const Args&) { return false; }
bool launch_walks_forward(const Problem&, const Args&) { return false; }
bool launch_walks_grad_input(const Problem&, const Args&) { return false; }
bool launch_walks_grad_weight(const Problem&, const Args&, bool) { return false; }
}  // namespace convt2d::cuda::depthwise

namespace {

using namespace convt2d;
using namespace convt2d::cuda;
using namespace convt2d::cuda::depthwise;

template <class T>
struct Trial {
  explicit Trial(const Case& one, Direction direction)
      : problem(one.problem), name(one.name + " " + convt2d::name(dtype_of<T>)) {
    Problem& p = problem;
    p.direction = direction, p.dtype = dtype_of<T>;
    p.has_bias = direction != Direction::grad_input;
    x = integers<T>(p.batch * p.in_channels * p.h.in * p.w.in);
    y = integers<T>(p.batch * p.out_channels * p.h.out * p.w.out);
    w = integers<T>(p.in_channels * p.group_out() * p.h.kernel * p.w.kernel);
    std::vector<T>& result = direction == Direction::fwd          ? y
                             : direction == Direction::grad_input ? x
                                                                  : w;
    special = emulate::random() % 2;
    if (special)
      for (std::vector<T>* operand : {&x, &y, &w})
        if (operand != &result) spoil(*operand);
    args.x = tensor(x.data(), p.in_channels, p.h.in, p.w.in, p.x_layout);
    args.w = tensor(w.data(), p.group_out(), p.h.kernel, p.w.kernel, p.w_layout);
    args.y = tensor(y.data(), p.out_channels, p.h.out, p.w.out, p.y_layout);
    expected.resize(result.size() - 64);
    const auto value = [](const std::vector<T>& from, int64_t i) {
      return Numeric<T>::widen(from[i]);
    };
    given_bias = integers<T>(p.out_channels);
    args.bias = given_bias.data();
    const int64_t image = p.h.out * p.w.out, outputs = p.batch * p.out_channels * image;
    std::vector<float> sums(p.out_channels);
    for (int64_t i = 0; i < outputs; ++i) {
      const int64_t co =
          p.y_layout == Layout::nhwc ? i % p.out_channels : i / image % p.out_channels;
      sums[co] += value(y, i);
      if (direction == Direction::fwd) expected[i] = value(given_bias, co);
    }
    products(p, args, [&](int64_t i, int64_t j, int64_t k) {
      if (direction == Direction::fwd) expected[k] += value(x, i) * value(w, j);
      if (direction == Direction::grad_input) expected[i] += value(y, k) * value(w, j);
      if (direction == Direction::grad_weight) expected[j] += value(x, i) * value(y, k);
    });
    bias = sums;
    std::memset(result.data(), 0xff, result.size() * sizeof(T));
  }

  // Adds up partial sums, [piece][kh][kw][C_out] and [piece][C_out], in place of the second pass.
  void add_up(const std::vector<float>& parts, int64_t part_floats, int pieces) {
    const Problem& p = problem;
    for (int64_t tap = 0; tap < p.h.kernel * p.w.kernel; ++tap) {
      for (int64_t co = 0; co < p.out_channels; ++co) {
        float sum = 0;
        for (int piece = 0; piece < pieces; ++piece)
          sum += parts[piece * part_floats + tap * p.out_channels + co];
        const int64_t c = co / p.group_out();
        w[c * args.w.stride[0] + co % p.group_out() * args.w.stride[1] +
          tap / p.w.kernel * args.w.stride[2] + tap % p.w.kernel * args.w.stride[3]] =
            Numeric<T>::narrow(sum);
      }
    }
    for (int64_t co = 0; co < p.out_channels; ++co) {
      float sum = 0;
      for (int piece = 0; piece < pieces; ++piece)
        sum += parts[pieces * part_floats + piece * p.out_channels + co];
      wrong += !same(sum, bias[co]);
    }
  }

  bool passes() {
    const std::vector<T>& result = problem.direction == Direction::fwd          ? y
                                   : problem.direction == Direction::grad_input ? x
                                                                                : w;
    for (size_t i = 0; i < result.size(); ++i) {
      if (i >= expected.size()) {
        T ones;
        std::memset(&ones, 0xff, sizeof ones);
        wrong += std::memcmp(&ones, &result[i], sizeof ones) != 0;
      } else {
        wrong +=
            !same(Numeric<T>::widen(result[i]), Numeric<T>::widen(Numeric<T>::narrow(expected[i])));
      }
    }
    std::printf("%s%s: %lld of %zu wrong\n", name.c_str(), special ? ", not finite" : "",
                static_cast<long long>(wrong), expected.size());
    return wrong == 0;
  }

  Problem problem;
  Args args;
  int64_t wrong = 0;

 private:
  static void spoil(std::vector<T>& values) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float odd[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
    for (int i = 0; i < 2; ++i) {
      values[emulate::random() % (values.size() - 64)] =
          Numeric<T>::narrow(odd[emulate::random() % 3]);
    }
  }
  static bool same(float a, float b) { return a == b || (a != a && b != b); }

  std::string name;
  bool special;
  std::vector<T> x, y, w, given_bias;
  std::vector<float> expected, bias;
};

template <class T>
bool check(const Case& one, Direction direction) {
  Trial<T> trial(one, direction);
  const Problem& p = trial.problem;
  const bool back = direction == Direction::grad_weight;
  const int index = lane_kernel(p);
  if (index < 0 && !walks_serve(p)) return std::printf("%s: not served\n", one.name.c_str()), true;
  std::vector<float> parts;
  float* bias_parts = nullptr;
  const auto geometry = [&](int64_t part_floats, int pieces) {
    parts.assign(back ? pieces * (part_floats + p.out_channels) : 0, NAN);
    if (back) bias_parts = parts.data() + pieces * part_floats;
    return geometry_of(p, trial.args,
                       back                          ? parts.data()
                       : direction == Direction::fwd ? trial.args.y.data
                                                     : trial.args.x.data);
  };
  if (mma_kernel(p) >= 0 && !std::getenv("LANES")) {
    const LaneTile t = mma_tile(p);
    if (std::getenv("SHOW"))
      std::printf(
          "mma: %d of %d pieces, %d units of a warp, %d strips of %d, rounds %d, split %d\n",
          t.step, t.lanes, t.slots, t.strips, t.rows, t.rounds, t.split);
    const lanes::LaneParams params{geometry(0, 0), t, nullptr};
    emulate::smem = reinterpret_cast<unsigned char*>(lanes::shared);
    visit_row<int(kLaneKernels.size())>(index, [&](auto row) {
      constexpr LaneKernel kernel = kLaneKernels[decltype(row)::value];
      if constexpr (on_mma(kernel, sizeof(T))) {
        emulate::run_grid(t.blocks, t.threads, 0, [&] {
          lanes::convt2d_depthwise_grad_input_mma_kernel<T, kernel.stride>(params);
        });
      }
    });
  } else if (index >= 0) {
    const LaneTile t = lane_tile(p, kLaneKernels[index]);
    const int pieces = t.split * t.tiles;
    if (std::getenv("SHOW"))
      std::printf("%d lanes of %d, %d slots, %d strips of %d, rounds %d, split %d, %d threads\n",
                  t.step, t.lanes, t.slots, t.strips, t.rows, t.rounds, t.split, t.threads);
    const Geometry g = geometry(t.part_floats, pieces);
    const lanes::LaneParams params{g, t, bias_parts};
    emulate::smem = reinterpret_cast<unsigned char*>(lanes::shared);
    visit_row<int(kLaneKernels.size())>(index, [&](auto row) {
      constexpr LaneKernel kernel = kLaneKernels[decltype(row)::value];
      emulate::run_grid(t.blocks, t.threads, t.shared_bytes, [&] {
        if (direction == Direction::fwd) {
          lanes::convt2d_depthwise_fwd_lanes_kernel<T, kernel.stride, kernel.taps>(params);
        } else if (back) {
          lanes::convt2d_depthwise_grad_weight_lanes_kernel<T, kernel.stride, kernel.taps>(params);
        } else {
          lanes::convt2d_depthwise_grad_input_lanes_kernel<T, kernel.stride, kernel.taps>(params);
        }
      });
    });
    if (back) trial.add_up(parts, t.part_floats, pieces);
  } else if (direction != Direction::grad_input) {
    const WalkSquareTile t = walk_square_tile(p);
    if (std::getenv("SHOW"))
      std::printf("%d lanes, %d classes, %d slots, run %d, split %d, %d threads\n", t.lanes,
                  t.classes, t.slots, t.run, t.split, t.threads);
    const Geometry g = geometry(t.part_floats, t.split);
    const walks::SquareParams params = walks::square_params(p, g, bias_parts);
    emulate::smem = reinterpret_cast<unsigned char*>(walks::shared);
    visit_row<2>(t.taps - 1, [&](auto row) {
      emulate::run_grid(t.blocks, t.threads, t.shared_bytes, [&] {
        if (back) {
          walks::convt2d_depthwise_grad_weight_walk_kernel<T, decltype(row)::value + 1>(params);
        } else {
          walks::convt2d_depthwise_fwd_walk_kernel<T, decltype(row)::value + 1>(params);
        }
      });
    });
    if (back) trial.add_up(parts, t.part_floats, t.split);
  } else {
    const WalkInputTile t = walk_input_tile(p);
    if (std::getenv("SHOW"))
      std::printf("%d lanes, spread %d, %d items, %d columns, %d bytes, %d threads\n", t.lanes,
                  t.spread, t.items, t.columns, t.shared_bytes, t.threads);
    const walks::InputParams params = walks::input_params(p, geometry(0, 0));
    emulate::smem = reinterpret_cast<unsigned char*>(walks::shared);
    visit_row<kMostWalkTaps>(t.taps - 1, [&](auto row) {
      emulate::run_grid(t.blocks, t.threads, t.shared_bytes, [&] {
        if (t.phases == 1) {
          walks::convt2d_depthwise_grad_input_walk_kernel<T, 2, 1>(params);
        } else {
          walks::convt2d_depthwise_grad_input_walk_kernel<T, decltype(row)::value + 1, 2>(params);
        }
      });
    });
  }
  return trial.passes();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return std::printf("see the head of %s\n", __FILE__), 2;
  const std::string type = arguments[2], layout = arguments[3], way = arguments[4];
  const Direction direction = way == "fwd"          ? Direction::fwd
                              : way == "grad_input" ? Direction::grad_input
                                                    : Direction::grad_weight;
  emulate::random.seed(std::atoi(arguments[5]));
  return check_cases(arguments[1], layout == "nhwc" ? Layout::nhwc : Layout::nchw,
                     count > 6 ? arguments[6] : "", [&](Case one) {
                       if (one.problem.group_in() != 1) return true;
                       if (emulate::random() % 4 == 0) {
                         one.problem.w_layout = layout == "nhwc" ? Layout::nchw : Layout::nhwc;
                       }
                       return type == "fp16"   ? check<__half>(one, direction)
                              : type == "bf16" ? check<__nv_bfloat16>(one, direction)
                                               : check<float>(one, direction);
                     });
}
