#!/usr/bin/env bash
# Jobs without MPI: processes with RANK and WORLD_SIZE.
#   sockets_test.sh SOCKETS_PROGRAM
set -uo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!OMPI_@}" "${!PMIX_@}" MASTER_PORT DDL_SOCKET
export DDL_DEADLINE=20

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  tail -n 20 "$work"/out.* >&2
  exit 1
}

# Starts a rank; its output goes to out.NUMBER, its status to status.NUMBER.
start() { # number, rank, size, arguments of the program
  local number=$1 rank=$2 size=$3
  shift 3
  (
    RANK=$rank WORLD_SIZE=$size "$program" "$@" >"$work/out.$number" 2>&1
    echo $? >"$work/status.$number"
  ) &
}
clean() { rm -f "$work"/out.* "$work"/status.*; }
expect() { # number, status, words
  [ "$(cat "$work/status.$1")" = "$2" ] || fail "$1: status $(cat "$work/status.$1"), expected $2"
  [ -z "$3" ] || grep -qF -- "$3" "$work/out.$1" || fail "$1: does not say '$3'"
}

for name in "" "@ddl-test-$$" "$work/socket"; do
  clean
  [ -z "$name" ] || export DDL_SOCKET=$name
  for rank in 2 0 1 3; do start $rank $rank 4 sum; done
  wait
  for rank in 0 1 2 3; do expect $rank 0 "rank $rank of 4, local $rank of 4: 40"; done
  unset DDL_SOCKET
done
[ ! -e "$work/socket" ] || fail "the socket's file is left behind"

clean
export MASTER_PORT=29500
start 0 0 2 sum
start 1 1 2 sum
wait
expect 1 0 "rank 1 of 2"
unset MASTER_PORT

export DDL_SOCKET=$work/socket
# On several emulated hosts messages go through the network, if the build has one that needs no MPI.
clean
for rank in 0 1; do
  (
    export DDL_HOST_ID=h$rank
    start $rank $rank 2 sum
    wait
  ) &
done
wait
if ! grep -q "start it with mpirun" "$work/out.0"; then # the message of a build without UCX
  for rank in 0 1; do expect $rank 0 "rank $rank of 2, local 0 of 1: 6"; done
fi

clean
for rank in 0 1 2; do start $rank $rank 3 die 1; done
wait
expect 1 137 ""
expect 0 1 "rank 1 (host"
expect 0 1 "has died"
expect 2 1 "has died"

clean
export DDL_DEADLINE=1
start 0 0 3 sum
start 1 1 3 sum
wait
expect 0 1 "ranks 2 have not come within 1 s on rank 0"
[ "$(cat "$work/status.1")" = 1 ] || fail "rank 1 should have failed too"
clean
start 1 1 2 sum
wait
expect 1 1 "rank 0 has not come within 1 s on rank 1"
[ ! -e "$work/socket" ] || fail "the socket's file is left behind by a job that failed"
export DDL_DEADLINE=20

clean
start 0 0 2 sum
start 1 1 3 sum
wait
expect 0 1 "WORLD_SIZE is 2 on rank 0 and 3 on rank 1"
expect 1 1 "WORLD_SIZE is 2 on rank 0 and 3 on rank 1"

clean
start 0 0 3 sum
start 1 1 3 sum
start 2 1 3 sum
wait
expect 0 1 "two processes say that they are rank 1"

# Other processes that connect are rejected, and delay no rank.
clean
if command -v python3 >/dev/null; then
  start 0 0 2 sum
  python3 - "$work/socket" <<'EOT'
import socket, sys, time
for words in (b"GET / HTTP/1.1\r\nHost: somewhere far away\r\n\r\n", b"abc", b""):
    for _ in range(1000):
        try:
            visitor = socket.socket(socket.AF_UNIX)
            visitor.connect(sys.argv[1])
            break
        except OSError:
            time.sleep(0.01)
    visitor.sendall(words)
    visitor.close()
EOT
  start 1 1 2 sum
  wait
  expect 0 0 "rank 0 of 2"
fi

clean
touch "$work/socket"
start 0 0 2 sum
wait
expect 0 1 "Address already in use. Another job has it, or has left its file behind"
[ -e "$work/socket" ] || fail "another's file was removed"
rm "$work/socket"

clean
start 0 2 2 sum
start 1 x 2 sum
start 2 0 5000 sum
start 3 0 1 sum
wait
expect 0 2 "RANK: found '2', expected a number from 0 to 1"
expect 1 2 "RANK: found 'x', expected a number from 0 to 1"
expect 2 2 "WORLD_SIZE: found '5000', expected a number from 1 to 1024"
expect 3 0 "rank 0 of 1"
clean
DDL_SOCKET=$(printf 'a%.0s' {1..200}) start 0 0 2 sum
wait
expect 0 2 "DDL_SOCKET: found a name of 200 bytes, expected 107 at most"
echo passed
