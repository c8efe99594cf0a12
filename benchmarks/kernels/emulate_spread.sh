#!/bin/sh
# Builds and runs spread on this machine's CPU (emulate/emulate_spread.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_spread.sh fp16 fwd SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_spread csrc/cuda/spread/spread_plan.cpp \
  csrc/cuda/spread/spread_input_plan.cpp
build/kernels/emulate_spread benchmarks/kernels/cases.txt "$@"
