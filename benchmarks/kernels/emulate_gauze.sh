#!/bin/sh
# Builds and runs gauze on this machine's CPU (emulate/emulate_gauze.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_gauze.sh TYPE SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_gauze csrc/cuda/gauze/gauze_plan.cpp
build/kernels/emulate_gauze benchmarks/kernels/cases.txt "$@"
