#include "cuda/hopper/hopper_predict_planes.h"

#include <algorithm>
#include <cmath>

namespace convt2d::cuda::hopper {
namespace {

// Cycles of one multiprocessor where nothing else is said. Two warpgroups multiply a tile and store it, one after the other, while
// two others bring the next chunks: the longer of both is seen, and some of the shorter. Fitted to 6000 plans of 79 layers on an
// H200, fp16 and TF32 (2026-11-26).
struct Planes {
  double launch;          // us
  double piece;           // a buffer handed over and back
  double batch;           // of loads on their way
  double parcel, turned;  // of each thread: pixels, and 16 bytes of them that are turned,
  double weights;         // or of a kernel
  double prologue;        // filling all with weights before the first tile, over doing so later
  double multiply;        // over what the tensor core takes
  double product;         // beside its multiplications
  double staged;          // a byte of a thread's sum that goes by way of shared memory
  double sector, ragged;  // 32 bytes on their way to L2; what the ends of a run add, in sectors
  double tile;            // tables of a tile, first product, last product
  double shown;           // of the shorter
  double narrow;          // of filling, over the pixels of a row of a tile
};
constexpr Planes kHalves = {11.2, 1120, 1120,  166,  153,  56.7,  0.377, 0.715,
                            186,  16,   0.404, 3.15, 1660, 0.544, 0.617};
constexpr Planes kWords = {9.37, 383,  681,   399,  153,  56.7, 0.453, 0.731,
                           116,  14.1, 0.461, 3.26, 1930, 0.68, 0.465};
// Rows of 16 bits that start in the middle of a word go to memory number by number, halves of sectors of two phases each; or
// come from shared memory so.
constexpr double kOddPairs = 3.61, kOddStaged = 1.98;

const Planes& fit_of(const Problem& problem) {
  return element_size(problem.dtype) == 2 ? kHalves : kWords;
}

// By one of two producer groups.
double fill_cycles(const Planes& fit, const Load& load, double each) {
  const double of_thread = std::ceil(load.parcels / 128);
  return (fit.piece + std::ceil(of_thread / load.batch) * fit.batch + of_thread * each) / 2;
}

// Sums of a thread, of 256.
double sums_of(const GatherParams& p, TileRow tile) {
  const int groups = consumer_groups(tile) / p.teams;
  return tile.width / 2.0 * tile.operands * tile.slots * groups / 2;
}
double sectors_of(double bytes, double ragged, double run_bytes) {
  return bytes / 32 * (1 + ragged * 32 / run_bytes);
}
// A wgmma takes as long as its multiplications, or as reading both operands, 128 bytes a cycle.
double tensor_cycles(const GatherParams& p, TileRow tile) {
  return double(p.slices) * (consumer_groups(tile) / p.teams) * tile.operands *
         std::max(tile.width / 2.0, (64 + tile.width) / 4.0);
}

}  // namespace

bool of_planes(const Problem& problem, TileRow tile) {
  return problem.direction == Direction::fwd && !tile.copied && !tile.strict &&
         problem.y_layout != Layout::nhwc;
}

double planes_launch(const Problem& problem) { return fit_of(problem).launch; }

TileCost planes_cost(const Problem& problem, const GatherParams& p, TileRow tile,
                     const PlanesTile& of) {
  const Planes& fit = fit_of(problem);
  const double size = element_size(problem.dtype), sums = sums_of(p, tile);
  const bool odd = size == 2 && problem.w.out % 2 != 0;
  const double sectors = sectors_of(sums * 256 * size, fit.ragged, of.run_bytes) * of.scatter *
                         fit.sector,
               stored = staged(tile)
                            ? std::max(sums * fit.staged * size * (odd ? kOddStaged : 1), sectors)
                            : sectors * (odd && p.w.slots > 1 ? kOddPairs : 1);
  // A phase without taps is nothing but stores.
  if (of.products == 0) return {fit.tile + stored, 0, 0};
  const double source =
                   fill_cycles(fit, of.source, p.source_mode >= kTurned ? fit.turned : fit.parcel),
               weights = copied(p.weight_mode)
                             ? 0
                             : fill_cycles(
                                   fit, of.weights,
                                   p.weight_mode == kTurnedKernels ? fit.weights : of.weights.each);
  const double consumed =
                   of.products * p.chunks * (tensor_cycles(p, tile) * fit.multiply + fit.product) +
                   stored + fit.tile,
               produced = p.chunks * (of.pieces * source + of.parts * weights) *
                          (1 + fit.narrow / p.tile_w);
  return {std::max(consumed, produced) + fit.shown * std::min(consumed, produced), of.read_sectors,
          p.weight_stages ? 0 : 2 * p.chunks * weights * fit.prologue};
}

}  // namespace convt2d::cuda::hopper
