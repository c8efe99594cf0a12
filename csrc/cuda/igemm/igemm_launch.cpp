// Problem + Plan + Args → GatherParams → the launcher of the dtype.
#include "cuda/igemm/igemm_launch.h"

#include "cuda/gather_params.h"
#include "cuda/igemm/igemm.h"
#include "cuda/igemm/igemm_plan.h"
#include "cuda/of_type.h"

namespace convt2d::cuda {
namespace igemm {
namespace {

// Strides of a folded problem; everything is contiguous along K.
void fill_folded(GatherParams& params, const Problem& problem, const Args& args) {
  Fold folded;
  fold(problem, folded);
  for (int i = 0; i < 4; ++i)
    params.source_stride[i] = static_cast<int32_t>(folded.source_stride[i]);
  params.weight_reduce = 1;
  params.weight_h = static_cast<int32_t>(folded.weight_h);
  params.weight_vectors = aligned(args.w.data, 16);
  params.weight_columns_first = 1;
  params.outer_source = static_cast<int32_t>(folded.outer_source);
  params.outer_weight = static_cast<int32_t>(folded.outer_weight);
}

void fill(GatherParams& params, const Problem& problem, const GatherChoice& choice,
          const Args& args) {
  set_operands(problem, args, params);
  if (choice.folded) fill_folded(params, problem, args);
  params.walkers = choice.walkers;

  // Wide accesses where addresses allow them; the tile itself does not depend on it.
  const SourceMode plain = element_size(problem.dtype) == 2 ? kGather : kPlanes;
  if (!aligned(params.source, params.source_mode == kPixelPairs ? 4 : 16))
    params.source_mode = plain;
  params.weights_copied &= params.weight_vectors;
  if (params.vector_stores == 2 && !aligned(params.destination, 16)) params.vector_stores = 1;
}

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  if (problem.direction == Direction::grad_weight) return launch_grad_weight(problem, plan, args);
  const GatherChoice choice = choice_of(plan);
  GatherParams params;
  gather_shape(problem, choice, params);
  fill(params, problem, choice, args);
  const auto run = of_type(problem, launch_gather_f16, launch_gather_bf16, launch_gather_tf32,
                           launch_gather_f32x3);
  run(plan.row, params, args.stream);
}

}  // namespace
}  // namespace igemm

const Family igemm_family = {"igemm", igemm::plan, igemm::launch};

}  // namespace convt2d::cuda
