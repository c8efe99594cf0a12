#!/bin/sh
# Builds kernel_bench for sm_90a into build/kernels and writes the bench's layers beside it. JOBS compilers at
# once.
set -eu
cd "$(dirname "$0")/../.."
out=build/kernels
mkdir -p $out
flags="-std=c++17 -O3 -Icsrc -gencode=arch=compute_90a,code=sm_90a"
find csrc/core csrc/cuda benchmarks/kernels/kernel_bench.cu -name "*.cu" -o -name "*.cpp" | while read -r file; do
  echo "$file $out/$(basename "$file").o"
done | xargs -P "${JOBS:-$(nproc)}" -L 1 sh -c "nvcc $flags -c -o \$1 \$0"
nvcc -o $out/kernel_bench $out/*.o
python3 benchmarks/kernels/layers.py > $out/layers.txt
