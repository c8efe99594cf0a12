// Whether a GPU would take what the families ask for: every box of the copy engine, every kernel's grid, block and shared memory, of
// the best plan of every family. Needs no GPU (choices.sh builds it): what is called here of the CUDA runtime is below.
//   launches RANDOM SEED LAYERS...
// RANDOM problems beside those of the files of layers, drawn from SEED.
#include <cuda_runtime.h>

#include <cstdio>

#include "cuda/tensor_map.h"
#include "questions.h"

namespace {

// What one launch of a family has asked for, and why some of that is refused.
struct Heard {
  int smem_optin = 0;
  int boxes = 0, kernels = 0;
  std::vector<std::string> refused;
} heard;

void refuse(const std::string& what, int64_t value) {
  heard.refused.push_back(what + " is " + std::to_string(value));
}

// cuTensorMapEncodeTiled's conditions.
void hear_box(const cuda::TensorBox& box) {
  ++heard.boxes;
  if (reinterpret_cast<uintptr_t>(box.base) % 16 != 0) refuse("a box's tensor, of 16 bytes,", 0);
  for (int i = 0; i < box.axes; ++i) {
    const std::string of = " of a box's axis " + std::to_string(i);
    const int64_t span = int64_t{box.count[i] - 1} * box.step[i] + 1;
    if (box.extent[i] < 1 || box.extent[i] > int64_t{1} << 32) refuse("extent" + of, box.extent[i]);
    if (i > 0 && (box.stride[i] % 16 != 0 || box.stride[i] < 0 || box.stride[i] >> 40))
      refuse("stride" + of, box.stride[i]);
    if (box.step[i] < 1 || box.step[i] > cuda::kMostStep) refuse("step" + of, box.step[i]);
    if (box.count[i] < 1 || span > cuda::kMostSpan) refuse("span" + of, span);
  }
  const int row = box.count[0] * box.element_bytes;
  if (box.swizzled ? row != 32 && row != 64 && row != 128 : row % 16 != 0)
    refuse("a box's row, in bytes,", row);
}

void hear_kernel(dim3 grid, dim3 block, size_t shared) {
  ++heard.kernels;
  if (grid.x < 1 || grid.x > 0x7fffffff) refuse("grid.x", grid.x);
  if (grid.y < 1 || grid.y > 65535) refuse("grid.y", grid.y);
  if (grid.z < 1 || grid.z > 65535) refuse("grid.z", grid.z);
  const int64_t threads = int64_t{block.x} * block.y * block.z;
  if (threads < 1 || threads > 1024) refuse("threads of a block", threads);
  if (shared > size_t(heard.smem_optin)) refuse("shared memory", int64_t(shared));
}

Args args_of(const Problem& p) {
  void* const somewhere = reinterpret_cast<void*>(uintptr_t{1} << 40);
  Args args;
  args.x = tensor(somewhere, p.in_channels, p.h.in, p.w.in, p.x_layout);
  args.w = tensor(somewhere, p.group_out(), p.h.kernel, p.w.kernel, p.w_layout);
  args.y = tensor(somewhere, p.out_channels, p.h.out, p.w.out, p.y_layout);
  args.workspace = somewhere;
  if (p.has_bias) args.bias = somewhere;
  return args;
}

struct Count {
  int plans = 0, boxes = 0, kernels = 0, refused = 0;
};

}  // namespace

// In place of tensor_map.cpp, which asks the driver.
CUtensorMap convt2d::cuda::encode(const TensorBox& box) {
  hear_box(box);
  return {};
}

// In place of the runtime's.
extern "C" {
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  hear_kernel(config->gridDim, config->blockDim, config->dynamicSmemBytes);
  return cudaSuccess;
}
// What <<<>>> becomes.
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaSuccess; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3 grid, dim3 block, void**, size_t shared,
                               cudaStream_t) {
  hear_kernel(grid, block, shared);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = heard.smem_optin, cudaSuccess;
}
}

int main(int count, char** arguments) {
  if (count < 3) return std::printf("see the head of %s\n", __FILE__), 2;
  const FamilyList list = cuda::families();
  std::map<std::string, Count> by_family;
  int refused = 0;
  for (const Asked& a :
       questions(std::atoi(arguments[1]), std::atoi(arguments[2]), count - 3, arguments + 3))
    for (const Candidate& one : candidates(list, a.problem, gpu(a.gpu))) {
      if (!one.decision.accepted) continue;
      const Plan& plan = one.decision.plan;
      Count& sum = by_family[one.family->name];
      heard = {gpu(a.gpu).smem_optin};
      try {
        one.family->launch(a.problem, plan, args_of(a.problem));
      } catch (const std::exception& error) {
        heard.refused.push_back(error.what());
      }
      ++sum.plans;
      sum.boxes += heard.boxes, sum.kernels += heard.kernels;
      sum.refused += int(heard.refused.size()), refused += int(heard.refused.size());
      if (!heard.refused.empty() && sum.refused < 10)
        std::printf("%s %s %s, %s row %d (%s): %s\n  %s\n", a.name.c_str(), a.setting.c_str(),
                    a.gpu, one.family->name, plan.row, plan.note.c_str(), heard.refused[0].c_str(),
                    describe(a.problem).c_str());
    }
  for (const auto& [family, sum] : by_family)
    std::printf("%-10s %7d plans, %7d kernels, %7d boxes, %d refused\n", family.c_str(), sum.plans,
                sum.kernels, sum.boxes, sum.refused);
  return refused > 0;
}
