#!/bin/sh
# Builds and runs treadle on this machine's CPU (emulate/emulate_treadle.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_treadle.sh tf32 nchw SEED PLANS [NAME]     or fp32, fp16, bf16 in nchw
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_treadle csrc/cuda/treadle/treadle_plan.cpp
build/kernels/emulate_treadle benchmarks/kernels/cases.txt "$@"
