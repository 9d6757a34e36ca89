#!/usr/bin/env bash
# Without a device, or with all devices hidden, a job ends with a helpful message and does not hang.
#   no_device_test.sh DEVICE_PROGRAM
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!OMPI_@}" "${!PMIX_@}" MASTER_PORT
export CUDA_VISIBLE_DEVICES="" DDL_SOCKET=@ddl-no-device-$$ DDL_DEADLINE=20
for rank in 0 1; do
  (
    RANK=$rank WORLD_SIZE=2 timeout 60 "$1" results >"$work/out.$rank" 2>&1
    echo $? >"$work/status.$rank"
  ) &
done
wait
for rank in 0 1; do
  [ "$(cat "$work/status.$rank")" = 1 ] || { echo "rank $rank: $(cat "$work"/status.* "$work"/out.*)"; exit 1; }
done
grep -q "no CUDA device can be used" "$work/out.0" || { cat "$work"/out.*; exit 1; }
echo passed
