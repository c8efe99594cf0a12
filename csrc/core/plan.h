// What a family answers when it is asked to serve a Problem on a Device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/args.h"
#include "core/problem.h"

namespace convt2d {

// A GPU as plain data. Filled once a device from the driver; tests invent others.
struct Device {
  int32_t sm_count = 0;
  int32_t smem_optin = 0;    // bytes of shared memory one block may ask for
  int32_t smem_per_sm = 0;   // bytes of shared memory one multiprocessor has
  int32_t has_mma_f16 = 0;   // mma.sync m16n8k16 for fp16 / bf16, m16n8k8 for tf32 (sm_80 and up)
  int32_t has_cp_async = 0;  // sm_80 and up
  int32_t has_wgmma = 0;     // sm_90a
  int32_t most_ranks = 1;    // blocks of a cluster; 1: no clusters
  double copy_bytes_per_us = 0;  // device-to-device copy, bytes read + written
  double fma_f32_per_us = 0;     // CUDA-core fp32 multiply-adds
  double fma_f64_per_us = 0;
  double mma_f16_per_us = 0;  // tensor-core multiply-adds through mma.sync
  double mma_tf32_per_us = 0;
  double matmul_f16_per_us = 0;  // a large library matmul: what the floor counts with
  double matmul_tf32_per_us = 0;
};

// Chosen once, obeyed by launch. `row` indexes the family's own tile table; `split` is how many
// pieces the reduction is cut into.
struct Plan {
  int32_t row = 0;
  int32_t split = 1;
  int32_t detail[12] = {};  // the family's own numbers (tile extents and the like)
  int64_t workspace_bytes = 0;
  double predicted_us = 0;
  std::string note;  // for people: tile name, blocks, waves
  // What a launch would derive from the problem and this plan alone, where that takes too long.
  std::shared_ptr<const void> prepared;
};

struct Decision {
  bool accepted = false;
  Plan plan;
  std::string reason;  // why declined, with the numbers in it

  static Decision accept(Plan plan) { return {true, std::move(plan), {}}; }
  static Decision decline(std::string reason) { return {false, {}, std::move(reason)}; }
};

struct Family {
  const char* name;
  // Arithmetic only: no allocation on the device, no CUDA call.
  Decision (*plan)(const Problem&, const Device&);
  // Never chooses, never allocates. Throws std::runtime_error when a launch fails.
  void (*launch)(const Problem&, const Plan&, const Args&);
};

}  // namespace convt2d
