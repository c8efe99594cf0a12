#!/bin/sh
# Builds and runs hopper's grad_weight on this machine's CPU (emulate/emulate_hopper_weight.cpp); the best plan of every
# tile and PLANS at random.
#   benchmarks/kernels/emulate_hopper_weight.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
hopper=csrc/cuda/hopper
benchmarks/kernels/emulate/build.sh emulate_hopper_weight $hopper/hopper_weight_plan.cpp $hopper/hopper_weight_shape.cpp
build/kernels/emulate_hopper_weight benchmarks/kernels/cases.txt "$@"
