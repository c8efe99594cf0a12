#!/bin/sh
# Builds and runs crimp on this machine's CPU (emulate/emulate_crimp.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_crimp.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_crimp csrc/cuda/crimp/crimp_plan.cpp
build/kernels/emulate_crimp benchmarks/kernels/cases.txt "$@"
