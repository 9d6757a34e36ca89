#!/usr/bin/env bash
# The timeline of emulated hosts. Their ranks share no memory, so clocks are compared over the network.
# CLUSTER.sh PROGRAM
set -uo pipefail
cluster=$1 program=$2
name=timeline$$
work=$(mktemp -d)
trap 'bash "$cluster" down --name "$name" >/dev/null 2>&1; rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 DDL_DEADLINE=60

if ! bash "$cluster" up --name "$name" --hosts 3 --ranks-per-host 2 >"$work/up" 2>&1; then
  echo "SKIPPED: no emulated cluster here (needs root, network namespaces and traffic shaping): $(tail -1 "$work/up" 2>&1)"
  exit 77
fi
for placement in host round_robin; do
  if ! DDL_TIMELINE="$work/$placement.json" bash "$cluster" run --name "$name" --hosts 3 --ranks-per-host 2 \
    --placement "$placement" -- "$program" run >"$work/log" 2>&1; then
    echo "FAILED: the job placed by $placement failed" >&2
    cat "$work/log" >&2
    exit 1
  fi
  "$program" check "$work/$placement.json" 6 3 "$placement" || exit 1
done
