#!/bin/sh
# Builds and runs plait on this machine's CPU (emulate/emulate_plait.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_plait.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_plait csrc/cuda/plait/plait_plan.cpp csrc/cuda/plait/plait_shape.cpp
build/kernels/emulate_plait benchmarks/kernels/cases.txt "$@"
