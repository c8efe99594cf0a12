#!/bin/sh
# Builds and runs slide on this machine's CPU (emulate/emulate_slide.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_slide.sh fp16 SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_slide csrc/cuda/slide/slide_plan.cpp csrc/cuda/slide/slide_strided_plan.cpp csrc/cuda/slide/slide_rows_plan.cpp
build/kernels/emulate_slide benchmarks/kernels/cases.txt "$@"
