#!/bin/sh
# Builds and runs hopper's grad_weight of NCHW tensors on this machine's CPU (emulate/emulate_nchw_weight.cpp), PLANS of
# each case.
#   benchmarks/kernels/emulate_nchw_weight.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_nchw_weight csrc/cuda/hopper/hopper_nchw_weight_plan.cpp
build/kernels/emulate_nchw_weight benchmarks/kernels/cases.txt "$@"
