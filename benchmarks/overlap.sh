#!/usr/bin/env bash
# Measures how much of the gradients' reduction overlaps with backward. See `overlap.sh --help`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT'
Usage: overlap.sh DIRECTORY [--undisturbed PERCENT]

Makes 4 emulated hosts x 4 ranks with links of 1 Gb/s (emulated_cluster.sh) and runs overlap_perf on them, with ranks
placed by host and round-robin: the article's model, scaled down to these links, with reductions during and after
backward; with less compute than the reduction takes; with 16 bits between hosts; and the embedding of the article's
model by rows. Then measures the reducer's own cost on a single rank, five times each: sleeping instead of computing,
which is compared with the target, and computing. Times are medians; on a virtual machine that shares its cores,
--undisturbed repeats steps (overlap_perf --help). Writes JSON lines to DIRECTORY, which must be new or empty, and then
prints a table of targets. Takes about 3 minutes. The exit status is 1 if a target is missed.

DDL_BIN: the directory of the programs (default: build/bin). Needs python3 and the requirements of emulated_cluster.sh.
EOT
}

fail() {
  printf 'overlap.sh: %s\n' "$*" >&2
  exit 2
}

out='' undisturbed=100
while [ $# -gt 0 ]; do
  word=$1
  shift
  case $word in
    --help | -h) usage; exit 0 ;;
    --undisturbed) [ $# -gt 0 ] || fail "--undisturbed: expected a number of percent after it"; undisturbed=$1; shift ;;
    -*) fail "unknown option $word; see --help" ;;
    *) [ -z "$out" ] || fail "found '$word', expected one directory"; out=$word ;;
  esac
done
[ -n "$out" ] || { usage >&2; exit 2; }
bin=$(realpath "${DDL_BIN:-$here/../build/bin}")
[ -x "$bin/overlap_perf" ] || fail "$bin has no overlap_perf; build first, or set DDL_BIN"
command -v python3 >/dev/null || fail "python3 is missing"
[ -z "$(ls -A "$out" 2>/dev/null)" ] || fail "$out holds files; give a new directory"
mkdir -p "$out" || fail "cannot make $out"
out=$(realpath "$out")

name=overlap$$
trap 'bash "$here/emulated_cluster.sh" down --name "$name"' EXIT
bash "$here/emulated_cluster.sh" up --name "$name" --hosts 4 --ranks-per-host 4 --rate 1gbit || exit 2

for placement in host round_robin; do
  measure() {
    local case=$1
    shift
    bash "$here/emulated_cluster.sh" run --name "$name" --placement "$placement" -- "$bin/overlap_perf" \
      --undisturbed "$undisturbed" --json "$out/$case.$placement.jsonl" "$@"
  }
  measure article
  measure article_after_backward --after-backward
  measure short_compute --compute-ms 60
  measure bf16 --compute-ms 60 --wire bf16
  measure rows --rows 36548 --steps 3
done
one_rank() {
  local case=$1
  shift
  for _ in 1 2 3 4 5; do "$bin/overlap_perf" --undisturbed "$undisturbed" --compute-ms 100 --json "$out/$case.jsonl" "$@"; done
}
one_rank one_rank --spin
one_rank one_rank_sums --spin --leave-sums
one_rank one_rank_sleep

python3 - "$out" <<'EOT'
import json
import pathlib
import statistics
import sys


def line(case):
    with open(f"{sys.argv[1]}/{case}.jsonl") as file:
        return json.loads(file.readlines()[-1])


missed = 0
print(f"{'what':<64} {'wanted':>9} {'found':>9}")


def check(what, wanted, found, is_met):
    global missed
    missed += not is_met
    print(f"{what:<64} {wanted:>9} {found:>9.3g}{'' if is_met else '  MISSED'}")


for placement in ("host", "round_robin"):
    for case in ("article", "short_compute"):
        run = line(f"{case}.{placement}")
        ratio = run["step_ms"] / run["bound_ms"]
        check(f"{case}, {placement}: step over bound", "<= 1", ratio, ratio <= 1)
    run = line(f"bf16.{placement}")
    check(f"short_compute in bf16, {placement}: step over bound", "none", run["step_ms"] / run["bound_ms"], True)
    run = line(f"article.{placement}")
    check(f"article, {placement}: efficiency of 16 ranks", ">= 0.95", run["efficiency"], run["efficiency"] >= 0.95)
    after = line(f"article_after_backward.{placement}")
    check(f"article after backward, {placement}: efficiency", "none", after["efficiency"], True)
    rows = line(f"rows.{placement}")
    is_fine = rows["bytes_share"] <= 0.5 and rows["differ"] == 0
    check(f"embedding by rows, {placement}: bytes over dense", "<= 0.5", rows["bytes_share"], is_fine)


def own_share(case):
    with open(f"{sys.argv[1]}/{case}.jsonl") as file:
        runs = [json.loads(text) for text in file]
    return statistics.median(run["own_ms"] / run["compute_ms"] for run in runs)


own = own_share("one_rank_sleep")
check("one rank, 200 parameters: reducer's own share of 100 ms", "< 0.01", own, own < 0.01)
check("the same, computing instead of asleep", "none", own_share("one_rank"), True)
check("the same, and gradients left as sums", "none", own_share("one_rank_sums"), True)
shares = [line["stolen"] for path in pathlib.Path(sys.argv[1]).glob("*.jsonl")
          for line in map(json.loads, path.open()) if line["stolen"] is not None]
if shares:
    print(f"taken by the machine's hypervisor: {statistics.mean(shares):.1%} of its time on average, "
          f"up to {max(shares):.0%} of a line's")
sys.exit(1 if missed else 0)
EOT
