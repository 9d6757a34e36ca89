#!/usr/bin/env bash
# A trainer needs no more changes than the README says, and the README shows all of them.
#   diffs_test.sh EXAMPLES README
set -euo pipefail
examples=$1 readme=$2

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# Prints the lines of the README's ```diff block number $1.
readme_block() {
  awk -v wanted="$1" '/^```diff$/ { ++block; inside = 1; next } /^```$/ { inside = 0 } inside && block == wanted' "$readme"
}

check() { # example, ending, most lines that are added or changed; which of the README's blocks, or none
  local plain=$examples/$1/plain_trainer.$2 trainer=$examples/$1/ddl_trainer.$2 lines difference
  ! grep -qi ddl "$plain" || fail "$plain mentions the library"
  difference=$(diff -U1 --label "plain_trainer.$2" --label "ddl_trainer.$2" "$plain" "$trainer") && fail "$1: no difference"
  lines=$(tail -n +3 <<<"$difference" | grep -c '^+')
  [ "$lines" -le "$3" ] || fail "$1: $lines lines are added or changed, expected $3 at most"
  grep -qE '#include <ddl/|^import ddl' "$trainer" || fail "$trainer does not use the library"
  [ -z "${4:-}" ] || diff -u --label "the README's block" --label "the difference" <(readme_block "$4") <(echo "$difference") ||
    fail "ddl/README.md does not show the difference of $1 as it is"
  echo "$1: $lines lines"
}

check perceptron cpp 10 1
check regression c 10 2
check flat_buffer c 20 3
check layer_vectors cpp 12
check torch cpp 24
check python py 15 4
