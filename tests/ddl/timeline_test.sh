#!/usr/bin/env bash
# The timeline of jobs of several processes. Arguments: PROGRAM [MPIEXEC]. Without MPIEXEC, the processes connect
# through a socket.
set -euo pipefail
program=$1
mpiexec=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DDL_DEADLINE=60 DDL_SOCKET="$work/socket"

fail() {
  echo "timeline_test.sh: $1" >&2
  cat "$work/log" >&2
  exit 1
}

# job HOSTS MODE: runs 4 ranks on this many emulated hosts.
job() {
  if [ -n "$mpiexec" ]; then
    "$mpiexec" --oversubscribe --bind-to none -np 4 bash -c \
      "DDL_HOST_ID=h\$((OMPI_COMM_WORLD_RANK * $1 / 4)) exec '$program' $2" >"$work/log" 2>&1
    return
  fi
  local rank pids=() status=0
  for rank in 0 1 2 3; do
    RANK=$rank WORLD_SIZE=4 "$program" "$2" >>"$work/log" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  return "$status"
}

hosts=(1)
[ -z "$mpiexec" ] || hosts=(1 2)
for count in "${hosts[@]}"; do
  export DDL_TIMELINE="$work/trace-$count.json"
  : >"$work/log"
  job "$count" run || fail "the job failed"
  "$program" check "$DDL_TIMELINE" 4 "$count" || fail "the trace of $count hosts is wrong"
done

# A path that cannot be written ends the job at its start, with one message.
: >"$work/log"
DDL_TIMELINE="$work/missing/trace.json" job 1 run && fail "a bad path was no error"
[ "$(grep -c "DDL_TIMELINE='$work/missing/trace.json'" "$work/log")" = 1 ] || fail "expected one message"

# The rank that ends the job saves its part.
: >"$work/log"
DDL_TIMELINE="$work/failed.json" job 1 fail && fail "the failure was no error"
grep -q "the disk is on fire" "$work/log" || fail "the failure was not reported"
"$program" part "$work/failed.rank1.json" 1 || fail "rank 1's part is missing"
[ ! -e "$work/failed.json" ] || fail "a failed job left a whole trace"
