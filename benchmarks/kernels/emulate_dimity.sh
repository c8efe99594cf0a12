#!/bin/sh
# Builds and runs dimity on this machine's CPU (emulate/emulate_dimity.cpp), PLANS of each case.
#   [NHWC=1] benchmarks/kernels/emulate_dimity.sh tf32 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_dimity csrc/cuda/dimity/dimity_plan.cpp
build/kernels/emulate_dimity benchmarks/kernels/cases.txt "$@"
