#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_predict.h"

// Fetched rows of TF32 (hopper_fetched.cuh), counted: cycles of one multiprocessor, fitted to 1900 plans of 65 layers of both
// suites on the H200 (2026-11-26; by half of the layers the choice among the others is as good).
namespace convt2d::cuda::hopper {
namespace {

constexpr double kClock = 1700;  // cycles a microsecond
constexpr double kLaunch = 8;    // us
constexpr double kFirst = 840;   // cycles to the first buffer of a block
// An instruction takes what the tensor core does, what its operands take of shared memory, or what a scheduler needs to issue
// what fetches them: places that stand alike in all slices, by a table, brought by threads (rounded only now), and brought
// where it may be beside the source.
constexpr double kTensor = 0.8, kShared = 0.6, kWordLoads = 25.8;
constexpr double kIssueAlike = 38.3, kIssueTable = 43.6, kIssueBrought = 55.9, kIssueBeside = 93.6;
constexpr double kRowEnd = 2;     // lanes that meet where eight positions are of two rows
constexpr double kStep = 110;     // of a group, from an instruction to the next
constexpr double kHandover = 77;  // of a group, from a chunk to the next
// Of chunks, where positions and taps step by one pixel: 1.1 to 1.3 in four layers. Not counted; their patches are the least of
// all, so that little but the tensor core and issuing is left.
constexpr double kUnitStep = 1.25;
// Of chunks that threads bring, where positions step by three pixels or more: 1.2 to 1.3 in k3s3, k6s3, k3s4_gaps and kernelbench_1_81.
constexpr double kWideStep = 1.25;
constexpr double kAsked = 958,
                 kArriving = 20;  // from asking for a patch to having it, bytes a cycle
constexpr double kAskedWeights = 2740,
                 kArrivingWeights = 128;  // the same of weights, which others read too
constexpr double kTurn = 3840;            // from tile to tile
constexpr double kSector = 0.23;          // 32 bytes on their way to L2
constexpr double kTornStores = 3;         // such of them as are written in parts, over whole ones
constexpr double kTornBytes =
    1.73;  // that memory moves beside for each byte of a sector that is written in parts
constexpr double kOverlap = 0.944;  // how much of the lesser work hides behind the greatest
constexpr double kBeside = 0.245;   // of the lesser of work and bytes
constexpr double kL2 = 4;           // bytes that L2 delivers, over what a copy moves

// Of what a tile writes, how much is parts of sectors, in which memory and L2 first have to fetch the rest: a store has eight
// positions of a channel, or sixteen, and they are a run of memory where rows of the tile are whole or neighbours in it.
// (to_mask in TF32: 60 x 90 positions by whole rows of four take 31 us, by twelve rows of 32 68.)
double torn_share(const GatherParams& p, int64_t height, int64_t width) {
  const int64_t sector = 32 / p.element_bytes, of_store = p.store_mode == kFours ? 16 : 8,
                plane = height * width;
  const bool rows = p.tile_w >= width;
  const int64_t run = rows ? std::min<int64_t>(p.tile_h, height) * width : p.tile_w,
                runs = rows ? p.tile_n : int64_t{p.tile_n} * p.tile_h;
  if (run % sector == 0 && plane % sector == 0 && (rows || width % sector == 0)) return 0;
  int64_t torn = 0, all = 0;
  constexpr int kTiles = 4;  // or channels
  for (int tile = 0; tile < kTiles; ++tile) {
    const int64_t start = tile * plane + tile / p.tiles_w % p.tiles_h * p.tile_h * width +
                          tile % p.tiles_w * p.tile_w;
    int64_t position = 0;
    for (int64_t r = 0; r < runs; ++r) {
      const int64_t from = start + (rows ? r * plane : r / p.tile_h * plane + r % p.tile_h * width);
      for (int64_t done = 0; done < run;) {
        const int64_t count = std::min(of_store - position % of_store, run - done),
                      first = from + done, end = first + count;
        torn += first / sector == (end - 1) / sector ? count < sector
                                                     : (first % sector != 0) + (end % sector != 0);
        position += count;
        done += count;
      }
    }
    all += position;
  }
  return double(torn * sector) / all;
}

// The same, which candidates of one shape ask for one after the other.
double torn_of(const GatherParams& p, int64_t height, int64_t width) {
  using Question = std::array<int64_t, 8>;
  thread_local Question last{};
  thread_local double share = 0;
  const Question question = {height,   width,     p.tile_n,  p.tile_h,
                             p.tile_w, p.tiles_h, p.tiles_w, p.store_mode == kFours};
  if (question != last) last = question, share = torn_share(p, height, width);
  return share;
}

double together(std::initializer_list<double> works) {
  double greatest = 0, all = 0;
  for (const double each : works) greatest = std::max(greatest, each), all += each;
  return greatest + (1 - kOverlap) * (all - greatest);
}

// Cycles of an instruction, of so many that a chunk has.
double instruction(const GatherParams& p, TileRow tile, double instructions) {
  const double ends = p.tile_w % kGroup == 0 ? 0 : std::min(1.0, (kGroup - 1.0) / p.tile_w),
               copied = double(p.patch_bytes) + (p.weight_stages ? p.part_bytes : 0),
               inside = p.brought_pieces ? tiles_inside(p) : 0;
  return together({kTensor * tile.width / 2,
                   kShared * (kWordLoads * p.turns * (1 + kRowEnd * ends) + tile.width / 4.0 +
                              copied / (128 * instructions)),
                   p.brought_pieces ? inside * kIssueBrought + (1 - inside) * kIssueBeside
                   : p.even_step    ? kIssueAlike
                                    : kIssueTable});
}

// A chunk of a tile, whose buffers come while others are read.
double chunk(const GatherParams& p, TileRow tile) {
  const double groups = busy_groups(p, tile), of_group = double(p.slices) * tile.operands,
               all = groups * of_group,
               multiply =
                   std::max(all * instruction(p, tile, all), of_group * kStep) + groups * kHandover,
               patch = (kAsked + p.patch_bytes / kArriving + multiply) / p.source_stages,
               part = p.weight_stages
                          ? (kAskedWeights + p.part_bytes / kArrivingWeights + multiply) /
                                p.weight_stages
                          : 0;
  return together({multiply, patch, part});
}

}  // namespace

double predict_words(const Problem& problem, const Device& device, const GatherParams& p,
                     TileRow tile, bool at_least) {
  const double combos = static_cast<double>(combinations(p)),
               tiles = static_cast<double>(tiles_of(p)),
               torn = at_least ? 0 : torn_of(p, problem.h.in, problem.w.in);
  const double sums = tile.width / 2.0 * tile.operands * busy_groups(p, tile) * 128,
               store = kTurn + sums * p.element_bytes / 32 * kSector * (1 + kTornStores * torn);
  const double step = p.brought_pieces ? (p.w.source_step > 2 ? kWideStep : 1)
                      : p.w.source_step == 1 && p.h.source_step == 1 && p.taps > 1 ? kUnitStep
                                                                                   : 1;
  const double rounds = std::ceil(tiles / p.walkers[0]),
               waves = std::ceil(blocks_of(p) / double(device.sm_count)),
               busy_us =
                   waves * (rounds * (step * p.chunks * chunk(p, tile) + store) + kFirst) / kClock;
  const double written = double(p.element_bytes) * problem.batch * problem.in_channels *
                         problem.h.in * problem.w.in,
               read = combos * tiles * p.chunks *
                      (double(p.patch_bytes) + (p.weight_stages ? p.part_bytes : 0));
  // Parts of sectors that one tile writes one after the other meet in L2: of whole planes (kprcnn on an H100 and an H200, 2026-11-26).
  const bool planes = p.tile_w >= problem.w.in && p.tile_h >= problem.h.in;
  const double bytes_us =
      std::max(tensor_bytes(problem) + (planes ? 0 : kTornBytes * torn * written),
               (written * (1 + kTornStores * torn) + read) / kL2) /
      device.copy_bytes_per_us;
  return kLaunch + std::max(busy_us, bytes_us) + kBeside * std::min(busy_us, bytes_us);
}

}  // namespace convt2d::cuda::hopper
