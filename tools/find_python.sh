#!/bin/sh
# Prints the newest Python from 3.10 on that can build an extension: one that really starts (a
# version manager's stub may not), can make environments, and has its C headers.
check='
import ensurepip, os, sys, sysconfig, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(not (sys.version_info >= (3, 10) and os.path.exists(header)))
'
for name in python3.14 python3.13 python3.12 python3.11 python3.10 python3 python; do
  if path=$(command -v "$name") && "$path" -c "$check" 2>/dev/null; then
    echo "$path"
    exit 0
  fi
done
echo "no Python >= 3.10 with venv and C headers was found; name one with PYTHON=..." >&2
exit 1
