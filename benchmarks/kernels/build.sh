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
python3 - > $out/layers.txt <<'PYTHON'
import json

for layer in json.load(open("convt2d_ext/bench/layers.json")):
    numbers = [layer[key] for key in ("N", "Cin", "Cout", "H", "W")]
    for key in ("kernel", "stride", "padding", "output_padding", "dilation"):
        numbers += layer[key]
    print(layer["name"], *numbers, layer["groups"], int(layer["bias"]))
PYTHON
