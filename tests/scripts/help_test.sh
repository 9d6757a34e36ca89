#!/usr/bin/env bash
# `--help` of each PROGRAM prints to standard output and exits with status 0, without doing anything else.
#   help_test.sh PROGRAM...
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/empty"
cd "$work/empty" || exit 1
failed=0
fail() {
  printf 'FAILED: %s --help: %s\n' "$program" "$1" >&2
  failed=1
}

for program in "$@"; do
  status=0
  timeout 20 "$program" --help >"$work/out" 2>"$work/err" </dev/null || status=$?
  [ "$status" = 0 ] || fail "status $status"
  [ ! -s "$work/err" ] || fail "on standard error: $(head -3 "$work/err")"
  [ "$(wc -l <"$work/out")" -ge 3 ] || fail "found $(wc -l <"$work/out") lines"
  [ -z "$(ls -A)" ] || fail "left $(ls -A)"
done
[ "$failed" = 0 ] && echo "$# programs teach"
exit "$failed"
