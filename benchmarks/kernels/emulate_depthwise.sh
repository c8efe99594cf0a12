#!/bin/sh
# Builds and runs depthwise's gradients on this machine's CPU (emulate/emulate_depthwise.cpp).
#   benchmarks/kernels/emulate_depthwise.sh fp16 nchw grad_input SEED [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_depthwise csrc/cuda/depthwise/*.cpp
build/kernels/emulate_depthwise benchmarks/kernels/cases.txt "$@"
