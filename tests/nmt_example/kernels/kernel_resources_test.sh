#!/usr/bin/env bash
# kernel_resources_test.sh PTXAS FILE.ptx ...
# What ptxas makes of the trainer's kernels. If it failed, fewer threads would run at once, or values would go through
# memory: a step would take longer, and only a profiler would say why.
set -euo pipefail
ptxas=$1
shift
[ $# -gt 0 ] || { echo "no kernels were given"; exit 1; }
export LC_ALL=C
for architecture in sm_80 sm_90; do
  for file in "$@"; do
    if ! "$ptxas" -v --gpu-name "$architecture" -o /dev/null "$file" > resources.log 2>&1; then
      cat resources.log
      exit 1
    fi
    cat "$file" resources.log
  done | awk -v architecture="$architecture" '
    # A block has up to 1024 threads, unless its kernel declares fewer.
    /\.entry / { sub(/.*\.entry /, ""); sub(/\(.*/, ""); declaring = $0 }
    /^\.maxntid / { threads[declaring] = $2 + 0 }
    /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2] }
    /bytes spill stores/ {
      for (i = 1; i < NF; ++i) if ($(i + 1) == "bytes" && $(i + 2) == "spill") spilled[kernel] += $i
    }
    /Used [0-9]+ registers/ {
      ++kernels
      registers = shared = 0
      for (i = 1; i < NF; ++i) {
        if ($(i + 1) ~ /^registers/) registers = $i
        if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i
      }
      if (registers > most) most = registers
      of_block = kernel in threads ? threads[kernel] : 1024
      if (registers * of_block > 65536 || registers > 128 || shared > 49152 || spilled[kernel] > 0) {
        printf "%s: %s has %d registers (at most 65536 in a block of %d threads, 128 in each), %d bytes of shared memory " \
               "(at most 49152) and %d bytes of spills (none allowed)\n", architecture, kernel, registers, of_block, shared,
               spilled[kernel]
        failed = 1
      }
    }
    END {
      printf "%s: %d kernels, up to %d registers\n", architecture, kernels, most
      exit failed || kernels == 0
    }'
done
