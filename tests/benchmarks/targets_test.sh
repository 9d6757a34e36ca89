#!/usr/bin/env bash
# The table of targets: a figure that is missed must not be shown as reached.
#   targets_test.sh PYTHON TARGETS.PY
set -uo pipefail
python=$1 targets=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

line() { # bytes, time_us, ratio, hosts
  printf '{"bytes":%s,"time_us":%s,"ratio":%s,"hosts":%s,"in_place":true,"simulated_us":100}\n' "$@"
}

expect() { # status, then words of the table
  local status=$1 words=$2 output found
  output=$("$python" "$targets" "$work" 2>&1)
  found=$?
  [ "$found" = "$status" ] || fail "status $found, expected $status: $output"
  grep -qE -- "$words" <<<"$output" || fail "no '$words' in: $output"
}

expect 2 "has no JSON lines"
{ line 8 10 1.7 1; line 67108864 10000 5.5 1; } >"$work/2_ranks_registered.jsonl"
expect 0 "64 MiB registered, against MPI +>= 5.00 +5.50 +64 MiB in place +ok"
expect 0 "the median +>= 1.50 +3.60"
{ line 8 10 0.9 1; line 67108864 10000 5.5 1; } >"$work/2_ranks_registered.jsonl"
expect 1 "the worst +>= 0.95 +0.90 +8 B in place +MISSED"
# The bound of 16 MiB on 4 hosts is 210.6 ms.
rm "$work"/*.jsonl
line 16777216 215000 2.0 4 >"$work/uneven_host.jsonl"
expect 0 "4\+3\+2\+1 by host +16 MiB, of the bound +>= 0.90 +0.98"
line 16777216 240000 2.0 4 >"$work/uneven_host.jsonl"
expect 1 "MISSED"
line 16777216 200000 2.0 4 >"$work/reproducible_0_host.jsonl"
line 16777216 440000 2.0 4 >"$work/reproducible_1_host.jsonl"
expect 1 "4x4 by host +reproducible, times the normal time +<= 2.50 +2.20 +16 MiB in place +ok"
line 16777216 540000 2.0 4 >"$work/reproducible_1_host.jsonl"
expect 1 "reproducible, times the normal time +<= 2.50 +2.70 +16 MiB in place +MISSED"
printf '{"ranks":2,"hosts":1,"seconds":5,"call":"barrier","core_share":0.5}\n' >"$work/idle_wait.jsonl"
expect 1 "of a core +<= 0.0200 +0.5000 +barrier +MISSED"
"$python" "$targets" "$work/nowhere" >/dev/null 2>&1
[ $? = 2 ] || fail "a directory that is not there"
echo passed
