#include "cuda/gather_params.h"
#include "cuda/weight_sum.cuh"
#include "cuda/weight_sum.h"

namespace convt2d::cuda {

namespace {

// All but where sums belong.
WeightSumParams pieces_of(const Problem& problem, int pieces, const Args& args) {
  WeightSumParams sum{};
  sum.partials = static_cast<const float*>(args.workspace);
  sum.weight = args.w.data;
  sum.elements = static_cast<int32_t>(problem.in_channels * problem.group_out() * problem.h.kernel *
                                      problem.w.kernel);
  sum.piece_quads = static_cast<int32_t>(weight_bytes(problem) / 16);
  sum.pieces = pieces;
  sum.parts = 1;
  while (sum.parts < kMostParts && sum.parts * 8 < pieces) sum.parts *= 2;
  return sum;
}

void launch(const Problem& problem, const WeightSumParams& sum, const Args& args, bool early) {
  visit_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) <= 4) launch_weight_sum<T>(sum, early, args.stream);
  });
}

}  // namespace

void launch_weight_sum(const Problem& problem, int pieces, const Args& args, bool early) {
  const int64_t columns = problem.group_out();
  WeightSumParams sum = pieces_of(problem, pieces, args);
  for (int i = 0; i < 4; ++i) sum.stride[i] = static_cast<int32_t>(args.w.stride[i]);
  sum.divide[0] = FastDivide(columns);
  sum.divide[1] = FastDivide(problem.in_channels);
  sum.divide[2] = FastDivide(problem.w.kernel);
  // All strides being multiples of four, so is every quad's place.
  sum.neighbours = columns % 4 == 0 && sum.stride[1] == 1 && aligned(args.w.data, 16) &&
                   (sum.stride[0] | sum.stride[2] | sum.stride[3]) % 4 == 0;
  launch(problem, sum, args, early);
}

// As if all were output channels of one tap.
void launch_dense_weight_sum(const Problem& problem, int pieces, const Args& args, bool early) {
  WeightSumParams sum = pieces_of(problem, pieces, args);
  sum.stride[1] = 1;
  sum.divide[0] = FastDivide(sum.elements);
  sum.neighbours = sum.elements % 4 == 0 && aligned(args.w.data, 16);
  launch(problem, sum, args, early);
}

}  // namespace convt2d::cuda
