#!/usr/bin/env bash
# Fails if the linker could share functions between the kernels' object files and others: it keeps one copy of a function
# that several sources define, which might be compiled for newer processors than this machine's. On old machines, programs
# would then be killed by an illegal instruction.
#   kernel_symbols_test.sh NM OBJECT...
set -euo pipefail
nm=$1
shift
checked=0
for object in "$@"; do
  case $object in
    *kernels_baseline* | *kernels_avx2* | *kernels_avx512*) ;;
    *) continue ;;
  esac
  checked=$((checked + 1))
  found=$("$nm" -C --defined-only --extern-only "$object")
  name=$(basename "$object")
  set_name=$(sed 's/.*kernels_\([a-z0-9]*\).*/\1/' <<<"$name")
  case $name in
    elementwise_*) expected="ddl::elementwise::${set_name}_kernels()" ;;
    *) expected="ddl::collectives::${set_name}_kernels()" ;;
  esac
  if [ "$(printf '%s\n' "$found" | cut -d' ' -f3- | LC_ALL=C sort)" != "$expected" ]; then
    printf '%s: expected these symbols alone:\n%s\nfound:\n%s\n' "$object" "$expected" "$found"
    exit 1
  fi
done
[ "$checked" -gt 0 ] || { echo "no kernels among the $# objects given"; exit 1; }
