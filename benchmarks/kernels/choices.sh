#!/bin/sh
# Builds choices (choices.cpp) and launches (launches.cpp) with the device code that build.sh has built; needs no GPU. With CHECK=1
# searches look at everything, and tell of each bound that is above a prediction: choices must be the same.
#   [CHECK=1] benchmarks/kernels/choices.sh; build/planner/choices time 0 1 build/kernels/layers.txt
#   build/planner/launches 60000 1 build/kernels/layers.txt
set -eu
cd "$(dirname "$0")/../.."
check=${CHECK:+-DCONVT2D_CHECK_BOUNDS}
out=build/planner${CHECK:+_checked}
mkdir -p "$out"
flags="-std=c++17 -O3 $check -Icsrc -isystem ${CUDA_HOME:-/usr/local/cuda}/include"
find csrc/core csrc/cuda benchmarks/kernels/choices.cpp benchmarks/kernels/launches.cpp -name "*.cpp" | while read -r file; do
  echo "$file $out/$(basename "$file").o"
done | xargs -P "${JOBS:-$(nproc)}" -L 1 sh -c "g++ $flags -c -o \$1 \$0"
device=$(find build/kernels -name "*.cu.o" ! -name "*kernel_bench*")
all=$(find "$out" -name "*.o" ! -name choices.cpp.o ! -name launches.cpp.o)
nvcc -arch=sm_90a -o "$out/choices" "$out/choices.cpp.o" $all $device
nvcc -arch=sm_90a -cudart shared -o "$out/launches" "$out/launches.cpp.o" $(echo "$all" | grep -v tensor_map) $device
