#!/usr/bin/env bash
# Disturbs training on an emulated cluster. See `chaos.sh --help`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT'
Usage: chaos.sh [--rounds N] [--seed S] [--only KIND]

Trains with ddl_nmt under `ddlrun --max-restarts` on three emulated hosts (benchmarks/emulated_cluster.sh) and disturbs
each of N rounds (default 3) by one or two faults. A round passes if it ends with the losses, gradient norms and
tensors of a run that was left alone (the same bits on as many ranks, losses within 1e-4 on others), or with one clear
error where a fault leaves no way on, and leaves nothing behind. Prints a line for each round and counts at the end; the
exit status is 1 if a round fails, and 77 where hosts cannot be emulated.

Round I draws its faults from the seed S + I (default S: 1), so `chaos.sh --rounds 1 --seed S+I` repeats it.
--only: faults of this kind alone, such as kill. DDL_BIN: the directory of the programs (default: build/bin).
EOT
}

[ "${1:-}" != --help ] || { usage; exit 0; }
cluster=$here/../benchmarks/emulated_cluster.sh
bin=$(realpath "${DDL_BIN:-$here/../build/bin}")
name=chaos$$
work=$(mktemp -d)
trap 'bash "$cluster" down --name "$name" >/dev/null 2>&1 || :; rm -rf "$work"' EXIT
unset "${!DDL_@}" "${!OMPI_@}" "${!SLURM_@}"

if ! command -v ip >/dev/null ||
  ! bash "$cluster" up --name "$name" --hosts 3 --ranks-per-host 2 >"$work/up" 2>&1; then
  echo "SKIPPED: no emulated cluster here (needs root, network namespaces and traffic shaping): $(tail -1 "$work/up" 2>&1)"
  exit 77
fi
cc -O1 -shared -fPIC -o "$work/clock.so" "$here/faults/clock_jump.c"
# A small disk for the rounds to fill. Their own network: sockets of other tests are none of theirs.
mkdir "$work/disk"
status=0
# shellcheck disable=SC2016
unshare --mount --net sh -c 'mount -t tmpfs -o size=16m tmpfs "$1/disk" && shift && exec "$@"' sh "$work" \
  python3 "$here/faults/chaos.py" "$bin" --cluster "$name" --work "$work" "$@" || status=$?
bash "$cluster" down --name "$name"
if ip netns list | grep -q "^ddl-$name-"; then
  echo "left behind: network namespaces of $name"
  status=1
fi
exit "$status"
