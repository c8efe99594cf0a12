#!/bin/sh
# Builds and runs plain on this machine's CPU (emulate/emulate_plain.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_plain.sh fp16 fwd SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_plain csrc/cuda/plain/plain_plan.cpp
build/kernels/emulate_plain benchmarks/kernels/cases.txt "$@"
