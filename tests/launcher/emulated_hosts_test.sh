#!/usr/bin/env bash
# ddlrun on three emulated hosts: ranks are on the right hosts, problems are reported, and a job whose host dies continues
# without it. Otherwise ddlrun might work on one machine only.
#   emulated_hosts_test.sh EMULATED_CLUSTER FOLDER_OF_DDLRUN
set -uo pipefail
cluster=$1 bin=$2
name=ddlrun$$
work=$(mktemp -d)
trap 'bash "$cluster" down --name "$name" >/dev/null 2>&1; rm -rf "$work"' EXIT
unset "${!DDL_@}" "${!OMPI_@}" "${!SLURM_@}"

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  cat "$work/out" "$work/err" >&2
  exit 1
}
touch "$work/out" "$work/err"

if ! command -v ip >/dev/null || ! bash "$cluster" up --name "$name" --hosts 3 --ranks-per-host 2 >"$work/up" 2>&1; then
  echo "SKIPPED: no emulated cluster here (needs root, network namespaces and traffic shaping): $(tail -1 "$work/up" 2>&1)"
  exit 77
fi
export DDL_EMULATED_CLUSTER=/run/ddl-emulated-cluster-$name OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
agent=$DDL_EMULATED_CLUSTER/agent
export OMPI_MCA_plm_rsh_agent=$agent OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24

launch() { # expected status, then ddlrun's arguments; runs on node0
  local expected=$1 status=0
  shift
  "$agent" --exec node0 "$bin/ddlrun" "$@" >"$work/out" 2>"$work/err" || status=$?
  [ "$status" = "$expected" ] || fail "status $status, expected $expected: ddlrun $*"
}
says() { grep -qF -- "$1" "$work/err" || fail "not said: $1"; }
prints() { # lines, in any order
  [ "$(sort "$work/out")" = "$(printf '%s\n' "$@")" ] || fail "expected: $*"
}

# Each rank prints its number and host. mpirun puts its own host first, wherever it is listed, and ddlrun says so.
# shellcheck disable=SC2016
report='echo "$OMPI_COMM_WORLD_RANK $(hostname) $DDL_OPTIONS $MASTER_ADDR $MASTER_PORT"'
launch 0 -H node1:2,node0:2,node2:1 --mode p:5 --port 29123 sh -c "$report"
prints "0 node0 -mode p:5 node0 29123" "1 node0 -mode p:5 node0 29123" "2 node1 -mode p:5 node0 29123" \
  "3 node1 -mode p:5 node0 29123" "4 node2 -mode p:5 node0 29123"
says "note: rank 0 is on node0"
launch 0 -H node0:2,node1:2,node2:1 --by round_robin --dbg_level 0 sh -c "$report"
prints "0 node0 -dbg_level 0  " "1 node1 -dbg_level 0  " "2 node2 -dbg_level 0  " "3 node0 -dbg_level 0  " \
  "4 node1 -dbg_level 0  "

# A port that is in use on another host, and a host that does not exist.
coproc server { exec "$agent" --exec node1 python3 -c 'import socket, sys
server = socket.create_server(("", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()'; }
read -r port <&"${server[0]}" || fail "nothing listens on node1"
launch 1 -H node0,node1,node2 --port "$port" hostname
says "error: host node1: found port $port not free (Address already in use)"
launch 1 -H node0,node9 hostname
says "1 of 2 hosts cannot take part: node9; nothing was started"
# shellcheck disable=SC2154  # coproc sets it
kill "$server_PID"

# A job on all three hosts; the second host dies once the first has saved.
mkfifo "$work/saved"
cat >"$work/program" <<P
#!/bin/sh
cd "$work"
if [ "\$OMPI_COMM_WORLD_SIZE" = 2 ]; then
  [ ! -e run/step-0000000001/manifest.json ] || echo "went on: \$OMPI_COMM_WORLD_RANK \$(hostname)"
  exit 0
fi
if [ "\$OMPI_COMM_WORLD_RANK" = 0 ]; then
  mkdir -p run/step-0000000001
  touch run/step-0000000001/manifest.json
  echo saved >saved
fi
exec sleep 1000
P
chmod +x "$work/program"
launch 0 -H node0:1,node1:1,node2:1 --mode p:3 --max-restarts 1 --checkpoints "$work/run" "$work/program" &
job=$!
read -r _ <"$work/saved"
ip netns pids "ddl-$name-node1" | xargs -r kill -KILL
ip netns delete "ddl-$name-node1"
wait "$job" || fail "the job did not go on"
prints "went on: 0 node0" "went on: 1 node2"
says "host node1 is left out: found no answer"
says "note: -mode p:3 is a grid of 3 ranks, but the job has 2: the library chooses another"
says "starts on 2 hosts with 2 ranks: node0, node2"
says "the newest checkpoint is $work/run/step-0000000001"
echo passed
