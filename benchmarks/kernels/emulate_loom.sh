#!/bin/sh
# Builds and runs loom on this machine's CPU (emulate/emulate_loom.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_loom.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_loom csrc/cuda/loom/loom_plan.cpp \
  csrc/cuda/loom/loom_shape.cpp csrc/cuda/loom/loom_predict.cpp csrc/cuda/loom/loom_maps.cpp
build/kernels/emulate_loom benchmarks/kernels/cases.txt "$@"
