#!/bin/sh
# Builds and runs purl on this machine's CPU (emulate/emulate_purl.cpp), PLANS of each case.
#   benchmarks/kernels/emulate_purl.sh TYPE SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
benchmarks/kernels/emulate/build.sh emulate_purl csrc/cuda/purl/purl_plan.cpp
build/kernels/emulate_purl benchmarks/kernels/cases.txt "$@"
