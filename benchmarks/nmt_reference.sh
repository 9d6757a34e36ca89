#!/usr/bin/env bash
# Trains the article's model on sentences of random words, all of the same length. See `nmt_reference.sh --help`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT2'
Usage: nmt_reference.sh [--steps N] [--json FILE] [-- flags of ddl_nmt]

Trains ddl_nmt's preset ddl_reference (4 layers of 1,024 units, 36,548 words, 717,668,352 bytes of gradients) with one
rank for N steps (default 25, of which the first 5 are not timed). Sentences have 30 words on each side, including the end
of the sentence, so that pytorch_nmt.py with its defaults does the same work. Prints the median time of a step and appends
it as a JSON line to FILE. Flags after -- are passed last, such as --device=cuda.

DDL_NMT: the program (default: build/bin/ddl_nmt).
EOT2
}

fail() {
  printf 'nmt_reference.sh: %s\n' "$*" >&2
  exit 2
}

steps=25 json=""
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --steps) steps=$2; shift 2 ;;
    --json) json=$2; shift 2 ;;
    --) shift; break ;;
    *) fail "unknown argument '$1'; see --help" ;;
  esac
done
[ "$steps" -gt 5 ] || fail "--steps: found $steps, expected 6 or more"
program=${DDL_NMT:-$here/../build/bin/ddl_nmt}
[ -x "$program" ] || fail "$program is missing; build it, or set DDL_NMT"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{ printf '<unk>\n<s>\n</s>\n'; seq -f 'w%.0f' 36545; } >"$work/vocab.a"
cp "$work/vocab.a" "$work/vocab.b"
for side in a b; do
  awk -v sentences=1280 -v words=29 -v seed="$side" 'BEGIN {
    srand(seed == "a" ? 1 : 2)
    for (s = 0; s < sentences; ++s) {
      for (w = 0; w < words; ++w) printf "%sw%d", w ? " " : "", 1 + int(rand() * 36545)
      print ""
    }
  }' >"$work/train.$side"
done
"$program" --preset=ddl_reference --train_prefix="$work/train" --src=a --tgt=b --vocab_prefix="$work/vocab" \
  --num_train_steps="$steps" --steps_per_stats=5 --steps_per_eval=1000000 --log_jsonl="$work/log" "$@" |
  tee "$work/out" | grep -aE 'ranks? on|peak memory|gradients' || true
[ -s "$work/log" ] || { cat "$work/out" >&2; fail "the training wrote no steps"; }
median_of() {
  sed -n "s/.*\"$1\": *\([0-9.e+]*\).*/\1/p" "$work/log" | tail -n +6 | sort -g |
    awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
step_ms=$(median_of step_ms)
words=$(median_of words_per_s)
printf 'ddl_nmt: %s ms a step, %.0f words/s (%s)\n' "$step_ms" "$words" "${*:-cpu}"
if [ -n "$json" ]; then
  printf '{"benchmark":"nmt_reference","step_ms":%s,"words_per_s":%.0f,"steps":%s,"flags":"%s","tf32_override":"%s"}\n' \
    "$step_ms" "$words" "$((steps - 5))" "$*" "${NVIDIA_TF32_OVERRIDE:-}" >>"$json"
fi
