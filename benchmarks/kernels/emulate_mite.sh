#!/bin/sh
# Builds and runs mite on this machine's CPU (emulate/emulate_mite.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_mite.sh fp16 nchw grad_input SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_mite csrc/cuda/mite/mite_plan.cpp \
  csrc/cuda/mite/mite_gather_plan.cpp csrc/cuda/mite/mite_weight_plan.cpp
build/kernels/emulate_mite benchmarks/kernels/cases.txt "$@"
