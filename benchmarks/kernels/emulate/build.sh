#!/bin/sh
# Builds emulate/NAME.cpp, with the host sources it needs, into build/kernels/NAME; needs the CUDA headers, no GPU.
#   benchmarks/kernels/emulate/build.sh NAME SOURCES
set -eu
cd "$(dirname "$0")/../../.."
name=$1
shift
out=build/kernels
cuda=${CUDA_HOME:-/usr/local/cuda}
mkdir -p $out
g++ -std=c++17 -O2 -w -include benchmarks/kernels/emulate/cuda_on_cpu.h -Ibenchmarks/kernels/emulate -Icsrc \
  -I"$cuda/include" -L"$cuda/lib64" -o "$out/$name" "benchmarks/kernels/emulate/$name.cpp" "$@" \
  benchmarks/kernels/emulate/stubs.cpp csrc/cuda/direct/direct_plan.cpp csrc/cuda/gather_axes.cpp \
  csrc/cuda/device_query.cpp csrc/core/*.cpp -lcudart_static -ldl -lrt -lpthread
