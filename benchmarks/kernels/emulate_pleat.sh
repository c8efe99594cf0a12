#!/bin/sh
# Builds and runs pleat on this machine's CPU (emulate/emulate_pleat.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_pleat.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_pleat csrc/cuda/pleat/pleat_plan.cpp
build/kernels/emulate_pleat benchmarks/kernels/cases.txt "$@"
