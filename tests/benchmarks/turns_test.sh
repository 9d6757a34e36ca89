#!/usr/bin/env bash
# The programs that compare in turns: what they say, what they keep, and what they refuse.
# turns_test.sh MPIRUN PROGRAMS
set -euo pipefail

mpirun=$1
programs=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset DDL_TIMELINE
export TMPDIR=$work

fail() {
  echo "turns_test: $*" >&2
  exit 1
}
in_two() { "$mpirun" --oversubscribe --bind-to none -np 2 "$@"; }

# One line of JSON, with four contexts of each kind.
check_line() { # program, names of the kinds
  local times='\[[0-9]+\.[0-9](,[0-9]+\.[0-9]){3}\]'
  local line="{\"benchmark\":\"$1\",\"ranks\":2,\"bytes\":512,\"rounds\":2,\"calls\":50,"
  line+="\"$2\":$times,\"$3\":$times}"
  [ "$(wc -l <"$work/lines.json")" = 1 ] || fail "found $(wc -l <"$work/lines.json") lines"
  grep -qxE -- "$line" "$work/lines.json" || fail "found $(cat "$work/lines.json")"
  rm "$work/lines.json"
}
few=(--rounds 2 --calls 50 --bytes 515 --json "$work/lines.json")

in_two "$programs/timeline_cost" "${few[@]}" >"$work/out"
grep -q "without a timeline" "$work/out" || fail "no figures: $(cat "$work/out")"
check_line timeline_cost without_ns with_ns
left=$(find "$work" -name 'timeline_cost.*')
[ -z "$left" ] || fail "left behind: $left"

cp "$programs/libcomparable_build.so" "$work/other.so"
(cd "$work" && in_two "$programs/compare_builds" "$programs/libcomparable_build.so" other.so "${few[@]}") >"$work/out"
grep -q "ns old" "$work/out" || fail "no figures: $(cat "$work/out")"
check_line compare_builds old_ns new_ns

# refuses TEXT ARGUMENTS...
refuses() {
  local text=$1
  shift
  if "$programs/compare_builds" "$@" >"$work/out" 2>&1; then fail "took $*"; fi
  grep -qF -- "$text" "$work/out" || fail "of $*: expected '$text', found: $(cat "$work/out")"
}
refuses "expected two files, OLD.so and NEW.so"
refuses "expected two files" --bytes 8
refuses "--calls: found 'x'" a.so b.so --calls x
refuses "cannot load $work/none.so" "$work/none.so" "$work/none.so"
library=$(ldd "$programs/compare_builds" | awk '/libfmt/ { print $3 }')
refuses "has no comparable_open" "$library" "$library"
echo "turns_test: passed"
