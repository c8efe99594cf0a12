#!/bin/sh
# Fits the constants of hopper's planner to measured plans (fit.cpp); needs the CUDA headers, no GPU. With --write they
# go into hopper_predict.cpp, for `make format` to align.
#   benchmarks/kernels/fit.sh [--write] [--rounds N] [--seed N] [--choice WEIGHT] [--fixed NAME,NAME] SWEEP.txt...
set -eu
cd "$(dirname "$0")/../.."
out=build/fit
cuda=${CUDA_HOME:-/usr/local/cuda}
mkdir -p $out
python3 benchmarks/kernels/layers.py > $out/layers.txt
# The planner with constants that vary. A number may stand in the next line.
sed 's/^constexpr double \(k[A-Za-z0-9]*\) =/double \1 = constant("\1", \&\1) =/' \
  csrc/cuda/hopper/hopper_predict.cpp > $out/varied_predict.cpp
# What predictions do not need, the linker leaves out: the CUDA runtime and the planners of other kernels.
g++ -std=c++17 -O2 -Icsrc -I$out -I"$cuda/include" -ffunction-sections -Wl,--gc-sections -o $out/fit \
  benchmarks/kernels/fit.cpp csrc/cuda/hopper/hopper_plan.cpp csrc/cuda/hopper/hopper_predict_planes.cpp csrc/cuda/hopper/hopper_predict_words.cpp \
  csrc/cuda/hopper/hopper_shape.cpp csrc/cuda/gather_axes.cpp csrc/cuda/device_query.cpp \
  csrc/core/problem.cpp csrc/core/types.cpp
$out/fit $out/layers.txt "$@"
