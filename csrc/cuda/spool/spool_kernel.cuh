// Turning tensors to channels last, and partial sums to NCHW; spool_config.h says what for.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/successor.cuh"
#include "cuda/spool/spool_config.h"

namespace convt2d::cuda::spool {

// What a block turns.
struct TurnScope {
  int64_t line;   // where the first channel's run of pixels starts, in elements
  int64_t place;  // where its first pixel goes
  int channels, pixels;
};
__device__ __forceinline__ TurnScope scope_of(const Turned& t, int block) {
  const int channel = block % t.channel_blocks * kTurnChannels;
  block /= t.channel_blocks;
  const int pixel = block % t.pixel_blocks * t.block_pixels, image = block / t.pixel_blocks;
  return {(int64_t{image} * t.channels + channel) * t.pixels + pixel,
          (int64_t{image} * t.pixels + pixel) * t.pitch + channel,
          min(t.channels - channel, kTurnChannels), min(t.pixels - pixel, t.block_pixels)};
}
// How far behind a multiple of 16 bytes a channel's run starts.
__device__ __forceinline__ int lead_of(const Turned& t, const TurnScope& at, int channel) {
  return static_cast<int>(at.line + int64_t{channel} * t.pixels) % kOctet;
}

// Lines as they lie, from the last multiple of 16 bytes on: sixteen lanes take one, and a block all of its own at once.
__device__ __forceinline__ void load_lines(const Turned& t, const TurnScope& at, uint32_t shared) {
  constexpr int kLines = kTurnThreads / kTurnOctets, kRounds = kTurnChannels / kLines;
  const int octet = threadIdx.x % kTurnOctets, line = threadIdx.x / kTurnOctets;
  const uint32_t to = shared + (line * kLineWords + octet * (kOctet / 2)) * 4;
  uint32_t word[kRounds][4];
  bool there[kRounds];
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    const int64_t first = at.line + int64_t{line + k * kLines} * t.pixels;
    const int lead = static_cast<int>(first) & kOctet - 1;
    const int64_t element = first - lead + octet * kOctet;
    const unsigned short* const from = static_cast<const unsigned short*>(t.from) + element;
    there[k] = line + k * kLines < at.channels && octet * kOctet - lead < at.pixels;
    const bool whole = element + kOctet <= t.elements;
    load_16_if(from, there[k] && whole ? 0 : 1, 1, word[k]);
    if (there[k] && !whole)  // the last 16 bytes of a tensor may be fewer
#pragma unroll
      for (int i = 0; i < kOctet - 1; ++i)
        if (element + i < t.elements) word[k][i / 2] |= uint32_t{from[i]} << i % 2 * 16;
  }
#pragma unroll
  for (int k = 0; k < kRounds; ++k)
    if (there[k])
#pragma unroll
      for (int w = 0; w < 4; ++w)
        store_shared_4(to + (k * kLines * kLineWords + w) * 4, word[k][w]);
}

// An octet of channels of a pixel is 16 bytes; lanes are four octets of eight pixels, who meet no bank twice.
__device__ __forceinline__ void store_pixels(const Turned& t, const TurnScope& at,
                                             uint32_t shared) {
  constexpr int kOctets = kTurnChannels / kOctet, kHalf = kOctets / 2;
  constexpr int kPixels = kTurnThreads / kOctets;  // at once
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int octet = warp % 2 * kHalf + lane % kHalf, first = warp / 2 * 8 + lane / kHalf;
  if (octet * kOctet >= at.channels) return;
  uint32_t line[kOctet];
#pragma unroll
  for (int c = 0; c < kOctet; ++c) {
    const int channel = min(octet * kOctet + c, at.channels - 1);
    line[c] = shared + channel * kLineWords * 4 + (lead_of(t, at, channel) + first) * 2;
  }
  char* to = static_cast<char*>(t.to) + (at.place + int64_t{first} * t.pitch + octet * kOctet) * 2;
  const int64_t step = int64_t{kPixels} * t.pitch * 2;
#pragma unroll
  for (int k = 0; k < kTurnPixels / kPixels; ++k, to += step) {
    if (first + k * kPixels >= at.pixels) break;
    uint32_t word[4];
#pragma unroll
    for (int w = 0; w < 4; ++w)
      word[w] = load_shared<unsigned short>(line[2 * w] + k * kPixels * 2) |
                uint32_t{load_shared<unsigned short>(line[2 * w + 1] + k * kPixels * 2)} << 16;
    store_words(to, word[0], word[1], word[2], word[3]);
  }
}

__global__ void __launch_bounds__(kTurnThreads)
    convt2d_spool_turn_kernel(const __grid_constant__ TurnParams p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  let_successor_start();
  const int block = blockIdx.x;
  const bool second = block >= p.first_blocks;
  const Turned& t = p.tensor[second];
  const TurnScope at = scope_of(t, second ? block - p.first_blocks : block);
  load_lines(t, at, shared);
  __syncthreads();
  store_pixels(t, at, shared);
}

// Where a number of the block's part of dW is in shared memory, [tap][element], and from one to the next in dW's order.
struct InTurn {
  uint32_t at, tap_bytes, back;
  int tap, taps;

  __device__ __forceinline__ InTurn(const SumParams& p, uint32_t shared, int number,
                                    uint32_t element_bytes, uint32_t tap_bytes)
      : tap_bytes(tap_bytes), back(p.taps * tap_bytes - element_bytes), taps(p.taps) {
    const int element = p.by_taps.quotient(number);
    tap = number - element * taps;
    at = shared + element * element_bytes + tap * tap_bytes;
  }
  __device__ __forceinline__ void advance() {
    at += tap_bytes;
    if (++tap == taps) tap = 0, at -= back;
  }
};

// Pieces are added up, rounded and turned.
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    convt2d_spool_sum_kernel(const __grid_constant__ SumParams p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const int quads = p.block_elements / 4, slots = kSumThreads / quads, pitch = sum_pitch(p);
  const int lane = threadIdx.x / quads, quad = threadIdx.x % quads;
  const int part = lane % p.parts, first = blockIdx.x * p.block_elements;
  wait_for_predecessor();
  const bool there = first + quad * 4 < p.elements;
  for (int tap = lane / p.parts; tap < p.taps; tap += slots / p.parts) {
    float sum[4] = {};
    const float* from =
        static_cast<const float*>(p.pieces) + int64_t{tap} * p.elements + first + quad * 4;
    if (there) {
#pragma unroll 8
      for (int piece = part; piece < p.count; piece += p.parts) {
        const float4 four =
            *reinterpret_cast<const float4*>(from + int64_t{piece} * p.piece_quads * 4);
        sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      store_shared_4(shared + ((tap * p.parts + part) * pitch + quad * 4 + i) * 4,
                     __float_as_uint(sum[i]));
  }
  __syncthreads();
  const int all = min(p.elements - first, p.block_elements) * p.taps;  // a multiple of four
  T* const to = static_cast<T*>(p.weight) + int64_t{first} * p.taps;
  for (int i = threadIdx.x * 4; i < all; i += 4 * kSumThreads) {
    InTurn from(p, shared, i, 4, p.parts * pitch * 4);
    float four[4];
#pragma unroll
    for (int k = 0; k < 4; ++k, from.advance()) {
      four[k] = load_shared<float>(from.at);
#pragma unroll 1
      for (int other = 1; other < p.parts; ++other)
        four[k] += load_shared<float>(from.at + other * pitch * 4);
    }
    store_words(to + i, pack<T>(four[0], four[1]), pack<T>(four[2], four[3]));
  }
}

// A single piece, which is rounded, is turned in place: rows of dW, each [tap][co] before and [co][tap] then.
__global__ void __launch_bounds__(kSumThreads)
    convt2d_spool_return_kernel(const __grid_constant__ SumParams p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32_t shared = shared_address(smem);
  const int pitch = return_pitch(p.block_elements), first = blockIdx.x * p.block_elements;
  const int left = min(p.elements - first, p.block_elements);  // whole rows
  const int octets = left / kOctet * p.taps;
  unsigned short* const weight = static_cast<unsigned short*>(p.weight) + int64_t{first} * p.taps;
  wait_for_predecessor();
#pragma unroll 4
  for (int i = threadIdx.x; i < octets; i += kSumThreads) {
    const int run = p.by_octets.quotient(i), row = p.by_taps.quotient(run);
    const int tap = run - row * p.taps, octet = i - run * (p.columns / kOctet);
    const uint4 word = *reinterpret_cast<const uint4*>(weight + int64_t{i} * kOctet);
    store_shared_16(shared + tap * pitch + (row * p.columns + octet * kOctet) * 2,
                    {word.x, word.y, word.z, word.w});
  }
  __syncthreads();
  for (int i = threadIdx.x * kOctet; i < left * p.taps; i += kOctet * kSumThreads) {
    InTurn number(p, shared, i, 2, pitch);
    uint32_t word[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      word[w] = load_shared<unsigned short>(number.at);
      number.advance();
      word[w] |= uint32_t{load_shared<unsigned short>(number.at)} << 16;
      number.advance();
    }
    store_words(weight + i, word[0], word[1], word[2], word[3]);
  }
}

}  // namespace convt2d::cuda::spool
