// A block of CUDA threads, or a cluster of blocks, as fibers of one CPU thread: warps run in a random order and at uneven
// speeds.
// Included by the one source of a program.
#pragma once

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <vector>

namespace emulate {

Index thread_index, block_index, block_dim;

// Of the emulated block, as its kernel declares it: set once. Other blocks of a cluster have memory of their own, so their
// kernels get at it by addresses alone.
unsigned char* smem;
constexpr uint32_t kSharedBytes = 232 << 10;

namespace {

struct Fiber {
  ucontext_t context;
  bool done = false;
  long cluster_generation = 0;
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
  uint32_t value[2][32][kWords];
};
struct Barrier {
  uint32_t count = 0, here = 0;
  long phase = 0, bytes = 0;  // to come
};

// Of all blocks of the cluster, one after the other.
std::vector<Fiber> fibers;
std::vector<Warp> warps;
std::vector<int> threads_left;                   // by rank
std::vector<std::vector<unsigned char>> others;  // shared memory, by rank - 1

ucontext_t scheduler;
std::map<int, Meeting> meetings;  // by name, 64 a rank
constexpr int kClusterMeeting = -1;
std::map<uint32_t, Barrier> barriers;  // by address and rank
uint32_t shared_bytes;
long progress;  // counts what somebody may wait for
bool together;  // a grid of one row, its blocks are ranks
std::mt19937 random;
// Whether schedules are as bad as they can be, which takes two or three times as long.
bool hinders() {
  static const bool set = std::getenv("HINDER") != nullptr;
  return set;
}
std::function<void()> kernel;

}  // namespace

[[noreturn]] void fail(const char* what) {
  if (std::getenv("SHOW"))
    for (const auto& [at, barrier] : barriers)
      std::printf("barrier %u: %u of %u here, phase %ld, %ld bytes to come\n", at, barrier.here,
                  barrier.count, barrier.phase, barrier.bytes);
  std::printf("%s (block %u, thread %u)\n", what, block_index.x, thread_index.x);
  std::exit(1);
}

namespace {

void fiber_main() {
  kernel();
  fibers[fiber()].done = true;
  --threads_left[block_index.y];
  ++progress;
  give_way();
}

// Runs one block, or one cluster, to its end, or until nobody can go on.
void run_block(uint32_t block, unsigned ranks) {
  const unsigned threads = ranks * block_dim.x;
  block_index.x = block;
  meetings.clear();
  barriers.clear();
  if (fibers.size() < threads) fibers.resize(threads);
  warps.assign(threads / 32, Warp());
  threads_left.assign(ranks, int(block_dim.x));
  others.resize(ranks - 1);
  // NaN shows what is read before it was written; but kernels sum again what came out NaN, which would hide it, so every
  // other block finds numbers.
  const unsigned char filled = random() % 2 ? 0xff : 0x53;
  std::memset(smem, filled, kSharedBytes);
  for (auto& memory : others) memory.assign(kSharedBytes, filled);
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    fiber.done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, fiber_main, 0);
  }
  std::vector<int> order(threads / 32);
  for (size_t i = 0; i < order.size(); ++i) order[i] = int(i);
  const auto anyone = [] {
    return std::any_of(threads_left.begin(), threads_left.end(), [](int left) { return left > 0; });
  };
  int lazy = 0;
  const bool stubborn =
      hinders() && random() % 2;  // the lazy one then waits until nobody else goes on
  for (long idle = 0; anyone();) {
    const long before = progress;
    const int slow = int(random() % 4);  // 1: the first half (hopper's consumers), 2: the second
    // Now and then one warp falls behind all others, those of its warpgroup too.
    if (random() % 256 == 0) lazy = int(random() % (2 * order.size()));
    std::shuffle(order.begin(), order.end(), random);
    for (int warp : order) {
      if (slow == (warp < int(order.size()) / 2 ? 1 : 2) && random() % 4 != 0) continue;
      if (warp == lazy && (stubborn ? idle < 64 : random() % 128 != 0)) continue;
      for (unsigned lane = 0; lane < 32; ++lane) {
        const unsigned number = warp * 32 + lane;
        if (fibers[number].done) continue;
        thread_index.x = number % block_dim.x;
        block_index.y = number / block_dim.x;
        if (together) block_index.x = block_index.y;
        swapcontext(&scheduler, &fibers[number].context);
      }
    }
    idle = progress == before ? idle + 1 : 0;
    if (idle > 20000) fail("nobody goes on");
  }
}

}  // namespace

unsigned fiber() { return block_index.y * block_dim.x + thread_index.x; }

void went_on() { ++progress; }

void give_way() { swapcontext(&fibers[fiber()].context, &scheduler); }

namespace {

Meeting& meeting_of_block(int name) { return meetings[block_index.y * 64 + name]; }

void join(Meeting& meeting, int threads) {
  if (++meeting.here < threads) return;
  meeting.verdict[meeting.generation & 1] = meeting.good;
  meeting.good = true, meeting.here = 0, ++meeting.generation, ++progress;
}

}  // namespace

// Those who join a meeting do not wait for it.
void join(int name, int threads) { join(meeting_of_block(name), threads); }

bool meet(int name, int threads, bool good) {
  Meeting& meeting = meeting_of_block(name);
  const long generation = meeting.generation;
  meeting.good &= good;
  join(meeting, threads);
  while (meeting.generation == generation) give_way();
  return meeting.verdict[generation & 1];
}

void cluster_arrive() {
  Meeting& meeting = meetings[kClusterMeeting];
  fibers[fiber()].cluster_generation = meeting.generation;
  join(meeting, int(warps.size()) * 32);
}
void cluster_wait() {
  const Meeting& meeting = meetings[kClusterMeeting];
  while (meeting.generation == fibers[fiber()].cluster_generation) give_way();
}

const uint32_t (*show(const uint32_t* words, int count)) [kWords] {
  Warp& warp = warps[fiber() / 32];
  const long generation = warp.generation;
  std::copy(words, words + count, warp.value[generation & 1][thread_index.x % 32]);
  if (++warp.here == 32) {
    warp.here = 0, ++warp.generation, ++progress;
  } else {
    while (warp.generation == generation) give_way();
  }
  return warp.value[generation & 1];
}

uint32_t trade(uint32_t value, int mask) {
  const unsigned lane = thread_index.x % 32;
  return show(&value, 1)[lane ^ mask][0];
}

bool all_of_warp(bool good) {
  const uint32_t word = good;
  const auto values = show(&word, 1);
  return std::all_of(values, values + 32, [](const uint32_t* value) { return *value != 0; });
}

namespace {

constexpr uint32_t kMostShared = 1 << 20;
uint32_t of_this_block(uint32_t address) { return block_index.y * kMostShared + address; }

}  // namespace

void barrier_init(uint32_t address, uint32_t count) { barriers[of_this_block(address)] = {count}; }
void barrier_arrive(uint32_t address) { barrier_expect(address, 0); }
void barrier_expect(uint32_t address, uint32_t bytes) {
  Barrier& barrier = barriers[of_this_block(address)];
  barrier.bytes += bytes;
  ++barrier.here;
  barrier_copied(address, 0);
}
void barrier_copied(uint32_t address, uint32_t bytes) {
  barrier_copied_of_rank(block_index.y, address, bytes);
}
void barrier_copied_of_rank(unsigned rank, uint32_t address, uint32_t bytes) {
  const auto found = barriers.find(rank * kMostShared + address);
  if (found == barriers.end()) fail("no such barrier");
  Barrier& barrier = found->second;
  barrier.bytes -= bytes;
  if (barrier.here == barrier.count && barrier.bytes == 0)
    barrier.here = 0, ++barrier.phase, ++progress;
}
void barrier_wait(uint32_t address, uint32_t parity) {
  if (hinders()) give_way();  // others may be two phases ahead by then, which a parity cannot tell
  while ((barriers[of_this_block(address)].phase & 1) == parity) give_way();
}

// A grid whose blocks run together.
void run_grid_together(int blocks, int threads, uint32_t bytes, std::function<void()> of_thread) {
  kernel = std::move(of_thread);
  block_dim.x = threads;
  shared_bytes = bytes;
  together = true;
  run_block(0, unsigned(blocks));
  together = false;
}

// A grid's blocks, one after the other; or clusters of `ranks` of them along y, whose blocks run together.
void run_grid(int64_t blocks, int threads, uint32_t bytes, std::function<void()> of_thread,
              int ranks = 1) {
  kernel = std::move(of_thread);
  block_dim.x = threads;
  shared_bytes = bytes;
  for (int64_t block = 0; block < blocks; ++block) run_block(uint32_t(block), unsigned(ranks));
}

unsigned char* shared_of_rank(unsigned rank, uint32_t address, uint32_t bytes) {
  if (address + bytes > shared_bytes) fail("beyond shared memory");
  if (rank > others.size()) fail("no such rank");
  if (threads_left[rank] == 0) fail("that block has left");
  return (rank ? others[rank - 1].data() : smem) + address;
}
unsigned char* shared(uint32_t address, uint32_t bytes) {
  return shared_of_rank(block_index.y, address, bytes);
}
uint32_t shared_address(const void* pointer) {
  return uint32_t(static_cast<const unsigned char*>(pointer) - smem);
}

}  // namespace emulate
