#!/bin/sh
# Builds and runs rows on this machine's CPU (emulate/emulate_rows.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_rows.sh fp16 SEED PLANS [NAME]     fp16:nhwc for channels last
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_rows csrc/cuda/rows/rows_plan.cpp
build/kernels/emulate_rows benchmarks/kernels/cases.txt "$@"
