// Which rows of x a block of ticking has, which lines of dY these read, and how they come.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/digits.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/shared_number.cuh"
#include "cuda/device/stage_ring.cuh"
#include "cuda/device/tensor_copy.cuh"
#include "cuda/device/uniform.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/ticking/ticking_config.h"

namespace convt2d::cuda::ticking {

struct Scope {
  int group, input;  // the first channel, of the group's
  int piece;         // of rows of all strips
};
__device__ __forceinline__ Scope scope_of(const Params& p) {
  Digits number{int(blockIdx.x)};
  Scope at;
  at.input = uniform(number.next(p.in_blocks)) * p.input_warps * p.eights * 8;
  at.group = uniform(number.next(p.groups));
  at.piece = uniform(number.rest);
  return at;
}
__device__ __forceinline__ int first_row(const Params& p, int piece) {
  return piece * p.piece_rows + min(piece, p.longer_pieces);
}

// Rows of x of one strip, all a block's.
struct Run {
  int n, pixel;  // the strip's first
  int begin, end;
};
template <class Visit>
__device__ __forceinline__ void visit_runs(const Params& p, const Scope& at, Visit&& visit) {
  const int first = first_row(p, at.piece);
  int strip = p.by_rows.quotient(first), left = first_row(p, at.piece + 1) - first;
  Run run;
  run.begin = first - strip * p.x_h;
#pragma unroll 1
  for (; left > 0; ++strip, run.begin = 0) {
    run.n = p.by_tiles.quotient(strip);
    run.pixel = (strip - run.n * static_cast<int>(p.by_tiles.divisor)) * p.width;
    run.end = min(run.begin + left, p.x_h);
    left -= run.end - run.begin;
    visit(run);
  }
}

// A line of dY, of the group's first channel: the number that the strip's first tap reads, or would. Step h completes row
// h - live + 1 of x, and goes on with those behind it.
struct Line {
  bool there;  // and read by rows of the run
  int first;
};
__device__ __forceinline__ Line line_of(const Params& p, const Scope& at, const Run& run, int h,
                                        int line) {
  const int row = h * p.stride_h - p.pad_h + p.step.line_row[line], eldest = h - p.step.live + 1;
  const int plane = (run.n * p.groups + at.group) * p.columns;
  return {row >= 0 && row < p.y_h && eldest + p.last_live[line] >= run.begin &&
              eldest + p.first_live[line] < run.end,
          plane * p.y_plane + row * p.y_w + run.pixel * p.stride_w - p.pad_w};
}

// Where a channel's row begins in its place, in numbers.
template <class T>
__device__ __forceinline__ int lead_of(int first) {
  return first & 16 / int(sizeof(T)) - 1;
}

// A part of a line, a channel a lane: what a strip reads of the row, in whole 16 bytes; numbers behind the last of these in the
// tensor one by one.
template <class T>
__device__ __forceinline__ void bring_part(const Params& p, int first, int column, int channels,
                                           const StageRing& ring) {
  constexpr int kVector = 16 / int(sizeof(T));
  const int lane = threadIdx.x % 32;
  const T* const y = static_cast<const T*>(p.y);
  first += lane * p.y_plane;
  const uint32_t to = ring.stage() + lane * p.pitch;
  const int base = first & -kVector, whole = p.y_numbers & -kVector;
  const int begin = first + max(-column, 0), end = first + min(p.reach, p.y_w - column);
  const bool reads = lane < channels && begin < end;
  const int from = begin & -kVector;
  const int until = (min(end, whole) + kVector - 1) & -kVector;
  const int bytes = reads ? max(until - from, 0) * int(sizeof(T)) : 0;
  if (reads && end > whole) {
    for (int i = max(begin, whole); i < end; ++i)
      store_shared_number(to + (i - base) * int(sizeof(T)), y[i]);
    fence_for_wgmma();  // the place is the copy engine's again later
  }
  barrier_expect(ring.full(), bytes);
  if (bytes > 0) copy_run(to + (from - base) * int(sizeof(T)), y + from, bytes, ring.full());
}

template <class T>
__device__ __forceinline__ void bring_lines(const Params& p, const Scope& at, StageRing ring) {
  visit_runs(p, at, [&](const Run& run) {
    const int column = run.pixel * p.stride_w - p.pad_w;
#pragma unroll 1
    for (int h = run.begin; h < run.end + p.step.live - 1; ++h)
#pragma unroll 1
      for (int line = 0; line < p.step.lines; ++line) {
        const Line from = line_of(p, at, run, h, line);
        if (!from.there) continue;
#pragma unroll 1
        for (int unit = 0; unit < p.units; unit += p.part_units) {
          barrier_wait(ring.empty(), ring.parity ^ 1);
          bring_part<T>(p, from.first + unit * kUnit * p.y_plane, column,
                        min(p.part_units * kUnit, p.columns - unit * kUnit), ring);
          ring.advance();
        }
      }
  });
}

}  // namespace convt2d::cuda::ticking
