#!/bin/sh
# Builds and runs hopper's grad_weight whose dY is fetched on this machine's CPU (emulate/emulate_fetched_weight.cpp), PLANS of
# each case.
#   benchmarks/kernels/emulate_fetched_weight.sh fp16 nchw SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_fetched_weight csrc/cuda/hopper/hopper_fetched_weight_plan.cpp \
  csrc/cuda/hopper/hopper_weight_shape.cpp
build/kernels/emulate_fetched_weight benchmarks/kernels/cases.txt "$@"
