#!/bin/sh
# Builds every emulator and runs it on its lines of emulators.txt, JOBS of them at once. What one prints stays together;
# the exit status is 1 if any line found a fault.
#   benchmarks/kernels/emulate_all.sh [EMULATOR...]      all of emulators.txt without names
set -eu
cd "$(dirname "$0")/../.."
lines=benchmarks/kernels/emulators.txt
mkdir -p build/kernels

if [ "${1:-}" = --one ]; then
  log=build/kernels/$2.log
  script=benchmarks/kernels/$2.sh
  # The script builds the emulator for its first line; the others run what it built.
  if grep "^$2 " $lines | while read -r name line; do
    settings= numbers=
    for word in $line; do
      case $word in [A-Z]*=*) settings="$settings $word" ;; *) numbers="$numbers $word" ;; esac
    done
    env $settings ${script:-build/kernels/$name benchmarks/kernels/cases.txt} $numbers || exit 1
    script=
  done > "$log" 2>&1; then cat "$log"; else cat "$log"; echo "FAILED: $2"; exit 1; fi
  exit 0
fi

if [ $# = 0 ]; then set -- $(cut -d' ' -f1 $lines | uniq); fi
printf '%s\n' "$@" | xargs -P "${JOBS:-$(nproc)}" -n 1 "$0" --one
