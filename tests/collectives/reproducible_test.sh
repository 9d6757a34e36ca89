#!/usr/bin/env bash
# The same bits on one, two and four hosts and with round-robin placement, over UCX and MPI, with all kinds of plans.
#   reproducible_test.sh MPIRUN REPRODUCIBLE_PROGRAM NETWORK...
set -euo pipefail
mpirun=$1 program=$2
shift 2
expected=
export DDL_REPRODUCIBLE=1 DDL_PROBE=off
same_with() {  # what hosts [VARIABLE=value...]
  local what=$1 hosts=$2 found
  shift 2
  found=$(env "$@" "$mpirun" --oversubscribe --bind-to none -n 4 \
    sh -c "DDL_HOST_ID=h\$(($hosts)) exec $program")
  : "${expected:=$found}"
  echo "$what: $found"
  [ "$found" = "$expected" ] || { echo "expected $expected"; exit 1; }
}
same_with 'one host' 0
for network in "$@"; do
  same_with "two hosts, $network" OMPI_COMM_WORLD_RANK/2 DDL_NETWORK="$network"
  same_with "two hosts in turns, $network" OMPI_COMM_WORLD_RANK%2 DDL_NETWORK="$network"
  same_with "a host each, $network" OMPI_COMM_WORLD_RANK DDL_NETWORK="$network"
  same_with "three and one, $network" OMPI_COMM_WORLD_RANK/3 DDL_NETWORK="$network"
done
for mode in r c p:2x2 p:4; do
  same_with "mode $mode" OMPI_COMM_WORLD_RANK/2 DDL_OPTIONS="-mode $mode"
done
# Without DDL_REPRODUCIBLE the order of additions changes the bits; otherwise this test could not fail.
without=$(DDL_REPRODUCIBLE=0 DDL_OPTIONS='-mode r' "$mpirun" --oversubscribe --bind-to none -n 4 "$program")
[ "$without" != "$expected" ] || { echo "not reproducible, and yet the same: $without"; exit 1; }
