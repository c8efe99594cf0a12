#!/bin/sh
# Builds choices (choices.cpp) with the device code that build.sh has built; needs no GPU. With CHECK=1 searches look at everything,
# and tell of each bound that is above a prediction: both programs must print the same choices.
#   [CHECK=1] benchmarks/kernels/choices.sh; build/planner/choices time 0 1 build/kernels/layers.txt
set -eu
cd "$(dirname "$0")/../.."
check=${CHECK:+-DCONVT2D_CHECK_BOUNDS}
out=build/planner${CHECK:+_checked}
mkdir -p "$out"
flags="-std=c++17 -O3 $check -Icsrc -isystem ${CUDA_HOME:-/usr/local/cuda}/include"
find csrc/core csrc/cuda benchmarks/kernels/choices.cpp -name "*.cpp" | while read -r file; do
  echo "$file $out/$(basename "$file").o"
done | xargs -P "${JOBS:-$(nproc)}" -L 1 sh -c "g++ $flags -c -o \$1 \$0"
nvcc -arch=sm_90a -o "$out/choices" "$out"/*.o $(find build/kernels -name "*.cu.o" ! -name "*kernel_bench*")
