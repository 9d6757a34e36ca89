#!/usr/bin/env bash
# Measures collectives on one host and compares them with their targets. See `single_host.sh --help`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT'
Usage: single_host.sh DIRECTORY

Runs all_reduce_perf with 2 and 4 processes and with 64 threads on this host, compared with MPI, a plain loop, and
threads that do the same reads and writes; and idle_wait. Writes JSON lines to DIRECTORY, which must be new or empty, and
then prints a table of targets (targets.py). Takes about 3 minutes, during which the machine should be otherwise idle.
The exit status is 1 if a target is missed.

DDL_BIN: the directory of the programs (default: build/bin). Needs mpirun and python3.
EOT
}

fail() {
  printf 'single_host.sh: %s\n' "$*" >&2
  exit 2
}

[ "$#" = 1 ] || { usage >&2; exit 2; }
case $1 in
  --help | -h) usage; exit 0 ;;
  -*) fail "unknown option $1; see --help" ;;
esac
bin=${DDL_BIN:-$here/../build/bin}
[ -x "$bin/all_reduce_perf" ] || fail "$bin has no all_reduce_perf; build first, or set DDL_BIN"
for tool in mpirun python3; do
  command -v "$tool" >/dev/null || fail "$tool is missing"
done
out=$1
[ -z "$(ls -A "$out" 2>/dev/null)" ] || fail "$out holds files; give a new directory"
mkdir -p "$out" || fail "cannot make $out"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
on_ranks() { mpirun --oversubscribe --bind-to none -n "$@"; }

on_ranks 2 "$bin/all_reduce_perf" -b 8 -e 64M -n 50 -w 5 --baseline mpi --json "$out/2_ranks_registered.jsonl"
on_ranks 2 "$bin/all_reduce_perf" -b 64M -n 50 -w 5 --baseline loop --json "$out/2_ranks_loop.jsonl"
on_ranks 2 "$bin/all_reduce_perf" -b 8 -e 64M -n 30 -w 5 --registered 0 --baseline mpi --json "$out/2_ranks_plain.jsonl"
on_ranks 4 "$bin/all_reduce_perf" -b 1M -e 64M -n 20 -w 3 --baseline mpi --json "$out/4_ranks.jsonl"
"$bin/all_reduce_perf" --in-process 4 -b 1M -e 64M -n 20 -w 3 --baseline threads --json "$out/4_threads.jsonl"
"$bin/all_reduce_perf" --in-process 64 -b 1M -e 1M -n 30 -w 3 --baseline threads --json "$out/64_threads.jsonl"
on_ranks 2 "$bin/idle_wait" --seconds 5 --json "$out/idle_wait.jsonl"
echo
exec python3 "$here/targets.py" "$out"
