#!/usr/bin/env bash
# A command on a device as 1, 2 and 4 processes, which may share it. No MPI.
#   c_device_test.sh COMMAND...
# Exit status 77: there is no device.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!OMPI_@}" "${!PMIX_@}" MASTER_PORT
export DDL_SOCKET=@ddl-c-device-$$ DDL_DEADLINE=${DDL_DEADLINE:-60}
for ranks in 1 2 4; do
  pids=()
  for ((rank = 0; rank < ranks; ++rank)); do
    RANK=$rank WORLD_SIZE=$ranks timeout 120 "$@" >"$work/out.$rank" 2>&1 &
    pids+=($!)
  done
  failed=0
  for pid in "${pids[@]}"; do wait "$pid" || failed=$?; done
  if grep -qE "^skipped: |no CUDA device can be used" "$work/out.0"; then
    echo "skipped: $(cat "$work/out.0")"
    exit 77
  fi
  [ $failed = 0 ] || { echo "FAILED with $ranks ranks: $(cat "$work"/out.*)"; exit 1; }
  grep -q "0 of $ranks passed" "$work/out.0" || { cat "$work/out.0"; exit 1; }
done
echo passed
