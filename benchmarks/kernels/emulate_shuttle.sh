#!/bin/sh
# Builds and runs shuttle on this machine's CPU (emulate/emulate_shuttle.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_shuttle.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_shuttle csrc/cuda/shuttle/shuttle_plan.cpp
build/kernels/emulate_shuttle benchmarks/kernels/cases.txt "$@"
