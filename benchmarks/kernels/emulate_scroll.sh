#!/bin/sh
# Builds and runs scroll on this machine's CPU (emulate/emulate_scroll.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_scroll.sh fp16 fwd SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_scroll csrc/cuda/scroll/scroll_plan.cpp csrc/cuda/scroll/scroll_planes_plan.cpp
build/kernels/emulate_scroll benchmarks/kernels/cases.txt "$@"
