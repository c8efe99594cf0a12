#include "cuda/reed/reed_broad_plan.h"

#include <algorithm>
#include <cmath>

#include "cuda/tensor_map.h"

namespace convt2d::cuda::reed {
namespace {

// Counted.
constexpr double kClock = 1700;         // cycles a microsecond
constexpr double kLaunch = 5.5;         // us
constexpr double kBegin = 3000;         // cycles of a block beside its pixels and tiles
constexpr double kTensorTime = 1.325;   // of what the rates of Device say
constexpr double kL2Bytes = 30;         // a cycle
constexpr double kStoreBytes = 16;      // and of outputs,
constexpr double kNarrowBytes = 5;      // by one or two numbers (k2s2_odd of H100, 2026-11-26)
constexpr double kPixelBytes = 14;      // and of pixels that are turned
constexpr double kRest = 0.4;           // of what is less busy that is not hidden,
constexpr double kRestTogether = 0.16;  // nor by another block of the multiprocessor
constexpr double kMemoryRate = 0.85;    // of the copy rate
constexpr double kBeside = 0.3;         // of the lesser of work and bytes
// Of all, where a tile is one chunk: depthany_S_r0 of 16 bits in both layouts, one layer (2026-11-29).
constexpr double kOneChunk = 0.93;

// Blocks of a multiprocessor, by registers and by shared memory.
int side_by_side(const Device& device, const Held& h) {
  const int groups = h.tiles * 16 / kBroadPositions;
  const int registers = kMostBroadThreads / broad_threads(groups);
  return std::clamp(device.smem_per_sm / (broad_bytes(h) + 1024), 1, registers);
}

double predict(const Problem& problem, const Device& device, const Held& h) {
  const Params& p = h.base;
  const double positions = h.tiles * 16, terms = p.chunks * double(kBroadChunk);
  const double rate = device.matmul_f16_per_us / device.sm_count / kClock / kTensorTime;
  const double mma = positions * kBroadRows * terms / rate;
  const double l2 = kBroadRows * std::min(terms, double(p.terms)) * 2 / kL2Bytes;
  const double stored = positions * p.used * 2 / (p.vector < 4 ? kNarrowBytes : kStoreBytes);
  const double busiest = std::max({mma, l2, stored});
  const double block = kBegin + positions * h.units * 16 / kPixelBytes;
  const double blocks = double(blocks_of(h)), together = side_by_side(device, h);
  const double tiles = std::ceil(double(p.row_blocks) / h.parts);
  const double each = blocks / device.sm_count, full = std::floor(each / together);
  const auto round = [&](double count) {
    const double tile =
        busiest + (count > 1 ? kRestTogether : kRest) * (mma + l2 + stored - busiest);
    return block * (1 + 0.5 * (count - 1)) + tiles * count * tile;
  };
  const double busy = (full * round(together) +
                       (each > full * together ? round(std::ceil(each - full * together)) : 0)) /
                      kClock;
  const double memory = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return (kLaunch + std::max(busy, memory) + kBeside * std::min(busy, memory)) *
         (p.chunks == 1 ? kOneChunk : 1);
}

}  // namespace

int broad_bytes(const Held& h) {
  return h.tiles * 16 * h.units * 16 + h.base.stages * kBroadStage +
         broad_table_bytes(h.tiles * 16 / kBroadPositions);
}

void add_broad(const Problem& problem, const Device& device,
               std::vector<Candidate<Choice>>& found) {
  if (!device.has_wgmma || element_size(problem.dtype) != 2) return;
  for (int groups = 1; groups <= kMostBroadGroups; groups *= 2) {
    const int tiles = groups * (kBroadPositions / 16);
    Held h;
    shape_held(problem, {kBroadRow, kMostBroadStages, tiles, 1}, h);
    const Params& p = h.base;
    // Rows lie behind each other, and a position reads one pixel.
    if (p.w_piece != 16 || p.vector < 2 || p.run != p.rows || h.ahead > 0) return;
    if (int64_t{h.units} * h.slots * 16 > device.smem_optin) return;
    // As many stages as leave room for so many blocks.
    int before = 0;
    for (int together = kMostBroadThreads / broad_threads(groups); together >= 1; --together) {
      const int room = std::min(device.smem_optin, device.smem_per_sm / together - 1024);
      Choice choice{kBroadRow, kMostBroadStages, tiles, 1};
      for (; choice.stages >= 2; --choice.stages) {
        shape_held(problem, choice, h);
        if (broad_bytes(h) <= room) break;
      }
      if (choice.stages < 2 || choice.stages == before) continue;
      before = choice.stages;
      share_out(problem, device, choice, predict, found);
    }
  }
}

CUtensorMap map_of_broad_weights(const Problem& problem, const Held& h) {
  const Params& p = h.base;
  return encode(
      {p.w,
       2,
       4,
       {p.rows, p.terms, problem.groups, 1},
       {2, p.w_channel * int64_t{2}, p.w_group * int64_t{2}, p.w_group * problem.groups * 2},
       {kBroadBlock, kBroadChunk, 1, 1},
       {1, 1, 1, 1}});
}

}  // namespace convt2d::cuda::reed
