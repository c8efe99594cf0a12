#!/bin/sh
# Builds and runs igemm's grad_weight on this machine's CPU (emulate/emulate_weight.cpp). Layouts are those of x and
# dY; the best plan of every tile and PLANS at random.
#   benchmarks/kernels/emulate_weight.sh fp16 nchw-nhwc SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_weight csrc/cuda/igemm/igemm_weight_plan.cpp \
  csrc/cuda/igemm/igemm_weight_shape.cpp
build/kernels/emulate_weight benchmarks/kernels/cases.txt "$@"
