#!/bin/sh
# Builds and runs quilt on this machine's CPU (emulate/emulate_quilt.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_quilt.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_quilt csrc/cuda/quilt/quilt_plan.cpp
build/kernels/emulate_quilt benchmarks/kernels/cases.txt "$@"
