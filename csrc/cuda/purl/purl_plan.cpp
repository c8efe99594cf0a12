#include "cuda/purl/purl_plan.h"

#include <algorithm>
#include <cmath>

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/tensor_map.h"

namespace convt2d::cuda::purl {
namespace {

// By 64 layers' plans on an H200 (2026-11-30), TF32 and fp16: within 10 % of the times, and what is chosen takes 1.01 times the best of
// all families.
constexpr double kClock = 1700;  // cycles a microsecond
constexpr double kCopied = 39;   // bytes a cycle of weights
// Cycles of the copy engine: a row of a box, each 128 bytes of it behind the first, a box.
constexpr double kCopiedRow = 3, kCopiedLine = 1.3, kBox = 50;
// And of a run that reaches beside its plane, whatever else is copied: eight in a chunk took 3270, in both types, three no more than the
// 1024 of its products (2026-12-01).
constexpr double kBesideBox = 330;
constexpr double kChain =
    575;  // cycles of a chunk, however narrow: words come, are multiplied, and come again;
constexpr double kStreamed = 180;  // and where weights come along
constexpr double kStore = 1.4;     // cycles of a pass for each unit of a thread,
constexpr double kStored = 43;     // bytes a cycle that a multiprocessor stores,
constexpr double kPass = 390;      // and cycles beside these
// Of outputs that leave in boxes: cycles of a pass beside its boxes, and of asking for one; bytes a cycle that leave, and cycles
// that the copy engine has for a row of a box.
constexpr double kBoxedPass = 607, kAskedBox = 168, kBoxedBytes = 28, kBoxedRow = 2.3;
constexpr double kArrival = 1650;     // cycles until boxes begin to come to a stage that is free
constexpr double kTile = 320;         // cycles of a tile beside its chunks and passes
constexpr double kLaunch = 6.3;       // us: launch, first boxes, last stores
constexpr double kMemoryRate = 0.85;  // of the copy rate, and where boxes leave while others come
constexpr double kBoxedMemoryRate = 0.855;
constexpr double kBeside = 0.03;  // of the lesser of work and bytes
// Bytes that a sector of memory costs which a store fills in part: four layers, 20 to 80 (2026-12-01).
constexpr int kSector = 32;
constexpr double kTornSector = 50;
constexpr int kLeastStages = 2, kMostOfBox = 256, kPads = 4;

struct Choice {
  int row, walkers, stages, resident;
  int images, rows, own;                // of a tile
  int form, box_rows, together, pitch;  // the latter: numbers of a box along axis 0
  int places;                           // of outputs that leave in boxes, or 0
};

int number(int64_t value) { return static_cast<int>(value); }

// A box starts at a multiple of so many numbers: of 32 bytes, which is what the copy engine likes, or of 16, which it wants, where
// rows do not lie so.
int alignment(int form, int size) { return (form == kRows ? 32 : 16) / size; }

// Numbers along axis 0 of a box for `rows` rows of x, of `own` columns.
int64_t columns_read(const Problem& problem, int form, int rows, int own) {
  const Axis &h = problem.h, &w = problem.w;
  const int aligned = alignment(form, number(element_size(problem.dtype)));
  int64_t most = 0;  // what is skipped
  for (int64_t tap = 0; tap < h.kernel; ++tap) {
    const int64_t before = form == kRuns ? -h.near_pad * w.out : form == kTaps ? tap * w.out : 0;
    most = std::max(most, (before - w.near_pad) & (aligned - 1));
  }
  if (form == kRuns) most += (h.stride * (rows - 1) + h.kernel - 1) * w.out;
  return most + w.stride * (own - 1) + w.kernel;
}

// How outputs leave in boxes. A tile of whole rows of x is a run of a plane, or of several; of parts of rows, a run of each. A box is
// spans of runs: as long as is swizzled, if the only run's end is x's, or of a power of two, which whole boxes are enough for.
struct Boxes {
  bool of_planes;
  int line, span, lines;  // pixels of a run, and of a span; 0: there are none
};
Boxes boxes_of(const Problem& problem, const Choice& choice) {
  const int size = number(element_size(problem.dtype)), longest = kLine / size;
  const bool whole = choice.own == problem.w.in;
  const auto power_of = [](int number, int most) { return std::min(number & -number, most); };
  Boxes best{};
  for (bool of_planes : {true, false}) {
    const int line = of_planes ? choice.rows * choice.own : choice.own,
              lines = of_planes ? choice.images : choice.rows;
    const int64_t between = problem.w.in * (of_planes ? problem.h.in : 1);  // runs' starts
    const bool ends = of_planes ? choice.rows == problem.h.in : whole;
    if (between * size % 16 != 0 || (of_planes ? !whole : choice.images > 1)) continue;
    const int span = lines == 1 && ends ? longest : power_of(line, longest);
    if (span * size % 16 != 0 || span <= best.span) continue;
    best = {of_planes, line, span, span == line ? power_of(lines, kTeamPixels / span) : 1};
  }
  return best;
}

// All but pointers.
Params shape(const Problem& problem, const Choice& choice) {
  const Axis &h = problem.h, &w = problem.w;
  const int size = number(element_size(problem.dtype)), width = kTiles[choice.row].width;
  Params p{};
  set_extents(problem, p);
  p.x_h = number(h.in), p.x_w = number(w.in), p.y_h = number(h.out), p.y_w = number(w.out);
  p.kernel_h = number(h.kernel), p.kernel_w = number(w.kernel);
  p.stride_h = number(h.stride), p.stride_w = number(w.stride);
  p.pad_h = number(h.near_pad), p.pad_w = number(w.near_pad);
  for (const Axis& axis : {h, w})
    p.outside |=
        axis.near_pad > 0 || axis.stride * (axis.in - 1) + axis.kernel - axis.near_pad > axis.out;
  p.images = choice.images, p.rows = choice.rows, p.own = choice.own;
  p.pixels = p.images * p.rows * p.own;

  const int64_t taps = h.kernel * w.kernel;
  p.depth = number(kLine / size / taps);
  p.chunks = number(ceil_div(p.reduce, p.depth));
  p.short_end = (p.reduce - int64_t{p.chunks - 1} * p.depth) * taps * size <= kBatchBytes;
  p.together = choice.together;
  // A tile's boxes.
  const bool rows = choice.form == kRows, runs = choice.form == kRuns;
  const int line = choice.pitch * size, tap_line = p.y_w * size,
            lines = rows   ? p.stride_h * (p.rows - 1) + p.kernel_h
                    : runs ? 1
                           : p.rows,
            box_bytes = p.depth * lines * line;
  p.box_rows = choice.box_rows;
  p.boxes = runs ? number(ceil_div(p.rows, p.box_rows)) : rows ? 1 : p.kernel_h;
  p.box_pitch = number(round_up(box_bytes, 128));
  p.image_pitch = p.boxes * p.box_pitch;
  p.aligned = alignment(choice.form, size);
  p.channel_pitch = line, p.apart_pitch = lines * p.together * line;
  p.first_column = -p.pad_w;
  p.row_pitch = line;
  if (rows) {
    p.first_row = -p.pad_h, p.rows_of_row = p.stride_h;
    p.tap_pitch = p.together * line, p.row_pitch = p.stride_h * p.tap_pitch;
  } else if (runs) {
    p.first_column -= p.pad_h * p.y_w, p.columns_of_row = p.stride_h * p.y_w;
    p.box_step = p.box_rows * p.columns_of_row;
    p.tap_pitch = tap_line, p.row_pitch = p.stride_h * tap_line;
  } else {
    p.rows_of_row = 1, p.box_step = p.y_w, p.tap_pitch = p.box_pitch;
  }
  p.masked = !rows && p.outside;

  const int64_t blocks = ceil_div(p.columns, width), strips = ceil_div(p.x_w, p.own),
                bands = ceil_div(p.x_h, p.rows);
  p.items = number(std::min<int64_t>(
      blocks * p.groups * strips * bands * ceil_div(problem.batch, p.images), INT32_MAX));
  p.walkers = choice.walkers;
  p.by_blocks = FastDivide(blocks), p.by_groups = FastDivide(p.groups);
  p.by_strips = FastDivide(strips), p.by_bands = FastDivide(bands);
  p.by_own = FastDivide(p.own), p.by_rows = FastDivide(p.rows);

  // Runs of x: of whole rows, on from one to the next.
  for (p.unit = 16; p.unit > size; p.unit /= 2) {
    const int count = p.unit / size;
    if (p.own == p.x_w ? p.rows * p.own % count == 0 && p.x_h * p.x_w % count == 0
                       : p.own % count == 0 && p.x_w % count == 0)
      break;
  }
  p.unit = std::max(p.unit, size);

  p.places = choice.places;
  p.team_bytes = pass_bytes(size);
  if (p.places) {
    const Boxes boxes = boxes_of(problem, choice);
    p.of_planes = boxes.of_planes, p.box_lines = boxes.lines;
    p.by_span = FastDivide(boxes.span), p.by_line = FastDivide(boxes.line);
    p.out_pitch = boxes.span * size, p.out_swizzle = p.out_pitch / 16 - 1;
    p.out_span = kPassChannels * p.out_pitch;
    p.out_bytes = kTeamPixels / boxes.span * p.out_span;
    p.team_bytes = p.places * p.out_bytes;
  }

  p.resident = choice.resident;
  p.stages = choice.stages;
  const int64_t weights = int64_t{width} * kLine;
  p.copied_bytes = p.images * p.boxes * box_bytes + (p.resident ? 0 : number(weights));
  SharedPlaces places{kResidentAt};
  if (p.resident) places.take(p.chunks * weights, 1024);
  p.pixels_at = p.resident ? 0 : number(weights);
  p.stage_bytes = number(round_up(p.pixels_at + p.images * p.image_pitch, 1024));
  p.stages_at = places.take(int64_t{p.stages} * p.stage_bytes, 1024);
  p.staging_at = places.take(kTeams * p.team_bytes, p.places ? 1024 : 16);
  p.shared_bytes = number(places.end);
  return p;
}

// How often a bank is asked for when a warp fetches words, on the average of some: lanes that want the same word want it once.
double bank_visits(const Params& p, int size) {
  constexpr int kLanes = 32, kBanks = 32, kEvery = 3;
  int visits = 0, counted = 0;
  for (int first = 0; first < kMostPixels; first += 8 * kEvery, ++counted) {
    int words[kLanes], of_bank[kBanks] = {};
    for (int lane = 0; lane < kLanes; ++lane) {
      const int index = first + lane / 4, pixel = index < p.pixels ? index : 0,
                line = pixel / p.own;
      words[lane] = (pixel_place(p, {line / p.rows, line % p.rows, pixel % p.own}, size) +
                     word_place(p, lane % 4, size)) /
                    4;
    }
    std::sort(words, words + kLanes);
    std::for_each(words, std::unique(words, words + kLanes),
                  [&](int word) { ++of_bank[word % kBanks]; });
    visits += *std::max_element(of_bank, of_bank + kBanks);
  }
  return double(visits) / counted;
}

// Cycles that a tile's multiplications wait for its outputs.
double stored_by_threads(const Params& p, int size, double channels, int passes) {
  const double units = kPassChannels * kTeamPixels * size / p.unit / 128.;
  return passes * (kPass + kStore * units) + channels * p.pixels * size / kStored;
}
// A pass waits until what is in its place has left. `rows`: cycles of the copy engine.
double stored_in_boxes(const Params& p, int size, double channels, int passes, double rows) {
  const double leaving = std::max(rows, channels * p.pixels * size / kBoxedBytes) / passes;
  const int64_t boxes = ceil_div(kTeamPixels / p.by_span.divisor, p.box_lines);
  double now = 0, last = 0, left[kMostPlaces] = {};  // when they had
  for (int pass = 0; pass < passes; ++pass) {
    double& mine = left[pass % p.places];
    now = std::max(now, mine) + kBoxedPass + kAskedBox * boxes;
    mine = last = std::max(now, last) + leaving;
  }
  return now;
}

// Sectors of memory that a tile's stores fill in part: at the ends of runs of x, of strips or of whole rows.
double torn_sectors(const Problem& problem, const Choice& tile) {
  constexpr int kLines = 8;  // after which they repeat, but for odd sizes
  const int64_t size = element_size(problem.dtype), row = problem.w.in * size;
  const bool whole = tile.own == problem.w.in;
  const int64_t line = whole ? row * problem.h.in : row,
                run = (whole ? tile.rows : 1) * tile.own * size, full = line / run,
                period = kSector / size;  // runs, after which they start alike
  const auto torn_by = [](int64_t begin, int64_t bytes) {
    const int64_t start = begin % kSector, end = start + bytes;
    const bool late = start != 0, early = end % kSector != 0;
    return end <= kSector ? int(late || early) : late + early;
  };
  int64_t torn = 0;
  for (int64_t begin = 0; begin < kLines * line; begin += line) {
    for (int64_t i = 0; i < std::min(full, period); ++i)
      torn += torn_by(begin + i * run, run) * ceil_div(full - i, period);
    if (const int64_t rest = line - full * run) torn += torn_by(begin + full * run, rest);
  }
  const double lines =
      double(problem.batch) * double(problem.in_channels) * double(whole ? 1 : problem.h.in);
  return lines * double(torn) / kLines;
}

double predict(const Problem& problem, const Device& device, const Params& p, const Choice& choice,
               double visits, double torn) {
  const int size = number(element_size(problem.dtype)), width = kTiles[choice.row].width;
  const double products = kTeams * kSteps * width / 2;
  const double shared =
      kTeams * kSteps * (width * 32 / 128 + 4 * 4 * visits * (kTiles[choice.row].odd ? 2 : 1));
  // What the copy engine is asked for, by rows of a box.
  const int line = choice.pitch * size;
  const double row = kCopiedRow + kCopiedLine * (ceil_div(line, kLine) - 1);
  const double engine = p.images * p.boxes * (p.box_pitch / line * row + kBox);
  const double weights = p.resident ? 0 : double(width) * kLine / kCopied;
  const double multiplied = std::max({products, shared, kChain + (p.resident ? 0 : kStreamed)}),
               round = kArrival + engine + weights + multiplied;  // of a stage
  const double beside = choice.form == kRuns && p.outside ? p.images * p.boxes * kBesideBox : 0;
  const double chunk = std::max({multiplied, engine + weights, beside, round / choice.stages});
  const double turns = p.chunks - p.short_end / 2., channels = std::min(width, p.columns);
  const int passes = number(ceil_div(std::min(width, p.columns), kPassChannels));
  const double rows = p.places ? channels * ceil_div(p.pixels, p.by_span.divisor) * kBoxedRow : 0;
  const double stored = p.places ? stored_in_boxes(p, size, channels, passes, rows)
                                 : stored_by_threads(p, size, channels, passes);
  const double tile = std::max(turns * chunk + stored + kTile, turns * (engine + weights) + rows);
  const double before = p.resident ? double(p.chunks) * width * kLine / kCopied : 0;
  const double busy_us = (std::ceil(double(p.items) / p.walkers) * tile + before) / kClock;
  const double memory_us = (tensor_bytes(problem) + kTornSector * torn) /
                           ((p.places ? kBoxedMemoryRate : kMemoryRate) * device.copy_bytes_per_us);
  return kLaunch + std::max(busy_us, memory_us) + kBeside * std::min(busy_us, memory_us);
}

// Tiles: whole rows, or parts of them; rows and images so that the last tile is as full as the others.
std::vector<Choice> tiles(const Problem& problem) {
  std::vector<Choice> found;
  const int x_h = number(problem.h.in), x_w = number(problem.w.in);
  const auto add = [&](int own) {
    const int bands = number(ceil_div(x_h, std::max(1, kMostPixels / own))),
              rows = number(ceil_div(x_h, bands)),
              images = own == x_w && rows == x_h
                           ? number(std::min<int64_t>(kMostPixels / (x_h * x_w), problem.batch))
                           : 1;
    Choice choice{};
    choice.images = images, choice.rows = rows, choice.own = own;
    found.push_back(choice);
    // Rows whose pixels are whole 16 bytes, though some tile be emptier.
    const int full = std::min(kMostPixels / own, x_h) / 4 * 4;
    if (own == x_w && x_w % 8 != 0 && images == 1 && full > 0 && full != rows) {
      choice.rows = full;
      found.push_back(choice);
    }
  };
  if (x_w <= kMostPixels) add(x_w);
  for (int own = 8; own <= kMostPixels && own < x_w; own += 8) add(own);
  return found;
}

// What must hold of a form, whatever the tile. Words of all kernel rows, and what boxes skip of them, are the same for all rows of x.
bool has_form(const Problem& problem, int form) {
  const Axis& h = problem.h;
  const int64_t row = problem.w.out * element_size(problem.dtype);
  if (form == kRows) return row % 16 == 0;
  if (row % 4 != 0 || h.stride * row % 16 != 0) return false;
  return form == kRuns || (row % 16 != 0 && h.kernel == h.stride && h.near_pad == 0);
}

// How dY comes for a tile: the forms there are, padded so that banks meet as seldom as they may.
std::vector<Choice> arrangements(const Problem& problem, const Choice& tile) {
  std::vector<Choice> found;
  const int size = number(element_size(problem.dtype)), unit = 16 / size,
            depth = number(kLine / size / (problem.h.kernel * problem.w.kernel));
  for (int form : {kRows, kRuns, kTaps}) {
    if (!has_form(problem, form) || (form != kRows && tile.own != problem.w.in)) continue;
    const auto columns = [&](int rows) { return columns_read(problem, form, rows, tile.own); };
    if (form == kRows && problem.h.stride * (tile.rows - 1) + problem.h.kernel > kMostOfBox)
      continue;
    Choice choice = tile;
    choice.form = form, choice.box_rows = tile.rows;
    if (form == kRuns) {  // as few boxes as there can be, and as short
      while (choice.box_rows > 1 && columns(choice.box_rows) > kMostOfBox) --choice.box_rows;
      choice.box_rows = number(ceil_div(tile.rows, ceil_div(tile.rows, choice.box_rows)));
    }
    std::vector<int> together{1};
    if (form == kRows)
      for (int count : {2, depth})
        if (count <= depth && problem.group_out() % count == 0) add_once(together, count);
    for (int count : together)
      for (int pad = 0; pad < kPads; ++pad) {
        choice.together = count;
        choice.pitch = number(round_up(columns(choice.box_rows), unit)) + pad * unit;
        if (choice.pitch <= kMostOfBox) found.push_back(choice);
      }
  }
  return found;
}

std::vector<Candidate<Choice>> candidates(const Problem& problem, const Device& device,
                                          std::string& reason) {
  std::vector<Candidate<Choice>> found;
  const int size = number(element_size(problem.dtype));
  reason = "rows of dY of " + std::to_string(problem.w.out) + " are too long for a run";
  for (const Choice& tile : tiles(problem)) {
    const double torn = torn_sectors(problem, tile);
    for (const Choice& arranged : arrangements(problem, tile)) {
      const double visits = bank_visits(shape(problem, arranged), size);
      std::vector<int> ways{0};
      if (boxes_of(problem, arranged).span > 0) ways = {kMostPlaces, 1, 0};
      for (int row = 0; row < tiles_of(size); ++row)
        for (int way = 0; way < 2 * number(ways.size()); ++way) {
          if (kTiles[row].odd != (size == 2 && problem.w.near_pad % 2 != 0)) continue;
          const int resident = way % 2, places = ways[way / 2];
          Choice choice = arranged;
          choice.row = row, choice.resident = resident, choice.places = places;
          Params p = shape(problem, choice);  // still without stages
          const int room = device.smem_optin - p.shared_bytes;
          choice.stages = std::clamp(room / p.stage_bytes, 0, kMostStages);
          if (choice.stages < kLeastStages) {
            reason = "no room for " + std::to_string(kLeastStages) + " stages";
            continue;
          }
          // A block whose weights stay has the same channels in all its tiles.
          const int same = resident ? number(p.groups * ceil_div(p.columns, kTiles[row].width)) : 1;
          if (same > device.sm_count) continue;
          p.walkers = choice.walkers = std::min(p.items, device.sm_count / same * same);
          found.push_back({choice, predict(problem, device, p, choice, visits, torn)});
        }
    }
  }
  return found;
}

Plan plan_of(const Problem& problem, const Candidate<Choice>& candidate) {
  const Choice& c = candidate.choice;
  const Params p = shape(problem, c);
  Plan plan;
  plan.row = c.row;
  plan.predicted_us = candidate.predicted_us;
  const int detail[] = {c.walkers, c.stages,   c.resident, c.images, c.rows,  c.own,
                        c.form,    c.box_rows, c.together, c.pitch,  c.places};
  std::copy(std::begin(detail), std::end(detail), plan.detail);
  const char* const forms[] = {"rows", "runs", "kernel rows"};
  plan.note = std::to_string(c.images) + " images x " + std::to_string(c.rows) + " rows of " +
              std::to_string(c.own) + " pixels x " + std::to_string(kTiles[c.row].width) +
              " channels, dY in " + forms[c.form] + " of " + std::to_string(c.pitch) + ", " +
              std::to_string(c.together) + " channels together, " +
              (c.resident ? "weights stay, " : "") +
              (c.places == 0   ? ""
               : c.places == 1 ? "outputs in boxes, "
                               : "outputs in boxes by turns, ") +
              std::to_string(c.stages) + " stages, " + std::to_string(c.walkers) + " blocks";
  return plan;
}

Choice choice_of(const Plan& plan) {
  const auto& d = plan.detail;
  return {plan.row, d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], d[8], d[9], d[10]};
}

std::string refusal(const Problem& problem, const Device& device) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  const Axis &h = problem.h, &w = problem.w;
  const int64_t size = element_size(problem.dtype), taps = h.kernel * w.kernel;
  if (!device.has_wgmma) return "purl is for sm_90a";
  if (problem.direction != Direction::grad_input) return "purl is for grad_input";
  if (size != 2 && !(problem.dtype == DType::f32 && problem.precision == Precision::tf32))
    return "purl is for fp16, bf16 and TF32";
  if (problem.x_layout != Layout::nchw || problem.y_layout != Layout::nchw ||
      problem.w_layout != Layout::nchw)
    return "purl is for NCHW";
  if (h.dilation != 1 || w.dilation != 1) return "purl is for kernels without dilation";
  if (w.kernel * size % 4 != 0 || w.stride * size % 4 != 0)
    return "in 16 bits purl is for kernels of even width with an even stride, not " +
           text(w.kernel) + " with " + text(w.stride);
  if (w.kernel * size / 4 > kMostRowWords || kMostRowWords % (w.kernel * size / 4) != 0 ||
      kLine / size % taps != 0)
    return "kernels of " + text(h.kernel) + " x " + text(w.kernel) +
           " do not divide 128 bytes, or not 16 by rows";
  if (problem.group_out() * taps * size % 16 != 0)
    return "a channel's " + text(problem.group_out() * taps) + " weights are no whole 16 bytes";
  if (h.out * w.out * size % 16 != 0)
    return "planes of dY of " + text(h.out) + " x " + text(w.out) + " are no whole 16 bytes";
  if (!has_form(problem, kRows) && !has_form(problem, kRuns))
    return "rows of dY of " + text(w.out) + " are no whole 16 bytes, nor " + text(h.stride) +
           " of them";
  if (problem.wide_index) return "a tensor has more than 2^31 elements";
  return {};
}

}  // namespace

std::vector<Plan> plans(const Problem& problem, const Device& device, std::string& reason) {
  return all_plans(problem, device, reason, refusal, candidates, plan_of);
}

Decision plan(const Problem& problem, const Device& device) {
  return best_plan(problem, device, refusal, candidates, plan_of);
}

Params params_of(const Problem& problem, const Plan& plan, const Args& args) {
  Params p = shape(problem, choice_of(plan));
  p.x = args.x.data, p.y = args.y.data, p.w = args.w.data;
  return p;
}

Maps maps_of(const Problem& problem, const Plan& plan, const Params& p, const Args& args) {
  const Choice choice = choice_of(plan);
  const int size = number(element_size(problem.dtype));
  const int64_t row = int64_t{p.y_w} * size, plane = row * p.y_h,
                length = int64_t{p.reduce} * p.kernel_h * p.kernel_w;
  TensorBox y{
      args.y.data,
      size,
      5,
      {p.y_w, p.together, p.y_h, p.reduce / p.together, problem.batch * p.groups},
      {size, plane, row, plane * p.together, plane * p.reduce},
      {choice.pitch, p.together, p.stride_h * (p.rows - 1) + p.kernel_h, p.depth / p.together, 1},
      {1, 1, 1, 1, 1},
      false};
  if (choice.form == kTaps) {
    y.extent[0] *= p.stride_h, y.extent[2] /= p.stride_h, y.stride[2] *= p.stride_h;
    y.count[2] = p.rows;
  } else if (choice.form == kRuns) {
    y.extent[0] *= p.y_h, y.extent[2] = 1, y.stride[2] = plane;
    y.count[2] = 1;
  }
  Maps maps{};
  if (p.places) {
    const int64_t line = int64_t{p.x_w} * size, channel = line * p.x_h, group = channel * p.columns,
                  image = group * p.groups;
    TensorBox x{args.x.data,
                size,
                5,
                {p.x_w, p.columns, p.groups, p.x_h, p.batch},
                {size, channel, group, line, image},
                {number(p.by_span.divisor), kPassChannels, 1, p.box_lines, 1},
                {1, 1, 1, 1, 1},
                p.out_swizzle != 0,
                false};
    if (p.of_planes)
      x.extent[0] *= p.x_h, x.extent[3] = p.batch, x.extent[4] = 1, x.stride[3] = image;
    maps.x = encode(x);
  }
  maps.y = encode(y);
  maps.w = encode(
      {args.w.data,
       size,
       4,
       {length, p.columns, p.groups, 1},
       {size, length * size, length * size * p.columns, length * size * p.columns * p.groups},
       {kLine / size, kTiles[choice.row].width, 1, 1},
       {1, 1, 1, 1}});
  return maps;
}

}  // namespace convt2d::cuda::purl
