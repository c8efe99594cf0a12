// Strips of wide rows: their outputs.
#pragma once

#include "cuda/device/memory.cuh"
#include "cuda/pleat/pleat_lane.cuh"
#include "cuda/pleat/pleat_stage.cuh"

namespace convt2d::cuda::pleat {

// Rows of y in a strip: where the first column of its first pixel is in row 0, and which columns from there on are its own. All of a
// tile's are put into shared memory, for it has room for them; of those that are its own each row is a run.
template <class T>
struct Pieces {
  T* y;
  int begin, end;
  __device__ __forceinline__ Pieces(const Params& p, T* plane, const Strip& strip)
      : y(plane + strip.pixel * kStride - p.pad_w), begin(strip.begin), end(strip.end) {}

  // A row's first column, among 16 bytes.
  static __device__ __forceinline__ int lead(const T* row) {
    return int(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
  }

  // A block's outputs to its rows, of which `row` is the lane's. What its last pixel adds to the next strip takes the place, `left`, of
  // what that before it has left, if there is one: it `follows`.
  template <int EIGHTS, bool HERE>
  __device__ __forceinline__ void add(const Lane& lane, const T* row, uint32_t out, uint32_t left,
                                      bool follows, const float* sum, float (&above)[EIGHTS][2],
                                      float bias) const {
    const uint32_t to = out + lane.row * kPiece + (lead(row) + lane.column) * 2;
    const float before = follows && lane.last ? load_shared<float>(left) : 0.f;
    const float last = add_block<EIGHTS, HERE>(
        lane, sum, above, bias, before,
        [&](int e, float output) { narrow_to_shared<T>(to + e * 32, output); });
    if (lane.last) {
      narrow_to_shared<T>(to + (EIGHTS - 1) * 32 + 4, last + bias);
      store_shared_sum(left, last);
    }
  }

  // Those rows from `at` on that are from `first` to `last` to memory, by 16 lanes each: whole 16 bytes, and what is before and behind
  // them a number a lane. In bytes from the 16 on in which a row starts.
  __device__ __forceinline__ void store(const Params& p, uint32_t out, int at, int first,
                                        int last) const {
    constexpr int kLanes = 16, kAtOnce = 32 / kLanes;
    const int number = threadIdx.x % kLanes, mine = threadIdx.x % 32 / kLanes;
    __syncwarp();
#pragma unroll 1
    for (out += mine * kPiece; at < last; at += kAtOnce, out += kAtOnce * kPiece) {
      const int line = at + mine;
      T* const row = y + line * p.y_w;
      const uint32_t before = lead(row) * 2, start = before + begin * 2, stop = before + end * 2;
      const uint32_t whole = (start + 15) / 16 * 16, behind = stop / 16 * 16;
      const uint32_t unit = whole + number * 16,
                     edge = (number < 8 ? whole : behind) + (number - 8) * 2;
      uint32_t word[4];
      load_shared_16(out + unit, word);
      const auto one = load_shared<unsigned short>(out + edge);
      const bool stored = line >= first && line < last;
      unsigned char* const to = reinterpret_cast<unsigned char*>(row) - before;
      if (stored && unit < behind) store_words(to + unit, word[0], word[1], word[2], word[3]);
      if (stored && edge >= start && edge < stop)
        *reinterpret_cast<unsigned short*>(to + edge) = one;
    }
  }
};

}  // namespace convt2d::cuda::pleat
