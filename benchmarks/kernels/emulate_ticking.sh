#!/bin/sh
# Builds and runs ticking on this machine's CPU (emulate/emulate_ticking.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_ticking.sh TYPE SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_ticking csrc/cuda/ticking/ticking_plan.cpp
build/kernels/emulate_ticking benchmarks/kernels/cases.txt "$@"
