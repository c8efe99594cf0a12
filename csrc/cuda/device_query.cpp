// What a Device is made of: capabilities from the driver or from a compute capability, rates from a
// table of known boards. The only file that looks at compute capabilities.
#include <algorithm>
#include <cctype>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/cuda_check.h"
#include "cuda/cuda_families.h"

namespace convt2d::cuda {
namespace {

// Rates of one board in the units of datasheets: TB/s, and TFLOP/s (a multiply-add counts two).
struct Board {
  const char* key;     // for invented_device()
  const char* marker;  // a word of the name the driver reports
  int capability;      // 10 * major + minor
  int sm_count;
  double clock_ghz;  // boost; only to scale the rates to relatives of this board
  double copy, fma_f32, fma_f64;
  double mma_f16, mma_tf32;        // mma.sync, operands in registers
  double matmul_f16, matmul_tf32;  // a large library matmul
};

// How much of a datasheet's peak the H200 delivered at least (8192^3 matmul: fp32 51 of 67, tf32 349 to
// 422 of 494, fp16 676 to 779 of 989 by host; copy 4.25 of 4.8). Applied to the boards that were not
// measured; a floor counts with the most.
constexpr double kSustained = 0.7;
constexpr double kCopied = 0.885;

// Turing's mma.sync has neither bf16 nor tf32 nor the m16n8k16 shape, so its mma rates are 0.
// Hopper reaches 65 % of its peak through mma.sync; the rest needs wgmma. Blackwell data-centre
// chips are assumed to run mma.sync at the speed of Ampere's (1024 fp16 multiply-adds a clock and
// SM); their peak needs tcgen05. GeForce boards accumulate fp16 products in fp32 at half speed: the
// halved figure stands here.
std::vector<Board> device_table() {
  constexpr double c = kCopied, s = kSustained;
  return {
      // measured: H200 SXM; fp64 from the datasheet (34 without tensor cores)
      {"h200", "H200", 90, 132, 1.98, 4.25, 51, s * 34, 649, 320, 779, 422},
      // datasheet of the H100 SXM: 3.35 TB/s; the same chip as the H200, so its measured arithmetic
      {"h100", "H100", 90, 132, 1.98, c * 3.35, 51, s * 34, 649, 320, 779, 422},
      // datasheet of the A100 SXM 80 GB: 2.039 TB/s, 19.5 fp32, 9.7 fp64, 312 fp16, 156 tf32
      {"a100", "A100", 80, 108, 1.41, c * 2.039, s * 19.5, s * 9.7, s * 312, s * 156, s * 312,
       s * 156},
      // datasheet of the A10: 0.6 TB/s, 31.2 fp32, 125 fp16, 62.5 tf32; fp64 is 1/64 of fp32
      {"a10", "A10", 86, 72, 1.695, c * 0.6, s * 31.2, s * 0.49, s * 125, s * 62.5, s * 125,
       s * 62.5},
      // Ada whitepaper, RTX 4090: 1.008 TB/s, 82.6 fp32, 165.2 fp16 with fp32 sums, 82.6 tf32
      {"rtx4090", "4090", 89, 128, 2.52, c * 1.008, s * 82.6, s * 1.29, s * 165.2, s * 82.6,
       s * 165.2, s * 82.6},
      // datasheet of the L4: 0.3 TB/s, 30.3 fp32, 121 fp16 and 60 tf32 (half the sparse figures)
      {"l4", "L4", 89, 58, 2.04, c * 0.3, s * 30.3, s * 0.47, s * 121, s * 60, s * 121, s * 60},
      // datasheet of the T4: 0.32 TB/s, 8.1 fp32, 65 fp16; fp64 is 1/32 of fp32
      {"t4", "T4", 75, 40, 1.59, c * 0.32, s * 8.1, s * 0.25, 0, 0, s * 65, 0},
      // datasheet of the HGX B200, for one GPU: 8 TB/s, 75 fp32, 37 fp64, 2250 fp16 and 1125 tf32
      {"b200", "B200", 100, 148, 1.85, c * 8, s * 75, s * 37, s * 561, s * 280, s * 2250, s * 1125},
      // Blackwell whitepaper, RTX 5090: 1.792 TB/s, 104.8 fp32 and tf32, 209.5 fp16 with fp32 sums
      {"rtx5090", "5090", 120, 170, 2.407, c * 1.792, s * 104.8, s * 1.64, s * 209.5, s * 104.8,
       s * 209.5, s * 104.8},
  };
}

struct SharedMemory {
  int32_t block, sm;  // bytes: what one block may ask for, what one multiprocessor has
};

// CUDA programming guide, "Technical Specifications per Compute Capability".
SharedMemory shared_memory(int capability) {
  if (capability >= 120) return {99 << 10, 100 << 10};
  if (capability >= 90) return {227 << 10, 228 << 10};
  if (capability == 80 || capability == 87) return {163 << 10, 164 << 10};
  if (capability >= 80) return {99 << 10, 100 << 10};
  return {64 << 10, 64 << 10};
}

Device capabilities(int capability, int sm_count, SharedMemory memory) {
  Device device;
  device.sm_count = sm_count;
  device.smem_optin = memory.block;
  device.smem_per_sm = memory.sm;
  device.has_mma_f16 = capability >= 80;
  device.has_cp_async = capability >= 80;
  device.has_wgmma = capability == 90;
  // What every chip with clusters promises. Those of capability 12 are left out: none was at hand to try.
  device.most_ranks = capability >= 90 && capability < 120 ? 8 : 1;
  return device;
}

// `ratio` scales the arithmetic; `copy` is in TB/s.
void set_rates(Device& device, const Board& board, double ratio, double copy) {
  constexpr double kMacsPerUs = 1e6 / 2;  // of one TFLOP/s
  device.copy_bytes_per_us = copy * 1e6;
  device.fma_f32_per_us = board.fma_f32 * ratio * kMacsPerUs;
  device.fma_f64_per_us = board.fma_f64 * ratio * kMacsPerUs;
  device.mma_f16_per_us = board.mma_f16 * ratio * kMacsPerUs;
  device.mma_tf32_per_us = board.mma_tf32 * ratio * kMacsPerUs;
  device.matmul_f16_per_us = board.matmul_f16 * ratio * kMacsPerUs;
  device.matmul_tf32_per_us = board.matmul_tf32 * ratio * kMacsPerUs;
}

// "L4" is a word of "NVIDIA L4", not of "NVIDIA L40S".
bool has_word(const std::string& text, const std::string& word) {
  const auto inside = [&](size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at]));
  };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    if (!(at > 0 && inside(at - 1)) && !inside(at + word.size())) return true;
  }
  return false;
}

// The first board of the same compute capability, else the one of the nearest older capability.
const Board& relative(const std::vector<Board>& table, int capability) {
  const Board* best = nullptr;
  for (const Board& board : table) {
    if (board.capability <= capability && (!best || board.capability > best->capability)) {
      best = &board;
    }
  }
  return best ? *best : table.front();
}

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  CONVT2D_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, index));
  return value;
}

Device query(int index) {
  const int capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, index) +
                         attribute(cudaDevAttrComputeCapabilityMinor, index);
  const int sm_count = attribute(cudaDevAttrMultiProcessorCount, index);
  Device device = capabilities(capability, sm_count,
                               {attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index),
                                attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, index)});

  // A board of the table, whole: a MIG slice or a laptop part carries the name but has fewer SMs.
  cudaDeviceProp properties;
  CONVT2D_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  const std::vector<Board> table = device_table();
  for (const Board& board : table) {
    if (has_word(properties.name, board.marker) && board.sm_count == sm_count) {
      set_rates(device, board, 1, board.copy);
      return device;
    }
  }

  // Any other: arithmetic scaled from a relative; memory from its clock (kHz, two transfers each)
  // and the width of its bus.
  const Board& board = relative(table, capability);
  const double size = double(sm_count) / board.sm_count;
  const double clock = attribute(cudaDevAttrClockRate, index) * 1e-6 / board.clock_ghz;
  const double peak = 2e3 * attribute(cudaDevAttrMemoryClockRate, index) *
                      attribute(cudaDevAttrGlobalMemoryBusWidth, index) / 8 * 1e-12;
  set_rates(device, board, clock > 0 ? size * clock : size,
            peak > 0 ? kCopied * peak : board.copy * size);
  return device;
}

}  // namespace

const Device& device(int index) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<const Device>> known;  // the devices themselves never move
  const std::lock_guard<std::mutex> lock(mutex);
  if (known.empty()) {
    int count = 0;
    CONVT2D_CUDA_CHECK(cudaGetDeviceCount(&count));
    known.resize(size_t(count));
  }
  if (index < 0 || index >= int(known.size())) {
    throw std::invalid_argument("convt2d: there is no CUDA device " + std::to_string(index) +
                                ", this process sees " + std::to_string(known.size()));
  }
  std::unique_ptr<const Device>& slot = known[size_t(index)];
  if (!slot) slot = std::make_unique<const Device>(query(index));
  return *slot;
}

Device invented_device(const char* name) {
  std::string names;
  for (const Board& board : device_table()) {
    if (std::string(name) == board.key) {
      Device device =
          capabilities(board.capability, board.sm_count, shared_memory(board.capability));
      set_rates(device, board, 1, board.copy);
      return device;
    }
    names += std::string(names.empty() ? "" : ", ") + board.key;
  }
  throw std::invalid_argument(std::string("convt2d: no device is called '") + name +
                              "'; known are " + names);
}

}  // namespace convt2d::cuda
