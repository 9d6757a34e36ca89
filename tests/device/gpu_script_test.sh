#!/usr/bin/env bash
# benchmarks/gpu.sh on emulated devices: every step runs, what fails is told, and the figures can be read.
#   gpu_script_test.sh GPU_SH PROGRAMS
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

DDL_BIN=$2 bash "$1" --quick "$work/out" >"$work/printed" 2>&1 || fail "$(cat "$work/printed")"
for step in device_perf_1 device_perf_2 device_perf_4 device_perf_reproducible_2 device_perf_nccl_1 device_gradients_perf_1 device_gradients_perf_2; do
  grep -qE "^$step +ok " "$work/printed" || fail "$step: $(cat "$work/printed")"
done
python3 - "$work/out/gpu.jsonl" <<'EOT2' || fail "gpu.jsonl: $(cat "$work/out/gpu.jsonl")"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
assert lines[0]["benchmark"] == "machine" and "gpu.sh" in lines[0]["command"], lines[0]
assert {line["ranks"] for line in lines[1:]} == {1, 2, 4}
assert all(line["wrong"] == 0 for line in lines[1:])
EOT2

# Too little memory for what the steps need.
EMULATED_CUDA=bytes=100000 DDL_BIN=$2 bash "$1" --quick "$work/failing" >"$work/printed" 2>&1 && fail "no failure is told"
grep -qE "^device_perf_1 +FAILED" "$work/printed" || fail "which step failed is not told: $(cat "$work/printed")"
grep -q "out of memory" "$work/printed" || fail "why a step failed is not told: $(cat "$work/printed")"
DDL_BIN=$2 bash "$1" --quick "$work/out" >"$work/printed" 2>&1 && fail "figures are overwritten"
grep -q "holds files" "$work/printed" || fail "figures would be overwritten: $(cat "$work/printed")"
echo passed
