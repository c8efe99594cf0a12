// What follows, for tiles of turned rows (slide_rows.h), from what a tile's plan has set. Host arithmetic only.
#pragma once

#include <cuda.h>

#include "cuda/gather_params.h"
#include "cuda/slide/slide_rows.h"

namespace convt2d::cuda::slide {

// Of planes and `reduce` channels: residues, eights, blocks of `depth` channels, who turns them.
void set_channels(int depth, RowParams& p);
// Of what a strip of `width` columns reads of a row: rows as copied, and slots; and bytes of weights.
void set_slots(int width, int raws, int slots, RowParams& p);
// Places in shared memory of all that.
void take_rows(SharedPlaces& places, RowParams& p);
// Of weights in place: whether eight taps of a channel are 16 bytes.
bool have_weight_runs(const RowParams& p);
CUtensorMap map_of(const RowParams& p);

}  // namespace convt2d::cuda::slide
