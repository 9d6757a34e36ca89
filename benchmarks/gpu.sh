#!/usr/bin/env bash
# All GPU tests and benchmarks, from a folder of programs. See `gpu.sh --help`.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT'
Usage: gpu.sh [--quick] DIRECTORY

Runs the GPU tests, alone and under compute-sanitizer (memcheck, racecheck, synccheck), and the GPU benchmarks, on the
devices that there are; and trains the article's model, beside PyTorch if python3 has it. Builds nothing and needs no
MPI: the programs may have been carried here. What each printed, and gpu.jsonl (devices, driver and toolkit first), go
into DIRECTORY, which must be new or empty; then a short table on standard output. Each step has a time limit. The exit
status is 1 if anything failed.

--quick: no tests, little data and few steps, to try the script; the figures say nothing.

DDL_BIN: where the programs are (default: build/bin). COMPUTE_SANITIZER: that program (default: from PATH; left out, and
said so, where it is missing).
EOT
}

fail() {
  printf 'gpu.sh: %s\n' "$*" >&2
  exit 2
}

sizes=()
steps=()
if [ "${1:-}" = --quick ]; then
  sizes=(--largest 65536 --iterations 2)
  steps=(--bytes 1000000 --bucket-bytes 100000 --steps 2)
  shift
fi
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
  [[ $word != FAILED* ]] || table+=("$(tail -n 20 "$out/$name.txt" | sed 's/^/    /')")
}

gpus=$(nvidia-smi --query-gpu=name,driver_version,memory.total,mig.mode.current --format=csv,noheader 2>/dev/null |
  sort | uniq -c | sed 's/^ *\([0-9]*\) /\1 x /' | paste -sd ';')
toolkit=$(nvcc --version 2>/dev/null | sed -n 's/.*release \([^,]*\),.*/\1/p')
printf '%s\nnvcc %s\n' "${gpus:-no nvidia-smi here}" "${toolkit:-is not here}" >"$out/machine.txt"
printf '{"benchmark":"machine","gpus":"%s","nvcc":"%s","command":"gpu.sh%s"}\n' "$gpus" "$toolkit" \
  "${sizes:+ --quick}" >"$out/gpu.jsonl"

if [ ${#sizes[@]} = 0 ]; then
  step device_test 120 "$bin/device_test"
  [ "$devices" -le 1 ] || step device_nccl_test 120 "$bin/device_nccl_test"
  every=()
  [ "$devices" -gt 1 ] || every=(--gtest_filter='DeviceReproducible.*') # the others are NCCL's
  step device_reproducible_test 120 "$bin/device_reproducible_test" "${every[@]}"
  step device_processes 180 bash "$here/../tests/device/device_processes_test.sh" "$bin/device_program"
  # With a UCX that knows devices' memory alone: the processes have found out.
  if [ -x "$bin/device_ucx_test" ] && ! grep -q '^skipped in part, UCX' "$out/device_processes.txt"; then
    step device_ucx_test 120 "$bin/device_ucx_test"
  fi
  [ -x "$bin/nmt_cuda_backend_test" ] && step nmt_cuda_backend_test 120 "$bin/nmt_cuda_backend_test"
fi
for ranks in 1 2 4; do
  step "device_perf_$ranks" 60 "$bin/device_perf" --ranks "$ranks" --json "$out/gpu.jsonl" "${sizes[@]}"
done
step device_perf_reproducible_2 60 "$bin/device_perf" --reproducible 1 --ranks 2 --json "$out/gpu.jsonl" "${sizes[@]}"
step device_perf_nccl_1 60 "$bin/device_perf" --nccl 1 --ranks 1 --json "$out/gpu.jsonl" "${sizes[@]}"
[ "$devices" -le 1 ] || step "device_perf_nccl_$devices" 60 "$bin/device_perf" --nccl 1 --ranks "$devices" \
  --json "$out/gpu.jsonl" "${sizes[@]}"
for ranks in 1 2; do
  step "device_gradients_perf_$ranks" 60 "$bin/device_gradients_perf" --ranks "$ranks" \
    --json "$out/gpu.jsonl" "${steps[@]}"
done
if [ ${#sizes[@]} = 0 ] && [ -x "$bin/ddl_nmt" ]; then
  step nmt_reference 90 env DDL_NMT="$bin/ddl_nmt" bash "$here/nmt_reference.sh" --json "$out/gpu.jsonl" -- --device=cuda
  if python3 -c 'import torch' 2>/dev/null; then
    step pytorch_nmt 90 python3 "$here/pytorch_nmt.py" --json "$out/gpu.jsonl"
  else
    table+=("python3 has no torch: ddl_nmt's peer was not run")
  fi
fi
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer)}
if [ -n "$sanitizer" ]; then
  # A sanitizer may run kernels one after the other: those that wait for each other need one rank, or its own time.
  for tool in memcheck racecheck synccheck; do
    step "sanitizer_$tool" 120 "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/device_perf" --ranks 1 \
      --largest 65536 --iterations 2
    step "sanitizer_${tool}_reproducible" 120 "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/device_perf" --ranks 1 \
      --reproducible 1 --largest 65536 --iterations 2
    step "sanitizer_${tool}_nccl" 120 "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/device_perf" --ranks 1 --nccl 1 \
      --largest 4096 --iterations 70 # the fingerprints' kernels among them
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
for printed in "$out"/device_perf_*.txt "$out"/device_gradients_perf_*.txt "$out"/*nmt_reference.txt "$out"/pytorch_nmt.txt; do
  [ ! -s "$printed" ] || cat "$printed"
done
exit $failed
