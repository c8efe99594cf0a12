// From a Problem to the numbers of the gather kernel; shared by the planner and the launcher.
#pragma once

#include <string>

#include "core/args.h"
#include "core/plan.h"
#include "cuda/hopper/hopper_config.h"

namespace convt2d::cuda::hopper {

// A choice of tile: what Plan.row and Plan.detail carry.
struct GatherChoice {
  int row;                     // of kTiles
  int stack_h, stack_w;        // phases side by side in the columns, pixel rows only
  int tile_n, tile_h, tile_w;  // positions
  int operand_columns;         // operands side by side in a tile; 0: operands are runs of pixels
  int slice_shift;             // log2 of the slices in a chunk
  int source_stages;
  int weight_stages;  // 0: all weights stay in shared memory
  int part_products;  // products a weight stage holds
  // Products that half of the consumer groups are ahead of the others where a tile starts, so that not all of them store
  // at a time.
  int lead;
  int teams;  // of consumer groups, each with tiles of its own
};

// The same problem as the kernel sees it, with less to walk. Of channels last, grad_input, where a kernel row is as long
// as its step and meets no border, pixels of dY that it reads are one pixel of more channels: fewer of them are no whole
// 16 bytes, and fewer chunks of K are cut short. And with one image: where rows do not reach beyond their own image and
// all images lie one after the other, they are rows of a tall one, and tiles need not end where an image does.
Problem as_walked(const Problem& problem);
// And its tensors.
Args as_walked(const Problem& problem, const Args& args);

// Why no choice with this tile can serve a problem as walked, if that can be told from the two alone: asked once a tile,
// where gather_shape() is asked for every shape of it.
std::string refused_tile(const Problem& walked, TileRow tile);

// Everything of GatherParams that follows from the problem and the choice, pointers and strides aside.
// Returns why it cannot be done, or an empty string.
std::string gather_shape(const Problem& problem, const GatherChoice& choice, GatherParams& params);

// The same of a problem as walked in two steps, without what the kernel divides by: what all shapes of a tile have in common, and
// what one has of its own, which a planner asks for again and again.
std::string tile_shape(const Problem& walked, const GatherChoice& choice, GatherParams& params);
std::string positions_shape(const Problem& walked, const GatherChoice& choice,
                            GatherParams& params);

// After the first step: buffers of so many slices, in which nothing is to be filled but the pixels of the patch; and more of a lead than there is. For
// bounds, not for kernels.
void set_least_buffers(int slice_shift, TileRow tile, GatherParams& params);
int32_t most_lead(TileRow tile);

// Whether chunks of so many numbers of K end where their group ends, or find nothing there.
bool chunks_in_groups(const GatherParams& params, int depth_of_chunk);

// The buffers alone, which can be chosen once the rest is known.
void set_buffers(const GatherChoice& choice, GatherParams& params);

}  // namespace convt2d::cuda::hopper
