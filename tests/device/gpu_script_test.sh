#!/usr/bin/env bash
# benchmarks/gpu.sh on emulated devices: every step runs, failures are reported, the figures can be parsed, and results are
# kept when time runs out or the script is ended.
#   gpu_script_test.sh GPU_SH PROGRAMS
set -uo pipefail
script=$1 programs=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}
gpu() { # programs, arguments; the output goes to $work/printed
  DDL_BIN=$1 bash "$script" "${@:2}" >"$work/printed" 2>&1
}
printed() { # pattern, message if it is missing
  grep -qE -- "$1" "$work/printed" || fail "$2: $(cat "$work/printed")"
}
archived() { # archive, file
  tar tzf "$1" | grep "/$2\$" >/dev/null || fail "$1 does not hold $2"
}
# Whether a process still runs some time after it was killed; it may wait for its parent to reap it.
runs_on() {
  local i
  for ((i = 0; i < 100; ++i)); do
    grep -qE '^State:\s+[^ZX]' "/proc/$1/status" 2>/dev/null || return 1
    sleep 0.1
  done
}
# Programs that print a line and then do something else.
fake_programs() { # folder, command
  mkdir "$1"
  printf '#!/bin/bash\necho began\n%s\n' "$2" | tee "$1/device_perf" >"$1/device_gradients_perf"
  chmod +x "$1"/*
}

every_step_runs() {
  gpu "$programs" --quick "$work/out" || fail "$(cat "$work/printed")"
  for step in smoke_libraries smoke_1 smoke_2 device_perf_{1,2,4,reproducible_2,nccl_1} device_gradients_perf_{1,2}; do
    printed "^$step +ok " "$step"
  done
  python3 - "$work/out/gpu.jsonl" <<'EOT2' || fail "gpu.jsonl: $(cat "$work/out/gpu.jsonl")"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
machine = {"gpus", "driver", "toolkit", "cublas", "cudnn", "nccl", "commit", "command"}
assert lines[0]["benchmark"] == "machine" and machine <= lines[0].keys() and "gpu.sh" in lines[0]["command"], lines[0]
assert {line["ranks"] for line in lines[1:]} == {1, 2, 4}
assert all(line["wrong"] == 0 for line in lines[1:])
EOT2
  archived "$work/out.tar.gz" gpu.jsonl
  archived "$work/out.tar.gz" device_perf_2.txt
  gpu "$programs" --quick "$work/out" && fail "figures are overwritten"
  printed "holds files" "figures would be overwritten"
}

only_what_is_asked_for() {
  gpu "$programs" --quick --only smoke --archive "$work/kept/smoke.tar.gz" "$work/smoke" || fail "$(cat "$work/printed")"
  grep -q device_perf "$work/smoke/steps.txt" && fail "--only smoke also runs: $(cat "$work/smoke/steps.txt")"
  archived "$work/kept/smoke.tar.gz" smoke_2.txt
  gpu "$programs" --only smoke,everything "$work/none" && fail "an unknown group is accepted"
  printed "found 'everything', expected some of: smoke" "an unknown group is not told"
}

the_trainer_in_each_precision() {
  [ -x "$programs/ddl_nmt" ] || return 0
  gpu "$programs" --quick --only trainer "$work/trainer" || fail "$(cat "$work/printed")"
  for arithmetic in f32 tf32 bf16 f16; do
    for batch in 4 2; do
      printed "^nmt_reference_${arithmetic}_$batch +ok " "the trainer with $arithmetic and $batch sentences"
      printed "^$arithmetic +$batch +[0-9]+ " "the table of words/s with $arithmetic and $batch sentences"
    done
  done
  grep -q '"benchmark":"nmt_reference".*"device":"Emulated GPU"' "$work/trainer/gpu.jsonl" ||
    fail "figures do not name their device: $(cat "$work/trainer/gpu.jsonl")"
}

failures_are_told() { # too little memory for the steps
  EMULATED_CUDA=bytes=100000 gpu "$programs" --quick "$work/failing" && fail "no failure is told"
  printed "^device_perf_1 +FAILED" "which step failed is not told"
  printed "out of memory" "why a step failed is not told"
}

# With a device, only a UCX without CUDA is a reason to skip.
skipped_tests_fail_where_a_device_is() {
  local reason
  result() { # output
    printf '%s\n[  SKIPPED ] A.Test (1 ms)\n' "$1" >"$work/skipped"
    (devices=1 && . "$(dirname "$script")/gpu_steps.sh" && result_of 0 "$work/skipped" 0 0)
  }
  [ "$(result 'no CUDA device: none is visible')" = "FAILED: skipped" ] || fail "a skipped test does not fail"
  reason='UCX on devices: UCX does not know the memory of devices: it was built without CUDA'
  [ "$(result "$reason")" = skipped ] || fail "a UCX without CUDA is a failure"
}

# A row appears when its step ends, not with the last one.
rows_come_as_steps_end() {
  fake_programs "$work/waiting" "case \$* in *--ranks\ 2*) until [ -e '$work/go' ]; do sleep 0.1; done ;; esac"
  gpu "$work/waiting" --quick --only smoke "$work/rows" &
  local script_process=$!
  until grep -qE '^smoke_1 +ok' "$work/printed" 2>/dev/null; do
    kill -0 $script_process 2>/dev/null || fail "the script ends without the row: $(cat "$work/printed")"
    sleep 0.1
  done
  grep -qE '^smoke_2' "$work/printed" && fail "a step's row comes before its end"
  touch "$work/go"
  wait $script_process || fail "$(cat "$work/printed")"
}

ends_when_the_budget_is_used_up() {
  fake_programs "$work/slow" "sleep 100"
  gpu "$work/slow" --quick --only smoke,bench --budget 15 "$work/budget"
  [ $? = 3 ] || fail "a budget that is too small is no status 3: $(cat "$work/printed")"
  printed "^smoke_1 +cut short" "a step is not cut short"
  printed "^device_perf_1 +not run" "a step begins after its time"
  printed "^not run to the end, in a budget of 15 s: smoke_1 smoke_2 device_perf_1" "what was not run is not told"
  archived "$work/budget.tar.gz" smoke_1.txt
}

keeps_what_there_is_when_ended() {
  fake_programs "$work/stuck" "trap '' TERM; echo \$\$ >'$work/stuck_process'; setsid sleep 100 & while true; do sleep 1; done"
  DDL_BIN=$work/stuck bash "$script" --only smoke "$work/ended" >"$work/printed" 2>&1 &
  local script_process=$!
  until [ -s "$work/stuck_process" ]; do sleep 0.1; done
  kill -TERM $script_process
  wait $script_process
  [ $? = 143 ] || fail "no status 143 after SIGTERM: $(cat "$work/printed")"
  printed "^smoke_1 +interrupted" "the interrupted step is not told"
  archived "$work/ended.tar.gz" smoke_1.txt
  archived "$work/ended.tar.gz" steps.txt
  runs_on "$(cat "$work/stuck_process")" && fail "the interrupted step's program runs on"
}

every_step_runs
only_what_is_asked_for
the_trainer_in_each_precision
failures_are_told
skipped_tests_fail_where_a_device_is
rows_come_as_steps_end
ends_when_the_budget_is_used_up
keeps_what_there_is_when_ended
echo passed
