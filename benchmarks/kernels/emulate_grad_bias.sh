#!/bin/sh
# Builds and runs the bias gradient on this machine's CPU (emulate/emulate_grad_bias.cpp), ROUNDS of each case.
#   benchmarks/kernels/emulate_grad_bias.sh fp16 SEED ROUNDS [NAME]     TF32, strict: fp32
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_grad_bias
build/kernels/emulate_grad_bias benchmarks/kernels/cases.txt "$@"
