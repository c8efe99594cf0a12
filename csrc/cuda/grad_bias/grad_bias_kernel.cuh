// The kernels of the bias gradient (grad_bias_config.h). All of them keep sums of some numbers apart before they join a thread's
// own, which keeps errors small, and threads' sums are joined pairwise.
#pragma once

#include "cuda/device/index.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/grad_bias/grad_bias_config.h"

namespace convt2d::cuda::grad_bias {

extern __shared__ float4 shared[];

template <class T>
constexpr int kNumbers = 16 / sizeof(T);  // of a word

// A word from number `at` of dY on, of which those in [first, end) count.
struct Place {
  int64_t at;
  int first, end;
};

template <class T>
struct Word {
  uint4 bits;

  __device__ __forceinline__ Accumulator<T> operator[](int i) const {
    T number;
    memcpy(&number, reinterpret_cast<const char*>(this) + i * sizeof(T), sizeof(T));
    return Numeric<T>::widen(number);
  }

  __device__ __forceinline__ Accumulator<T> sum(const Place& place) const {
    Accumulator<T> number[kNumbers<T>];
#pragma unroll
    for (int i = 0; i < kNumbers<T>; ++i) number[i] = (*this)[i];
    if (place.first > 0 || place.end < kNumbers<T>) {
#pragma unroll
      for (int i = 0; i < kNumbers<T>; ++i)
        if (i < place.first || i >= place.end) number[i] = 0;
    }
#pragma unroll
    for (int half = kNumbers<T> / 2; half > 0; half /= 2) {
#pragma unroll
      for (int i = 0; i < half; ++i) number[i] += number[i + half];
    }
    return number[0];
  }
};

// Calls add(word, place) for the next kUnroll places of a walk. All are loaded at once; number by number where dY ends within
// a word.
template <class T, class Walk, class Add>
__device__ __forceinline__ void next_words(const Params& p, Walk& walk, Add&& add) {
  const T* y = static_cast<const T*>(p.y);
  Walk again = walk;
  Place places[kUnroll];
  bool whole = true;
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    places[i] = walk.step();
    whole &= places[i].end <= 0 || places[i].at + kNumbers<T> <= p.total;
  }
  if (whole) {
    Word<T> words[kUnroll] = {};
#pragma unroll
    for (int i = 0; i < kUnroll; ++i)
      if (places[i].end > 0)
        words[i].bits = __ldg(reinterpret_cast<const uint4*>(y + places[i].at));
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) add(words[i], places[i]);
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kUnroll; ++i) {
    const Place place = again.step();
    Word<T> word{};
#pragma unroll
    for (int j = 0; j < kNumbers<T>; ++j) {
      if (j < place.first || j >= place.end) continue;
      const T number = __ldg(y + place.at + j);
      memcpy(reinterpret_cast<char*>(&word) + j * sizeof(T), &number, sizeof(T));
    }
    add(word, place);
  }
}

template <class T>
__device__ __forceinline__ void finish(const Params& p, int64_t piece, int channel,
                                       Accumulator<T> sum) {
  if (p.partials) {
    static_cast<Accumulator<T>*>(p.partials)[piece * p.all_channels + channel] = sum;
  } else {
    store(static_cast<T*>(p.bias) + channel, sum);
  }
}

// The sums of `lanes` neighbouring threads, a power of two, in the first of them.
template <class A>
__device__ __forceinline__ A join(A sum, int lanes) {
  A* sums = reinterpret_cast<A*>(shared);
  const int lane = threadIdx.x & (lanes - 1);
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = lanes / 2; half > 0; half /= 2) {
    if (lane < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[threadIdx.x];
}

// Along a channel's planes.
template <class T>
struct PlaneWalk {
  const Params& p;
  int64_t position, stop, begin;  // begin: the first number of the plane
  int word;

  __device__ __forceinline__ Place step() {
    const int before = static_cast<int>(begin % kNumbers<T>);  // the plane, in its first word
    const int first = before - word * kNumbers<T>;
    const Place place = {begin - first, first, position < stop ? first + p.plane : 0};
    position += p.t.lanes;
    word += p.t.lanes;
    if (word >= p.t.words) {
      word -= p.t.words;
      begin += p.image;
    }
    return place;
  }
};

template <class T>
__global__ __launch_bounds__(kThreads, kTogether) void convt2d_bias_planes_kernel(
    const __grid_constant__ Params p) {
  using A = Accumulator<T>;
  int64_t piece = blockIdx.x;
  const int lane = threadIdx.x & (p.t.lanes - 1);
  const int channel =
      p.divide_tiles.split(piece) * p.t.channels + static_cast<int>(threadIdx.x) / p.t.lanes;
  A sum(0);
  if (channel < p.all_channels) {
    const int64_t position = piece * p.t.piece + lane;
    const int64_t stop = min((piece + 1) * p.t.piece, p.t.positions);
    int64_t image = position;
    const int word = p.divide_words.split(image);
    const int64_t begin = image * p.image + int64_t(channel) * p.plane;
    PlaneWalk<T> walk{p, position, stop, begin, word};
    while (walk.position < stop) {
      A run(0);
      next_words<T>(p, walk,
                    [&](const Word<T>& word, const Place& place) { run += word.sum(place); });
      sum += run;
    }
  }
  sum = join(sum, p.t.lanes);
  if (lane == 0 && channel < p.all_channels) finish<T>(p, piece, channel, sum);
}

// From step to step, in each of which a thread meets the same channels.
template <class T>
struct ColumnWalk {
  const Params& p;
  int64_t position, stop, at;

  __device__ __forceinline__ Place step() {
    const int64_t left = min(p.total - at, int64_t{kNumbers<T>});
    const Place place = {at, 0, position < stop ? static_cast<int>(left) : 0};
    ++position;
    at += int64_t(p.t.words) * kNumbers<T>;
    return place;
  }
};

template <class T>
__global__ __launch_bounds__(kThreads, kTogether) void convt2d_bias_columns_kernel(
    const __grid_constant__ Params p) {
  using A = Accumulator<T>;
  constexpr int kEach = kNumbers<T>;
  int64_t piece = blockIdx.x;
  const int tile = p.divide_tiles.split(piece), thread = threadIdx.x;
  const int column = tile * kThreads + thread;
  A sums[kEach] = {};
  if (thread < p.t.lanes && column < p.t.words) {
    const int64_t first = piece * p.t.piece;
    const int64_t stop = min(first + p.t.piece, p.t.positions);
    ColumnWalk<T> walk{p, first, stop, (first * p.t.words + column) * kEach};
    while (walk.position < stop) {
      A run[kEach] = {};
      next_words<T>(p, walk, [&](const Word<T>& word, const Place&) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) run[j] += word[j];
      });
#pragma unroll
      for (int j = 0; j < kEach; ++j) sums[j] += run[j];
    }
  }
  // Numbers of the block in their order, in which channels come round.
  A* all = reinterpret_cast<A*>(shared);
  A* joined = all + kThreads * kEach;
#pragma unroll
  for (int j = 0; j < kEach; ++j) all[thread * kEach + j] = sums[j];
  __syncthreads();
  const int channels = min(p.t.channels, p.all_channels - tile * p.t.channels);
  const int copies = p.copies, helpers = p.helpers;
  for (int first = 0; first < channels; first += kThreads) {  // more than one turn without helpers
    const int helper = thread / channels, own = helpers > 1 ? thread - helper * channels : thread;
    const int channel = first + own;
    const bool busy = helpers > 1 ? helper < helpers : channel < channels;
    A sum(0);
    if (busy)
      for (int copy = helpers > 1 ? helper : 0; copy < copies; copy += helpers)
        sum += all[copy * channels + channel];
    if (helpers > 1) {
      joined[thread] = sum;
      __syncthreads();
      for (int half = helpers / 2; half > 0; half /= 2) {
        if (helper < half) joined[thread] += joined[thread + half * channels];
        __syncthreads();
      }
      sum = joined[thread];
    }
    if (busy && (helpers == 1 || helper == 0))
      finish<T>(p, piece, tile * p.t.channels + channel, sum);
  }
}

template <class T>
__global__ __launch_bounds__(kThreads, kTogether) void convt2d_bias_numbers_kernel(
    const __grid_constant__ Params p) {
  using A = Accumulator<T>;
  constexpr int kRun = 32;  // numbers of a sum apart
  int64_t piece = blockIdx.x;
  // Of 32 channels neighbouring threads have neighbouring ones.
  const int channel = p.divide_tiles.split(piece) * p.t.channels + threadIdx.x % p.t.channels;
  const int64_t stop = min((piece + 1) * p.t.piece, p.t.positions);
  A sum(0);
  if (channel < p.all_channels) {
    const T* plane = static_cast<const T*>(p.y) + channel * p.stride_c;
    int64_t pixel = piece * p.t.piece + threadIdx.x / p.t.channels;
    while (pixel < stop) {
      const int64_t pause = min(pixel + kRun * p.t.lanes, stop);
      A run(0);
#pragma unroll 8
      for (; pixel < pause; pixel += p.t.lanes) {
        int64_t n = pixel;
        const int64_t x = p.divide_w.split(n);
        const int64_t y = p.divide_h.split(n);
        run += load(plane + n * p.stride_n + y * p.stride_h + x * p.stride_w);
      }
      sum += run;
    }
  }
  A* sums = reinterpret_cast<A*>(shared);
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half >= p.t.channels; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x < p.t.channels && channel < p.all_channels)
    finish<T>(p, piece, channel, sums[threadIdx.x]);
}

}  // namespace convt2d::cuda::grad_bias
