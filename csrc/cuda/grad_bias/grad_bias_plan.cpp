// How the sums are shared out, what the kernels are told, what it costs.
#include <algorithm>
#include <numeric>

#include "cuda/gather_params.h"
#include "cuda/grad_bias/grad_bias.h"
#include "cuda/grad_bias/grad_bias_config.h"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {
namespace grad_bias {
namespace {

// Enough blocks for all of an H200 to be at it, each with enough to do to be worth a second launch.
constexpr int64_t kBlocks = 132 * kTogether;
constexpr int64_t kLeastSteps = 2;  // of kUnroll words of a thread

int64_t power_of_two_up_to(int64_t most, int64_t limit) {
  int64_t power = 1;
  while (power * 2 <= std::min(most, limit)) power *= 2;
  return power;
}

int64_t numbers_of_word(DType dtype) { return 16 / element_size(dtype); }

void share_numbers(Tiling& t, int64_t channels, int32_t channels_of_block) {
  t.channels = channels_of_block;
  t.lanes = kThreads / channels_of_block;
  t.tiles = static_cast<int32_t>(ceil_div(channels, channels_of_block));
}

}  // namespace

Tiling tiling_of(const Problem& problem) {
  const int64_t channels = problem.out_channels, plane = problem.h.out * problem.w.out;
  const int64_t pixels = problem.batch * plane, word = numbers_of_word(problem.dtype);
  const bool last = problem.y_layout == Layout::nhwc || plane == 1;
  const int64_t round =
      channels / std::gcd(channels, word);  // words after which channels come round
  Tiling t{};
  int64_t least;  // positions of a piece that are worth a block
  if (problem.y_layout == Layout::strided || plane > INT32_MAX / 2 ||
      (last && round > kThreads && channels % word != 0)) {
    t.way = Way::numbers;
    share_numbers(t, channels, 32);
    t.positions = pixels;
    least = kLeastSteps * kUnroll * kThreads;
  } else if (last) {
    t.way = Way::columns;
    t.words = static_cast<int32_t>(round * std::max<int64_t>(1, kThreads / round));
    t.lanes = std::min<int32_t>(t.words, kThreads);
    t.channels = static_cast<int32_t>(std::min(channels, kThreads * word));
    t.positions = ceil_div(ceil_div(pixels * channels, word), t.words);
    least = kLeastSteps * kUnroll;
  } else {
    t.way = Way::planes;
    t.words =
        static_cast<int32_t>(plane % word == 0 ? plane / word : (plane + word - 2) / word + 1);
    t.lanes = static_cast<int32_t>(power_of_two_up_to(t.words, kThreads));
    t.channels = kThreads / t.lanes;
    t.positions = problem.batch * t.words;
    least = kLeastSteps * kUnroll * t.lanes;
  }
  t.tiles = static_cast<int32_t>(ceil_div(channels, t.channels));
  const int64_t room = kWorkspaceLimit / (channels * accumulator_size(problem.dtype));
  const int64_t most = std::min(room, t.positions / least);
  t.pieces = std::clamp<int64_t>(ceil_div(kBlocks, t.tiles), 1, std::max<int64_t>(1, most));
  t.piece = ceil_div(t.positions, t.pieces);
  return t;
}

Params params_of(const Problem& problem, const Args& args) {
  Params p{};
  p.t = tiling_of(problem);
  // Neighbouring threads have neighbouring numbers: of 32 channels, or of a row.
  if (p.t.way == Way::numbers && args.y.stride[1] >= args.y.stride[3])
    share_numbers(p.t, problem.out_channels, 1);
  p.y = args.y.data;
  p.bias = args.bias;
  p.partials = p.t.pieces > 1 ? args.workspace : nullptr;
  int64_t height = problem.h.out, width = problem.w.out;
  const int64_t channels = problem.out_channels, plane = height * width;
  p.total = problem.batch * channels * plane;
  p.image = channels * plane;
  p.stride_n = args.y.stride[0];
  p.stride_c = args.y.stride[1];
  p.stride_h = args.y.stride[2];
  p.stride_w = args.y.stride[3];
  p.plane = static_cast<int32_t>(std::min<int64_t>(plane, INT32_MAX));
  p.all_channels = static_cast<int32_t>(channels);
  p.divide_tiles = FastDivide(p.t.tiles);
  p.divide_words = FastDivide(std::max(1, p.t.words));
  if (p.t.way == Way::columns) {
    const int64_t numbers = p.t.lanes * numbers_of_word(problem.dtype);
    p.copies = static_cast<int32_t>(std::max<int64_t>(1, numbers / p.t.channels));
    p.helpers = static_cast<int32_t>(power_of_two_up_to(p.copies, kThreads / p.t.channels));
  }
  // A plane without gaps is one long row: one division a pixel less.
  if (p.stride_h == width * p.stride_w && plane < INT32_MAX) width = plane, height = 1;
  p.divide_h = FastDivide(height);
  p.divide_w = FastDivide(width);
  return p;
}

int shared_bytes(const Problem& problem, const Tiling& t) {
  const int64_t sums =
      kThreads * (t.way == Way::columns ? numbers_of_word(problem.dtype) + 1 : int64_t{1});
  return static_cast<int>(sums * accumulator_size(problem.dtype));
}

}  // namespace grad_bias

int64_t grad_bias_workspace_bytes(const Problem& problem) {
  const int64_t pieces = grad_bias::tiling_of(problem).pieces;
  return pieces > 1 ? pieces * problem.out_channels * accumulator_size(problem.dtype) : 0;
}

double grad_bias_us(const Problem& problem, const Device& device, double launch_us) {
  const double numbers =
      double(problem.batch * problem.out_channels) * double(problem.h.out * problem.w.out);
  return 2 * launch_us + numbers * double(element_size(problem.dtype)) / device.copy_bytes_per_us;
}

void add_grad_bias(const Problem& problem, const Device& device, double launch_us, Plan& plan) {
  if (!problem.has_bias) return;
  plan.workspace_bytes = std::max(plan.workspace_bytes, grad_bias_workspace_bytes(problem));
  plan.predicted_us += grad_bias_us(problem, device, launch_us);
}

}  // namespace convt2d::cuda
