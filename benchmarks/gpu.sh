#!/usr/bin/env bash
# Runs all GPU tests and benchmarks from a directory of programs. See `gpu.sh --help`.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT'
Usage: gpu.sh [--bundle FILE] [--only GROUP[,GROUP...]] [--budget SECONDS] [--archive FILE] [--quick] DIRECTORY

Runs the GPU tests and benchmarks on this machine's devices. Builds nothing and needs no MPI. For a machine with little
more than a driver, pack the programs on a machine that can build them; the one file contains this script:

  here:   benchmarks/gpu_pack.sh ddl-gpu.tar.xz --arch 90
  there:  tar xf ddl-gpu.tar.xz && ddl-gpu/gpu.sh --budget 540 --archive gpu.tar.gz /tmp/gpu

Groups, in this order; all unless --only names some:
  smoke     takes seconds: whether the programs load, and a small all-reduce of 1 and of 2 ranks. Ends here without a device
  tests     the GPU tests; the one with several processes also under NVIDIA's MPS, if nvidia-cuda-mps-control is installed
  bench     the benchmarks, compared with device-to-device copies and NCCL; the rate of matrix products, if python3 has torch
  trainer   ddl_nmt's GPU tests, and the article's model in each precision with 128 and 64 sentences, and with each --rnn and
            with --step_graph, compared with PyTorch, if python3 has it
  sanitize  compute-sanitizer (memcheck, racecheck, synccheck), if it is installed

--bundle FILE     runs the bundle FILE of gpu_pack.sh, from a temporary directory
--budget SECONDS  total time; a step gets at most the remaining time, and later steps are listed as not run
--archive FILE    archive of DIRECTORY, written after each step and at the end; default: DIRECTORY.tar.gz
--quick           to try the script: little data and few steps, the figures say nothing; a case or two of each test, and no
                  tests or trainer unless --only names them

DIRECTORY must be new or empty. It gets each step's output, gpu.jsonl (with the machine first), machine.txt, steps.txt and
reports/ (DDL_REPORT). Prints a row when a step ends, and finally the figures and all rows again. Writes the archive also
after SIGTERM and if a step hangs. The exit status is 1 if a step failed, else 3 if the budget was too small.

cuBLAS, cuDNN and NCCL are found in LD_LIBRARY_PATH, by the dynamic loader, or in python3's packages (nvidia-*, torch). A
UCX with CUDA is found in the Python package libucx-cu12 or libucx-cu13, or in a bundle packed with gpu_pack.sh --ucx-wheel.

DDL_BIN: the directory of the programs (default: build/bin). DDL_DEADLINE: default 15. COMPUTE_SANITIZER: its program.
EOT
}

fail() {
  printf 'gpu.sh: %s\n' "$*" >&2
  exit 2
}

groups="smoke tests bench trainer sanitize"
command="gpu.sh $*"
bundle='' only='' budget='' archive='' quick='' out=''
while [ $# -gt 0 ]; do
  word=$1
  shift
  case $word in
    --help | -h) usage; exit 0 ;;
    --quick) quick=1 ;;
    --bundle | --only | --budget | --archive)
      [ $# -gt 0 ] || fail "$word: expected a value after it; see --help"
      printf -v "${word#--}" '%s' "$1"
      shift
      ;;
    -*) fail "unknown option $word; see --help" ;;
    *) [ -z "$out" ] || fail "found '$word', expected one directory"; out=$word ;;
  esac
done
[ -n "$out" ] || { usage >&2; exit 2; }
[[ ${budget:-1} =~ ^[1-9][0-9]*$ ]] || fail "--budget: found '$budget', expected seconds"
[ -n "$only" ] || only=${quick:+smoke,bench,sanitize}
only=${only:-${groups// /,}}
for group in ${only//,/ }; do
  [[ " $groups " == *" $group "* ]] || fail "--only: found '$group', expected some of: $groups"
done
[ -z "$(ls -A "$out" 2>/dev/null)" ] || fail "$out holds files; give a new directory"
out=$(realpath -m "$out")
archive=$(realpath -m "${archive:-$out.tar.gz}")
[[ $archive != "$out"/* ]] || fail "--archive: found $archive, expected a file outside $out, which goes into it"
[ ! -e "$archive" ] || fail "$archive is there already; give a new directory, or another --archive"

root=$here/.. temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
if [ -n "$bundle" ]; then
  tar -C "$temporary" -xf "$bundle" || python3 -m tarfile -e "$bundle" "$temporary" ||
    fail "--bundle $bundle: cannot unpack it; expected a file that gpu_pack.sh made"
  root=$temporary/ddl-gpu
fi
root=$(cd "$root" && pwd)
bin=$root/build/bin
[ -n "$bundle" ] || bin=${DDL_BIN:-$bin}
[ -x "$bin/device_perf" ] || fail "$bin has no device_perf; build first, with CUDA, or set DDL_BIN"

# With a timeout, because a broken driver may not answer.
smi() {
  timeout 10 nvidia-smi "$@" 2>/dev/null
}
# Prints a value that gpu_pack.sh wrote to the bundle; nothing outside of a bundle.
packed() {
  sed -n "s/^$1=//p" "$root/bundle.txt" 2>/dev/null
}
check_bundle_fits() {
  local needed found capability
  needed=$(packed glibc)
  found=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/glibc //')
  if [ -n "$needed" ] && [ "$(printf '%s\n' "$needed" "${found:-0}" | sort -V | head -n 1)" != "$needed" ]; then
    fail "this machine's C library is glibc ${found:-(none found)}, the packed programs need $needed or later: pack on an" \
      "older system"
  fi
  for capability in $(smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u); do
    [ -n "$(packed arch)" ] || continue
    if [ "${capability%?}" != "$(packed arch | sed 's/.$//')" ] || [ "$capability" -lt "$(packed arch)" ]; then
      fail "the packed programs are for compute capability $(packed arch), a device here has $capability: pack them with" \
        "--arch $capability"
    fi
  done
}
check_bundle_fits
mkdir -p "$out/reports" "$(dirname "$archive")" || fail "cannot make $out and the folder of $archive"
devices=$(smi --list-gpus | grep -c '^GPU')
programs=()
for program in device_{test,nccl_test,plans_test,reproducible_test,ucx_test,program,perf,gradients_perf} c_device_program nmt_{cuda_backend,lstm_layers}_test ddl_nmt; do
  [ ! -x "$bin/$program" ] || programs+=("$bin/$program")
done
. "$here/gpu_libraries.sh"
. "$here/gpu_steps.sh"
find_libraries "$root" "${programs[@]}"

quoted() {
  printf '"%s"' "$(printf '%s' "$1" | tr '\n' ' ' | sed 's/["\\]/\\&/g')"
}
describe_machine() {
  local gpus driver cuda nvcc commit
  gpus=$(smi --query-gpu=name,memory.total,mig.mode.current --format=csv,noheader |
    sort | uniq -c | sed 's/^ *\([0-9]*\) /\1 x /' | paste -sd ';')
  driver=$(smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
  cuda=$(smi | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p')
  nvcc=$(nvcc --version 2>/dev/null | sed -n 's/.*release \([^,]*\),.*/\1/p')
  commit=$(packed commit)
  [ -n "$commit" ] || commit=$(git -C "$root" describe --always --dirty --exclude '*' --abbrev=12 2>/dev/null)
  cat >"$out/machine.txt" <<EOT
GPUs:    ${gpus:-no nvidia-smi here}
driver:  ${driver:-not found}, for CUDA ${cuda:-?}
built:   commit ${commit:-unknown}, CUDA runtime $(packed toolkit | grep . || echo "${nvcc:-unknown}")
cuBLAS:  $cublas
cuDNN:   $cudnn
NCCL:    $nccl
UCX:     $ucx
EOT
  local name line='{"benchmark":"machine"'
  for name in gpus driver cuda nvcc commit cublas cudnn nccl ucx command; do line+=",\"$name\":$(quoted "${!name}")"; done
  line+=",\"toolkit\":$(quoted "$(packed toolkit | grep . || echo "$nvcc")"),\"host\":$(quoted "$(uname -rn)")}"
  echo "$line" >"$out/gpu.jsonl"
  cat "$out/machine.txt"
}

trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

# Kernels of ranks that are threads wait for each other: each stream needs its own queue, and no kernel may be loaded while
# another one waits.
processes=(env LD_LIBRARY_PATH="$library_path" DDL_DEADLINE="${DDL_DEADLINE:-15}")
threads=("${processes[@]}" CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER)
json=(--json "$out/gpu.jsonl")
sizes=() gradients=() cases=() training=() pytorch=() in_short=() batches=(128 64)
if [ -n "$quick" ]; then
  sizes=(--largest 65536 --iterations 2)
  gradients=(--bytes 1000000 --bucket-bytes 100000 --steps 2)
  cases=(--gtest_filter='*CallsFollow*:*RanksThatCall*:*AllRanksAtOnce*:*Cuda*')
  training=(--steps 1 --units 16 --layers 2 --vocabulary 50 --words 3)
  batches=(4 2)
  pytorch=("${training[@]}" --warm_up 1)
  in_short=(quick)
fi
has_torch() {
  python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null
}

smoke() {
  step smoke_libraries 60 "${processes[@]}" bash -c '
    ldd "$@" | grep -E "^/|not found" | grep -B1 "not found" && exit 1
    echo "all programs have their libraries"' - "${programs[@]}"
  for ranks in 1 2; do
    step smoke_$ranks 60 "${threads[@]}" "$bin/device_perf" --ranks $ranks --largest 65536 --iterations 2
    if grep -q "no CUDA device can be used" "$out/smoke_$ranks.txt" 2>/dev/null; then
      echo "gpu.sh: there is no device that can be used, so nothing else is run" >&2
      exit 1
    fi
  done
}

c_and_python() {
  local run=(bash "$root/tests/device/c_device_test.sh")
  if [ ! -x "$bin/c_device_program" ]; then
    left_out c_device "$bin has none"
    return
  fi
  step c_device 120 "${processes[@]}" "${run[@]}" "$bin/c_device_program"
  if has_torch; then
    step python_torch_device 180 "${processes[@]}" PYTHONPATH="$root/ddl/python:$root/tests/ddl/c_api" \
      DDL_LIBRARY="$(dirname "$bin")/lib/libddl_c.so.0" "${run[@]}" python3 "$root/tests/device/python_torch_device_test.py"
  else
    left_out python_torch_device "python3 has no torch"
  fi
}

tests() {
  local script=$root/tests/device/device_processes_test.sh one_device=()
  step device_test 120 "${threads[@]}" "$bin/device_test" "${cases[@]}"
  [ "$devices" -le 1 ] || step device_nccl_test 120 "${threads[@]}" "$bin/device_nccl_test" "${cases[@]}"
  local plans=("${cases[@]}")
  [ "$devices" -ge 4 ] || [ -n "$quick" ] || plans+=(--gtest_filter='DevicePlans.TheExchangeAlone:DevicePlans.NcclOverAllRanks')
  step device_plans_test 120 "${threads[@]}" "$bin/device_plans_test" "${plans[@]}"
  [ "$devices" -gt 1 ] || [ -n "$quick" ] || one_device=(--gtest_filter='DeviceReproducible.*') # the others need NCCL
  step device_reproducible_test 120 "${threads[@]}" "$bin/device_reproducible_test" "${cases[@]}" "${one_device[@]}"
  step device_processes 180 "${processes[@]}" bash "$script" "$bin/device_program" "${in_short[@]}"
  c_and_python
  if ! command -v nvidia-cuda-mps-control >/dev/null; then
    left_out device_processes_mps "nvidia-cuda-mps-control is not here"
  elif start_mps; then
    step device_processes_mps 180 "${processes[@]}" CUDA_MPS_PIPE_DIRECTORY="$mps" \
      bash "$script" "$bin/device_program" "${in_short[@]}"
    stop_mps
  else
    left_out device_processes_mps "MPS does not start: $(tail -n 1 "$out/mps/start.txt")"
    stop_mps
  fi
  if [ ! -x "$bin/device_ucx_test" ]; then
    left_out device_ucx_test "$bin has none"
  else
    step device_ucx_test 120 "${threads[@]}" "$bin/device_ucx_test" "${cases[@]}"
  fi
}

bench() {
  local perf=("${threads[@]}" "$bin/device_perf" "${json[@]}" "${sizes[@]}")
  for ranks in 1 2 4; do step "device_perf_$ranks" 60 "${perf[@]}" --ranks "$ranks"; done
  step device_perf_reproducible_2 60 "${perf[@]}" --reproducible 1 --ranks 2
  step device_perf_nccl_1 60 "${perf[@]}" --nccl 1 --ranks 1
  [ "$devices" -le 1 ] || step "device_perf_nccl_$devices" 60 "${perf[@]}" --nccl 1 --ranks "$devices"
  for ranks in 1 2; do
    step "device_gradients_perf_$ranks" 60 "${threads[@]}" "$bin/device_gradients_perf" --ranks "$ranks" \
      "${json[@]}" "${gradients[@]}"
  done
  if has_torch; then
    step gemm_rate 60 python3 "$root/benchmarks/gemm_rate.py" "${json[@]}"
  else
    left_out gemm_rate "python3 has no torch"
  fi
}

trainer() {
  local reference=("${threads[@]}" DDL_NMT="$bin/ddl_nmt" bash "$root/benchmarks/nmt_reference.sh" "${json[@]}" "${training[@]}")
  local all=(f32 tf32 bf16 f16) arithmetic batch rnn test
  for test in nmt_cuda_backend_test nmt_lstm_layers_test; do
    [ ! -x "$bin/$test" ] || step $test 120 "${threads[@]}" "$bin/$test" "${cases[@]}"
  done
  [[ $(smi --query-gpu=compute_cap --format=csv,noheader | sort | head -n 1) != [5-7].* ]] || all=(f32 f16)
  if [ -x "$bin/ddl_nmt" ]; then
    for arithmetic in "${all[@]}"; do
      local type=(--dtype="$arithmetic")
      [[ $arithmetic == *f32 ]] || type=(--dtype=mixed --mixed_type="$arithmetic")
      for batch in "${batches[@]}"; do
        step "nmt_reference_${arithmetic}_$batch" 120 "${reference[@]}" --batch "$batch" --arithmetic "$arithmetic" -- \
          --device=cuda "${type[@]}"
      done
    done
    for rnn in loop wavefront cudnn; do
      step nmt_reference_$rnn 120 "${reference[@]}" --batch "${batches[0]}" --arithmetic f32_$rnn -- --device=cuda --rnn=$rnn
    done
    step nmt_reference_step_graph 120 "${reference[@]}" --batch "${batches[0]}" --arithmetic f32_step_graph -- \
      --device=cuda --rnn=loop --step_graph --sparse_embeddings=false
  else
    left_out nmt_reference "$bin has no ddl_nmt"
  fi
  if has_torch; then
    for batch in "${batches[@]}"; do
      step "pytorch_nmt_$batch" 120 python3 "$root/benchmarks/pytorch_nmt.py" "${json[@]}" "${pytorch[@]}" --batch "$batch"
    done
  else
    left_out pytorch_nmt "python3 has no torch: ddl_nmt's peer is not run"
  fi
}

sanitize() {
  local sanitizer tool check
  sanitizer=${COMPUTE_SANITIZER:-$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)}
  [ -n "$sanitizer" ] || { left_out sanitizer "compute-sanitizer is not here"; return; }
  # A sanitizer may serialise kernels. Those that wait for each other then need a single rank.
  for tool in memcheck racecheck synccheck; do
    check=("${threads[@]}" "$sanitizer" --tool "$tool" --error-exitcode 9)
    [ $tool != memcheck ] || check+=(--report-api-errors no) # tests provoke some errors
    local perf=("${check[@]}" "$bin/device_perf" --ranks 1 --iterations)
    step "sanitizer_$tool" 120 "${perf[@]}" 2 --largest 65536
    step "sanitizer_${tool}_reproducible" 120 "${perf[@]}" 2 --largest 65536 --reproducible 1
    step "sanitizer_${tool}_nccl" 120 "${perf[@]}" 2 --largest 4096 --nccl 1
    step "sanitizer_${tool}_gradients" 120 "${check[@]}" "$bin/device_gradients_perf" --bytes 1000000 \
      --bucket-bytes 100000 --steps 2
    [ ! -x "$bin/nmt_cuda_backend_test" ] || step "sanitizer_${tool}_nmt" 120 "${check[@]}" "$bin/nmt_cuda_backend_test" \
      --gtest_filter='*Cuda*'
  done
}

describe_machine
for group in $groups; do
  [[ ,$only, != *,$group,* ]] || "$group"
done
[ $failed = 0 ] || exit 1
[ ${#unfinished[@]} = 0 ] || exit 3
