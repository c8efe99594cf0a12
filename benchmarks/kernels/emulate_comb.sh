#!/bin/sh
# Builds and runs comb on this machine's CPU (emulate/emulate_comb.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_comb.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_comb csrc/cuda/comb/comb_plan.cpp csrc/cuda/comb/comb_lines_plan.cpp
build/kernels/emulate_comb benchmarks/kernels/cases.txt "$@"
