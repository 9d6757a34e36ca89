#!/usr/bin/env bash
# The emulated cluster: 2 hosts x 2 ranks start, each rank is on the host of its placement, with that host's address
# and /dev/shm, and nothing is left behind.
set -uo pipefail
cluster=$1
name=test$$

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

if ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
  echo "SKIPPED: iproute2 is not installed"
  exit 77
fi
if ! ip netns add "ddl-probe-$name" 2>/dev/null; then
  echo "SKIPPED: network namespaces cannot be made here (needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN)"
  exit 77
fi
ip -n "ddl-probe-$name" link set lo up
ip netns exec "ddl-probe-$name" tc qdisc add dev lo root tbf rate 1gbit burst 128kb limit 4mb 2>/dev/null
has_tbf=$?
ip netns delete "ddl-probe-$name"
if [ "$has_tbf" != 0 ]; then
  echo "SKIPPED: this kernel cannot shape traffic (CONFIG_NET_SCH_TBF)"
  exit 77
fi
trap 'bash "$cluster" down --name "$name"' EXIT

expect_failure() { # words of the message, then the command
  local words=$1 message
  shift
  message=$("$@" 2>&1) && fail "should have failed: $*"
  grep -qF -- "$words" <<<"$message" || fail "expected '$words' in: $message"
}

# Prints the rank, its host, and the number of files of /dev/shm that it sees, which must not include the other host's.
report='touch /dev/shm/seen-by-$(hostname)
  echo rank $OMPI_COMM_WORLD_RANK $(hostname) $(ip -o -4 address show dev eth0 | tr -s " " | cut -d" " -f4) $(ls /dev/shm | grep -c ^seen-by-)'

expect_ranks() { # placement, then the expected lines
  local placement=$1 output
  shift
  output=$(timeout 60 bash "$cluster" run --name "$name" --placement "$placement" -- /bin/bash -c "$report" 2>&1) ||
    fail "run --placement $placement: $output"
  [ "$(grep ^rank <<<"$output" | sort)" = "$(printf '%s\n' "$@")" ] || fail "--placement $placement: $output"
}

expect_failure "is not up" bash "$cluster" run --name "$name" -- hostname
expect_failure "tbf" bash "$cluster" up --name "$name" --hosts 1 --rate 1nonsense
expect_failure "unknown option --host" bash "$cluster" up --name "$name" --host 2
expect_failure "must be a number" bash "$cluster" up --name "$name" --hosts 0

bash "$cluster" up --name "$name" --hosts 2 --ranks-per-host 2 --rate 1gbit || fail "up"
bash "$cluster" up --name "$name" --hosts 2 --ranks-per-host 2 --rate 1gbit || fail "up, a second time"
expect_failure "--hosts 2" bash "$cluster" run --name "$name" --hosts 3 -- hostname
expect_ranks host "rank 0 node0 10.77.0.1/24 1" "rank 1 node0 10.77.0.1/24 1" \
  "rank 2 node1 10.77.0.2/24 1" "rank 3 node1 10.77.0.2/24 1"
expect_ranks round_robin "rank 0 node0 10.77.0.1/24 1" "rank 1 node1 10.77.0.2/24 1" \
  "rank 2 node0 10.77.0.1/24 1" "rank 3 node1 10.77.0.2/24 1"
expect_failure "found 3 hosts, but 2 are up" bash "$cluster" run --name "$name" --ranks 1,1,1 -- hostname
expect_failure "4,3,2,1" bash "$cluster" run --name "$name" --ranks 2,0 -- hostname
uneven=$(timeout 60 bash "$cluster" run --name "$name" --ranks 3,1 --placement round_robin -- \
  /bin/sh -c 'echo rank $OMPI_COMM_WORLD_RANK $(hostname) $UCX_NET_DEVICES' 2>&1) || fail "run --ranks 3,1: $uneven"
[ "$(grep ^rank <<<"$uneven" | sort)" = "$(printf '%s\n' "rank 0 node0 eth0" "rank 1 node1 eth0" \
  "rank 2 node0 eth0" "rank 3 node0 eth0")" ] || fail "--ranks 3,1: $uneven"
timeout 60 bash "$cluster" run --name "$name" -- /bin/sh -c 'exit 3' >/dev/null 2>&1
[ $? = 3 ] || fail "the exit status of the program is lost"

bash "$cluster" down --name "$name" || fail "down"
bash "$cluster" down --name "$name" || fail "down, a second time"
ip netns list | grep -q "ddl-$name-" && fail "namespaces are left behind"
[ -e "/run/ddl-emulated-cluster-$name" ] && fail "state is left behind"
echo passed
