#!/bin/sh
# Builds and runs narrow on this machine's CPU (emulate/emulate_narrow.cpp), PLANS of each case; RIBBONS=1: of narrow_ribbon.h only; weight:fp16 and so
# on: of narrow_weight.h.
#   benchmarks/kernels/emulate_narrow.sh fp16 nchw SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_narrow csrc/cuda/narrow/narrow_plan.cpp \
  csrc/cuda/narrow/narrow_ribbon_plan.cpp csrc/cuda/narrow/narrow_weight_plan.cpp
build/kernels/emulate_narrow benchmarks/kernels/cases.txt "$@"
