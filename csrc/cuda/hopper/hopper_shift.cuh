// Rows of 16-bit numbers in shared memory: moved by a number, or spread out of runs of them.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/hopper/hopper_scope.cuh"

namespace convt2d::cuda::hopper {

// How a warp does so: a lane has up to 64 bytes of a row, and of every `apart`-th row behind it, of two at a time.
struct RowShift {
  static constexpr int kVectors = 4, kTogether = 2;
  uint32_t from, step;  // bytes to the lane's first row, and to its next one
  int row, apart, rows, rounds;
  int vectors;  // 16 bytes each; 0: none
  bool more;    // of the row behind them

  __device__ __forceinline__ RowShift(int rows, int row_bytes) : rows(rows) {
    const int lane = threadIdx.x % 32, of_row = row_bytes / 16,
              pieces = (of_row + kVectors - 1) / kVectors, each = (of_row + pieces - 1) / pieces;
    apart = 32 / pieces;
    row = lane / pieces;
    rounds = (rows + kTogether * apart - 1) / (kTogether * apart);
    const int piece = lane - row * pieces;
    vectors = row < apart ? min(of_row - piece * each, each) : 0;
    more = vectors > 0 && piece + 1 < pieces;
    from = row * row_bytes + piece * each * 16;
    step = apart * row_bytes;
  }

  // All rows from `start` on, one place towards it. A row's last number is of no use then.
  __device__ __forceinline__ void move(uint32_t start) const {
    constexpr uint32_t kMoved = 0x5432;  // bytes, as __byte_perm() names them
    uint32_t mine = start + from;
    int left = rows - row;
#pragma unroll 1
    for (int round = rounds; round > 0; --round) {
      uint32_t word[kTogether][kVectors][4], behind[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const int count = left > k * apart ? vectors : 0;
#pragma unroll
        for (int i = 0; i < kVectors; ++i)
          if (i < count) load_shared_16(mine + k * step + i * 16, word[k][i]);
        behind[k] = count > 0 && more ? load_shared_4(mine + k * step + vectors * 16) : 0;
      }
      __syncwarp();
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const int count = left > k * apart ? vectors : 0;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          const uint32_t next = i + 1 < kVectors && i + 1 < count ? word[k][i + 1][0] : behind[k];
          uint32_t moved[4];
#pragma unroll
          for (int j = 0; j < 4; ++j)
            moved[j] = __byte_perm(word[k][i][j], j < 3 ? word[k][i][j + 1] : next, kMoved);
          if (i < count) store_shared_16(mine + k * step + i * 16, moved);
        }
      }
      mine += kTogether * step;
      left -= kTogether * apart;
    }
  }
};

// How a warp spreads rows: a lane has 32 bytes of a patch's row, of every `apart`-th row, of two at a time. Where rows stand in
// what came and in a patch is in a list (list_spread_rows()).
constexpr int kSpreadStart = 8;  // numbers, of which boxes start at multiples
struct RowSpread {
  static constexpr int kWords = 8, kTogether = 2;
  uint32_t list, from, to, step;  // from, to: bytes behind what the list says
  int left, apart, rounds, vectors;
  uint32_t there[kWords];  // what of a word is none of the zeros beside a row
  uint32_t bytes;          // of two neighbouring words that become one, as __byte_perm() names them

  __device__ __forceinline__ RowSpread(const GatherParams& p, int low_w, uint32_t rows) {
    const int lane = threadIdx.x % 32, of_row = (p.load_w + 1) / 2,
              pieces = (of_row + kWords - 1) / kWords, row = lane / pieces,
              piece = lane - row * pieces, first = low_w + piece * kWords * 2;
    apart = 32 / pieces;
    rounds = (p.spread_count + kTogether * apart - 1) / (kTogether * apart);
    left = p.spread_count - row;
    vectors = row < apart ? min((of_row - piece * kWords + 3) / 4, kWords / 4) : 0;
    list = rows + row * 8;
    step = apart * 8;
    from = (first >> 1) * 4;
    to = piece * kWords * 4;
    bytes = low_w & 1 ? 0x5432 : 0x3210;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const auto inside = [&](int x) { return x >= 0 && x < p.row_elements; };
      there[i] = (inside(first + i * 2) ? 0xffffu : 0) | (inside(first + i * 2 + 1) ? ~0xffffu : 0);
    }
  }

  // All rows of what came `came` bytes behind the start of a patch.
  __device__ __forceinline__ void move(uint32_t patch, uint32_t came) const {
    uint32_t row = list;
    int rest = left;
#pragma unroll 1
    for (int round = rounds; round > 0; --round) {
      uint32_t word[kTogether][kWords + 1], place[kTogether][2];
#pragma unroll
      for (int k = 0; k < kTogether; ++k)
        if (rest > k * apart && vectors > 0) load_shared_8(row + k * step, place[k]);
#pragma unroll
      for (int k = 0; k < kTogether; ++k)
#pragma unroll
        for (int i = 0; i <= kWords; ++i)
          if (rest > k * apart && vectors > (i < 5 ? 0 : 1))
            word[k][i] = load_shared_4(patch + came + from + place[k][0] + i * 4);
#pragma unroll
      for (int k = 0; k < kTogether; ++k)
#pragma unroll
        for (int v = 0; v < kWords / 4; ++v) {
          uint32_t moved[4];
#pragma unroll
          for (int j = 0; j < 4; ++j)
            moved[j] =
                __byte_perm(word[k][v * 4 + j], word[k][v * 4 + j + 1], bytes) & there[v * 4 + j];
          if (rest > k * apart && vectors > v)
            store_shared_16(patch + to + place[k][1] + v * 16, moved);
        }
      row += kTogether * step;
      rest -= kTogether * apart;
    }
  }
};

// Of each row, image by image, channel by channel, where it stands in what came, and in a patch; bytes.
__device__ __forceinline__ void list_spread_rows(const GatherParams& p, int2* rows, int thread,
                                                 int threads) {
  for (int i = thread; i < p.spread_count; i += threads) {
    const int plane = divide(i, p.load_h_magic), y = i - plane * p.load_h;
    const int image = divide(plane, p.window_magic), channel = plane - image * p.window;
    const int box = y / p.spread_rows;
    rows[i] = make_int2(box * spread_box_bytes(p) + plane * p.spread_words * 4 +
                            (y - box * p.spread_rows) * p.row_elements * 2,
                        image * p.image_pitch + channel * p.channel_pitch + y * p.row_pitch);
  }
}

}  // namespace convt2d::cuda::hopper
