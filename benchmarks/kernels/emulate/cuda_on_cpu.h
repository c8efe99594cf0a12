// The words of CUDA that the kernels use, for a host compiler: included before everything else. A block
// runs as one fiber a thread; whoever must wait gives way (see emulate.cpp).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#undef __device__
#undef __global__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __shared__
#undef __align__
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__
#define __align__(x)

#define CONVT2D_EMULATED  // for headers whose device code is not in a .cuh of its own

namespace emulate {

struct Index {
  unsigned x, y;
};
extern Index thread_index, block_index, block_dim;

void give_way();
void went_on();  // something that others may wait for has happened
// Of a cluster, whose blocks differ in their index y: a thread's number, and the barrier of all.
unsigned fiber();
void cluster_arrive();
void cluster_wait();
// Barriers by name; of a warp; and those in shared memory, by address.
bool meet(int name, int threads, bool good);
void join(int name, int threads);
bool all_of_warp(bool good);
uint32_t trade(uint32_t value, int mask);
// What all lanes of the warp show each other: COUNT words, lane by lane.
constexpr int kWords = 6;
const uint32_t (*show(const uint32_t* words, int count))[kWords];
inline uint32_t of_lane(uint32_t value, int lane) { return show(&value, 1)[lane][0]; }
[[noreturn]] void fail(const char* what);
void barrier_init(uint32_t address, uint32_t count);
void barrier_arrive(uint32_t address);
void barrier_expect(uint32_t address, uint32_t bytes);
void barrier_copied(uint32_t address, uint32_t bytes);
void barrier_copied_of_rank(unsigned rank, uint32_t address, uint32_t bytes);
void barrier_wait(uint32_t address, uint32_t parity);
// `bytes` of shared memory at an address; ends the program if the block has no such memory.
unsigned char* shared(uint32_t address, uint32_t bytes);
// The same of that block of the cluster.
unsigned char* shared_of_rank(unsigned rank, uint32_t address, uint32_t bytes);
uint32_t shared_address(const void* pointer);

template <class To, class From>
To bits(From from) {
  To to;
  static_assert(sizeof to == sizeof from);
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace emulate

#define threadIdx emulate::thread_index
#define blockIdx emulate::block_index
#define blockDim emulate::block_dim

inline void __syncthreads() { emulate::meet(0, blockDim.x, true); }
inline bool __syncthreads_and(bool good) { return emulate::meet(0, blockDim.x, good); }
inline bool __syncthreads_or(bool bad) { return !emulate::meet(0, blockDim.x, !bad); }
inline void __syncwarp() { emulate::all_of_warp(true); }
inline bool __all_sync(unsigned, bool good) { return emulate::all_of_warp(good); }
inline bool __any_sync(unsigned, bool good) { return !emulate::all_of_warp(!good); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulate::bits<T>(emulate::trade(emulate::bits<uint32_t>(value), mask));
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulate::bits<T>(emulate::of_lane(emulate::bits<uint32_t>(value), lane));
}
inline unsigned __ballot_sync(unsigned lanes, bool yes) {
  unsigned all = unsigned(yes) << threadIdx.x % 32;
  for (int bit = 1; bit < 32; bit *= 2) all |= __shfl_xor_sync(lanes, all, bit);
  return all;
}
inline int __ffs(unsigned value) { return __builtin_ffs(int(value)); }
template <class T>
T __ldg(const T* pointer) {
  return *pointer;
}
template <class T>
T __ldcg(const T* pointer) {
  return *pointer;
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= uint32_t(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}
inline float __uint_as_float(uint32_t value) { return emulate::bits<float>(value); }
inline uint32_t __float_as_uint(float value) { return emulate::bits<uint32_t>(value); }
using std::max;
using std::min;
