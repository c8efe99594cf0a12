#!/bin/sh
# Builds and runs tuft on this machine's CPU (emulate/emulate_tuft.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_tuft.sh TYPE SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_tuft csrc/cuda/tuft/tuft_plan.cpp
build/kernels/emulate_tuft benchmarks/kernels/cases.txt "$@"
