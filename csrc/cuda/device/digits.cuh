// A number taken apart into digits of any bases, the last one first: what a block works on, from its number.
#pragma once

namespace convt2d::cuda {

struct Digits {
  int rest;
  __device__ __forceinline__ int next(int base) {
    const int digit = rest % base;
    rest /= base;
    return digit;
  }
};

}  // namespace convt2d::cuda
