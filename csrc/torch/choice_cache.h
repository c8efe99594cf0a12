// Problem -> Choice, remembered: planning costs microseconds, and a training loop asks the same few
// questions again and again.
#pragma once

#include "core/choose.h"

namespace convt2d {

// What a choice is made from. `device_index` is -1 for the CPU.
struct Backend {
  FamilyList families;
  const Device* device;
  int32_t device_index;
};

// The reference stays valid until the next call on the same thread.
const Choice& cached_choice(const Backend& backend, const Problem& problem, int32_t algorithm);

}  // namespace convt2d
