#!/bin/sh
# Builds and runs spool's three kernels on this machine's CPU (emulate/emulate_spool.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_spool.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
hopper=csrc/cuda/hopper
benchmarks/kernels/emulate/build.sh emulate_spool csrc/cuda/spool/spool_plan.cpp $hopper/hopper_weight_plan.cpp \
  $hopper/hopper_weight_shape.cpp
build/kernels/emulate_spool benchmarks/kernels/cases.txt "$@"
