#!/bin/sh
# Builds and runs fold on this machine's CPU (emulate/emulate_fold.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_fold.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_fold csrc/cuda/fold/fold_plan.cpp
build/kernels/emulate_fold benchmarks/kernels/cases.txt "$@"
