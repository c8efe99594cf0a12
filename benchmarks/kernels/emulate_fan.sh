#!/bin/sh
# Builds and runs fan on this machine's CPU (emulate/emulate_fan.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_fan.sh SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_fan csrc/cuda/fan/fan_plan.cpp
build/kernels/emulate_fan benchmarks/kernels/cases.txt "$@"
