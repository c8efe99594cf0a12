#!/bin/sh
# Builds copy_engine.cu into build/kernels/copy_engine; needs nvcc, and an sm_90 GPU to run.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/kernels
"${NVCC:-nvcc}" -O2 -std=c++17 -Icsrc -gencode=arch=compute_90a,code=sm_90a \
  -o build/kernels/copy_engine benchmarks/kernels/copy_engine.cu csrc/cuda/tensor_map.cpp
