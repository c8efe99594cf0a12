#!/bin/sh
# Builds and runs hopper's grad_weight whose columns are packed on this machine's CPU (emulate/emulate_packed_weight.cpp),
# PLANS of each case.
#   benchmarks/kernels/emulate_packed_weight.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
hopper=csrc/cuda/hopper
benchmarks/kernels/emulate/build.sh emulate_packed_weight $hopper/hopper_packed_weight_plan.cpp $hopper/hopper_weight_shape.cpp
build/kernels/emulate_packed_weight benchmarks/kernels/cases.txt "$@"
