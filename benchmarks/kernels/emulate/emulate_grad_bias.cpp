// The kernels of the bias gradient on a CPU: words, edges, masks, how channels come round, barriers.
//
//   emulate_grad_bias CASES TYPE SEED ROUNDS [NAME]     TYPE: fp16, bf16, fp32
//
// dY of each case, ROUNDS times with a batch and channels of its own, in NCHW, NHWC and a part of a larger tensor, which may
// begin anywhere, in as many pieces as the shape asks for or in up to four; integers, every other time with a
// number among them that is not finite. What lies around dY is NaN, and so are the sums before.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "core/phases.h"
#include "cuda/grad_bias/grad_bias_config.h"

namespace convt2d::cuda::grad_bias {
alignas(1024) float4 shared[(232 << 10) / 16];  // the kernels declare it extern
}

#include "cuda/grad_bias/grad_bias_kernel.cuh"
#include "fibers.h"
#include "problems.h"

namespace {

using namespace convt2d::cuda::grad_bias;

int64_t die(int64_t low, int64_t high) { return low + emulate::random() % (high - low + 1); }

template <class T>
bool check(T, const Case& one, int rounds) {
  int64_t wrong = 0;
  int ways[3] = {};
  for (int round = 0; round < rounds; ++round) {
    Problem p = one.problem;
    p.direction = Direction::grad_weight, p.dtype = dtype_of<T>;
    p.batch = die(1, 5), p.has_bias = 1;
    const Layout layouts[] = {Layout::nchw, Layout::nhwc, Layout::nhwc, Layout::nchw,
                              Layout::strided};
    p.y_layout = layouts[emulate::random() % 5];
    const bool few = p.y_layout != Layout::nhwc || emulate::random() % 2;
    p.out_channels = few ? die(1, 12) : die(1, 300) * (emulate::random() % 4 ? 8 : 1);
    if (emulate::random() % 2 || !few) p.h.out = die(1, 3), p.w.out = die(1, 9);
    const bool last = p.y_layout == Layout::nhwc;
    const int64_t gap = p.y_layout == Layout::strided ? die(1, 3) : 0;
    const int64_t shift = gap ? die(0, 9) : 0, margin = 64;
    const int64_t rows = p.w.out + gap, plane = p.h.out * rows;
    const int64_t numbers = p.batch * p.out_channels * plane;

    std::vector<T> memory(margin + shift + numbers + margin, Numeric<T>::narrow(NAN));
    // As torch's allocator gives it, whole words.
    const auto misplaced = reinterpret_cast<uintptr_t>(memory.data()) % 16 / sizeof(T);
    T* y = memory.data() + margin - misplaced + shift;
    Args args;
    args.y = tensor(y, p.out_channels, p.h.out, p.w.out, last ? Layout::nhwc : Layout::nchw);
    if (gap) {
      const int64_t strides[4] = {p.out_channels * plane, plane, rows, 1};
      std::copy(strides, strides + 4, args.y.stride);
    }
    std::vector<float> expected(p.out_channels);
    const bool special = emulate::random() % 2;
    const int64_t odd = emulate::random() % (p.batch * p.out_channels * p.h.out * p.w.out);
    int64_t k = 0;
    for (int64_t n = 0; n < p.batch; ++n)
      for (int64_t c = 0; c < p.out_channels; ++c)
        for (int64_t h = 0; h < p.h.out; ++h)
          for (int64_t w = 0; w < p.w.out; ++w, ++k) {
            const int64_t at[4] = {n, c, h, w};
            int64_t place = 0;
            for (int i = 0; i < 4; ++i) place += at[i] * args.y.stride[i];
            const float value =
                special && k == odd ? INFINITY : float(int(emulate::random() % 7) - 3);
            y[place] = Numeric<T>::narrow(value);
            expected[c] += value;
          }

    std::vector<T> bias(p.out_channels + 8);
    std::memset(bias.data(), 0xff, bias.size() * sizeof(T));
    args.bias = bias.data();
    Params params = params_of(p, args);
    if (emulate::random() % 2 || params.t.tiles * params.t.pieces > 16) {
      params.t.pieces = die(1, std::min<int64_t>(4, params.t.positions));
      params.t.piece = ceil_div(params.t.positions, params.t.pieces);
    }
    const int64_t pieces = params.t.pieces;
    std::vector<Accumulator<T>> partials(pieces * p.out_channels, NAN);
    params.partials = pieces > 1 ? partials.data() : nullptr;
    const Way way = params.t.way;
    ++ways[int(way)];
    emulate::smem = reinterpret_cast<unsigned char*>(shared);
    emulate::run_grid(params.t.tiles * pieces, kThreads, shared_bytes(p, params.t), [&] {
      if (way == Way::planes) {
        convt2d_bias_planes_kernel<T>(params);
      } else if (way == Way::columns) {
        convt2d_bias_columns_kernel<T>(params);
      } else {
        convt2d_bias_numbers_kernel<T>(params);
      }
    });
    if (pieces > 1)  // in place of the second launch
      for (int64_t c = 0; c < p.out_channels; ++c) {
        Accumulator<T> sum(0);
        for (int64_t piece = 0; piece < pieces; ++piece)
          sum += partials[piece * p.out_channels + c];
        bias[c] = Numeric<T>::narrow(sum);
      }
    wrong += differences(bias, expected);
  }
  std::printf("%s %s: %d planes, %d columns, %d numbers, %lld wrong\n", one.name.c_str(),
              name(dtype_of<T>), ways[0], ways[1], ways[2], static_cast<long long>(wrong));
  return wrong == 0;
}

}  // namespace

int main(int count, char** arguments) {
  return check_numbers(count, arguments, __FILE__, [](auto number, const Case& one, int rounds) {
    return check(number, one, rounds);
  });
}
