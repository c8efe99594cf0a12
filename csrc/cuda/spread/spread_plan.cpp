#include "cuda/spread/spread_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/forms.h"
#include "core/phases.h"
#include "cuda/gather_params.h"
#include "cuda/spread/spread_input.h"
#include "cuda/strict_sums.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::spread {
namespace {

constexpr double kClock = 1700;  // cycles a microsecond

// What things cost, in cycles where nothing else is said: counted by hand.
constexpr double kLaunch = 14;         // us
constexpr double kStart = 2500;        // of a tile: until its first chunk is there
constexpr double kPlanesStart = 5000;  // of planes, which come from further away
constexpr double kChunk = 120;         // of a chunk: barriers
constexpr double kTensor = 1.25;       // times what an instruction takes: shared memory is as busy
constexpr double kLatency = 900;       // of a batch that a thread has under way
constexpr double kNumbers = 3.0;       // times that, where weights come number by number
constexpr double kTask = 40;  // of a task of a warp that collects: a column, one or two channels
constexpr double kPlanesTask = 80;    // of planes' columns
constexpr double kLinePair = 140;     // of two rows of the destination there
constexpr double kSecond = 40;        // more where a warp has two columns
constexpr double kTap = 30;           // of a third product there, and each further one
constexpr double kPiece = 25;         // of a piece of a plane that a warp asks for
constexpr double kPut = 500;          // of a chunk: until weights that have come are in their place
constexpr double kProducts = 5;       // of four columns of products that are stored
constexpr double kL2Bytes = 30;       // a cycle
constexpr double kBulkBytes = 40;     // of pieces of kilobytes
constexpr double kMemoryRate = 0.75;  // of the copy rate
constexpr double kBeside = 0.25;      // of the lesser of work and bytes
// Of planes, what those who bring take over a chunk at least: in any case, for a kernel row of weights, for a copy of a warp.
constexpr double kPlanesChunk = 300, kPlanesPart = 1700, kPlanesCopy = 80;
// Of a mesh, fitted to five layers (H100, 2026-11-25). Those who bring a chunk are what it takes: what there is in any case, each
// copy of a warp, the weights if all columns have any; and outputs of a tile, some and those of all columns.
constexpr double kMeshChunk = 3500, kMeshCopy = 66, kMeshWeights = 4000, kMeshTile = 2000,
                 kMeshOutputs = 10000, kMeshTorn = 12;
// Of a chunk over what is counted: where warps bring pixels through registers; where consumers fetch them, asked for by warps
// or by the copy engine. Of outputs that are collected: where a pixel's channels of a tile are less than a sector, or planes'
// stretches of a row less than a line; where phases have no taps.
constexpr double kOver = 1.15, kBroughtOver = 1.7, kPlanesOver = 1.7, kSetsOver = 1.5,
                 kTornOver = 2.5, kEmptyOver = 1.5;

struct Choice {
  int row;  // of kTiles
  int block_channels, run, stages, walkers;
};

int64_t reach_of(const Axis& axis) { return (axis.kernel - 1) / axis.stride; }
// One past the last position of the destination.
int64_t end_of(const Axis& axis) { return (axis.near_pad + axis.out - 1) / axis.stride + 1; }
// Columns of an output channel.
int64_t channel_columns(const Problem& problem, Source source) {
  return problem.h.stride * (meshes(source) ? problem.w.stride : problem.w.kernel);
}

bool whole_vectors(const Problem& problem, int64_t numbers) {
  return numbers * element_size(problem.dtype) % 16 == 0;
}

// Whether eight columns of 16 bits are 16 bytes of memory, or none.
bool weights_are_vectors(const Problem& problem, const Params& p, Source source) {
  if (p.number_bytes != 2) return false;
  if (meshes(source))  // four taps of two rows
    return problem.w_layout == Layout::nchw && p.stride_h == 2 && p.kernel_h == 4 &&
           p.kernel_w == 4;
  if (p.by_channel)
    return p.column_channel % 8 == 0 && p.kernel_h % p.stride_h == 0 &&
           p.kernel_h * p.kernel_w % 8 == 0;
  if (p.column_blocks > 1) return p.block_channels % 8 == 0 && p.columns % 8 == 0;
  const int64_t row = int64_t{p.kernel_w} * p.columns;
  return p.kernel_h * row % 8 == 0 && p.stride_h * row % 8 == 0;
}

// Planes: bytes that threads ask for at once, of a row; 0: it is no whole words.
int piece_bytes(const Problem& problem) {
  const int64_t size = element_size(problem.dtype), run = problem.w.in * size;
  for (int64_t bytes = 4 * size; bytes >= 4; bytes /= 2)  // stretches start at fours
    if (run % bytes == 0) return static_cast<int>(bytes);
  return 0;
}

// Of 2 or 4 pixels, which together are whole 16 bytes and of which rows are; 0: there are no such sets.
int places_of(const Problem& problem) {
  for (const int places : {2, 4})
    if (whole_vectors(problem, places * problem.in_channels) && problem.w.in % places == 0)
      return places;
  return 0;
}

// Whether whole planes serve: slices have all of their channels, which makes those of an image whole 16 bytes, and pairs of
// neighbours both of their pixels.
bool come_whole(const Problem& problem) {
  return problem.in_channels * element_size(problem.dtype) % (kLine / kSlices) == 0 &&
         problem.w.in % 2 == 0;
}

bool serves(Source source, const Problem& problem) {
  if (problem.x_layout == Layout::nchw)
    return source == kPlanes ||
           (meshes(source) && problem.w.stride == kMeshed && reach_of(problem.h) + 1 == kMeshed &&
            reach_of(problem.w) + 1 == kMeshed && (source == kMesh || come_whole(problem)));
  const bool sets = !whole_vectors(problem, problem.in_channels) && places_of(problem) > 0;
  return source == kAsOperand || (source == kSets && sets);
}

// Where a column of a pixel's products is, and strides of x and y.
void set_order(const Problem& problem, Source source, Params& p) {
  const bool planes = by_pieces(source) || meshes(source);
  const int32_t x_plane = p.x_h * p.x_w, y_plane = p.y_h * p.y_w;
  p.x_image = x_plane * p.reduce;
  p.x_channel = planes ? x_plane : 1;
  p.x_pixel = planes ? 1 : p.reduce;
  p.y_image = y_plane * p.columns;
  p.y_channel = planes ? y_plane : 1;
  p.y_line = planes ? p.y_w : p.y_w * p.columns;
  p.y_pixel = planes ? 1 : p.columns;
  p.by_channel = problem.w_layout == Layout::nchw || meshes(source);
  p.column_channel = p.by_channel ? static_cast<int32_t>(channel_columns(problem, source)) : 1;
  p.column_tap = p.by_channel ? 1 : p.block_channels;
  p.column_phase = p.kernel_w * p.column_tap;
}

// Planes: what threads ask for, and how channels lie in a stage: so far apart that the channels of a slice, which lanes
// fetch one or two apart, meet no bank twice.
void set_planes(const Problem& problem, Params& p) {
  const int32_t rows = p.tile_rows + p.shifts - 1, row_bytes = p.run * p.number_bytes;
  while (p.piece << p.row_shift < row_bytes) ++p.row_shift;
  p.units = static_cast<int32_t>(ceil_div(rows << p.row_shift, 32));
  const int32_t words = (p.plane_lead + rows * row_bytes) / 4, apart = p.number_bytes == 4 ? 16 : 8;
  p.plane_bytes = static_cast<int32_t>(round_up(words + apart / 2, apart) - apart / 2) * 4;
  p.x_bytes = p.plane_lead + line_numbers(p.number_bytes) * p.plane_bytes;
  for (int32_t sweep = 0; sweep < p.sweeps; ++sweep) {
    const int32_t pixel = sweep * p.step, lead = sweep ? p.run - p.step : 0,
                  end = sweep == p.sweeps - 1 ? p.end_position - pixel : p.run;
    const int32_t first = std::max(0, (pixel + lead) * p.stride_w - p.pad_w),
                  last = std::min(p.y_w, (pixel + end) * p.stride_w - p.pad_w);
    p.fast = std::max(p.fast, (last + 1) / 2 - first / 2);
  }
  p.announced = p.sweeps == 1 && p.column_blocks == 1;
}

// Whole planes: a stage has room for as many images as a tile may touch.
void set_whole_planes(Params& p, Tile tile) {
  p.plane_bytes = p.x_h * p.x_w * p.number_bytes;
  p.image_bytes = chunk_numbers(tile, p.number_bytes) * p.plane_bytes;
  const int32_t rows = p.tile_rows + p.shifts - 1,
                images = std::min(p.batch, (rows + p.x_h - 2) / p.image_rows + 1);
  p.x_bytes = images * p.image_bytes;
}

// Everything that follows from the problem and the choice, pointers aside. The refusal has seen to limits.
void shape(const Problem& problem, const Choice& choice, Params& p) {
  const Tile tile = kTiles[choice.row];
  const Axis &h = problem.h, &w = problem.w;
  p = {};
  set_extents(problem, p);
  p.x_h = static_cast<int32_t>(h.in);
  p.x_w = static_cast<int32_t>(w.in);
  set_geometry(problem, p);
  p.number_bytes = static_cast<int32_t>(element_size(problem.dtype));
  const bool planes = by_pieces(tile.source), mesh = meshes(tile.source);
  p.copied = !fetched(tile) && whole_vectors(problem, p.reduce);
  p.piece = planes ? piece_bytes(problem) : 0;
  p.block_channels = choice.block_channels;
  set_order(problem, tile.source, p);
  p.column_blocks = static_cast<int32_t>(ceil_div(p.columns, p.block_channels));
  p.weight_vectors = weights_are_vectors(problem, p, tile.source);
  p.shifts = static_cast<int32_t>(reach_of(h)) + 1;
  p.parts = mesh ? kMeshed * kMeshed : p.shifts;

  p.run = choice.run;
  while (1 << p.run_shift < p.run) ++p.run_shift;
  p.block_rows = kRows / p.run;
  p.tile_rows = kGroups * blocks(tile) * p.block_rows;
  p.end_position = static_cast<int32_t>(end_of(w));
  const int32_t reach_w = static_cast<int32_t>(reach_of(w));
  p.margin = std::max({reach_w, p.end_position - p.x_w, 1});
  p.step = tile.source == kAsOperand ? p.run - reach_w : (p.run - reach_w) / 4 * 4;
  const int32_t pixels = std::min(p.x_w, p.end_position);
  p.sweeps = static_cast<int32_t>(ceil_div(std::max(pixels - p.run, 0), p.step)) + 1;
  if (mesh) {
    // A row's first pixel has a zero before it: that behind the row above, or pixels that a stretch has more.
    const bool one = std::max(p.x_w + 1, p.end_position) <= p.run;
    p.lead = one ? 0 : 4;
    p.step = p.run - p.lead;
    p.sweeps = static_cast<int32_t>(ceil_div(p.end_position, p.step));
    p.plane_lead = planes ? 16 : 0;
  }
  p.image_rows = static_cast<int32_t>(std::max(h.in + reach_of(h), end_of(h)));
  p.rows = p.batch * p.image_rows;
  p.by_image_rows = FastDivide(p.image_rows);
  p.by_stride_w = FastDivide(p.stride_w);
  p.by_shifts = FastDivide(p.shifts);
  p.by_stride_h = FastDivide(p.stride_h);

  const int32_t numbers = chunk_numbers(tile, p.number_bytes),
                slice = line_numbers(p.number_bytes) / kSlices;
  p.chunks = static_cast<int32_t>(ceil_div(p.reduce, numbers));
  p.last_slices = static_cast<int32_t>(ceil_div(p.reduce - (p.chunks - 1) * numbers, slice));
  p.items = static_cast<int32_t>(ceil_div(p.rows, p.tile_rows)) * p.sweeps * p.column_blocks;
  p.walkers = std::min(choice.walkers, p.items);

  p.stages = choice.stages;
  p.x_bytes = (p.tile_rows + p.shifts - 1) * p.run * kLine;
  p.task_channels = 1;
  p.paired = p.y_w % 2 == 0;
  if (planes) {
    set_planes(problem, p);
  } else {
    if (!p.by_channel && p.block_channels % 2 == 0 && p.columns % 2 == 0) p.task_channels = 2;
    p.fast = p.block_channels / p.task_channels;
  }
  if (tile.source == kWholeMesh) set_whole_planes(p, tile);
  p.by_fast = FastDivide(p.fast);
  if (tile.source == kSets) {
    p.place_shift = places_of(problem) / 2;
    p.place_bytes = (p.tile_rows + p.shifts - 1) * (p.run >> p.place_shift) * kSetLine;
    p.x_bytes = p.place_bytes << p.place_shift;
  }
  const int32_t weights = p.parts * tile.width * numbers * p.number_bytes;
  p.stage_bytes = static_cast<int32_t>(round_up(p.x_bytes + weights, 1024));
  p.products_bytes = mesh ? 0 : (p.block_rows * (p.run + p.margin) + p.margin) * pitch(tile) * 4;
  SharedPlaces places{kHeader};
  p.table_at = places.take(int64_t{p.parts} * tile.width * 4, 16);
  p.pieces_at = places.take(int64_t{p.units} * 32 * 4, 16);
  p.lines = static_cast<int32_t>(round_up(p.block_rows * p.stride_h, 2));
  p.lines_at = places.take(int64_t{kGroups} * p.lines * 8, 16);
  p.products_at = places.take(int64_t{kGroups} * p.products_bytes, 16);
  p.stages_at = places.take(int64_t{p.stages} * p.stage_bytes, 1024);
  p.shared_bytes = static_cast<int32_t>(places.end);
  p.cleared_bytes =
      tile.source == kMesh ? p.shared_bytes - p.products_at : kGroups * p.products_bytes;
}

// Copies of planes that a warp asks for in a chunk.
double copies_of(const Params& p) {
  return double(p.units) * line_numbers(p.number_bytes) / kBringers;
}
double chunks_of(const Params& p, Tile tile) {
  return p.chunks - 1 + p.last_slices / double(slices_of(tile));
}
// Times that those who bring wait for weights in a chunk.
double weight_batches(const Params& p, Tile tile) {
  return std::ceil(p.parts * tile.width / 32.0 / sharers(tile) / batch(tile)) *
         (p.number_bytes == 2 && !p.weight_vectors ? kNumbers : 1);
}
double tensor_cycles(const Params& p, Tile tile) {
  const double instruction = std::max(tile.width / 2.0, 16 + tile.width / 4.0);
  return kTensor * p.parts * slices_of(tile) * kGroups * blocks(tile) * instruction;
}

double mesh_cycles(const Params& p, Tile tile) {
  const double full = double(p.block_channels) * p.stride_h * p.stride_w / tile.width;
  const bool numbers = p.number_bytes == 2 && !p.weight_vectors;
  const double weights =
      (numbers ? kLatency * weight_batches(p, tile) : kMeshWeights * full / sharers(tile));
  // Where a row is several stretches, copies have sectors in part.
  const double copy = kMeshCopy * (p.sweeps > 1 ? 1 + kMeshTorn / p.run : 1);
  const double chunk =
      tile.source == kMesh
          ? std::max(tensor_cycles(p, tile), kMeshChunk + copy * copies_of(p) + weights)
          : kChunk + std::max({tensor_cycles(p, tile), kPut + weights, p.stage_bytes / kBulkBytes});
  return chunks_of(p, tile) * chunk + kMeshTile + kMeshOutputs * full;
}

double tile_cycles(const Problem& problem, const Params& p, Tile tile) {
  const bool planes = tile.source == kPlanes;
  const double batches = weight_batches(p, tile) +
                         (p.copied || fetched(tile)
                              ? 0
                              : std::ceil(p.x_bytes / (8.0 * kLine) / kBringers /
                                          (p.reduce * p.number_bytes % 4 == 0 ? kPixelBatch : 1)));
  const double pieces = planes ? kPiece * copies_of(p) : 0;
  const double chunk =
      kChunk + std::max({tensor_cycles(p, tile), kPut + std::max(kLatency * batches, pieces),
                         p.stage_bytes / kL2Bytes});
  const bool torn = planes ? p.sweeps > 1 && p.step * p.stride_w * p.number_bytes < 128
                           : p.block_channels * p.number_bytes < 32 &&
                                 p.block_channels < problem.group_out(),
             empty = problem.h.kernel < problem.h.stride || problem.w.kernel < problem.w.stride;
  const double wide = std::min(p.run, p.end_position) * p.stride_w * p.block_channels;
  const double tasks = std::ceil(wide / (planes ? 256 : 128 * p.task_channels));
  const double more_taps = std::max(0, (p.kernel_w - 1) / p.stride_w - 1);
  // Both warpgroups do, as a rule at once.
  const double collect =
      kBlocks *
      (kProducts * tile.width / 2 +
       tasks * ((planes ? kPlanesTask : kTask) +
                p.lines / 2 * (kLinePair + kTap * more_taps + (planes ? kSecond : 0)))) *
      (torn ? kTornOver : 1) * (empty ? kEmptyOver : 1);
  const double over = planes                 ? kPlanesOver
                      : tile.source == kSets ? kSetsOver
                      : p.copied             ? kOver
                                             : kBroughtOver;
  const double brought =
      planes ? kPlanesChunk + kPlanesPart * p.parts + kPlanesCopy * copies_of(p) : 0;
  return (planes ? kPlanesStart : kStart) + chunks_of(p, tile) * std::max(over * chunk, brought) +
         collect;
}

double predict(const Problem& problem, const Device& device, const Params& p, Tile tile) {
  const double rounds = std::ceil(double(p.items) / p.walkers);
  const double cycles = meshes(tile.source) ? mesh_cycles(p, tile) : tile_cycles(problem, p, tile);
  const double busy_us = rounds * cycles / kClock;
  const double memory_us = tensor_bytes(problem) / (kMemoryRate * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

std::vector<int> channel_choices(const Problem& problem, int most) {
  std::vector<int> found;
  const int64_t columns = problem.group_out();
  if (most < 1) return found;
  add_once(found, ceil_div(columns, ceil_div(columns, most)));
  if (columns % 8 == 0 && most >= 8) {
    const int64_t eights = columns / 8;
    add_once(found, ceil_div(eights, ceil_div(eights, most / 8)) * 8);
  }
  return found;
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  for (int row = 0; row < kTileCount; ++row) {
    const Source source = kTiles[row].source;
    if (!serves(source, problem)) continue;
    const int most = static_cast<int>(
        std::min<int64_t>(kTiles[row].width / channel_columns(problem, source), kMostChannels));
    for (const int channels : channel_choices(problem, most))
      for (int run = 8; run <= kRows; run *= 2) {
        if (run < 2 * reach_of(problem.w)) continue;  // more than half would be multiplied again
        if (by_pieces(source) && run - reach_of(problem.w) < 4) continue;
        // A row of whole planes is one stretch with a zero behind it, of lanes of one half of a warp's pixels.
        if (source == kWholeMesh &&
            (run > 16 || std::max(problem.w.in + 1, end_of(problem.w)) > run ||
             problem.h.in * problem.w.in * kLine / 2 > device.smem_optin))
          continue;
        // A box of a set's pixels is whole eights.
        if (source == kSets && run < 8 * places_of(problem)) continue;
        Choice choice = {row, channels, run, 2, device.sm_count};
        Params p;
        shape(problem, choice, p);
        if (p.shared_bytes > device.smem_optin) {
          reason = "two stages need " + std::to_string(p.shared_bytes) + " bytes of shared memory";
          continue;
        }
        choice.stages =
            std::min(kMostStages, 2 + (device.smem_optin - p.shared_bytes) / p.stage_bytes);
        shape(problem, choice, p);
        found.push_back({choice, predict(problem, device, p, kTiles[row])});
      }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  Params p;
  shape(problem, c, p);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.block_channels, c.run, c.stages, c.walkers};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  plan.note = std::to_string(kTiles[c.row].width) + " columns of " +
              std::to_string(p.block_channels) + " channels, " + std::to_string(p.tile_rows) +
              " rows x " + std::to_string(p.run) + " pixels" +
              (kTiles[c.row].source == kSets        ? " in sets"
               : kTiles[c.row].source == kMesh      ? " as a mesh"
               : kTiles[c.row].source == kWholeMesh ? " as a mesh of whole planes"
               : fetched(kTiles[c.row])             ? " fetched"
               : p.copied                           ? " copied"
                                                    : "") +
              ", " + std::to_string(p.stages) + " stages, " + std::to_string(p.items) +
              " tiles of " + std::to_string(p.walkers) + " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const int32_t* d = plan.detail;
  return {plan.row, d[0], d[1], d[2], d[3]};
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  if (!device.has_wgmma) return "no wgmma (sm_90a)";
  if (problem.dtype == DType::f64 || is_strict(problem)) return "spread is for fp16, bf16 and TF32";
  if (problem.x_layout != problem.y_layout || problem.x_layout == Layout::strided)
    return "spread takes no strided tensors";
  if (problem.x_layout == Layout::nchw && piece_bytes(problem) == 0)
    return "rows of " + number(w.in) + " pixels of 16 bits are no whole words";
  if (problem.w_layout == Layout::strided) return "spread takes no strided weights";
  if (is_matrix(problem)) return "a product of matrices";
  if (problem.groups > 1) return "spread takes one group, not " + number(problem.groups);
  if (h.near_pad < 0 || w.near_pad < 0) return "spread takes no negative padding";
  if (h.dilation != 1 || w.dilation != 1) return "spread takes no dilation";
  if (std::max(h.kernel, w.kernel) > kMostTaps || std::max(h.stride, w.stride) > kMostPhases)
    return "the kernel or its stride is more than " + number(kMostTaps) + " or " +
           number(kMostPhases);
  if (reach_of(h) + 1 > kMostShifts)
    return "a phase has " + number(reach_of(h) + 1) + " kernel rows, more than " +
           number(kMostShifts);
  if (std::max(reach_of(w), end_of(w) - w.in) > kMostMargin)
    return "a kernel reaches over " + number(reach_of(w)) + " pixels";
  const int most = std::max_element(std::begin(kTiles), std::end(kTiles), [](auto& a, auto& b) {
                     return a.width < b.width;
                   })->width;
  if (channel_columns(problem, kPlanes) > most)
    return number(channel_columns(problem, kPlanes)) +
           " products of a pixel and channel are more than " + number(most);
  if (problem.w.kernel * problem.h.kernel * problem.out_channels >= int64_t{1} << kOffsetBits)
    return "a channel has too many weights";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  if (problem.direction != Direction::fwd) return input_plans(problem, device, reason);
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  if (problem.direction != Direction::fwd) return input_plan(problem, device);
  return best_plan(problem, device, refusal, candidates, plan_of);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p;
  shape(problem, choice_of(plan), p);
  set_tensors(problem, args, p);
  return p;
}

CUtensorMap map_of(const Params& p, Tile tile) {
  if (tile.source == kSets) {
    const int64_t set = int64_t{p.reduce} * p.number_bytes << p.place_shift,
                  row = set * (p.x_w >> p.place_shift);
    TensorBox box{p.source,
                  p.number_bytes,
                  4,
                  {p.reduce << p.place_shift, p.x_w >> p.place_shift, p.x_h, p.batch},
                  {p.number_bytes, set, row, row * p.x_h},
                  {kSetLine / p.number_bytes, p.run >> p.place_shift, 1, 1},
                  {1, 1, 1, 1}};
    box.swizzled = false;
    return encode(box);
  }
  if (!p.copied) return {};
  const int64_t pixel = int64_t{p.reduce} * p.number_bytes, row = pixel * p.x_w;
  return encode({p.source,
                 p.number_bytes,
                 4,
                 {p.reduce, p.x_w, p.x_h, p.batch},
                 {p.number_bytes, pixel, row, row * p.x_h},
                 {line_numbers(p.number_bytes), p.run, 1, 1},
                 {1, 1, 1, 1}});
}

}  // namespace convt2d::cuda::spread
