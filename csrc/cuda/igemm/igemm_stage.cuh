// Bringing a chunk of the source patch and of the weights into shared memory.
//
// Sources whose layout suits are copied asynchronously, up to three chunks ahead.
// What must be turned on the way (weights, 16-bit NCHW sources) goes through registers as parcels: every
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
  n.weight = ((rows << (p.slice_shift + (kHalf && !p.weight_vectors))) + 31) & ~31;
  n.rows_magic = magic_of(max(rows, 1));
  n.entries_magic = magic_of(max(at.entries, 1));
  return n;
}

// Calls visit(shared address, first channel, patch pixel, ...) for every piece of the source patch that this
// thread copies: a 32-byte row of a pixel (contiguous channels) ...
template <class M, class Visit>
__device__ __forceinline__ void visit_rows(const GatherParams& p, const Scope& at, int chunk,
                                           uint32_t stage, Visit&& visit) {
  const int slice_mask = (1 << p.slice_shift) - 1;
  for (int unit = threadIdx.x; unit < at.patch_pixels << p.slice_shift; unit += blockDim.x) {
    const int slice = unit & slice_mask, pixel = unit >> p.slice_shift;
    visit(stage + (slice * at.patch_pixels + pixel) * kPixelPitch,
          ((chunk << p.slice_shift) + slice) * M::kRow, pixel);
  }
}

// ... or a run of RUN pixels in four planes (fp32).
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
    const T* base = static_cast<const T*>(p.source) + at.group * p.reduce;
    visit_rows<M>(p, at, chunk, stage, [&](uint32_t to, int channel, int pixel) {
      const int offset = sources[pixel];
      const int left = offset < 0 ? 0 : p.reduce - channel;
      const T* from = base + (left > 0 ? offset + channel : 0);
      constexpr int kHalf = M::kRow / 2;
      copy_async_16(to, from, left > 0);
      copy_async_16(to + 16, left > kHalf ? from + kHalf : from, left > kHalf);
    });
  }
}

// Rounds what this thread copied, once it has arrived, where it lies, if the arithmetic wants that.
template <class M, bool PLANES>
__device__ __forceinline__ void round_source(const GatherParams& p, const Scope& at,
                                             uint32_t stage) {
  constexpr int chunk = 0;  // of no consequence: the places are the same for all
  if constexpr (M::kRounds) {
    const auto round_16 = [](uint32_t at_word) {
      uint32_t word[4];
      load_shared_16(at_word, word);
#pragma unroll
      for (int i = 0; i < 4; ++i) word[i] = M::round(word[i]);
      store_shared_16(at_word, word);
    };
    if constexpr (!PLANES) {
      visit_rows<M>(p, at, chunk, stage, [&](uint32_t to, int, int) {
        round_16(to);
        round_16(to + 16);
      });
    } else if (p.source_mode == kWidePlanes) {
      visit_planes<4>(p, at, chunk, stage, [&](uint32_t to, int, int, int pitch) {
#pragma unroll
        for (int i = 0; i < kPlaneRun; ++i) round_16(to + i * pitch);
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
  parcel.address =
      stage + ((octet >> 1) * at.patch_pixels + pixel) * kPixelPitch + (octet & 1) * 16;
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

// Weights of one column and tap: a slice of channels (fp32, or contiguous), or half a slice.
template <class M, int COLUMNS>
__device__ __forceinline__ void pick_weights(const GatherParams& p, const Scope& at,
                                             const Pieces& n, Parcel& parcel, int unit, int chunk,
                                             const int* entries, uint32_t stage) {
  using T = typename M::Element;
  constexpr int kEntryBytes = COLUMNS * kRowBytes + 16;
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
  const int flip = row >> 2 & 1;  // eight rows hit eight different 16-byte bank groups
  parcel.address = stage + (slice * p.max_entries + entry) * kEntryBytes + row * kRowBytes +
                   ((half ^ flip) << 4);
  parcel.second = halves ? 0 : (flip ? -16 : 16);
  const int channel = at.column_tile * COLUMNS + channel_of<kVectorTiles<T, COLUMNS>>(p, row);
  const int first = ((chunk << p.slice_shift) + slice) * M::kRow + half * 8;
  const int left = channel < p.columns ? p.reduce - first : 0;
  const T* from = static_cast<const T*>(p.weight) + at.group * p.weight_group +
                  channel * p.weight_column + first * p.weight_reduce + entries[entry];
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
  int source_chunk, weight_chunk;
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
    pick_weights<M, COLUMNS>(p, at, n, parcel, d.next - n.source, d.weight_chunk, d.entries,
                             d.weight);
  }
  d.next += blockDim.x;
}

}  // namespace convt2d::cuda::igemm
