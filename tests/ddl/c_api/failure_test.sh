#!/bin/bash
# failure_test.sh C_PROGRAM PARAMETER_LIST_PROGRAM: what a user reads when one of two ranks forgets to wait for its
# gradients, or throws an exception. A report that is repeated, that does not say whose call is whose, or that ends on a
# misleading line costs an afternoon.
set -u
output=$(mktemp)
trap 'rm -f "$output"' EXIT

run() { # run PROGRAM ARGUMENT: on two ranks, which must both end with status 1
  local rank ranks=() status
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 DDL_SOCKET=@ddl-c-failure-$$-$2 "$1" "$2" 2>>"$output" &
    ranks+=($!)
  done
  for rank in 0 1; do
    wait "${ranks[rank]}"
    status=$?
    [ $status = 1 ] || { printf 'FAILED: rank %s ended with status %s, expected 1\n' "$rank" $status; cat "$output"; exit 1; }
  done
}
expect() { # expect NUMBER REGULAR_EXPRESSION: the number of lines with it
  local found
  found=$(grep -cE -- "$2" "$output")
  [ "$found" = "$1" ] && return
  printf 'FAILED: found %s lines with "%s", expected %s, in\n' "$found" "$2" "$1"
  cat "$output"
  exit 1
}

run "$1" nowait
expect 1 '^ddl \[0\] error: the job ends: '
expect 1 '^  rank 0: called all_reduce #[0-9]+ \(.*; gradient reducer: [a-z ]+\)$'
expect 1 '^  rank 1: called all_reduce #[0-9]+ \(sum of 1 f64, 8 bytes\)$'
expect 1 "^  the gradient reducer's calls of rank 0 meet other calls of rank 1: is wait\(\) missing there\?$"
expect 1 '^rank 0 failed: ddl_reducer_wait: .* \(the report is above\)$'
expect 1 '^rank 1 failed: ddl_all_reduce: .* \(rank 0 writes the report\)$'
expect 0 'ddl_finalize'

: >"$output"
run "$2" throw
expect 1 '^ddl \[0\] error: the job ends: rank 1 .* gave up: no more data$'
expect 1 '^ddl \[1\] error: no more data$'
expect 1 '^ddl \[0\] error: ddl_barrier: .* gave up: no more data \(the report is above\)$'
expect 0 'ddl_finalize'
echo passed
