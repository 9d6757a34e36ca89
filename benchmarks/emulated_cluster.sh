#!/usr/bin/env bash
# Emulates a cluster on this machine: network namespaces are hosts, joined by veth pairs and a bridge; each direction of
# each host's link is shaped to a rate. See `emulated_cluster.sh --help`.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
subnet=10.77.0

usage() {
  cat <<'EOF'
Usage:
  emulated_cluster.sh up   [--hosts 4] [--ranks-per-host 4] [--rate 1gbit] [--name ddl]
  emulated_cluster.sh run  [--placement host|round_robin] [--ranks 4,3,2,1] [--name ddl] --
                           [MPIRUN_OPTIONS...] PROGRAM [ARGUMENTS...]
  emulated_cluster.sh down [--name ddl]

up    makes the hosts, and removes existing ones first. Each has its own network, host name, System V IPC
      and /dev/shm, and a link of the given rate (in tc's notation) in each direction, with MTU 1500. TCP's
      congestion control is based on losses, as in clusters: cubic, or reno if the kernel offers no other.
      (bbr, the default of some kernels, gets about 3% less from a shared link.)
run   starts PROGRAM with mpirun on all ranks, placed host by host (ranks 0 to 3 on the first host) or
      round-robin (ranks 0, 4, 8 ...). --ranks: the number of ranks on the first host, the second, and so
      on; further hosts have none. Passes the environment on, including Open MPI's settings
      (OMPI_MCA_coll_han_priority=100). UCX uses only eth0 unless UCX_NET_DEVICES is set. The exit status
      is mpirun's. --hosts, --ranks-per-host and --rate may be repeated here; they must match those of `up`.
down  ends all processes on the hosts and removes the hosts, if there are any.

Needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), iproute2, util-linux, Open MPI, and tbf in the kernel.
TCP's payload is at most 0.956 of the rate.
EOF
}

fail() {
  printf 'emulated_cluster.sh: %s\n' "$*" >&2
  exit 1
}

is_count() { [[ $1 =~ ^[1-9][0-9]{0,2}$ ]]; }

namespace_of() { printf 'ddl-%s-%s' "$name" "$1"; }

check_requirements() {
  local tool
  for tool in ip tc unshare; do
    command -v "$tool" >/dev/null || fail "$tool is missing; on Debian: apt-get install iproute2 util-linux"
  done
  [ "$(id -u)" = 0 ] || fail "needs root, to make network namespaces; try: sudo $0 ..."
  unshare --net --mount --uts --ipc true 2>/dev/null ||
    fail "may not make namespaces here; a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged)"
}

add_namespace() {
  ip netns add "$1" || fail "cannot make the network namespace $1"
  ip -n "$1" link set lo up
}

# Shapes a device's outgoing traffic, with tbf because not every kernel has netem. A burst is 1 ms at 1 Gb/s; with less,
# a busy machine cannot reach the rate. The queue is long enough that nothing is dropped.
shape() {
  ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$rate" burst 128kb limit 4mb ||
    fail "tc refuses 'tbf rate $rate': either the rate is wrong or the kernel lacks CONFIG_NET_SCH_TBF"
}

# Sets the host's congestion control, and `congestion` to its name. A kernel offers namespaces those that
# tcp_allowed_congestion_control lists.
control_congestion() {
  for congestion in cubic reno; do
    ! ip netns exec "$1" sh -c "echo $congestion >/proc/sys/net/ipv4/tcp_congestion_control" 2>/dev/null || return 0
  done
  fail "the kernel lets $1 have neither cubic nor reno as TCP's congestion control"
}

up() {
  check_requirements
  down
  trap 'down' ERR EXIT
  local switch host i congestion
  switch=$(namespace_of switch)
  mkdir -p "$state" || fail "cannot write $state"
  printf '127.0.0.1 localhost\n' >"$state/hosts"
  add_namespace "$switch"
  ip -n "$switch" link add bridge0 mtu 1500 type bridge
  ip -n "$switch" link set bridge0 up
  for ((i = 0; i < hosts; ++i)); do
    host=$(namespace_of "node$i")
    add_namespace "$host"
    ip -n "$switch" link add "port$i" mtu 1500 type veth peer name eth0 mtu 1500 netns "$host"
    ip -n "$switch" link set "port$i" master bridge0 up
    ip -n "$host" address add "$subnet.$((i + 1))/24" dev eth0
    ip -n "$host" link set eth0 up
    shape "$switch" "port$i"
    shape "$host" eth0
    control_congestion "$host"
    printf '%s.%d node%d\n' "$subnet" $((i + 1)) "$i" >>"$state/hosts"
    printf 'node%d slots=%d\n' "$i" "$ranks_per_host" >>"$state/hostfile"
  done
  ln -s "$here/emulated_host.sh" "$state/agent"
  printf '%s\n' "$hosts $ranks_per_host $rate" >"$state/config"
  trap - ERR EXIT
  printf 'up: %d hosts x %d ranks, %s each way, tcp %s\n' "$hosts" "$ranks_per_host" "$rate" "$congestion"
}

check_same() { [ -z "$2" ] || [ "$2" = "$3" ] || fail "$1 $2: the cluster is up with $1 $3; take it down first"; }

# Writes a host file in which a host's number of slots is its number of ranks. Sets np.
write_uneven_hostfile() {
  local count counts i=0
  IFS=, read -ra counts <<<"$ranks"
  [ "${#counts[@]}" -le "$1" ] || fail "--ranks $ranks: found ${#counts[@]} hosts, but $1 are up"
  np=0
  : >"$hostfile"
  for count in "${counts[@]}"; do
    is_count "$count" || fail "--ranks $ranks: must be numbers from 1 to 999 with commas between, such as 4,3,2,1"
    printf 'node%d slots=%d\n' "$i" "$count" >>"$hostfile"
    np=$((np + count)) i=$((i + 1))
  done
}

run() {
  [ "$#" -gt 0 ] || fail "run: give a program after --"
  [ -f "$state/config" ] || fail "the cluster '$name' is not up; first: $0 up --hosts 4 --ranks-per-host 4 --rate 1gbit"
  check_requirements
  command -v mpirun >/dev/null || fail "mpirun is missing; on Debian: apt-get install openmpi-bin"
  local up_hosts up_ranks up_rate map
  read -r up_hosts up_ranks up_rate <"$state/config"
  check_same --hosts "$given_hosts" "$up_hosts"
  check_same --ranks-per-host "$given_ranks_per_host" "$up_ranks"
  check_same --rate "$given_rate" "$up_rate"
  case $placement in
    host) map=slot ;;
    round_robin) map=node ;;
    *) fail "--placement $placement: must be host or round_robin" ;;
  esac
  local hostfile=$state/hostfile np=$((up_hosts * up_ranks))
  if [ -n "$ranks" ]; then
    hostfile=$state/hostfile-$ranks
    write_uneven_hostfile "$up_hosts"
  fi
  # mpirun runs on the first host, so that its daemons on the others can reach it. ob1 with vader restricts shared memory
  # to a host; UCX would use it between emulated hosts, which share a kernel. More ranks than cores must yield while they
  # wait. The daemons stay in this session: Linux gives each session an equal share of the cores
  # (sched_autogroup_enabled), and in a kernel 6.18 processes of a session that constantly yield kept ready processes of
  # other sessions from running for seconds.
  export UCX_NET_DEVICES=${UCX_NET_DEVICES:-eth0}
  export DDL_EMULATED_CLUSTER=$state OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  exec "$state/agent" --exec node0 mpirun \
    --hostfile "$hostfile" -np "$np" --map-by "$map" --bind-to none \
    --mca plm rsh --mca plm_rsh_agent "$state/agent" --mca plm_rsh_no_tree_spawn 1 \
    --leave-session-attached \
    --mca oob_tcp_if_include "$subnet.0/24" --mca btl_tcp_if_include "$subnet.0/24" \
    --mca pml ob1 --mca btl self,vader,tcp --mca osc ^ucx --mca mpi_yield_when_idle 1 \
    "$@"
}

down() {
  command -v ip >/dev/null || return 0
  local host pids
  for host in $(ip netns list | cut -d' ' -f1 | grep -E "^ddl-$name-(node[0-9]+|switch)\$" || :); do
    pids=$(ip netns pids "$host")
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null || :
    ip netns delete "$host"
  done
  rm -rf "$state"
}

[ "$#" -gt 0 ] || { usage >&2; exit 2; }
action=$1
shift
hosts=4 ranks_per_host=4 rate=1gbit placement=host name=ddl
given_hosts='' given_ranks_per_host='' given_rate='' ranks=''
while [ "$#" -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --help | -h) usage; exit 0 ;;
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}"; continue ;;
  esac
  [ "$#" -ge 2 ] || fail "$1: its value is missing"
  case $1 in
    --hosts) hosts=$2 given_hosts=$2 ;;
    --ranks-per-host) ranks_per_host=$2 given_ranks_per_host=$2 ;;
    --ranks) ranks=$2 ;;
    --rate) rate=$2 given_rate=$2 ;;
    --placement) placement=$2 ;;
    --name) name=$2 ;;
    *) fail "unknown option $1; see --help" ;;
  esac
  shift 2
done
[ -z "$ranks" ] || [[ $ranks =~ ^[0-9]+(,[0-9]+)*$ ]] ||
  fail "--ranks $ranks: must be numbers from 1 to 999 with commas between, such as 4,3,2,1"
is_count "$hosts" && [ "$hosts" -le 250 ] || fail "--hosts $hosts: must be a number from 1 to 250"
is_count "$ranks_per_host" || fail "--ranks-per-host $ranks_per_host: must be a number from 1 to 999"
[[ $rate =~ ^[0-9]+(\.[0-9]+)?[a-zA-Z]+$ ]] || fail "--rate $rate: must be a rate in tc's notation, such as 1gbit"
[[ $name =~ ^[A-Za-z0-9_]{1,32}$ ]] || fail "--name $name: must be letters, digits and _"
state=/run/ddl-emulated-cluster-$name

case $action in
  up) up ;;
  run) run "$@" ;;
  down) check_requirements; down ;;
  --help | -h | help) usage ;;
  *) fail "unknown command '$action'; see --help" ;;
esac
