#!/bin/sh
# Builds and runs igemm's grad_weight on this machine's CPU (emulate/emulate_weight.cpp); needs the CUDA headers,
# no GPU. Layouts are those of x and dY; the best plan of every tile and PLANS at random.
#   benchmarks/kernels/emulate_weight.sh fp16 nchw-nhwc SEED PLANS [NAME]
set -eu
cd "$(dirname "$0")/../.."
out=build/kernels
mkdir -p $out
g++ -std=c++17 -O2 -w -include benchmarks/kernels/emulate/cuda_on_cpu.h -Ibenchmarks/kernels/emulate \
  -Icsrc -I"${CUDA_HOME:-/usr/local/cuda}/include" -L"${CUDA_HOME:-/usr/local/cuda}/lib64" \
  -o $out/emulate_weight benchmarks/kernels/emulate/emulate_weight.cpp csrc/cuda/igemm/igemm_weight_plan.cpp \
  csrc/cuda/igemm/igemm_weight_shape.cpp csrc/cuda/direct/direct_plan.cpp csrc/cuda/gather_axes.cpp \
  csrc/cuda/device_query.cpp csrc/core/*.cpp -lcudart_static -ldl -lrt -lpthread
$out/emulate_weight benchmarks/kernels/cases.txt "$@"
