#!/bin/sh
# Builds and runs fringe on this machine's CPU (emulate/emulate_fringe.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_fringe.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_fringe csrc/cuda/fringe/fringe_plan.cpp
build/kernels/emulate_fringe benchmarks/kernels/cases.txt "$@"
