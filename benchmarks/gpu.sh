#!/usr/bin/env bash
# All GPU tests and benchmarks, from a folder of programs. See `gpu.sh --help`.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT'
Usage: gpu.sh DIRECTORY

Runs the GPU tests, alone and under compute-sanitizer (memcheck, racecheck, synccheck), and the GPU benchmarks, on the
devices that there are. Builds nothing and needs no MPI: the programs may have been carried here. What each printed, and
JSON lines with device, driver and versions, go into DIRECTORY, which must be new or empty; then a short table on
standard output. Each step has a time limit. The exit status is 1 if anything failed.

DDL_BIN: where the programs are (default: build/bin). COMPUTE_SANITIZER: that program (default: from PATH; left out, and
said so, where it is missing).
EOT
}

fail() {
  printf 'gpu.sh: %s\n' "$*" >&2
  exit 2
}

[ "$#" = 1 ] || { usage >&2; exit 2; }
case $1 in
  --help | -h) usage; exit 0 ;;
  -*) fail "unknown option $1; see --help" ;;
esac
bin=${DDL_BIN:-$here/../build/bin}
[ -x "$bin/device_perf" ] || fail "$bin has no device_perf; build first, with CUDA, or set DDL_BIN"
out=$1
[ -z "$(ls -A "$out" 2>/dev/null)" ] || fail "$out holds files; give a new directory"
mkdir -p "$out" || fail "cannot make $out"

failed=0
# Where there are devices, nothing has a reason to be skipped.
devices=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')
table=()
step() { # name, seconds, command
  local name=$1 limit=$2 status word
  shift 2
  local begin=$SECONDS
  timeout "$limit" "$@" >"$out/$name.txt" 2>&1
  status=$?
  word=ok
  if [ "$status" = 77 ]; then
    word=skipped
  elif [ "$status" != 0 ]; then
    word="FAILED ($status)"
    failed=1
  elif grep -q '^\[  SKIPPED \]' "$out/$name.txt"; then
    word=skipped # all of it, or some cases
  elif grep -q '^skipped in part' "$out/$name.txt"; then
    word="ok, in part" # says which
  fi
  if [ "$word" = skipped ] && [ "$devices" -gt 0 ]; then
    word="FAILED: skipped"
    failed=1
  fi
  table+=("$(printf '%-28s %-12s %4d s' "$name" "$word" $((SECONDS - begin)))")
}

{
  nvidia-smi --query-gpu=name,driver_version,memory.total,mig.mode.current --format=csv,noheader 2>&1
  nvcc --version 2>/dev/null | tail -n 2
} >"$out/machine.txt"

step device_test 120 "$bin/device_test"
step device_processes 180 bash "$here/../tests/device/device_processes_test.sh" "$bin/device_program"
# With a UCX that knows devices' memory alone: the processes have found out.
if [ -x "$bin/device_ucx_test" ] && ! grep -q '^skipped in part, UCX' "$out/device_processes.txt"; then
  step device_ucx_test 120 "$bin/device_ucx_test"
fi
[ -x "$bin/nmt_cuda_backend_test" ] && step nmt_cuda_backend_test 120 "$bin/nmt_cuda_backend_test"
for ranks in 1 2 4; do
  step "device_perf_$ranks" 60 "$bin/device_perf" --ranks "$ranks" --json "$out/device_perf.jsonl"
done
step device_perf_nccl_1 60 "$bin/device_perf" --nccl 1 --ranks 1 --json "$out/device_perf.jsonl"
[ "$devices" -le 1 ] || step "device_perf_nccl_$devices" 60 "$bin/device_perf" --nccl 1 --ranks "$devices" \
  --json "$out/device_perf.jsonl"
for ranks in 1 2; do
  step "device_gradients_perf_$ranks" 60 "$bin/device_gradients_perf" --ranks "$ranks" --json "$out/device_gradients_perf.jsonl"
done
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer)}
if [ -n "$sanitizer" ]; then
  # A sanitizer may run kernels one after the other: those that wait for each other need one rank, or its own time.
  for tool in memcheck racecheck synccheck; do
    step "sanitizer_$tool" 120 "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/device_perf" --ranks 1 \
      --largest 65536 --iterations 2
    step "sanitizer_${tool}_gradients" 120 "$sanitizer" --tool "$tool" --error-exitcode 9 \
      "$bin/device_gradients_perf" --bytes 1000000 --bucket-bytes 100000 --steps 2
    [ -x "$bin/nmt_cuda_backend_test" ] && step "sanitizer_${tool}_nmt" 120 "$sanitizer" --tool "$tool" \
      --error-exitcode 9 "$bin/nmt_cuda_backend_test" --gtest_filter='*Cuda*'
  done
else
  table+=("compute-sanitizer is missing: not run")
fi

cat "$out/machine.txt"
printf '%s\n' "${table[@]}"
for printed in "$out"/device_perf_*.txt "$out"/device_gradients_perf_*.txt; do
  [ -s "$printed" ] && cat "$printed"
done
exit $failed
