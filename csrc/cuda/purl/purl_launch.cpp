// Problem + Plan + Args → Params → the kernel.
#include "cuda/purl/purl_launch.h"

#include "cuda/of_type.h"
#include "cuda/purl/purl.h"
#include "cuda/purl/purl_plan.h"

namespace convt2d::cuda {
namespace purl {
namespace {

void launch(const Problem& problem, const Plan& plan, const Args& args) {
  const Params params = params_of(problem, plan, args);
  const auto run = of_type(problem, launch_f16, launch_bf16, launch_tf32);
  run(plan.row, params, maps_of(problem, plan, params, args), args.stream);
}

}  // namespace
}  // namespace purl

const Family purl_family = {"purl", purl::plan, purl::launch};

}  // namespace convt2d::cuda
