#!/usr/bin/env bash
# A host's link is cut while a job runs on the emulated cluster: the ranks that still reach rank 0 end by the deadline,
# and the report names the ranks that cannot be reached. (mpirun has lost its daemon on that host and is killed.)
#   link_cut_test.sh EMULATED_CLUSTER FAULT_PROGRAM
set -uo pipefail
cluster=$1 program=$2
name=cut$$
work=$(mktemp -d)
trap 'bash "$cluster" down --name "$name" >/dev/null 2>&1; rm -rf "$work"' EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  cat "$work/log" >&2
  exit 1
}
touch "$work/log"

if ! command -v ip >/dev/null || ! bash "$cluster" up --name "$name" --hosts 3 --ranks-per-host 1 >"$work/up" 2>&1; then
  echo "SKIPPED: no emulated cluster here (needs root, network namespaces and traffic shaping): $(tail -1 "$work/up" 2>&1)"
  exit 77
fi
export DDL_DEADLINE=3 DDL_PROBE=off DDL_REPORT=$work/report
bash "$cluster" run --name "$name" -- "$program" forever before 0 16384 >"$work/log" 2>&1 &
job=$!
disown "$job" # mpirun's fate does not matter
# The job runs once host 2's rank has a connection to rank 0 through which data has gone.
for ((i = 0; i < 200; ++i)); do
  ip netns exec "ddl-$name-node2" ss -Htn state established 2>/dev/null | grep -q 10.77.0.1 &&
    ip netns pids "ddl-$name-node2" | xargs -r ps -o comm= -p 2>/dev/null | grep -q fault_program && break
  kill -0 "$job" 2>/dev/null || fail "the job has ended by itself"
  sleep 0.1
done
sleep 2 # until it is inside its collectives
kill -0 "$job" 2>/dev/null || fail "the job has ended by itself"
ip -n "ddl-$name-switch" link set port2 down || fail "the link cannot be cut"
cut=$SECONDS
while ! [ -e "$work/report.json" ]; do
  [ $((SECONDS - cut)) -lt 15 ] || fail "no report 15 s after the link was cut, with a deadline of 3 s"
  sleep 0.1
done
echo "report $((SECONDS - cut)) s after the link was cut"
python3 - "$work/report.json" <<'P' || fail "the report: $(cat "$work/report.json")"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["failure"]["kind"] in ("stuck", "network"), report["failure"]
assert [rank["life"] for rank in report["ranks"]] == ["answers", "answers", "silent"], report["ranks"]
P
grep -q "the job ends:" "$work/log" || fail "no report on standard error"
grep -q "rank 2 (host node2" "$work/log" || fail "nobody names rank 2"
# No process of the job remains, on either side of the cut.
for ((i = 0; i < 100; ++i)); do
  left=$(for host in 0 1 2; do ip netns pids "ddl-$name-node$host" | xargs -r ps -o comm= -p; done | grep -c fault_program)
  [ "$left" = 0 ] && break
  sleep 0.1
done
[ "$left" = 0 ] || fail "$left ranks are left after 10 s"
kill "$job" 2>/dev/null
echo passed
