// Which of a family's launches a problem is for: there is one for each type of numbers and their products.
#pragma once

#include "cuda/strict_sums.h"

namespace convt2d::cuda {

template <class Launch>
Launch* of_type(const Problem& problem, Launch* f16, Launch* bf16, Launch* words) {
  return problem.dtype == DType::f16 ? f16 : problem.dtype == DType::bf16 ? bf16 : words;
}

template <class Launch>
Launch* of_type(const Problem& problem, Launch* f16, Launch* bf16, Launch* tf32, Launch* strict) {
  return of_type(problem, f16, bf16, is_strict(problem) ? strict : tf32);
}

}  // namespace convt2d::cuda
