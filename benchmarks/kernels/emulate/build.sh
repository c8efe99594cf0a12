#!/bin/sh
# Builds emulate/NAME.cpp, with the host sources it needs, into build/kernels/NAME; needs the CUDA headers, no GPU.
#   benchmarks/kernels/emulate/build.sh NAME SOURCES
# OPTIMIZE=0 builds in half the time, for small cases.
set -eu
cd "$(dirname "$0")/../../.."
name=$1
shift
out=build/kernels
cuda=${CUDA_HOME:-/usr/local/cuda}
mkdir -p $out
g++ -std=c++17 -O${OPTIMIZE:-2} -w -Wno-psabi -include benchmarks/kernels/emulate/cuda_on_cpu.h \
  -Ibenchmarks/kernels/emulate -Icsrc -I"$cuda/include" -L"$cuda/lib64" -L"$cuda/lib" \
  -o "$out/$name" "benchmarks/kernels/emulate/$name.cpp" "$@" \
  benchmarks/kernels/emulate/stubs.cpp csrc/cuda/direct/direct_plan.cpp csrc/cuda/grad_bias/grad_bias_plan.cpp csrc/cuda/gather_axes.cpp \
  csrc/cuda/device_query.cpp csrc/core/*.cpp -lcudart_static -ldl -lrt -lpthread
