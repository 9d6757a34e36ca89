#!/usr/bin/env bash
# Runs ddl/launcher/cluster/slurm.sbatch under a temporary Slurm on this machine. See `slurm.sh --help`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT'
Usage: slurm.sh [--hosts 1] [--tasks-per-node 2] [-- DDLRUN_ARGUMENTS...]

Starts munged, slurmctld and slurmd with their own files and ports, submits slurm.sbatch, waits for it, prints its output,
and ends all of them. Arguments after -- are ddlrun's: options, a program and its arguments (default: all_reduce_perf -b 8
-e 1M). The exit status is the job's.

--hosts above 1 makes emulated hosts (emulated_cluster.sh, which needs root), each with a slurmd. ddlrun then checks them
through srun, and mpirun starts its daemons by srun.

DDL_BIN: the directory of the programs (default: build/bin). Needs Slurm and munge; Debian: apt-get install slurm-wlm munge.
EOT
}

fail() {
  printf 'slurm.sh: %s\n' "$*" >&2
  exit 2
}

hosts=1 tasks=2
while [ $# -gt 0 ]; do
  word=$1
  shift
  case $word in
    --help | -h) usage; exit 0 ;;
    --) break ;;
    --hosts | --tasks-per-node)
      [[ ${1:-} =~ ^[1-9][0-9]?$ ]] || fail "$word: found '${1:-}', expected a number from 1 to 99"
      if [ "$word" = --hosts ]; then hosts=$1; else tasks=$1; fi
      shift ;;
    *) fail "found '$word', expected --hosts or --tasks-per-node, and ddlrun's arguments after --" ;;
  esac
done
bin=$(realpath "${DDL_BIN:-$here/../build/bin}")
[ $# -gt 0 ] || set -- "$bin/all_reduce_perf" -b 8 -e 1M
for tool in ddlrun ddl-topo; do
  [ -x "$bin/$tool" ] || fail "$bin has no $tool; build first, or set DDL_BIN"
done
PATH=$PATH:/usr/sbin
for tool in munged slurmctld slurmd sbatch sinfo; do
  command -v "$tool" >/dev/null || fail "$tool is missing; on Debian: apt-get install slurm-wlm munge"
done

state=$(mktemp -d /tmp/ddl-slurm.XXXXXX)
name=slurm$$
daemons=()
stop() {
  local pid
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || :; done
  for pid in "${daemons[@]}"; do wait "$pid" 2>/dev/null || :; done
  [ "$hosts" = 1 ] || bash "$here/emulated_cluster.sh" down --name "$name"
  rm -rf "$state"
}
trap stop EXIT
trap 'exit 130' INT TERM

daemon() { # name, command
  local log=$state/$1.log
  shift
  "$@" >"$log" 2>&1 &
  daemons+=($!)
}

on() { # host, command; runs it on an emulated host or here, and replaces the calling subshell
  local host=$1
  shift
  if [ "$hosts" = 1 ]; then exec "$@"; else exec "$DDL_EMULATED_CLUSTER/agent" --exec "$host" "$@"; fi
}

nodes=()
if [ "$hosts" = 1 ]; then
  nodes=("$(uname -n)")
  addresses=(127.0.0.1)
else
  bash "$here/emulated_cluster.sh" up --name "$name" --hosts "$hosts" --ranks-per-host "$tasks" || exit 2
  export DDL_EMULATED_CLUSTER=/run/ddl-emulated-cluster-$name OMPI_MCA_oob_tcp_if_include=10.77.0.0/24
  export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 OMPI_MCA_pml=ob1 OMPI_MCA_osc=^ucx UCX_NET_DEVICES=eth0
  for ((i = 0; i < hosts; ++i)); do nodes+=("node$i") addresses+=("10.77.0.$((i + 1))"); done
fi

mkdir "$state/spool" "$state/munge"
head -c 1024 /dev/urandom >"$state/munge/key"
chmod -R go-rwx "$state/munge"
chmod 0711 "$state" "$state/munge"
user=$(id -un)
port=$((20000 + $$ % 20000))
cat >"$state/slurm.conf" <<EOT
ClusterName=ddl
SlurmctldHost=${nodes[0]}(${addresses[0]})
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$state/munge/socket
StateSaveLocation=$state/spool
SlurmdSpoolDir=$state/spool/%n
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/linear
ReturnToService=2
KillWait=5
$(for i in "${!nodes[@]}"; do
    echo "NodeName=${nodes[i]} NodeAddr=${addresses[i]} NodeHostname=${nodes[i]} CPUs=$(nproc)"
  done)
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE
EOT
# An emulated host has no cgroups; this plugin starts without them, unlike the automatic choice.
[ "$hosts" = 1 ] || printf 'CgroupPlugin=cgroup/v1\n' >"$state/cgroup.conf"
export SLURM_CONF=$state/slurm.conf OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

daemon munged munged --foreground --force --key-file="$state/munge/key" --socket="$state/munge/socket" \
  --pid-file="$state/munge/pid" --seed-file="$state/munge/seed" --log-file="$state/munge/log"
daemon slurmctld on "${nodes[0]}" slurmctld -D -i
for node in "${nodes[@]}"; do daemon "slurmd-$node" on "$node" slurmd -D -N "$node"; done

are_ready() { [ "$(on "${nodes[0]}" sinfo --noheader --states=idle --format=%D 2>/dev/null)" = "$hosts" ]; }
for ((second = 0; ; ++second)); do
  if are_ready; then break; fi
  if [ "$second" = 60 ]; then
    tail -n 20 "$state"/*.log >&2
    fail "Slurm was not ready after 60 s; its logs are above"
  fi
  sleep 1
done

status=0
(PATH=$bin:$PATH on "${nodes[0]}" sbatch --wait --nodes="$hosts" --ntasks-per-node="$tasks" --overcommit \
  --output="$state/job.out" "$here/../ddl/launcher/cluster/slurm.sbatch" "$@") || status=$?
cat "$state/job.out" 2>/dev/null || tail -n 20 "$state"/*.log >&2
exit "$status"
