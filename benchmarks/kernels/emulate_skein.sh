#!/bin/sh
# Builds and runs skein on this machine's CPU (emulate/emulate_skein.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_skein.sh TYPE SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_skein csrc/cuda/skein/skein_plan.cpp
build/kernels/emulate_skein benchmarks/kernels/cases.txt "$@"
