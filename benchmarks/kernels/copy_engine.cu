// What the copy engine takes for boxes whose rows start elsewhere in 32 bytes of memory than in those of shared memory (TensorBox):
// all blocks bring tiles of such boxes from L2, three stages under way, and do nothing else.
//
//   benchmarks/kernels/copy_engine.sh && build/kernels/copy_engine
#include <algorithm>
#include <cstdio>

#include "cuda/cuda_check.h"
#include "cuda/device/barrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/tensor_map.h"

using namespace convt2d::cuda;

namespace {

constexpr int kStages = 3, kTiles = 64, kBlocks = 132, kStagesAt = 1024;
constexpr int kImages = 64, kChannels = 64;  // a box is a row of so many channels
constexpr double kCyclesPerMs = 1.755e6;     // of an H200

__global__ void bring(const __grid_constant__ CUtensorMap map, int first, int boxes, int box_bytes,
                      int height) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  if (threadIdx.x < kStages) barrier_init(shared + threadIdx.x * 8, 1);
  fence_for_wgmma();  // and for the copy engine
  __syncthreads();
  if (threadIdx.x != 0) return;
  const int stage_bytes = (boxes * box_bytes + 1023) / 1024 * 1024, of_image = height / boxes;
  for (int i = 0; i < kTiles + kStages; ++i) {
    const int stage = i % kStages;
    const uint32_t full = shared + stage * 8;
    if (i >= kStages) barrier_wait(full, (i / kStages - 1) & 1);
    if (i >= kTiles) continue;
    barrier_expect(full, boxes * box_bytes);
    const int tile = blockIdx.x * kTiles + i, image = tile / of_image % kImages;
    for (int box = 0; box < boxes; ++box)
      copy_box(shared + kStagesAt + stage * stage_bytes + box * box_bytes, &map, full, first,
               tile % of_image * boxes + box, 0, image);
  }
}

// Boxes of `row_bytes` a channel from `first_byte` on, of planes whose rows have `plane_row` bytes.
void measure(int element_bytes, int plane_row, int row_bytes, int first_byte, bool swizzled) {
  const int boxes = row_bytes > 200 ? 2 : 4, height = 8192 / plane_row;
  const int64_t plane = int64_t{plane_row} * height;
  void* data;
  CONVT2D_CUDA_CHECK(cudaMalloc(&data, kImages * kChannels * plane));
  CONVT2D_CUDA_CHECK(cudaMemset(data, 0, kImages * kChannels * plane));
  const CUtensorMap map = encode({data,
                                  element_bytes,
                                  4,
                                  {plane_row / element_bytes, height, kChannels, kImages},
                                  {element_bytes, plane_row, plane, kChannels * plane},
                                  {row_bytes / element_bytes, 1, kChannels, 1},
                                  {1, 1, 1, 1},
                                  swizzled,
                                  false});
  const int box_bytes = row_bytes * kChannels;
  const int bytes = kStagesAt + kStages * ((boxes * box_bytes + 1023) / 1024 * 1024);
  CONVT2D_CUDA_CHECK(
      cudaFuncSetAttribute(bring, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  cudaEvent_t start, stop;
  CONVT2D_CUDA_CHECK(cudaEventCreate(&start));
  CONVT2D_CUDA_CHECK(cudaEventCreate(&stop));
  float least = 1e9f;
  for (int i = 0; i < 6; ++i) {
    CONVT2D_CUDA_CHECK(cudaEventRecord(start));
    bring<<<kBlocks, 128, bytes>>>(map, first_byte / element_bytes, boxes, box_bytes, height);
    CONVT2D_CUDA_CHECK(cudaGetLastError());
    CONVT2D_CUDA_CHECK(cudaEventRecord(stop));
    CONVT2D_CUDA_CHECK(cudaDeviceSynchronize());
    float ms;
    CONVT2D_CUDA_CHECK(cudaEventElapsedTime(&ms, start, stop));
    least = std::min(least, ms);
  }
  const double cycles = least * kCyclesPerMs / kTiles, rows = boxes * kChannels;
  std::printf(
      "%3d bytes from %3d, elements of %d, rows of %d%s: %5.2f cycles a row, %5.1f B/cycle\n",
      row_bytes, first_byte, element_bytes, plane_row, swizzled ? ", swizzled" : "", cycles / rows,
      rows * row_bytes / cycles);
  CONVT2D_CUDA_CHECK(cudaFree(data));
}

}  // namespace

int main() {
  measure(2, 128, 128, 0, false);
  measure(2, 128, 128, 0, true);
  for (int first : {0, -16}) measure(2, 128, 144, first, false);
  for (int first : {-32, -16}) measure(2, 128, 160, first, false);
  measure(2, 128, 176, -16, false);
  for (int row : {272, 288, 304}) measure(2, 256, row, -16, false);
  measure(2, 256, 288, -32, false);
  for (int row : {272, 288}) measure(4, 256, row, -16, false);
}
