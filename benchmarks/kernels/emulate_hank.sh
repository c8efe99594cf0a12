#!/bin/sh
# Builds and runs hank on this machine's CPU (emulate/emulate_hank.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_hank.sh fp16 SEED PLANS [NAME]     TF32: tf32
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_hank csrc/cuda/hank/hank_plan.cpp
build/kernels/emulate_hank benchmarks/kernels/cases.txt "$@"
