// What tiles of NCHW forward take whose source threads bring: by counting, and by what was measured.
#pragma once

#include "cuda/hopper/hopper_shape.h"

namespace convt2d::cuda::hopper {

// What brings a buffer: parcels, how many of them a thread has on their way, and cycles each.
struct Load {
  double parcels, batch, each;
};

// What a tile costs whose phases have so many products: cycles, sectors of L2, and cycles before the first one, in which
// weights come that stay.
struct TileCost {
  double cycles, sectors, prologue;
  double alone = cycles;  // where no other block is beside
};

// What is known of a tile of planes: buffers of the source and of the weights that a chunk fills, and what each is; bytes that
// are neighbours in memory of what a warp stores at once, and how many phases of other blocks lie between them.
struct PlanesTile {
  double products, pieces, parts;
  Load source, weights;
  double run_bytes, scatter, read_sectors;
};

bool of_planes(const Problem& problem, TileRow tile);
double planes_launch(const Problem& problem);  // us
TileCost planes_cost(const Problem& problem, const GatherParams& p, TileRow tile,
                     const PlanesTile& of);

}  // namespace convt2d::cuda::hopper
