#!/bin/sh
# Builds and runs the hopper kernel on this machine's CPU (emulate/emulate.cpp).
#   benchmarks/kernels/emulate.sh fp16 nchw 1 [NAME]
set -eu
cd "$(dirname "$0")/../.."
hopper=csrc/cuda/hopper
benchmarks/kernels/emulate/build.sh emulate $hopper/hopper_plan.cpp $hopper/hopper_predict.cpp $hopper/hopper_predict_planes.cpp $hopper/hopper_predict_words.cpp $hopper/hopper_shape.cpp \
  $hopper/hopper_maps.cpp \
  $hopper/hopper_weight_plan.cpp $hopper/hopper_weight_shape.cpp $hopper/hopper_fetched_weight_plan.cpp \
  $hopper/hopper_packed_weight_plan.cpp
build/kernels/emulate benchmarks/kernels/cases.txt "$@"
