// cuda/device/wgmma.cuh on a CPU: each thread multiplies what its registers hold, at once; two operands in shared memory
// as late as its waits allow, so that what is overwritten too early shows.
#pragma once

#include <deque>
#include <functional>
#include <type_traits>
#include <vector>

#include "cuda/device/uniform.cuh"

#define CONVT2D_HAS_WGMMA 1

namespace convt2d::cuda {

inline uint64_t operand_layout(uint32_t half, uint32_t group) {
  return uint64_t(half >> 4 & 0x3fff) << 16 | uint64_t(group >> 4 & 0x3fff) << 32;
}
inline uint64_t swizzled_layout(uint32_t row, uint32_t group) {
  return uint64_t(row == 128 ? 1 : row == 64 ? 2 : 3) << 62 | operand_layout(16, group);
}
inline uint64_t turned_layout(uint32_t row, uint32_t block) {
  return (swizzled_layout(row, 8 * row) & ~uint64_t{0x3fff0000}) | operand_layout(block, 0);
}
inline uint64_t operand(uint64_t layout, uint32_t address) {
  return layout | (address >> 4 & 0x3fff);
}
inline uint64_t advance(uint64_t operand, uint32_t by) { return operand + by; }
// What each thread has issued: batches, of which the last one is not committed.
using Batch = std::vector<std::function<void()>>;
inline std::deque<Batch>& issued() {
  static std::deque<Batch> of_thread[16 * 640];
  std::deque<Batch>& mine = of_thread[emulate::fiber()];
  if (mine.empty()) mine.emplace_back();
  return mine;
}
inline void wgmma_fence() {}
inline void wgmma_commit() { issued().emplace_back(); }
template <int OPEN>
void wgmma_wait() {
  emulate::give_way();
  while (issued().size() > OPEN + 1) {
    for (const auto& multiply : issued().front()) multiply();
    issued().pop_front();
  }
}
template <int INSTRUCTIONS, int COUNT>
void clear(float (&sum)[INSTRUCTIONS][COUNT]) {
  std::memset(sum, 0, sizeof sum);
}
template <int COUNT>
void finished(float (&)[COUNT]) {}
template <int COUNT>
void computed(uint32_t (&)[COUNT]) {}
inline void fence_for_wgmma() {}
template <int COUNT>
void more_registers() {}
template <int COUNT>
void fewer_registers() {}

template <class T>
float element(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (std::is_same_v<T, __half>) {
    return __half2float(value);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(value);
  } else {  // the tensor core sees the upper 19 bits
    return __uint_as_float(__float_as_uint(value) & 0xffffe000u);
  }
}

// The 32 bytes along K of one row of an operand.
template <class T>
void read_row(uint64_t descriptor, int row, float* out) {
  constexpr int kElements = 16 / sizeof(T);
  const uint32_t start = (descriptor & 0x3fff) << 4, half = (descriptor >> 16 & 0x3fff) << 4,
                 group = (descriptor >> 32 & 0x3fff) << 4;
  const int swizzle = descriptor >> 62, row_bytes = swizzle ? 256 >> swizzle : 16;
  for (int h = 0; h < 2; ++h) {
    uint32_t address = start + h * half + row / 8 * group + row % 8 * row_bytes;
    if (swizzle) address ^= (address >> 7 & (row_bytes / 16 - 1)) << 4;
    const unsigned char* from = emulate::shared(address, 16);
    for (int i = 0; i < kElements; ++i) *out++ = element<T>(from + i * sizeof(T));
  }
}

// Number `n` of each of the 16 rows along K of a turned operand.
template <class T>
void read_column(uint64_t descriptor, int n, float* out) {
  const uint32_t start = (descriptor & 0x3fff) << 4, block = (descriptor >> 16 & 0x3fff) << 4,
                 group = (descriptor >> 32 & 0x3fff) << 4, row = 256 >> (descriptor >> 62);
  if (!(descriptor >> 62)) {  // no swizzle: eight numbers in 16 bytes
    for (int k = 0; k < 16; ++k)
      *out++ = element<T>(emulate::shared(start + n / 8 * group + k / 8 * block + k % 8 * 16, 16) +
                          n % 8 * 2);
    return;
  }
  const uint32_t in_row = n * sizeof(T) % row, blocks = n * sizeof(T) / row;
  for (int k = 0; k < 16; ++k) {
    uint32_t address = start + blocks * block + k / 8 * group + k % 8 * row + in_row;
    address ^= (address >> 7 & (row / 16 - 1)) << 4;
    *out++ = element<T>(emulate::shared(address, sizeof(T)));
  }
}

template <class T, int WIDTH, bool TURNED = false>
struct Wgmma {
  static void add(float (&sum)[WIDTH / 2], uint64_t a, uint64_t b) {
    issued().back().push_back([&sum, a, b] { multiply(sum, a, b); });
    emulate::give_way();
  }
  static void multiply(float (&sum)[WIDTH / 2], uint64_t a, uint64_t b) {
    constexpr int kDepth = 32 / sizeof(T);
    const int thread = threadIdx.x % 128, row = 16 * (thread / 32) + thread % 32 / 4;
    float rows[2][kDepth], column[kDepth];
    read_row<T>(a, row, rows[0]);
    read_row<T>(a, row + 8, rows[1]);
    for (int i = 0; i < WIDTH / 8; ++i)
      for (int j = 0; j < 2; ++j) {
        if constexpr (TURNED) {
          read_column<T>(b, 8 * i + thread % 4 * 2 + j, column);
        } else {
          read_row<T>(b, 8 * i + thread % 4 * 2 + j, column);
        }
        for (int half = 0; half < 2; ++half)
          for (int k = 0; k < kDepth; ++k) sum[4 * i + 2 * half + j] += rows[half][k] * column[k];
      }
  }
};

// Of 16-bit operands that lie turned. Without swizzle, a row of 16 bytes holds eight of the other dimension.
template <class T>
float turned(uint64_t descriptor, int other, int k) {
  if (descriptor >> 62) {
    float column[16];
    read_column<T>(descriptor, other, column);
    return column[k];
  }
  const uint32_t start = (descriptor & 0x3fff) << 4, half = (descriptor >> 16 & 0x3fff) << 4,
                 group = (descriptor >> 32 & 0x3fff) << 4;
  return element<T>(emulate::shared(start + other / 8 * group + k / 8 * half + k % 8 * 16, 16) +
                    other % 8 * 2);
}

template <class T, int WIDTH>
struct WgmmaTurned {
  static void add(float (&sum)[WIDTH / 2], const float (&rows)[2][16], uint64_t b) {
    for (int i = 0; i < WIDTH / 8; ++i)
      for (int j = 0; j < 2; ++j)
        for (int k = 0; k < 16; ++k) {
          const float column = turned<T>(b, 8 * i + threadIdx.x % 4 * 2 + j, k);
          for (int half = 0; half < 2; ++half) sum[4 * i + 2 * half + j] += rows[half][k] * column;
        }
    emulate::give_way();
  }
  static void add(float (&sum)[WIDTH / 2], uint64_t a, uint64_t b) {
    const int thread = threadIdx.x % 128, row = 16 * (thread / 32) + thread % 32 / 4;
    float rows[2][16];
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < 16; ++k) rows[i][k] = turned<T>(a, row + 8 * i, k);
    add(sum, rows, b);
  }
  static void add(float (&sum)[WIDTH / 2], const uint32_t (&a)[4], uint64_t b) {
    const auto all = emulate::show(a, 4);
    float rows[2][16];
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < 16; ++k) {
        const uint32_t pair = all[threadIdx.x % 32 / 4 * 4 + k % 8 / 2][k / 8 * 2 + i];
        const uint16_t bits = uint16_t(pair >> 16 * (k % 2));
        rows[i][k] = element<T>(reinterpret_cast<const unsigned char*>(&bits));
      }
    add(sum, rows, b);
  }
};

// With a in registers, and rows of b along K.
template <class T, int WIDTH>
struct WgmmaFetched {
  static void add(float (&sum)[WIDTH / 2], const uint32_t (&a)[4], uint64_t b) {
    constexpr int kDepth = 32 / sizeof(T), kNumbers = 4 / sizeof(T), kHalf = kDepth / 2;
    const auto all = emulate::show(a, 4);
    float rows[2][kDepth], column[kDepth];
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < kDepth; ++k) {
        const uint32_t word =
            all[threadIdx.x % 32 / 4 * 4 + k % kHalf / kNumbers][k / kHalf * 2 + i];
        rows[i][k] =
            element<T>(reinterpret_cast<const unsigned char*>(&word) + k % kNumbers * sizeof(T));
      }
    for (int i = 0; i < WIDTH / 8; ++i)
      for (int j = 0; j < 2; ++j) {
        read_row<T>(b, 8 * i + threadIdx.x % 4 * 2 + j, column);
        for (int half = 0; half < 2; ++half)
          for (int k = 0; k < kDepth; ++k) sum[4 * i + 2 * half + j] += rows[half][k] * column[k];
      }
    emulate::give_way();
  }
};

template <int WIDTH>
struct WgmmaPartial {
  template <class A>
  static void add(float (&sum)[WIDTH / 2], const A& a, uint64_t b, bool keep) {
    if (!keep) std::memset(sum, 0, sizeof sum);
    if constexpr (std::is_same_v<A, uint64_t>) {
      Wgmma<float, WIDTH>::multiply(sum, a, b);
      emulate::give_way();
    } else {
      WgmmaFetched<float, WIDTH>::add(sum, a, b);
    }
  }
};

}  // namespace convt2d::cuda
