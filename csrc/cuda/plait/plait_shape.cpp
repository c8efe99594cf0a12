#include "cuda/plait/plait_shape.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::plait {
namespace {

// Sizes that a box of the copy engine may have.
constexpr int kMostBox = 256;

// Images whose rows fill a block of positions beside each other.
int beside(const Problem& problem) {
  const int64_t eights = ceil_div(problem.w.in, kEight), block = kBlock / kEight;
  return eights < block && block % eights == 0 ? int(block / eights) : 1;
}

bool may_pair(const Problem& problem) {
  const Axis &h = problem.h, &w = problem.w;
  return h.kernel == kPairedTaps && w.kernel == kPairedTaps && h.stride == kPairedStep &&
         w.stride == kPairedStep && h.dilation == 1 && h.in % kPairedRows == 0 &&
         (w.in % kBlock == 0 || beside(problem) > 1);
}

// Kernels one wide, in rows of whole 16 bytes.
bool may_copy(const Problem& problem) {
  const Axis &h = problem.h, &w = problem.w;
  return w.kernel == 1 && w.stride == 1 && w.near_pad == 0 && w.out % kEight == 0 &&
         (h.kernel == 1 || h.dilation == 1) && h.kernel <= kDepth && kDepth % h.kernel == 0;
}
// Planes under kernels of one tap are rows.
bool is_flat(const Problem& problem) {
  const Axis &h = problem.h, &w = problem.w;
  return h.kernel == 1 && w.kernel == 1 && h.stride == 1 && w.stride == 1 && h.near_pad == 0 &&
         w.near_pad == 0 && h.in == h.out && w.in == w.out;
}

// The least number that is at least `least` and differs from `like` by a multiple of 16.
int32_t like(int64_t least, int64_t like) {
  return static_cast<int32_t>(round_up(std::max<int64_t>(0, least - like % 16), 16) + like % 16);
}

// How raw dY lies in a stage if it comes that way, and in how many pieces it comes; none if it cannot.
int64_t lay_raw(int raw, Params& p) {
  const Taps taps = kTaps[p.kind];
  const int64_t eights = tile_eights(p), line = int64_t{p.y_w} * 2, plane = line * p.y_h,
                segment = int64_t{p.x_h} * p.strip_eights;
  // A tile starts at any multiple of what it and a row, or a segment, have in common.
  const auto touched = [&](int64_t size) {
    return ceil_div(size - std::gcd(eights, size) + eights, size);
  };
  const int64_t rows = touched(p.strip_eights),
                strips =
                    std::min<int64_t>(ceil_div(p.batch, p.beside) * p.strips, touched(segment)),
                segments = strips * p.beside, more = (p.kernel_h - 1) * p.dilation_h + 1;
  const auto of_rows = [&](int64_t some) { return (some - 1) * p.stride_h + more; };
  p.raw = raw;
  p.raw_channels =
      std::min(p.reduce, kDepth % p.taps == 0 ? kDepth / p.taps : (kDepth - 1) / p.taps + 2);
  p.raw_rows =
      raw == kPlanes ? p.y_h : static_cast<int32_t>(of_rows(std::min<int64_t>(rows, p.x_h)));
  p.raw_row = static_cast<int32_t>(line);
  int64_t all;
  if (raw == kRuns) {
    if (p.strips > 1) return 0;
    p.raw_segment_bytes = static_cast<int32_t>(round_up(of_rows(p.x_h) * line + 30, 16));
    const int64_t lines =
        p.beside * std::max(of_rows(rows), (rows - strips) * p.stride_h + strips * more);
    p.raw_channel =
        like(std::min(lines * line + segments * 64, segments * p.raw_segment_bytes) + 30, plane);
    all = int64_t{p.raw_channels} * p.raw_channel + 32;
  } else if (raw == kPlanes) {
    if (p.strips > 1) return 0;
    p.raw_channel = static_cast<int32_t>(plane);
    p.raw_segment_bytes = static_cast<int32_t>(round_up(p.raw_channels * plane + 30, 16));
    all = segments * p.raw_segment_bytes;
  } else {
    const int lead = (kEight - p.pad_w % kEight + kEight) % kEight;
    const int64_t columns =
        round_up(lead + (int64_t{p.row_eights} * kEight - 1) * taps.step + taps.kernel, kEight);
    if (p.y_w % kEight != 0 || columns > kMostBox || p.raw_rows > kMostBox) return 0;
    p.raw_row = static_cast<int32_t>(columns * 2);
    p.raw_channel = p.raw_rows * p.raw_row;
    p.raw_box_bytes = p.raw_channels * p.raw_channel;
    p.raw_segment_bytes = static_cast<int32_t>(round_up(p.raw_box_bytes, 128));
    all = segments * p.raw_segment_bytes;
  }
  p.raw_stage_bytes = static_cast<int32_t>(std::min<int64_t>(round_up(all, 128), 1 << 24));
  return segments * (raw == kRuns ? p.raw_channels : 1);
}

// The way that takes the copy engine least. False if there is none.
bool shape_raw(Params& p) {
  double least = INFINITY;
  Params best = p;
  for (const Raw raw : {kPlanes, kBoxes, kRuns}) {
    const int64_t pieces = lay_raw(raw, p);
    const double cost = p.raw_stage_bytes / kLevel2 + pieces * kPiece;
    if (pieces == 0 || cost >= least) continue;
    least = cost;
    best = p;
  }
  p = best;
  return std::isfinite(least);
}

}  // namespace

int kind_of(const Problem& problem) {
  const Axis& w = problem.w;
  const int lead = w.out % kEight == 0 ? int((kEight - w.near_pad % kEight) % kEight) : -1;
  for (int kind = 0; kind < kTapKinds; ++kind) {
    const Taps taps = kTaps[kind];
    if (taps.kernel == w.kernel && (taps.step == w.stride || w.in == 1) &&
        (taps.lead < 0 || taps.lead == lead))
      return kind;
  }
  return -1;
}

// Everything that follows from the problem and the choice, pointers aside.
void shape(const Problem& problem, const Choice& choice, Params& p) {
  const Axis &h = problem.h, &w = problem.w;
  p = {};
  set_extents(problem, p);
  set_geometry(problem, p);
  p.x_h = static_cast<int32_t>(h.in);
  p.x_w = static_cast<int32_t>(w.in);
  if (is_flat(problem)) {
    p.x_w = p.y_w = p.x_w * p.x_h;
    p.x_h = p.y_h = 1;
  }
  p.kind = kind_of(problem);
  p.copied = may_copy(problem);
  p.form = choice.form;
  p.sets = choice.form == kWide ? 2 : 1;
  p.halves = choice.form == kTwice ? 2 : 1;
  p.turns = choice.form == kTurns;
  p.column_tiles = static_cast<int32_t>(ceil_div(p.columns, tile_channels(p)));
  constexpr int kBlockEights = kBlock / kEight;
  auto row_eights = static_cast<int32_t>(ceil_div(p.x_w, kEight));
  // Longer rows than a tile are strips too, since whole rows of dY come.
  if (p.copied || row_eights > 2 * kEights)
    row_eights = static_cast<int32_t>(round_up(row_eights, kBlockEights));
  p.paired = may_pair(problem) && (choice.raw_stages > 0 || beside(problem) == 1);
  p.beside = p.paired ? beside(problem) : 1;
  p.strip_eights = row_eights % kBlockEights == 0 ? kBlockEights : row_eights * p.beside;
  p.row_eights = p.strip_eights / p.beside;
  p.strips = p.beside > 1 ? 1 : row_eights / p.strip_eights;
  p.eights = static_cast<int32_t>(ceil_div(p.batch, p.beside)) * p.x_h * p.strip_eights * p.strips;
  p.block_bytes = p.paired ? kAtomBytes : kBlockBytes;
  p.slice_bytes = p.paired ? kPairedSlice : 2 * kAtomBytes;
  p.half_bytes = p.paired ? kPairedChannels * kPairedSlice : kHalfBytes;
  p.tiles = static_cast<int32_t>(ceil_div(p.eights, tile_eights(p)));
  p.walkers = std::min(choice.walkers, p.tiles);
  p.depth = p.reduce * p.kernel_h * p.kernel_w;
  p.chunks = static_cast<int32_t>(ceil_div(p.depth, kDepth));
  p.uneven = p.depth % kEight != 0;
  p.bytes = static_cast<int32_t>(problem.batch * problem.out_channels * h.out * w.out * 2);
  p.taps = p.kernel_h * p.kernel_w;
  p.store_vectors = p.x_w % kEight == 0;
  p.store_words = p.x_w % 2 == 0;
  p.by_strip_eights = FastDivide(p.strip_eights);
  p.by_strips = FastDivide(p.strips);
  p.by_x_h = FastDivide(p.x_h);
  p.by_kernel_h = FastDivide(p.kernel_h);
  p.by_taps = FastDivide(p.taps);
  p.by_beside = FastDivide(p.beside);
  p.by_row_eights = FastDivide(p.row_eights);
  p.stages = choice.stages;
  p.raw_stages = choice.raw_stages;
  if (p.copied) return;
  if (p.raw_stages == 0)
    p.raw = kLoaded;
  else if (!shape_raw(p))
    p.raw_stage_bytes = 1 << 24;
}

// Places in shared memory, with weights that stay or not.
void place(bool resident, int stages, Params& p) {
  p.resident = resident;
  p.stages = stages;
  p.stage_bytes = p.halves * p.half_bytes + (resident ? 0 : weight_bytes(p));
  SharedPlaces places{kHeader};
  p.weights_at = places.take(resident ? int64_t{p.chunks} * weight_bytes(p) : 0, kAtomBytes);
  p.stages_at = places.take(int64_t{stages} * p.stage_bytes, kAtomBytes);
  // What is beside raw numbers may be read, if not used.
  if (p.raw_stages > 0 && !p.copied)
    p.raw_at = places.take(int64_t{p.raw_stages} * p.raw_stage_bytes + kZeros, kAtomBytes);
  p.shared_bytes = static_cast<int32_t>(places.end);
}

Params shape_of(const Problem& problem, const Choice& choice) {
  Params p;
  shape(problem, choice, p);
  place(choice.stages < 0, std::abs(choice.stages), p);
  return p;
}

int64_t raw_pieces(const Params& p) {
  Params raw = p;
  return p.copied || p.raw == kLoaded ? 0 : lay_raw(p.raw, raw);
}

int64_t blocks_of(const Params& p) { return int64_t{p.groups} * p.column_tiles * p.walkers; }

// Weights as a matrix [input channel][K]; dY as it is, of which a box has the rows that taps of 64 of K read.
Maps maps_of(const Params& p) {
  Maps maps{};
  const int64_t row = int64_t{p.depth} * 2, rows = int64_t{p.groups} * p.columns;
  if (!p.uneven)
    maps.weight = encode({p.weight,
                          2,
                          4,
                          {p.depth, rows, 1, 1},
                          {2, row, row * rows, row * rows},
                          {kDepth, tile_channels(p), 1, 1},
                          {1, 1, 1, 1}});
  if (!p.copied && p.raw != kBoxes) return maps;
  const int64_t line = int64_t{p.y_w} * 2, plane = line * p.y_h, all = int64_t{p.groups} * p.reduce;
  TensorBox box = {
      p.source, 2,           4, {p.y_w, p.y_h, all, p.batch}, {2, line, plane, plane * all},
      {},       {1, 1, 1, 1}};
  const int32_t copied[] = {kBlock, p.kernel_h, kDepth / p.kernel_h, 1},
                raw[] = {p.raw_row / 2, p.raw_rows, p.raw_channels, 1};
  std::copy_n(p.copied ? copied : raw, 4, box.count);
  box.swizzled = p.copied;
  maps.source = encode(box);
  return maps;
}

}  // namespace convt2d::cuda::plait
