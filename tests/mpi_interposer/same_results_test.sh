#!/usr/bin/env bash
# Runs an MPI program with and without libddl_mpi: the output must be the same, and the library must have served all
# calls with DDL_MPI_SERVE=all, and otherwise those at which it is faster.
#   same_results_test.sh MPIRUN LIBRARY PROGRAM PROCESSES HOSTS, where HOSTS is a formula of OMPI_COMM_WORLD_RANK.
set -euo pipefail
mpirun=$1 library=$2 program=$3 processes=$4 hosts=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run() { "$mpirun" --oversubscribe --bind-to none -n "$processes" "$@"; }

run "$program" >"$work/without"
[ "$(grep -c . "$work/without")" = 7 ] || { cat "$work/without"; echo "expected 7 lines"; exit 1; }
for serve in all faster; do
  run sh -c "DDL_HOST_ID=h\$(($hosts)) LD_PRELOAD=$library DDL_OPTIONS='-dbg_level 1' DDL_MPI_SERVE=$serve exec $program" \
    >"$work/with" 2>"$work/log" || { cat "$work/with" "$work/log" >&2; exit 1; }
  sed -n '/MPI_/p' "$work/log" # for readers of the test's output
  diff "$work/without" "$work/with" || { echo "the results differ"; exit 1; }
  [ "$processes" != 1 ] || continue
  line='[1-9][0-9]* served'
  [ "$serve" = all ] || line='([1-9][0-9]* served|.*left to MPI: MPI is faster)'
  for function in MPI_Allreduce MPI_Bcast MPI_Reduce_scatter MPI_Reduce_scatter_block MPI_Allgather MPI_Reduce; do
    grep -Eq "$function: $line" "$work/log" || { echo "$function has not been served"; exit 1; }
  done
done
