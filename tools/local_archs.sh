#!/bin/sh
# Prints the TORCH_CUDA_ARCH_LIST of a local build: the GPUs of this machine, or 9.0a without one.
# Release builds take the whole list of setup.py.
archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
  grep -E '^[0-9]+\.[0-9]+$' | sort -u | sed 's/^9\.0$/9.0a/' | paste -sd ';')
echo "${archs:-9.0a}"
