#!/usr/bin/env bash
# Collectives of processes on devices. Processes that share a device take turns, so this is slow. Needs no MPI.
#   device_processes_test.sh DEVICE_PROGRAM [quick]
# quick: only the results of two processes.
# Exit status 77: there is no device.
set -uo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!OMPI_@}" "${!PMIX_@}" MASTER_PORT
export DDL_SOCKET=@ddl-device-$$ DDL_DEADLINE=${DDL_DEADLINE:-60}

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  tail -n 20 "$work"/out.* >&2
  exit 1
}

# Starts all ranks and waits for them; their output goes to out.RANK, their status to status.RANK.
run() { # ranks, arguments; with $shared, each rank is on its own host, else NCCL refuses to share a device
  local ranks=$1 rank
  shift
  rm -f "$work"/out.* "$work"/status.*
  for ((rank = 0; rank < ranks; ++rank)); do
    (
      [ -z "${hosts:-}" ] || export DDL_HOST_ID=host$((rank * hosts / ranks))
      [ -n "${shared:-}" ] || export NCCL_HOSTID=$rank
      RANK=$rank WORLD_SIZE=$ranks timeout 120 "$program" "$@" >"$work/out.$rank" 2>&1 &
      echo $! >"$work/group.$rank" # timeout makes one
      wait $!
      echo $? >"$work/status.$rank"
    ) 2>/dev/null &
  done
  wait
}
expect() { # rank, status, words
  [ "$(cat "$work/status.$1")" = "$2" ] || fail "rank $1: status $(cat "$work/status.$1"), expected $2"
  [ -z "$3" ] || grep -qE -- "$3" "$work/out.$1" || fail "rank $1: does not say '$3'"
}

run 1 results
if grep -q "no CUDA device can be used" "$work/out.0"; then
  echo "skipped: $(cat "$work/out.0")"
  exit 77
fi
expect 0 0 "rank 0 of 1 .*: 0 wrong"
if [ "${2:-}" = quick ]; then
  run 2 results
  for rank in 0 1; do expect $rank 0 "rank $rank of 2 .*: 0 wrong"; done
  echo passed
  exit
fi
for ranks in 2 3; do
  run $ranks results
  for ((rank = 0; rank < ranks; ++rank)); do expect $rank 0 "rank $rank of $ranks .*: 0 wrong"; done
  cat "$work"/out.0
done
DDL_REPRODUCIBLE=1 run 3 results
for rank in 0 1 2; do expect $rank 0 "rank $rank of 3 .*: 0 wrong"; done

run 2 die 1
expect 0 1 "rank 1 .*has died"
# Through the hosts' memory.
run 2 results host
for rank in 0 1; do expect $rank 0 "rank $rank of 2 .*: 0 wrong"; done
DDL_REPRODUCIBLE=1 run 2 results host
for rank in 0 1; do expect $rank 0 "rank $rank of 2 .*: 0 wrong"; done
hosts=2 run 4 results host
for rank in 0 1 2 3; do expect $rank 0 "rank $rank of 4 .*: 0 wrong"; done
run 2 die 1 host
expect 0 1 "rank 1 .*has died"

# CUDA's thread for host functions must not call an MPI that belongs to the trainer's thread.
mpi=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun --oversubscribe --bind-to none -n 2)
if "${mpi[@]}" true >/dev/null 2>&1; then
  DDL_NETWORK=mpi "${mpi[@]}" \
    bash -c 'DDL_HOST_ID=host$OMPI_COMM_WORLD_RANK exec "$0" results host' "$program" >"$work/out.0" 2>&1
  echo $? >"$work/status.0"
  if ! grep -q "this build of ddl has no MPI" "$work/out.0"; then
    grep -q "data goes by MPI, .*expected UCX between the hosts" "$work/out.0" || fail "MPI is not refused"
    [ "$(cat "$work/status.0")" != 0 ] || fail "MPI is used by CUDA's thread"
  fi
else
  echo "skipped in part, mpirun does not start here"
fi

# By NCCL, over sockets; tests results, not speed.
export NCCL_SOCKET_IFNAME=lo
by_nccl=1
run 1 results nccl
# Any other reason is a failure.
if grep -q "libnccl.so.2: cannot open shared object file" "$work/out.0"; then
  by_nccl=0
  echo "skipped in part, NCCL is not here: $(cat "$work/out.0")"
fi
if [ $by_nccl = 1 ]; then
  expect 0 0 "rank 0 of 1 .*: 0 wrong"
  run 2 results nccl
  for rank in 0 1; do expect $rank 0 "rank $rank of 2 .*: 0 wrong"; done
  for mode in n b; do # over all ranks, and in each dimension
    hosts=2 DDL_OPTIONS="-mode $mode" run 4 results nccl
    for rank in 0 1 2 3; do expect $rank 0 "rank $rank of 4 .*: 0 wrong"; done
    hosts=2 DDL_REPRODUCIBLE=1 DDL_OPTIONS="-mode $mode" run 4 results nccl
    for rank in 0 1 2 3; do expect $rank 0 "rank $rank of 4 .*: 0 wrong"; done
  done
  run 2 die 1 nccl
  expect 0 1 "rank 1 .*has died"
fi

# By UCX, if it supports the devices' memory.
by_ucx=1
run 1 results ucx
if grep -qE "UCX does not know the memory of devices|UCX cannot be used" "$work/out.0"; then
  by_ucx=0
  echo "skipped in part, UCX is not for devices here: $(cat "$work/out.0")"
fi
if [ $by_ucx = 1 ]; then
  expect 0 0 "rank 0 of 1 .*: 0 wrong"
  for hosts in 1 2 3; do
    run 3 results ucx
    for rank in 0 1 2; do expect $rank 0 "rank $rank of 3 .*: 0 wrong"; done
  done
  hosts=2 run 4 results ucx
  for rank in 0 1 2 3; do expect $rank 0 "rank $rank of 4 .*: 0 wrong"; done
  hosts=2 DDL_REPRODUCIBLE=1 run 4 results ucx
  for rank in 0 1 2 3; do expect $rank 0 "rank $rank of 4 .*: 0 wrong"; done
  hosts=2 run 2 die 1 ucx
  expect 0 1 "rank 1 .*has died"
  hosts=2 run 2 differ ucx
  expect 0 1 "all_reduce #2 on devices .*(calls something else|on rank 1)"
  expect 1 1 "all_reduce #2 on devices .*(calls something else|on rank 0)"
  grep -q "calls something else" "$work"/out.* || fail "no rank says that another one calls something else"
  unset hosts
fi

# The library's choice between hosts, with the reason for the fallback.
shared=1 hosts=2 CUDA_VISIBLE_DEVICES=0 run 2 results automatic
for rank in 0 1; do expect $rank 0 "rank $rank of 2 .*: 0 wrong"; done
way="through the host's memory"
[ $by_ucx = 0 ] || way="by UCX"
expect 0 0 "collectives on devices go $way: .*(libnccl.so.2|shares its device)"

# The exchange inside hosts, and page-locked memory between them.
EMULATED_CUDA=${EMULATED_CUDA:+$EMULATED_CUDA,}ucx=0 shared=1 hosts=2 CUDA_VISIBLE_DEVICES=0 \
  DDL_OPTIONS="-mode p:2x2 -dbg_level 1" run 4 results automatic
for rank in 0 1 2 3; do expect $rank 0 "rank $rank of 4 .*: 0 wrong"; done
[ $by_ucx = 1 ] || expect 0 0 "plan on devices: all_reduce .*two_shot cuda_ipc . ring host_memory"

export DDL_DEADLINE=5
# The stopped rank is killed by its timeout; the other one must not wait for that.
stop() { # words that rank 0 must print, more arguments
  local words=$1 job i
  shift
  rm -f "$work"/status.*
  run 2 stop 1 "$@" &
  job=$!
  for ((i = 0; i < 300; ++i)); do
    [ -s "$work/status.0" ] && break
    sleep 0.1
  done
  kill -KILL -- "-$(cat "$work/group.1")"
  wait $job
  expect 0 1 "$words"
}
stop "all_reduce #2 on devices .*waited 5 s for ranks 1"
[ $by_nccl = 0 ] || stop "all_reduce #2 on devices .*no progress for 5 s" nccl
[ $by_ucx = 0 ] || hosts=2 stop "all_reduce #2 on devices .*waited 5 s for ranks 1" ucx
echo passed
