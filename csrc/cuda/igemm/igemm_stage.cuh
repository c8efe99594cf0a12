// Bringing a chunk of the source patch and of the weights into shared memory.
//
// Sources whose layout suits are copied asynchronously, up to three units of K ahead, and so are weights that
// lie along K.
// What must be turned on the way (other weights, 16-bit NCHW sources) goes through registers as parcels: every
// step of the main loop picks some up before its tensor-core work and delivers them after it.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/igemm/igemm_scope.cuh"

namespace convt2d::cuda::igemm {

// The pieces of a chunk, as the threads count them. A multiple of 32 each, so a warp does one kind.
struct Pieces {
  int source, weight;  // parcels
  uint32_t source_magic, rows_magic, entries_magic;
};

template <class M, int COLUMNS>
__device__ __forceinline__ Pieces pieces_of(const GatherParams& p, const Scope& at) {
  constexpr bool kHalf = sizeof(typename M::Element) == 2;
  Pieces n;
  const int units = p.source_mode == kPixelPairs ? at.patch_pixels / 2 : at.patch_pixels;
  n.source = p.source_mode <= kPixelPairs ? ((units << (p.slice_shift + 1)) + 31) & ~31 : 0;
  n.source_magic = magic_of(units);
  const int rows = at.entries * COLUMNS;
  n.weight =
      p.weights_copied ? 0 : ((rows << (p.slice_shift + (kHalf && !p.weight_vectors))) + 31) & ~31;
  n.rows_magic = magic_of(max(rows, 1));
  n.entries_magic = magic_of(max(at.entries, 1));
  return n;
}

// What a thread has under way in shared memory at once.
constexpr int kBatch = 4;

// For every piece of the source patch that this thread copies: 16 bytes of a pixel (contiguous channels), of which
// neighbouring threads have the next. Calls get(shared address, patch pixel) for a few of them, then
// visit(shared address, first channel, what get gave) ...
template <class M, class Get, class Visit>
__device__ __forceinline__ void visit_rows(const GatherParams& p, const Scope& at, int chunk,
                                           uint32_t stage, Get&& get, Visit&& visit) {
  const int shift = p.slice_shift + 1, piece = threadIdx.x & ((1 << shift) - 1);
  const int step = blockDim.x >> shift, channel = ((chunk << shift) + piece) * (M::kRow / 2);
  const uint32_t place = stage + (piece >> 1) * at.patch_slice + (piece & 1) * 16;
  for (int first = threadIdx.x >> shift; first < at.patch_pixels; first += kBatch * step) {
    decltype(get(place, first)) got[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pixel = min(first + i * step, at.patch_pixels - 1);
      got[i] = get(place + pixel * kPixelPitch, pixel);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (const int pixel = first + i * step; pixel < at.patch_pixels)
        visit(place + pixel * kPixelPitch, channel, got[i]);
  }
}

// ... or a run of RUN
// pixels in four planes (fp32): visit(shared address, first channel, patch pixel, bytes from a plane to the next).
constexpr int kPlaneRun = 4;

template <int RUN, class Visit>
__device__ __forceinline__ void visit_planes(const GatherParams& p, const Scope& at, int chunk,
                                             uint32_t stage, Visit&& visit) {
  const int runs = at.patch_pixels / RUN, pitch = plane_pitch(p) * 4;
  const int quads = 2 << p.slice_shift;
  int quad = 0, run = threadIdx.x;
  while (run >= runs) run -= runs, ++quad;
  while (quad < quads) {
    visit(stage + quad * kPlaneRun * pitch + run * RUN * 4, (chunk * quads + quad) * kPlaneRun,
          run * RUN, pitch);
    run += blockDim.x;
    while (run >= runs) run -= runs, ++quad;
  }
}

template <int RUN>
__device__ __forceinline__ void copy_planes(const GatherParams& p, const Scope& at, int chunk,
                                            const int* sources, uint32_t stage) {
  const float* base =
      static_cast<const float*>(p.source) + at.group * p.reduce * p.source_stride[1];
  const int64_t stride = p.source_stride[1];
  visit_planes<RUN>(p, at, chunk, stage, [&](uint32_t to, int channel, int pixel, int pitch) {
    const int offset = sources[pixel];
    const int left = offset < 0 ? 0 : p.reduce - channel;
    const float* from = base + (left > 0 ? offset + channel * p.source_stride[1] : 0);
#pragma unroll
    for (int i = 0; i < kPlaneRun; ++i) {
      if constexpr (RUN == 4) {
        copy_async_16(to + i * pitch, i < left ? from : base, i < left);
      } else {
        copy_async_4(to + i * pitch, i < left ? from : base, i < left);
      }
      from += stride;
    }
  });
}

// Column `row` of the shared weights stands for this channel of the tile. With NHWC stores the channels
// are dealt out so that a thread owns runs of 2 * TILES neighbours.
template <int TILES>
__device__ __forceinline__ int channel_of(const GatherParams& p, int row) {
  if (!p.vector_stores) return row;
  const int tile = row >> 3, thread = (row & 7) >> 1;
  return (tile / TILES * 4 + thread) * (2 * TILES) + tile % TILES * 2 + (row & 1);
}

// Eight-column tiles in the widest store of a thread: 16 bytes, or what a narrow tile has.
template <class T, int COLUMNS>
constexpr int kVectorTiles = COLUMNS / 8 < 8 / int(sizeof(T)) ? COLUMNS / 8 : 8 / int(sizeof(T));

// Where half a slice of a weight row lies in its stage: eight rows hit eight different 16-byte bank groups.
template <int COLUMNS>
__device__ __forceinline__ uint32_t weight_place(const GatherParams& p, int slice, int entry,
                                                 int row, int half) {
  constexpr int kEntryBytes = COLUMNS * kRowBytes + 16;
  return slice * weight_slice(p, COLUMNS) + entry * kEntryBytes + row * kRowBytes +
         ((half ^ (row >> 2 & 1)) << 4);
}

// Element offset of a unit's weights from those of the first block of taps.
__device__ __forceinline__ int weight_shift(const GatherParams& p, const Unit& unit) {
  return unit.block * p.tap_rows * p.h.tap_step * p.weight_h + unit.outer * p.outer_weight;
}

// Starts the asynchronous copies of a unit's weights, 16 bytes of a row each.
template <class M, int COLUMNS>
__device__ __forceinline__ void copy_weights(const GatherParams& p, const Scope& at,
                                             const Unit& unit, const int* entries, uint32_t stage) {
  using T = typename M::Element;
  const int shift = p.slice_shift + 1, piece = threadIdx.x & ((1 << shift) - 1);
  const int first = ((unit.chunk << shift) + piece) * (M::kRow / 2);
  const T* const base = static_cast<const T*>(p.weight) + at.group * p.weight_group;
  const int place = first + weight_shift(p, unit);
  const int rows = at.entries * COLUMNS, step = blockDim.x >> shift;
  for (int i = threadIdx.x >> shift; i < rows; i += kBatch * step) {
    int offset[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) offset[j] = entries[min(i + j * step, rows - 1) / COLUMNS];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int at_row = i + j * step, entry = at_row / COLUMNS, row = at_row % COLUMNS;
      if (at_row >= rows) break;
      const int channel = at.column_tile * COLUMNS + channel_of<kVectorTiles<T, COLUMNS>>(p, row);
      const bool there = channel < p.columns && first < p.reduce;
      copy_async_16(stage + weight_place<COLUMNS>(p, piece >> 1, entry, row, piece & 1),
                    base + (there ? channel * p.weight_column + offset[j] + place : 0), there);
    }
  }
}

// Starts the asynchronous copies of a chunk's source patch.
template <class M, bool PLANES>
__device__ __forceinline__ void copy_source(const GatherParams& p, const Scope& at, int chunk,
                                            const int* sources, uint32_t stage) {
  using T = typename M::Element;
  if constexpr (PLANES) {
    if (p.source_mode == kWidePlanes) {
      copy_planes<4>(p, at, chunk, sources, stage);
    } else {
      copy_planes<1>(p, at, chunk, sources, stage);
    }
  } else if (p.source_mode == kVectors) {
    const T* const base = static_cast<const T*>(p.source) + at.group * p.reduce;
    visit_rows<M>(
        p, at, chunk, stage, [&](uint32_t, int pixel) { return sources[pixel]; },
        [&](uint32_t to, int channel, int offset) {
          const bool there = offset >= 0 && channel < p.reduce;
          copy_async_16(to, base + (there ? offset + channel : 0), there);
        });
  }
}

struct Words {
  uint32_t word[4];
};
__device__ __forceinline__ Words get_16(uint32_t shared) {
  Words got;
  load_shared_16(shared, got.word);
  return got;
}
template <class M>
__device__ __forceinline__ void put_rounded(uint32_t shared, Words words) {
#pragma unroll
  for (int i = 0; i < 4; ++i) words.word[i] = M::round(words.word[i]);
  store_shared_16(shared, words.word);
}

// Rounds what this thread copied, once it has arrived, where it lies, if the arithmetic wants that.
template <class M, bool PLANES>
__device__ __forceinline__ void round_source(const GatherParams& p, const Scope& at,
                                             uint32_t stage) {
  constexpr int chunk = 0;  // of no consequence: the places are the same for all
  if constexpr (M::kRounds) {
    if constexpr (!PLANES) {
      visit_rows<M>(
          p, at, chunk, stage, [](uint32_t at_word, int) { return get_16(at_word); },
          [](uint32_t to, int, const Words& words) { put_rounded<M>(to, words); });
    } else if (p.source_mode == kWidePlanes) {
      visit_planes<4>(p, at, chunk, stage, [&](uint32_t to, int, int, int pitch) {
#pragma unroll
        for (int i = 0; i < kPlaneRun; ++i) put_rounded<M>(to + i * pitch, get_16(to + i * pitch));
      });
    } else {
      visit_planes<1>(p, at, chunk, stage, [&](uint32_t to, int, int, int pitch) {
#pragma unroll
        for (int i = 0; i < kPlaneRun; ++i)
          store_shared_4(to + i * pitch, M::round(load_shared_4(to + i * pitch)));
      });
    }
  }
}

// Sixteen or thirty-two bytes on their way from global to shared memory.
struct Parcel {
  uint32_t word[8];
  uint32_t address;  // shared; 0: nothing to deliver
  int second;        // byte distance of the second 16 bytes; 0: there is none
};

template <class T>
__device__ __forceinline__ uint32_t load_bits(const T* pointer) {
  if constexpr (sizeof(T) == 4) {
    return __ldg(reinterpret_cast<const unsigned int*>(pointer));
  } else {
    return __ldg(reinterpret_cast<const unsigned short*>(pointer));
  }
}

// 16-bit sources: eight channels of one pixel, or of two neighbours.
template <class M>
__device__ __forceinline__ void pick_source(const GatherParams& p, const Scope& at, const Pieces& n,
                                            Parcel& parcel, int unit, int chunk, const int* sources,
                                            uint32_t stage) {
  using T = typename M::Element;
  const bool pairs = p.source_mode == kPixelPairs;
  const int units = pairs ? at.patch_pixels / 2 : at.patch_pixels;
  const int octet = divide(unit, n.source_magic);  // of channels: half a slice
  const int pixel = (unit - octet * units) << pairs;
  if (octet >> (p.slice_shift + 1)) return;
  parcel.second = pairs ? kPixelPitch : 0;
  parcel.address = stage + (octet >> 1) * at.patch_slice + pixel * kPixelPitch + (octet & 1) * 16;
  const int first = (chunk << (p.slice_shift + 1)) * 8 + octet * 8;
  const int offset = sources[pixel];
  const int left = offset < 0 ? 0 : p.reduce - first;
  const T* from =
      static_cast<const T*>(p.source) + offset + (at.group * p.reduce + first) * p.source_stride[1];
  if (left <= 0) {
#pragma unroll
    for (int j = 0; j < 8; ++j) parcel.word[j] = 0;
    return;
  }
  if (left >= 8 && pairs) {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      parcel.word[j] = __ldg(reinterpret_cast<const unsigned int*>(from + j * p.source_stride[1]));
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    parcel.word[j] = 0;
    if (j < left) {
      const T* here = from + j * p.source_stride[1];
      parcel.word[j] = pairs ? __ldg(reinterpret_cast<const unsigned int*>(here)) : load_bits(here);
    }
  }
}

// Weights of one column and tap: a slice of channels (fp32, or contiguous), or half a slice.
template <class M, int COLUMNS>
__device__ __forceinline__ void pick_weights(const GatherParams& p, const Scope& at,
                                             const Pieces& n, Parcel& parcel, int unit, int chunk,
                                             int shift, const int* entries, uint32_t stage) {
  using T = typename M::Element;
  const bool halves = sizeof(T) == 2 && !p.weight_vectors;
  const int piece = divide(unit, n.rows_magic);
  const int rest = unit - piece * at.entries * COLUMNS;
  const int slice = halves ? piece >> 1 : piece, half = halves ? piece & 1 : 0;
  if (slice >> p.slice_shift) return;
  int entry, row;
  if (p.weight_columns_first) {
    row = rest % COLUMNS;
    entry = rest / COLUMNS;
  } else {
    row = divide(rest, n.entries_magic);
    entry = rest - row * at.entries;
  }
  parcel.address = stage + weight_place<COLUMNS>(p, slice, entry, row, half);
  parcel.second = halves ? 0 : (row >> 2 & 1 ? -16 : 16);
  const int channel = at.column_tile * COLUMNS + channel_of<kVectorTiles<T, COLUMNS>>(p, row);
  const int first = ((chunk << p.slice_shift) + slice) * M::kRow + half * 8;
  const int left = channel < p.columns ? p.reduce - first : 0;
  const T* from = static_cast<const T*>(p.weight) + at.group * p.weight_group +
                  channel * p.weight_column + first * p.weight_reduce + entries[entry] + shift;
  if (p.weight_vectors) {
    const uint4 zero = make_uint4(0, 0, 0, 0);
    const uint4 low = left > 0 ? __ldg(reinterpret_cast<const uint4*>(from)) : zero;
    const uint4 high = left > M::kRow / 2 ? __ldg(reinterpret_cast<const uint4*>(from) + 1) : zero;
    parcel.word[0] = low.x, parcel.word[1] = low.y, parcel.word[2] = low.z;
    parcel.word[3] = low.w, parcel.word[4] = high.x, parcel.word[5] = high.y;
    parcel.word[6] = high.z, parcel.word[7] = high.w;
  } else if (left >= 8) {
#pragma unroll
    for (int j = 0; j < 8; ++j) parcel.word[j] = load_bits(from + j * p.weight_reduce);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      parcel.word[j] = j < left ? load_bits(from + j * p.weight_reduce) : 0;
  }
}

template <class M>
__device__ __forceinline__ void deliver(const Parcel& parcel) {
  if (parcel.address == 0) return;
  uint32_t low[4], high[4];
  if (sizeof(typename M::Element) == 2 && parcel.second == 0) {  // eight single halves
#pragma unroll
    for (int j = 0; j < 4; ++j) low[j] = parcel.word[2 * j] | parcel.word[2 * j + 1] << 16;
    store_shared_16(parcel.address, low);
    return;
  }
  if (sizeof(typename M::Element) == 2 && parcel.second == kPixelPitch) {  // two pixels: turn
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      low[j] = __byte_perm(parcel.word[2 * j], parcel.word[2 * j + 1], 0x5410);
      high[j] = __byte_perm(parcel.word[2 * j], parcel.word[2 * j + 1], 0x7632);
    }
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      low[j] = M::round(parcel.word[j]);
      high[j] = M::round(parcel.word[j + 4]);
    }
  }
  store_shared_16(parcel.address, low);
  store_shared_16(parcel.address + parcel.second, high);
}

// A chunk's parcels on their way.
struct Delivery {
  int next, total;
  int source_chunk, weight_chunk, weight_shift;
  const int* sources;
  const int* entries;
  uint32_t patch, weight;  // stages
};

template <class M, int COLUMNS>
__device__ __forceinline__ void pick(const GatherParams& p, const Scope& at, const Pieces& n,
                                     Parcel& parcel, Delivery& d) {
  parcel.address = 0;
  if (d.next < n.source) {
    if constexpr (sizeof(typename M::Element) == 2)
      pick_source<M>(p, at, n, parcel, d.next, d.source_chunk, d.sources, d.patch);
  } else if (d.next < d.total) {
    pick_weights<M, COLUMNS>(p, at, n, parcel, d.next - n.source, d.weight_chunk, d.weight_shift,
                             d.entries, d.weight);
  }
  d.next += blockDim.x;
}

template <class M, int COLUMNS, int COUNT>
__device__ __forceinline__ void pick_all(const GatherParams& p, const Scope& at, const Pieces& n,
                                         Parcel (&parcels)[COUNT], Delivery& d) {
#pragma unroll
  for (Parcel& parcel : parcels) {
    parcel.address = 0;
    if (d.next < d.total) pick<M, COLUMNS>(p, at, n, parcel, d);
  }
}
template <class M, int COUNT>
__device__ __forceinline__ void deliver_all(const Parcel (&parcels)[COUNT]) {
#pragma unroll
  for (const Parcel& parcel : parcels) deliver<M>(parcel);
}

}  // namespace convt2d::cuda::igemm
