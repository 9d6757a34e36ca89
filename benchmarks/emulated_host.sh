#!/usr/bin/env bash
# Runs a command on a host of the emulated cluster (emulated_cluster.sh) whose state directory is $DDL_EMULATED_CLUSTER:
#   emulated_host.sh HOST COMMAND...          a shell command line, like ssh; for mpirun's plm_rsh_agent
#   emulated_host.sh --exec HOST PROGRAM ...  a program with its arguments
# Each call gets its own host name, System V IPC and /dev/shm; mpirun makes one call per host.
set -euo pipefail

: "${DDL_EMULATED_CLUSTER:?is not set; use emulated_cluster.sh run}"
if [ "$1" = --exec ]; then
  host=$2
  shift 2
else
  host=$1
  shift
  set -- /bin/sh -c "$*"
fi
name=${DDL_EMULATED_CLUSTER##*-emulated-cluster-}
# shellcheck disable=SC2016
exec ip netns exec "ddl-$name-$host" unshare --uts --ipc --mount /bin/sh -c '
  set -e
  hostname "$1" 2>/dev/null || printf "%s" "$1" >/proc/sys/kernel/hostname
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
  mount --bind "$2" /etc/hosts
  shift 2
  exec "$@"' emulated_host "$host" "$DDL_EMULATED_CLUSTER/hosts" "$@"
