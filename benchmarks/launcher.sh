#!/usr/bin/env bash
# Measures the time that ddlrun adds to the start of mpirun. See `launcher.sh --help`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT'
Usage: launcher.sh [--rounds 5]

Makes 4 emulated hosts (emulated_cluster.sh) and starts `true` on 4 ranks, alternately by mpirun and by ddlrun. Prints the
median times until they end, and the time that ddlrun adds; the target is 1 s. Then measures how long ddlrun takes to
report a host that drops all packets (by ssh), and a host whose agent never ends; the target is 10 s. The exit status is 1
if a target is missed.

DDL_BIN: the directory of ddlrun and ddl-topo (default: build/bin). Needs python3, ssh and the requirements of
emulated_cluster.sh.
EOT
}

fail() {
  printf 'launcher.sh: %s\n' "$*" >&2
  exit 2
}

rounds=5
case ${1:-} in
  --help | -h) usage; exit 0 ;;
  --rounds) [[ ${2:-} =~ ^[1-9][0-9]{0,2}$ ]] || fail "--rounds: found '${2:-}', expected a number"; rounds=$2 ;;
  '') ;;
  *) fail "found '$1', expected --rounds N" ;;
esac
bin=$(realpath "${DDL_BIN:-$here/../build/bin}")
for tool in ddlrun ddl-topo; do
  [ -x "$bin/$tool" ] || fail "$bin has no $tool; build first, or set DDL_BIN"
done

name=launcher$$
trap 'bash "$here/emulated_cluster.sh" down --name "$name"' EXIT
bash "$here/emulated_cluster.sh" up --name "$name" --hosts 4 --ranks-per-host 1 || exit 2
export DDL_EMULATED_CLUSTER=/run/ddl-emulated-cluster-$name
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
agent=$DDL_EMULATED_CLUSTER/agent
on_first=("$agent" --exec node0)
launch=("$bin/ddlrun" -H "node0:1,node1:1,node2:1,node3:1" --agent "$agent"
  --mpirun-options "--mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.77.0.0/24")
command=$("${on_first[@]}" "${launch[@]}" --no-check --dry-run true)

seconds() { # name, expected status, command; writes the command's time to the file of that name
  local file=$1 expected=$2 start end status=0
  shift 2
  start=$(date +%s%N)
  "$@" >"$DDL_EMULATED_CLUSTER/output" 2>&1 || status=$?
  end=$(date +%s%N)
  [ "$status" = "$expected" ] || fail "status $status of $*: $(cat "$DDL_EMULATED_CLUSTER/output")"
  printf '%d\n' $(((end - start) / 1000000)) >>"$DDL_EMULATED_CLUSTER/$file.ms"
}
median() { sort -n "$DDL_EMULATED_CLUSTER/$1.ms" | sed -n "$(((rounds + 1) / 2))p"; }

for ((i = 0; i < rounds; ++i)); do
  seconds mpirun 0 "${on_first[@]}" sh -c "$command"
  seconds ddlrun 0 "${on_first[@]}" "${launch[@]}" true
done
ip -n "ddl-$name-node0" neighbour add 10.77.0.99 lladdr 02:00:00:00:00:99 dev eth0 nud permanent
seconds unreachable 1 "${on_first[@]}" "$bin/ddlrun" -H node0:1,10.77.0.99:1 true
unreachable=$(grep -m 1 'error: host' "$DDL_EMULATED_CLUSTER/output")
printf '#!/bin/sh\nexec sleep 1000\n' >"$DDL_EMULATED_CLUSTER/silent"
chmod +x "$DDL_EMULATED_CLUSTER/silent"
seconds silent 1 "${on_first[@]}" "$bin/ddlrun" -H node0:1,node1:1 --agent "$DDL_EMULATED_CLUSTER/silent" true

status=0
line() { # what, ms, limit
  local met=ok
  [ -z "$3" ] || [ "$2" -le "$3" ] || met=MISSED status=1
  printf '%-50s %6d ms  %s\n' "$1" "$2" "${3:+<= $3 ms  $met}"
}
line "mpirun, true on 4 hosts" "$(median mpirun)" ""
line "ddlrun, the same" "$(median ddlrun)" ""
line "what ddlrun adds" $(($(median ddlrun) - $(median mpirun))) 1000
line "until a host that drops packets is an error" "$(cat "$DDL_EMULATED_CLUSTER/unreachable.ms")" 10000
line "until a host that never answers is an error" "$(cat "$DDL_EMULATED_CLUSTER/silent.ms")" 10000
printf '%s\n' "$unreachable"
exit "$status"
