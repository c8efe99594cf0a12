#!/bin/sh
# Builds and runs weft on this machine's CPU (emulate/emulate_weft.cpp); the best plan of every tile and PLANS at random.
#   benchmarks/kernels/emulate_weft.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_weft csrc/cuda/weft/weft_plan.cpp csrc/cuda/weft/weft_shape.cpp \
  csrc/cuda/hopper/hopper_weight_shape.cpp
build/kernels/emulate_weft benchmarks/kernels/cases.txt "$@"
