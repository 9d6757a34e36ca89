#!/usr/bin/env bash
# What the linker could share between the kernels' object files and others: of a function that several
# sources have, it keeps one copy, which might be compiled for processors that this machine is not. Programs
# would then die of an illegal instruction, on old machines alone.
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
  case $name in
    elementwise_*) space=elementwise name=${name#elementwise_} ;;
    *) space=collectives ;;
  esac
  expected="ddl::$space::$(sed "s/^\(exact_\)\?kernels_\([a-z0-9]*\).*/\2_\1kernels()/" <<<"$name")"
  if [ "$(printf '%s\n' "$found" | cut -d' ' -f3-)" != "$expected" ]; then
    printf '%s: found these symbols, expected %s alone:\n%s\n' "$object" "$expected" "$found"
    exit 1
  fi
done
[ "$checked" -gt 0 ] || { echo "no kernels among the $# objects given"; exit 1; }
