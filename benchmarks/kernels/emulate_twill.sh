#!/bin/sh
# Builds and runs twill on this machine's CPU (emulate/emulate_twill.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_twill.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_twill csrc/cuda/twill/twill_plan.cpp
build/kernels/emulate_twill benchmarks/kernels/cases.txt "$@"
