#!/bin/sh
# Builds and runs braid on this machine's CPU (emulate/emulate_braid.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_braid.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_braid csrc/cuda/braid/braid_plan.cpp
build/kernels/emulate_braid benchmarks/kernels/cases.txt "$@"
