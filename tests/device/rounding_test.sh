#!/usr/bin/env bash
# Kernels round each operation separately, like the host: their PTX has no fused multiply-add, and no multiplication or
# addition that the assembler may fuse (those without .rn).
#   rounding_test.sh PTX...
set -uo pipefail
[ "$#" -gt 0 ] || { echo "FAILED: no PTX is given" >&2; exit 1; }
status=0
for file in "$@"; do
  kernels=$(grep -c '\.entry' "$file")
  [ "$kernels" -gt 0 ] || { echo "FAILED: $file holds no kernels" >&2; exit 1; }
  if grep -nE '\b(fma|mad)(\.[a-z]+)*\.f(16|32|64)|\b(mul|add|sub)(\.ftz)?\.f(32|64)' "$file" >&2; then
    echo "FAILED: $file" >&2
    status=1
  fi
  echo "$file: $kernels kernels"
done
exit $status
