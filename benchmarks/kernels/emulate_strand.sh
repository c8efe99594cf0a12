#!/bin/sh
# Builds and runs strand on this machine's CPU (emulate/emulate_strand.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_strand.sh fp16 nchw SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_strand csrc/cuda/strand/strand_plan.cpp \
  csrc/cuda/strand/strand_windows_plan.cpp csrc/cuda/strand/strand_dense_plan.cpp \
  csrc/cuda/strand/strand_spans_plan.cpp
build/kernels/emulate_strand benchmarks/kernels/cases.txt "$@"
