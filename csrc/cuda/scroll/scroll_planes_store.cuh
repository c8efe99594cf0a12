// How rows of y go to planes: through shared memory, since a thread has neighbouring channels and memory neighbouring
// outputs.
#pragma once

#include "cuda/scroll/scroll_planes_stage.cuh"
#include "cuda/scroll/scroll_store.cuh"

namespace convt2d::cuda::scroll {

constexpr int kWarpChannels = kPieceChannels / 4;  // of a piece, that a warp stores

// A word of a channel's outputs in staging is an output or, in 16 bits, two. Of each word that a lane stores, elements from
// the first of y to its first output in row 0 of its warp's first channel; or -1.
template <class T, int ROW>
struct PlanePlaces {
  static constexpr int kPhases = kTiles[ROW].phases,
                       kWords = kPositions * kPhases * int(sizeof(T)) / 128;
  int32_t of[kWords];
  uint32_t pieces = 0;  // 16 bits, `Piece`s of each word
};

// What a word of two outputs is in memory: where a row of y begins with a word, a word or its first half; elsewhere, together
// with the word before, a word too, and what has no neighbour is a half.
enum Piece : uint32_t { kWhole = 1, kFirst = 2, kOddWhole = 4, kOddFirst = 8, kOddSecond = 16 };
constexpr int kPieceBits = 5;

template <class T, int ROW>
__device__ __forceinline__ PlanePlaces<T, ROW> plane_places(const PlaneParams& p, const Scope& at,
                                                            const TapeDescent& part) {
  using Places = PlanePlaces<T, ROW>;
  constexpr int kOutputs = 4 / sizeof(T), kAll = kPositions * Places::kPhases;
  const int channel = at.column_tile * kTiles[ROW].width + threadIdx.x % 128 / 32 * kWarpChannels;
  const auto place = [&](int output) {
    const int on_tape = part.q + output / Places::kPhases, n = p.by_tape.quotient(on_tape),
              q = on_tape - n * p.tape, column = q * Places::kPhases + output % Places::kPhases;
    return output >= 0 && output < kAll && n < p.batch && q < p.positions && column < p.y_w
               ? (n * p.columns + channel) * p.y_h * p.y_w + column
               : -1;
  };
  Places places;
#pragma unroll
  for (int k = 0; k < Places::kWords; ++k) {
    const int output = (threadIdx.x % 32 + 32 * k) * kOutputs;
    places.of[k] = place(output);
    if constexpr (kOutputs == 2) {
      const int second = place(output + 1), behind = place(output + 2), ahead = place(output - 1);
      const bool joined = ahead >= 0 && ahead + 1 == places.of[k];
      const uint32_t pieces =
          places.of[k] < 0 ? 0
                           : (second >= 0 ? kWhole : kFirst) | (joined ? kOddWhole : kOddFirst) |
                                 (second >= 0 && behind != second + 1 ? kOddSecond : 0);
      places.pieces |= pieces << k * kPieceBits;
    }
  }
  return places;
}

// Sums of 16 channels go to staging.
template <class T, int ROW>
__device__ __forceinline__ void lay_down(
    uint32_t staging, int first,
    const float (&sum)[kTiles[ROW].phases][columns_of(kTiles[ROW]) / 2]) {
  constexpr int kPhases = kTiles[ROW].phases, kPitch = piece_pitch(kPhases, sizeof(T));
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32, pair = lane % 4 * 2;
  uint32_t tiles[4];
#pragma unroll
  for (int eight = 0; eight < 2; ++eight) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int from = first + eight * 4 + half * 2, position = warp * 16 + half * 8 + lane / 4;
      if constexpr (sizeof(T) == 2 && kPhases == 1) {
        tiles[eight * 2 + half] = pack<T>(sum[0][from], sum[0][from + 1]);
      } else {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const uint32_t to =
              staging + (eight * 8 + pair + j) * kPitch + position * kPhases * int(sizeof(T));
          const float one = sum[0][from + j], other = sum[kPhases - 1][from + j];
          if constexpr (sizeof(T) == 2) {
            store_shared_4(to, pack<T>(one, other));
          } else if constexpr (kPhases == 1) {
            store_shared_sum(to, one);
          } else {
            store_shared_sums(to, one, other);
          }
        }
      }
    }
  }
  if constexpr (sizeof(T) == 2 && kPhases == 1) {
    const int tile = lane / 8;
    store_turned(staging + (tile / 2 * 8 + lane % 8) * kPitch + (warp * 16 + tile % 2 * 8) * 2,
                 tiles);
  }
}

// A warp's channels of a piece, as many as there are, from staging at `from` to places `behind` elements.
template <class T, int ROW>
__device__ __forceinline__ void store_words_of(const PlanePlaces<T, ROW>& places, uint32_t from,
                                               T* destination, uint32_t behind, uint32_t plane,
                                               int channels) {
  constexpr int kWords = PlanePlaces<T, ROW>::kWords,
                kPitch = piece_pitch(kTiles[ROW].phases, sizeof(T));
  // At once, as registers allow.
  constexpr int kTogether = lends(kTiles[ROW], sizeof(T)) ? 2 : kWarpChannels;
#pragma unroll
  for (int first = 0; first < kWarpChannels; first += kTogether) {
    uint32_t word[kTogether][kWords];
#pragma unroll
    for (int c = 0; c < kTogether; ++c)
#pragma unroll
      for (int k = 0; k < kWords; ++k)
        word[c][k] = load_shared_4(from + (first + c) * kPitch + k * 128);
    __syncwarp();  // else the last one is loaded where it is stored, and waited for
#pragma unroll
    for (int c = 0; c < kTogether; ++c, behind += plane)
#pragma unroll
      for (int k = 0; k < kWords; ++k)
        store_words_if<1>(first + c < channels ? places.of[k] : -1,
                          destination + (uint32_t(places.of[k]) + behind), word[c][k], 0, 0, 0);
  }
}

// The same in 16 bits where rows of y are no whole words: every second one begins in the middle of one.
template <class T, int ROW>
__device__ __forceinline__ void store_halves_of(const PlanePlaces<T, ROW>& places, uint32_t from,
                                                T* destination, uint32_t behind, uint32_t plane,
                                                int channels) {
  constexpr int kWords = PlanePlaces<T, ROW>::kWords,
                kPitch = piece_pitch(kTiles[ROW].phases, sizeof(T)), kTogether = 2;
#pragma unroll
  for (int first = 0; first < kWarpChannels; first += kTogether) {
    if (first >= channels) break;
    // Of each word the one before, too: before the first one is what nobody stores.
    uint32_t words[kTogether][kWords][2];
#pragma unroll
    for (int c = 0; c < kTogether; ++c)
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        words[c][k][0] = load_shared_4(from + (first + c) * kPitch + k * 128 - 4);
        words[c][k][1] = load_shared_4(from + (first + c) * kPitch + k * 128);
      }
#pragma unroll
    for (int c = 0; c < kTogether; ++c, behind += plane) {
      if (first + c >= channels) break;
      const bool odd = behind & 1;
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        T* const to = destination + (uint32_t(places.of[k]) + behind);
        const auto is = [&](Piece piece) { return (places.pieces & piece << k * kPieceBits) != 0; };
        const uint32_t word = words[c][k][1];
        if (odd) {
          const uint32_t joined = __byte_perm(words[c][k][0], word, 0x5432);
          if (is(kOddWhole)) *reinterpret_cast<uint32_t*>(to - 1) = joined;
          if (is(kOddFirst)) *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(word);
          if (is(kOddSecond))
            *reinterpret_cast<uint16_t*>(to + 1) = static_cast<uint16_t>(word >> 16);
        } else {
          if (is(kWhole)) *reinterpret_cast<uint32_t*>(to) = word;
          if (is(kFirst)) *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(word);
        }
      }
    }
  }
}

// The rows of y that are complete once row `row` of x is multiplied.
template <class T, int ROW>
__device__ __forceinline__ void store_planes(
    const PlaneParams& p, const Scope& at, const PlanePlaces<T, ROW>& places, int group,
    uint32_t shared, int row, int& piece,
    const float (&sum)[kTiles[ROW].phases][columns_of(kTiles[ROW]) / 2]) {
  constexpr Tile tile = kTiles[ROW];
  constexpr int kPitch = piece_pitch(tile.phases, sizeof(T));
  const int mine = threadIdx.x % 128 / 32 * kWarpChannels;
  const uint32_t staging = shared + p.staging_at + group * staging_bytes(tile.phases, sizeof(T)),
                 plane = p.y_h * p.y_w;
  const int left = p.columns - at.column_tile * tile.width - mine;
#pragma unroll
  for (int i = 0; i < tile.step; ++i) {
    const int y = row * tile.step - p.pad_h + i;
    if (y < 0 || y >= p.y_h) continue;
#pragma unroll
    for (int first = 0; first < tile.width; first += kPieceChannels) {
      const uint32_t here = staging + piece * kPieceChannels * kPitch;
      piece ^= 1;
      lay_down<T, ROW>(here, (i * tile.width + first) / 2, sum);
      barrier_among(2 + group, 128);
      const uint32_t from = here + mine * kPitch + threadIdx.x % 32 * 4,
                     behind = first * plane + y * p.y_w;
      T* const destination = static_cast<T*>(p.destination);
      if (sizeof(T) == 4 || p.whole_words) {
        store_words_of<T, ROW>(places, from, destination, behind, plane, left - first);
      } else if constexpr (sizeof(T) == 2) {
        store_halves_of<T, ROW>(places, from, destination, behind, plane, left - first);
      }
    }
  }
}

// As repair() of scroll_store.cuh.
template <class T, int ROW>
__device__ __noinline__ void repair_planes(const PlaneParams* params, Scope at, int ring) {
  constexpr Tile tile = kTiles[ROW];
  const PlaneParams& p = *params;
  TapeDescent part(p, at, ring);
  while (part.next(p, tile)) {
    const int end = min(part.last * tile.step - p.pad_h, p.y_h);
    for (int y = max(part.first * tile.step - p.pad_h, 0); y < end; ++y)
      for (int i = threadIdx.x % 128; i < kPositions * tile.phases * tile.width; i += 128) {
        const int output = i % (kPositions * tile.phases),
                  channel = at.column_tile * tile.width + i / (kPositions * tile.phases);
        const int place = part.q + output / tile.phases, n = p.by_tape.quotient(place),
                  q = place - n * p.tape, column = q * tile.phases + output % tile.phases;
        if (n >= p.batch || q >= p.positions || column >= p.y_w || channel >= p.columns) continue;
        repair_output<T, true>(p, n, channel, y, column);
      }
  }
}

}  // namespace convt2d::cuda::scroll
