#!/usr/bin/env bash
# Measures the words per second (source and target) of training the benchmark model: 2 layers x 256 units, scaled_luong
# with input feeding, V = 8,000, 64 sentences per rank.
#   benchmarks/nmt_throughput.sh [--data PREFIX] [--ranks N] [--steps N] [--json FILE] [-- flags of ddl_nmt]
# PREFIX.en and PREFIX.de (or .gz) are the text; default: the built-in corpus, which has a smaller vocabulary. Prints the
# median over the steps after the first 20 and appends it as a JSON line to FILE.
set -euo pipefail
[ "${1:-}" != --help ] || exec sed -n '2,/^set/s/^#  *//p' "$0"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ranks=2 steps=120 data="" json=""
while [ $# -gt 0 ]; do
  case $1 in
    --data) data=$2; shift 2 ;;
    --ranks) ranks=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --json) json=$2; shift 2 ;;
    --) shift; break ;;
    *) echo "nmt_throughput.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
done
program=${DDL_NMT:-build/bin/ddl_nmt}
[ -x "$program" ] || { echo "nmt_throughput.sh: $program is missing; build it first (see the README)" >&2; exit 1; }

flags=(--preset=benchmark --num_train_steps="$steps" --steps_per_eval=1000000 --infer_batch_size=32)
text="built-in corpus"
if [ -n "$data" ]; then
  flags+=(--train_prefix="$data" --src=en --tgt=de)
  text=$(basename "$(dirname "$data")")
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun --oversubscribe --bind-to none -np "$ranks" "$program" "${flags[@]}" --log_jsonl="$log" "$@" |
  grep -aE '^parameters|ranks? on|training pairs|peak memory'

median=$(sed -n 's/.*"words_per_s": *\([0-9.e+]*\).*/\1/p' "$log" | tail -n +21 | sort -g | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}')
step_ms=$(sed -n 's/.*"step_ms": *\([0-9.e+]*\).*/\1/p' "$log" | tail -n +21 | sort -g | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}')
cpu=$(bash "$(dirname "$0")/processor_name.sh")
printf 'median of %s steps: %.0f words/s, %.1f ms a step (%s ranks, %s processors, %s, %s)\n' \
  "$((steps - 20))" "$median" "$step_ms" "$ranks" "$(nproc)" "$cpu" "$text"
if [ -n "$json" ]; then
  printf '{"benchmark":"nmt_throughput","words_per_s":%.0f,"step_ms":%.1f,"ranks":%s,"steps":%s,"text":"%s","flags":"%s","processors":%s,"cpu":"%s","commit":"%s"}\n' \
    "$median" "$step_ms" "$ranks" "$steps" "$text" "--preset=benchmark${*:+ $*}" "$(nproc)" "$cpu" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" >>"$json"
fi
