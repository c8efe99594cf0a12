// The hopper kernel on a CPU, to the bit, in random schedules: what a machine without a GPU can know of it.
//
//   emulate CASES TYPE LAYOUT SEED [NAME]     TYPE: fp16, bf16, tf32; LAYOUT: nchw, nhwc
//
// CASES has lines as kernel_bench.cu reads them. Of each case, forward and grad_input, the best plan of every
// tile and two at random run on integers, with outputs and shared memory filled with NaN before.
// A block is 512 fibers; warps run in a random order and at uneven speeds. What is found: wrong indices,
// unwritten or misaligned outputs, reads beyond shared memory, protocols that overwrite or never end.
// What is not: ordinary stores that the tensor cores would see too late, registers, speed.
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace convt2d::cuda::hopper {
alignas(1024) unsigned char smem[232 * 1024];  // the kernel declares it extern
}

#include "core/phases.h"
#include "cuda/cuda_families.h"
#include "cuda/gather_params.h"
#include "cuda/hopper/hopper_gather.cuh"
#include "cuda/hopper/hopper_plan.h"

namespace emulate {

using convt2d::cuda::hopper::smem;

Index thread_index, block_index;

namespace {

struct Fiber {
  ucontext_t context;
  bool done = false;
  std::vector<char> stack = std::vector<char>(96 << 10);
};
struct Meeting {  // of two generations, since the quick may meet again before the slow have left
  int here = 0;
  long generation = 0;
  bool good = true, verdict[2] = {true, true};
};
struct Warp {
  int here = 0;
  long generation = 0;
  uint32_t value[2][32];
};
struct Barrier {
  uint32_t count = 0, here = 0;
  long phase = 0;
};

std::vector<Fiber> fibers(kThreads);
ucontext_t scheduler;
std::map<int, Meeting> meetings;
std::map<uint32_t, Barrier> barriers;
Warp warps[kThreads / 32];
uint32_t shared_bytes;
long progress;  // counts what somebody may wait for
std::mt19937 random;
std::function<void()> kernel;

long show(uint32_t value) {
  Warp& warp = warps[thread_index.x / 32];
  const long generation = warp.generation;
  warp.value[generation & 1][thread_index.x % 32] = value;
  if (++warp.here == 32) {
    warp.here = 0, ++warp.generation, ++progress;
  } else {
    while (warp.generation == generation) give_way();
  }
  return generation & 1;
}

void fiber_main() {
  kernel();
  fibers[thread_index.x].done = true;
  ++progress;
  give_way();
}

// Runs one block to its end, or until nobody can go on.
void run_block(uint32_t block) {
  block_index.x = block;
  meetings.clear();
  barriers.clear();
  for (Warp& warp : warps) warp = Warp();
  std::memset(smem, 0xff, sizeof smem);
  for (Fiber& fiber : fibers) {
    fiber.done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, fiber_main, 0);
  }
  std::vector<int> order(kThreads / 32);
  for (size_t i = 0; i < order.size(); ++i) order[i] = int(i);
  int left = kThreads;
  for (long idle = 0; left > 0;) {
    const long before = progress;
    const int slow = int(random() % 4);  // 1: the consumers, 2: the producers
    std::shuffle(order.begin(), order.end(), random);
    for (int warp : order) {
      if (slow == (warp < kThreads / 64 ? 1 : 2) && random() % 4 != 0) continue;
      for (int lane = 0; lane < 32; ++lane) {
        Fiber& fiber = fibers[warp * 32 + lane];
        if (fiber.done) continue;
        thread_index.x = warp * 32 + lane;
        swapcontext(&scheduler, &fiber.context);
        left -= fiber.done;
      }
    }
    idle = progress == before ? idle + 1 : 0;
    if (idle > 20000) fail("nobody goes on");
  }
}

}  // namespace

[[noreturn]] void fail(const char* what) {
  std::printf("%s (block %u, thread %u)\n", what, block_index.x, thread_index.x);
  std::exit(1);
}

void give_way() {
  const unsigned thread = thread_index.x;
  swapcontext(&fibers[thread].context, &scheduler);
}

bool meet(int name, int threads, bool good) {
  Meeting& meeting = meetings[name];
  const long generation = meeting.generation;
  meeting.good &= good;
  if (++meeting.here == threads) {
    meeting.verdict[generation & 1] = meeting.good;
    meeting.good = true, meeting.here = 0, ++meeting.generation, ++progress;
  } else {
    while (meeting.generation == generation) give_way();
  }
  return meeting.verdict[generation & 1];
}

uint32_t trade(uint32_t value, int mask) {
  const long turn = show(value);
  return warps[thread_index.x / 32].value[turn][(thread_index.x % 32) ^ mask];
}

uint32_t of_lane(uint32_t value, int lane) {
  const long turn = show(value);
  return warps[thread_index.x / 32].value[turn][lane];
}

bool all_of_warp(bool good) {
  const uint32_t* const values = warps[thread_index.x / 32].value[show(good)];
  return std::all_of(values, values + 32, [](uint32_t value) { return value != 0; });
}

void barrier_init(uint32_t address, uint32_t count) { barriers[address] = {count}; }
void barrier_arrive(uint32_t address) {
  Barrier& barrier = barriers[address];
  if (++barrier.here == barrier.count) barrier.here = 0, ++barrier.phase, ++progress;
}
void barrier_wait(uint32_t address, uint32_t parity) {
  while ((barriers[address].phase & 1) == parity) give_way();
}

unsigned char* shared(uint32_t address, uint32_t bytes) {
  if (address + bytes > shared_bytes) fail("beyond shared memory");
  return smem + address;
}
uint32_t shared_address(const void* pointer) {
  return uint32_t(static_cast<const unsigned char*>(pointer) - smem);
}

}  // namespace emulate

namespace {

using namespace convt2d;
using namespace convt2d::cuda;

template <class M, int... ROWS>
void run(int row, const hopper::GatherParams& params, std::integer_sequence<int, ROWS...>) {
  const std::function<void()> kernels[] = {
      [&] { hopper::convt2d_hopper_gather_kernel<M, ROWS>(params); }...};
  emulate::kernel = kernels[row];
  emulate::shared_bytes = hopper::shared_map(params, hopper::kTiles[row]).total;
  const int64_t blocks = int64_t(params.groups) * params.column_tiles * params.h.groups *
                         params.w.groups * params.walkers;
  for (int64_t block = 0; block < blocks; ++block) emulate::run_block(uint32_t(block));
}

struct Case {
  std::string name;
  Problem problem;
};

bool read(const std::string& line, Layout layout, Case& one) {
  std::istringstream from(line);
  int64_t n, ci, co, h, w, kh, kw, sh, sw, ph, pw, oph, opw, dh, dw, groups, bias;
  if (!(from >> one.name >> n >> ci >> co >> h >> w >> kh >> kw >> sh >> sw >> ph >> pw >> oph >>
        opw >> dh >> dw >> groups >> bias))
    return false;
  Problem& p = one.problem;
  std::memset(&p, 0, sizeof p);
  p.batch = n, p.in_channels = ci, p.out_channels = co, p.groups = groups;
  p.h = {h, output_extent(h, kh, sh, ph, oph, dh), kh, sh, ph, dh};
  p.w = {w, output_extent(w, kw, sw, pw, opw, dw), kw, sw, pw, dw};
  p.precision = Precision::tf32;
  p.x_layout = p.w_layout = p.y_layout = layout;
  p.has_bias = int32_t(bias);
  return true;
}

TensorRef tensor(void* data, int64_t channels, int64_t h, int64_t w, Layout layout) {
  if (layout == Layout::nhwc) return {data, {h * w * channels, 1, w * channels, channels}};
  return {data, {channels * h * w, h * w, w, 1}};
}

// Integers of [-3, 3].
template <class T>
std::vector<T> integers(int64_t count) {
  std::vector<T> values(count + 64);
  for (T& value : values) value = Numeric<T>::narrow(float(int(emulate::random() % 7) - 3));
  return values;
}

// The definition: visits every product, as elements of x, w and y.
template <class Visit>
void products(const Problem& p, const Args& a, Visit&& visit) {
  const auto at = [](const TensorRef& t, int64_t i, int64_t j, int64_t k, int64_t l) {
    return i * t.stride[0] + j * t.stride[1] + k * t.stride[2] + l * t.stride[3];
  };
  for (int64_t n = 0; n < p.batch; ++n)
    for (int64_t ci = 0; ci < p.in_channels; ++ci)
      for (int64_t co = 0; co < p.group_out(); ++co)
        for (int64_t i = 0; i < p.h.in; ++i)
          for (int64_t r = 0; r < p.h.kernel; ++r) {
            const int64_t oh = i * p.h.stride - p.h.near_pad + r * p.h.dilation;
            if (oh < 0 || oh >= p.h.out) continue;
            for (int64_t j = 0; j < p.w.in; ++j)
              for (int64_t t = 0; t < p.w.kernel; ++t) {
                const int64_t ow = j * p.w.stride - p.w.near_pad + t * p.w.dilation;
                if (ow < 0 || ow >= p.w.out) continue;
                const int64_t channel = ci / p.group_in() * p.group_out() + co;
                visit(at(a.x, n, ci, i, j), at(a.w, ci, co, r, t), at(a.y, n, channel, oh, ow));
              }
          }
}

template <class M>
bool check(const Case& one, Direction direction) {
  using T = typename M::Element;
  Problem p = one.problem;
  p.direction = direction;
  p.dtype = dtype_of<T>;
  const bool forward = direction == Direction::fwd;
  p.has_bias &= forward;
  const int64_t image = p.h.out * p.w.out, results = p.batch * p.out_channels * image,
                inputs = p.batch * p.in_channels * p.h.in * p.w.in;
  std::vector<T> x = integers<T>(inputs), y = integers<T>(results),
                 w = integers<T>(p.in_channels * p.group_out() * p.h.kernel * p.w.kernel),
                 bias = integers<T>(p.out_channels);
  Args a;
  a.x = tensor(x.data(), p.in_channels, p.h.in, p.w.in, p.x_layout);
  a.w = tensor(w.data(), p.group_out(), p.h.kernel, p.w.kernel, p.w_layout);
  a.y = tensor(y.data(), p.out_channels, p.h.out, p.w.out, p.y_layout);
  a.bias = p.has_bias ? bias.data() : nullptr;
  std::vector<T>& result = forward ? y : x;
  std::vector<float> expected(forward ? results : inputs);
  const auto value = [](const std::vector<T>& from, int64_t i) {
    return Numeric<T>::widen(from[i]);
  };
  products(p, a, [&](int64_t i, int64_t j, int64_t k) {
    expected[forward ? k : i] += value(forward ? x : y, forward ? i : k) * value(w, j);
  });
  for (int64_t i = 0; p.has_bias && i < results; ++i)
    expected[i] +=
        value(bias, p.y_layout == Layout::nhwc ? i % p.out_channels : i / image % p.out_channels);

  std::string reason;
  auto candidates = hopper::gather_candidates(p, invented_device("h200"), reason);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& u, const auto& v) { return u.predicted_us < v.predicted_us; });
  std::vector<size_t> tried;
  std::set<int> rows;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (rows.insert(candidates[i].choice.row).second) tried.push_back(i);
  for (int i = 0; i < 2 && !candidates.empty(); ++i)
    tried.push_back(emulate::random() % candidates.size());
  int wrong = 0;
  for (size_t i : tried) {
    const Plan plan = hopper::plan_of(candidates[i]);
    std::memset(result.data(), 0xff, result.size() * sizeof(T));
    hopper::GatherParams params;
    hopper::gather_shape(p, candidates[i].choice, params);
    params.walkers = std::min(candidates[i].walkers, 3);  // so that blocks have several tiles
    set_operands(p, a, params);
    run<M>(plan.row, params, std::make_integer_sequence<int, hopper::kTileCount>());
    int64_t differ = 0;
    for (size_t k = 0; k < result.size(); ++k) {
      T want = Numeric<T>::narrow(k < expected.size() ? expected[k] : 0.f);
      if (k >= expected.size()) std::memset(&want, 0xff, sizeof want);  // nothing past the end
      differ += std::memcmp(&want, &result[k], sizeof want) != 0;
    }
    if (differ == 0) continue;
    ++wrong;
    std::printf("WRONG %s, %lld of %zu: %s\n", one.name.c_str(), static_cast<long long>(differ),
                expected.size(), plan.note.c_str());
  }
  std::printf("%s %s %s %s: %zu plans, %d wrong\n", one.name.c_str(), name(p.dtype),
              name(p.x_layout), name(direction), tried.size(), wrong);
  return wrong == 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::printf("see the head of %s\n", __FILE__), 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string type = arguments[2];
  const Layout layout = std::string(arguments[3]) == "nhwc" ? Layout::nhwc : Layout::nchw;
  emulate::random.seed(std::atoi(arguments[4]));
  std::ifstream in(arguments[1]);
  bool good = true;
  for (std::string line; std::getline(in, line);) {
    Case one;
    if (!read(line, layout, one) || (count > 5 && one.name.find(arguments[5]) == std::string::npos))
      continue;
    for (Direction direction : {Direction::fwd, Direction::grad_input})
      good &= type == "fp16"   ? check<MmaF16>(one, direction)
              : type == "bf16" ? check<MmaBF16>(one, direction)
                               : check<MmaTF32>(one, direction);
  }
  return good ? 0 : 1;
}
