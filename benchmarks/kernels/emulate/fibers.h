// A block of CUDA threads as fibers of one CPU thread: warps run in a random order and at uneven speeds.
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
unsigned ranks = 1;

// Of the emulated block, as its kernel declares it: set once.
unsigned char* smem;
constexpr uint32_t kSharedBytes = 232 << 10;
#ifndef EMULATE_THREADS
#define EMULATE_THREADS 640
#endif
constexpr int kMostThreads = EMULATE_THREADS;  // of a cluster
// What place_of_rank() adds to an address, for each rank and one more; without that it is the thread's own block's.
constexpr uint32_t kWindow = 1 << 20;

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
  uint32_t value[2][32][kWords];
};
struct Barrier {
  uint32_t count = 0, here = 0;
  long phase = 0, bytes = 0;  // to come
};

std::vector<Fiber> fibers(kMostThreads);
ucontext_t scheduler;
std::map<int, Meeting> meetings;
std::map<uint32_t, Barrier> barriers;
Warp warps[kMostThreads / 32];
uint32_t shared_bytes;
std::vector<std::vector<unsigned char>> other_smem;  // of the ranks after the first
long progress;                                       // counts what somebody may wait for
std::mt19937 random;
std::function<void()> kernel;

}  // namespace

unsigned thread_of_cluster() { return block_index.y * block_dim.x + thread_index.x; }
uint32_t address_in_cluster(uint32_t address) {
  return address < kWindow ? address + (block_index.y + 1) * kWindow : address;
}

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
  fibers[thread_of_cluster()].done = true;
  ++progress;
  give_way();
}

// Runs one block to its end, or until nobody can go on.
void run_block(uint32_t block) {
  block_index.x = block;
  meetings.clear();
  barriers.clear();
  for (Warp& warp : warps) warp = Warp();
  // NaN shows what is read before it was written; but kernels sum again what came out NaN, which would hide it, so every
  // other block finds numbers.
  std::memset(smem, random() % 2 ? 0xff : 0x53, kSharedBytes);
  other_smem.resize(ranks - 1);
  for (auto& other : other_smem) other.assign(kSharedBytes, random() % 2 ? 0xff : 0x53);
  const unsigned threads = block_dim.x * ranks;
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
  int left = int(threads), lazy = 0;
  for (long idle = 0; left > 0;) {
    const long before = progress;
    const int slow = int(random() % 4);  // 1: the first half (hopper's consumers), 2: the second
    // Now and then one warp falls behind all others, those of its warpgroup too.
    if (random() % 256 == 0) lazy = int(random() % (2 * order.size()));
    std::shuffle(order.begin(), order.end(), random);
    for (int warp : order) {
      if (slow == (warp < int(order.size()) / 2 ? 1 : 2) && random() % 4 != 0) continue;
      if (warp == lazy && random() % 128 != 0) continue;
      for (int lane = 0; lane < 32; ++lane) {
        Fiber& fiber = fibers[warp * 32 + lane];
        if (fiber.done) continue;
        block_index.y = unsigned(warp) * 32 / block_dim.x;
        thread_index.x = warp * 32 + lane - block_index.y * block_dim.x;
        swapcontext(&scheduler, &fiber.context);
        left -= fiber.done;
      }
    }
    idle = progress == before ? idle + 1 : 0;
    if (idle > 20000) fail("nobody goes on");
  }
}

}  // namespace

void give_way() {
  const unsigned thread = thread_of_cluster();
  swapcontext(&fibers[thread].context, &scheduler);
}

// Those who join a meeting do not wait for it.
void join(int name, int threads) {
  Meeting& meeting = meetings[name * int(ranks) + int(block_index.y)];
  if (++meeting.here < threads) return;
  meeting.verdict[meeting.generation & 1] = meeting.good;
  meeting.good = true, meeting.here = 0, ++meeting.generation, ++progress;
}

bool meet(int name, int threads, bool good) {
  Meeting& meeting = meetings[name * int(ranks) + int(block_index.y)];
  const long generation = meeting.generation;
  meeting.good &= good;
  join(name, threads);
  while (meeting.generation == generation) give_way();
  return meeting.verdict[generation & 1];
}

const uint32_t (*show(const uint32_t* words, int count)) [kWords] {
  Warp& warp = warps[thread_of_cluster() / 32];
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

void barrier_init(uint32_t address, uint32_t count) {
  barriers[address_in_cluster(address)] = {count};
}
void barrier_arrive(uint32_t address) { barrier_expect(address, 0); }
void barrier_expect(uint32_t address, uint32_t bytes) {
  Barrier& barrier = barriers[address_in_cluster(address)];
  barrier.bytes += bytes;
  ++barrier.here;
  barrier_copied(address, 0);
}
void barrier_copied(uint32_t address, uint32_t bytes) {
  Barrier& barrier = barriers[address_in_cluster(address)];
  barrier.bytes -= bytes;
  if (barrier.here == barrier.count && barrier.bytes == 0)
    barrier.here = 0, ++barrier.phase, ++progress;
}
void barrier_wait(uint32_t address, uint32_t parity) {
  const uint32_t at = address_in_cluster(address);
  while ((barriers[at].phase & 1) == parity) give_way();
}

// All threads of a cluster.
void meet_in_cluster() {
  static Meeting meeting;
  const long generation = meeting.generation;
  if (++meeting.here == int(block_dim.x * ranks))
    meeting.here = 0, ++meeting.generation, ++progress;
  while (meeting.generation == generation) give_way();
}

// A grid's blocks, or clusters of so many, one after the other.
void run_grid(int64_t blocks, int threads, uint32_t bytes, std::function<void()> of_thread,
              int of_cluster = 1) {
  if (threads * of_cluster > kMostThreads) fail("a cluster of too many threads");
  ranks = of_cluster;
  kernel = std::move(of_thread);
  block_dim.x = threads;
  shared_bytes = bytes;
  for (int64_t block = 0; block < blocks; ++block) run_block(uint32_t(block));
}

unsigned char* shared(uint32_t address, uint32_t bytes) {
  const uint32_t at = address_in_cluster(address), rank = at / kWindow - 1, place = at % kWindow;
  if (place + bytes > shared_bytes || rank >= ranks) fail("beyond shared memory");
  return (rank ? other_smem[rank - 1].data() : smem) + place;
}
uint32_t shared_address(const void* pointer) {
  return uint32_t(static_cast<const unsigned char*>(pointer) - smem);
}

}  // namespace emulate
