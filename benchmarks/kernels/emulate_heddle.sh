#!/bin/sh
# Builds and runs heddle on this machine's CPU (emulate/emulate_heddle.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_heddle.sh tf32 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_heddle csrc/cuda/heddle/heddle_plan.cpp csrc/cuda/heddle/heddle_input_plan.cpp
build/kernels/emulate_heddle benchmarks/kernels/cases.txt "$@"
