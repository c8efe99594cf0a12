#!/bin/sh
# Builds and runs the hopper kernel on this machine's CPU (emulate/emulate.cpp); needs the CUDA headers, no GPU.
#   benchmarks/kernels/emulate.sh fp16 nchw 1 [NAME]
set -eu
cd "$(dirname "$0")/../.."
out=build/kernels
mkdir -p $out
g++ -std=c++17 -O2 -w -include benchmarks/kernels/emulate/cuda_on_cpu.h -Ibenchmarks/kernels/emulate \
  -Icsrc -I"${CUDA_HOME:-/usr/local/cuda}/include" -L"${CUDA_HOME:-/usr/local/cuda}/lib64" \
  -o $out/emulate benchmarks/kernels/emulate/emulate.cpp csrc/cuda/hopper/hopper_plan.cpp csrc/cuda/hopper/hopper_shape.cpp csrc/cuda/hopper/hopper_maps.cpp \
  csrc/cuda/gather_axes.cpp csrc/cuda/device_query.cpp csrc/core/*.cpp -lcudart_static -ldl -lrt -lpthread
$out/emulate benchmarks/kernels/cases.txt "$@"
