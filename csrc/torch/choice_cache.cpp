#include "torch/choice_cache.h"

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>

namespace convt2d {
namespace {

// Compared as bytes, so there must be no padding between the members.
struct Key {
  Problem problem;
  int32_t device_index;
  int32_t algorithm;
};
static_assert(std::has_unique_object_representations_v<Key>);

struct Slot {
  bool filled = false;
  Key key;
  Choice choice;
};

// Direct-mapped: a collision costs one planning and never a wrong answer. Thread-local: no lock.
constexpr size_t kSlots = 256;

size_t slot_of(const Key& key) {
  static_assert(sizeof(Key) % sizeof(uint64_t) == 0);
  uint64_t words[sizeof(Key) / sizeof(uint64_t)];
  std::memcpy(words, &key, sizeof(Key));
  uint64_t hash = 0;
  for (uint64_t word : words) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;  // 2^64 / golden ratio, spreads small integers
    hash ^= hash >> 32;
  }
  return hash % kSlots;
}

bool logging_plans() {
  static const bool wanted = [] {
    const char* value = std::getenv("CONVT2D_LOG");
    return value != nullptr && std::strcmp(value, "plan") == 0;
  }();
  return wanted;
}

// CONVT2D_LOG=plan: one line on stderr for each distinct problem of the process.
void log_plan(const Backend& backend, const Problem& problem, const Choice& choice) {
  static std::mutex mutex;
  static std::set<std::string> logged;
  std::string line = "convt2d: ";
  line += backend.device_index < 0 ? "cpu" : "cuda:" + std::to_string(backend.device_index);
  line += " " + describe(problem) + " -> " + choice.family->name;
  if (!choice.plan.note.empty()) line += " (" + choice.plan.note + ")";
  line += "\n";
  const std::lock_guard<std::mutex> lock(mutex);
  if (logged.insert(line).second) std::cerr << line << std::flush;
}

}  // namespace

const Choice& cached_choice(const Backend& backend, const Problem& problem, int32_t algorithm) {
  thread_local Slot slots[kSlots];
  const Key key{problem, backend.device_index, algorithm};
  Slot& slot = slots[slot_of(key)];
  if (!slot.filled || std::memcmp(&slot.key, &key, sizeof(Key)) != 0) {
    slot.choice = choose(backend.families, problem, *backend.device, algorithm);
    slot.key = key;
    slot.filled = true;
    if (logging_plans()) log_plan(backend, problem, slot.choice);
  }
  return slot.choice;
}

}  // namespace convt2d
