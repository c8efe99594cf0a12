#include "cuda/slide/slide_rows_plan.h"

#include <algorithm>

#include "cuda/slide/slide_plan.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::slide {

// Of channels that are `residues` kinds, so many eights of each.
void set_channels(int depth, RowParams& p) {
  p.residues = static_cast<int32_t>(residues_of(int64_t{p.x_h} * p.x_w));
  p.residue_shift = shift_of(p.residues);
  p.depth = depth;
  const int32_t block = p.depth / 8;
  const auto of_residue = static_cast<int32_t>(ceil_div(p.reduce, p.residues));
  p.residue_octets = static_cast<int32_t>(ceil_div(of_residue, 8));
  if (p.residues > 1) p.residue_octets = 1 << shift_of(p.residue_octets);
  p.residue_octets_shift = p.residues > 1 ? shift_of(p.residue_octets) : 31;
  p.octets = static_cast<int32_t>(round_up(p.residues * p.residue_octets, block));
  p.reduce_padded = p.octets * 8;
  p.slices = p.octets / 2;
  p.depths = p.octets / block;
  p.block_shift = shift_of(block);
  p.team = 1;
  while (p.team < kRowWarps && p.octets % (2 * p.team) == 0) p.team *= 2;
  p.box_channels = std::min(of_residue, 8);
}

// The least number of pixels from remainder to remainder by which eight pixels that are turned together meet no bank twice, or few,
// wherever rows start.
static int32_t plane_pixels(const RowParams& p, int32_t least) {
  constexpr int kStarts = 8;  // of a row, in 16 bytes
  int32_t rows[kStarts] = {};
  for (int64_t residue = 0; residue < p.residues; ++residue)
    for (int64_t row = 0; row < kStarts; ++row)
      ++rows[((residue * p.x_h + row) * p.x_w + p.low_w) & (kStarts - 1)];
  int32_t remainder[2 * kStarts], line[2 * kStarts];
  for (int32_t i = 0; i < 2 * kStarts; ++i) remainder[i] = i % p.step_w, line[i] = i / p.step_w;
  int32_t best = least, fewest = INT32_MAX;
  for (int32_t pixels = least; pixels < least + 8; ++pixels) {
    int32_t meet = 0;
    for (int32_t start = 0; start < kStarts; ++start) {
      if (rows[start] == 0) continue;
      // Lines mod 8 of the first eight of which the row has all.
      int32_t lines[8] = {}, most = 0;
      for (int32_t i = kStarts - start; i < 2 * kStarts - start; ++i)
        most = std::max(most, ++lines[(remainder[i] * pixels + line[i]) & 7]);
      meet += most * rows[start];
    }
    if (meet < fewest) fewest = meet, best = pixels;
  }
  return best;
}

void set_slots(int width, int raws, int slots, RowParams& p) {
  p.step_shift = p.step_w == 1 ? 0 : p.step_w == 2 ? 1 : p.step_w == 4 ? 2 : -1;
  p.plane_pixels =
      plane_pixels(p, std::max(p.images * p.image_pixels, width + p.reach_w / p.step_w));
  // Of a row, with room for what stands before the first pixel; an odd number, so that channels start in different banks.
  const auto eights = static_cast<int32_t>(ceil_div(p.pixels + kVector - 1, kVector));
  p.pitch = (eights | 1) * 16;
  p.image_parts = static_cast<int32_t>(ceil_div(eights, 4));
  p.parts = static_cast<int32_t>(round_up(p.images * p.image_parts, kPartsAtOnce));
  p.copied_bytes = p.images * p.box_channels * p.pitch;
  p.raw_bytes = static_cast<int32_t>(round_up(p.copied_bytes, 128));
  p.nowhere = static_cast<int32_t>(round_up(int64_t{p.step_w} * p.plane_pixels * p.depth * 2, 128));
  p.slot_bytes = static_cast<int32_t>(round_up(p.nowhere + 128, 1024));
  p.raws = raws;
  p.slots = slots;
  p.octet_bytes = tile_channels(p) * 16;
  p.tap_bytes = p.octets * p.octet_bytes + 16;
}

void take_rows(SharedPlaces& places, RowParams& p) {
  p.weights_at = places.take(int64_t{p.kernel_h} * p.kernel_w * p.tap_bytes, 128);
  p.places_at = places.take((places_of(p) + p.parts) * 2, 128);
  p.octets_at = places.take(p.octets * 16, 16);
  p.raws_at = places.take(int64_t{kRowWarps} * p.raws * p.raw_bytes, 128);
  p.slots_at = places.take(int64_t{p.slots} * p.slot_bytes, 1024);
}

bool have_weight_runs(const RowParams& p) {
  return p.kernel_h * p.kernel_w % kVector == 0 && p.weight_w == 1 && p.weight_h == p.kernel_w &&
         p.weight_reduce % kVector == 0 && p.weight_column % kVector == 0 &&
         p.weight_group % kVector == 0 && aligned(p.weight, 16);
}

// By words, of which a box may have 256 in a row.
CUtensorMap map_of(const RowParams& p) {
  const int64_t planes = int64_t{p.residues} * p.x_h * p.x_w, all = int64_t{p.groups} * p.reduce;
  const int64_t image = int64_t{p.x_h} * p.x_w * all * 2;
  TensorBox box = {p.source,
                   4,
                   4,
                   {planes / 2, all / p.residues, p.batch, 1},
                   {4, planes * 2, image, image * p.batch},
                   {p.pitch / 4, p.box_channels, p.images, 1},
                   {1, 1, 1, 1}};
  box.swizzled = false;
  box.rounded = false;
  return encode(box);
}

}  // namespace convt2d::cuda::slide
