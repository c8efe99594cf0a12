#!/bin/sh
# Builds and runs reed on this machine's CPU (emulate/emulate_reed.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_reed.sh fp16 SEED PLANS [NAME]     fp16:nhwc for channels last
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_reed csrc/cuda/reed/reed_plan.cpp csrc/cuda/reed/reed_held_plan.cpp \
  csrc/cuda/reed/reed_lapped_plan.cpp csrc/cuda/reed/reed_broad_plan.cpp
build/kernels/emulate_reed benchmarks/kernels/cases.txt "$@"
