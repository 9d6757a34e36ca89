#!/usr/bin/env bash
# Trains a model on sentences of random words, all of the same length. See `nmt_reference.sh --help`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT2'
Usage: nmt_reference.sh [flags] [-- flags of ddl_nmt]

Trains ddl_nmt's preset ddl_reference (4 layers of 1,024 units, 36,548 words, 717,668,352 bytes of gradients), or the same
model in other sizes, on sentences of random words without padding, so that pytorch_nmt.py does the same work. Prints the
median time of a step, on a GPU also the host's time to queue one, and the operations a second of the products with kernels
(6 an element and word); with --pytorch also PyTorch's time, and the ratio. Flags after -- are passed last, such as --device=cuda.

  --preset P       another model, such as nvidia_gnmt or word_lm
  --steps N        to time (default 20); 5 before them are not timed
  --units N --layers N --vocabulary N --batch N
  --words N        of a sentence on each side, with its end (default 30)
  --attention      scaled_luong with input feeding
  --ranks N        of ddl_nmt (default 1); --batch is for all of them together
  --pytorch PYTHON runs pytorch_nmt.py with this interpreter, before and after
  --arithmetic A   of PyTorch, of the list in its --help, and the name of the figures (default f32)
  --json FILE      to which a JSON line is appended for each program

DDL_NMT: the program (default: build/bin/ddl_nmt).
EOT2
}

fail() {
  printf 'nmt_reference.sh: %s\n' "$*" >&2
  exit 2
}

preset=ddl_reference steps=20 json="" units=1024 layers=4 vocabulary=36548 batch=128 words=30 attention="" ranks=1 pytorch="" arithmetic=f32
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --preset | --steps | --json | --units | --layers | --vocabulary | --batch | --words | --ranks | --pytorch | --arithmetic)
      [ $# -gt 1 ] || fail "$1 needs a value; see --help"
      printf -v "${1#--}" %s "$2"; shift 2 ;;
    --attention) attention=1; shift ;;
    --) shift; break ;;
    *) fail "unknown argument '$1'; see --help" ;;
  esac
done
for number in steps units layers vocabulary batch words ranks; do
  [[ ${!number} =~ ^[1-9][0-9]*$ ]] || fail "--$number: found '${!number}', expected a number above 0"
done
[ $((batch % ranks)) = 0 ] || fail "--batch $batch cannot be divided among --ranks $ranks"
program=${DDL_NMT:-$here/../build/bin/ddl_nmt}
[ -x "$program" ] || fail "$program is missing; build it, or set DDL_NMT"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{ printf '<unk>\n<s>\n</s>\n'; seq -f 'w%.0f' $((vocabulary - 3)); } >"$work/vocab.a"
cp "$work/vocab.a" "$work/vocab.b"
for side in a b; do
  awk -v sentences=$((10 * batch)) -v words=$((words - 1)) -v seed="$side" -v known=$((vocabulary - 3)) 'BEGIN {
    srand(seed == "a" ? 1 : 2)
    for (s = 0; s < sentences; ++s) {
      # The source has no end of its own.
      for (w = 0; w < words + (seed == "a"); ++w) printf "%sw%d", w ? " " : "", 1 + int(rand() * known)
      print ""
    }
  }' >"$work/train.$side"
done
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
median_of() { sed -n "s/.*\"$1\": *\([0-9.e+]*\).*/\1/p" "$work/log" | tail -n +6 | median; }

peer() {
  [ -n "$pytorch" ] || return 0
  local device=cpu
  [[ " $* " != *" --device=cuda "* ]] || device=cuda
  "$pytorch" "$here/pytorch_nmt.py" --device $device --arithmetic "$arithmetic" --units "$units" --layers "$layers" \
    --vocabulary "$vocabulary" --batch "$batch" --words "$words" --steps "$(((steps + 1) / 2))" ${attention:+--attention} \
    ${json:+--json "$json"} 2>"$work/errors" | tee -a "$work/peer" || { cat "$work/errors" >&2; fail "PyTorch failed"; }
}

[ -z "$pytorch" ] || [ "$preset" = ddl_reference ] || fail "--preset $preset: pytorch_nmt.py has ddl_reference alone"
sides=(--src=a --tgt=b)
[ "$preset" != word_lm ] || sides=(--tgt=b)
model=(--preset="$preset" --num_units="$units" --num_layers="$layers" ${attention:+--attention=scaled_luong})
launch=()
if [ "$ranks" -gt 1 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  launch=(mpirun --oversubscribe --bind-to none -np "$ranks")
fi
peer "$@"
"${launch[@]}" "$program" "${model[@]}" "${sides[@]}" --batch_size=$((batch / ranks)) --train_prefix="$work/train" \
  --vocab_prefix="$work/vocab" \
  --num_train_steps=$((steps + 5)) --steps_per_stats=5 --steps_per_eval=1000000 --log_jsonl="$work/log" "$@" >"$work/out" || true
grep -aE 'ranks? on|LSTM layers|peak memory|gradients|to queue a step' "$work/out" || true
[ -s "$work/log" ] || { cat "$work/out" >&2; fail "the training wrote no steps"; }
step_ms=$(median_of step_ms)
rate=$(median_of words_per_s)
# Each element of a kernel costs 2 operations a word forward and 4 backward.
tflops=$("$program" "${model[@]}" "${sides[@]}" --vocab_prefix="$work/vocab" --vocab_size="$vocabulary" --describe |
  awk -v words=$((words * batch)) -v ms="$step_ms" '$1 ~ /\/kernel$/ { gsub(",", ""); elements += $5 }
    END { printf "%.3g", 6e-9 * elements * words / ms }')
printf 'ddl_nmt: %.1f ms a step, %.0f words/s, %s TFLOP/s (%s rank%s; %s)\n' "$step_ms" "$rate" "$tflops" "$ranks" \
  "${launch:+s}" "${*:-cpu}"
peer "$@"
if [ -n "$pytorch" ]; then
  theirs=$(sed -n 's/.* \([0-9.]*\) ms a step.*/\1/p' "$work/peer" | sort -g | head -n 1)
  awk -v theirs="$theirs" -v ours="$step_ms" -v a="$arithmetic" \
    'BEGIN { printf "ddl_nmt has %.2f times the words/s of PyTorch in %s (the better of its two runs)\n", theirs / ours, a }'
fi
if [ -n "$json" ]; then
  device=$(sed -n 's/.*, cuda (\([^)]*\)).*/\1/p' "$work/out" | head -n 1)
  printf '{"benchmark":"nmt_reference","preset":"%s","step_ms":%s,"words_per_s":%.0f,"tflops":%s,"steps":%s,"units":%s,"layers":%s,"vocabulary":%s,"batch":%s,"words":%s,"attention":%s,"ranks":%s,"flags":"%s","arithmetic":"%s","device":"%s","cpu":"%s"}\n' \
    "$preset" "$step_ms" "$rate" "$tflops" "$steps" "$units" "$layers" "$vocabulary" "$batch" "$words" "$([ -n "$attention" ] && echo true || echo false)" \
    "$ranks" "$*" "$arithmetic" "${device:-cpu}" "$(bash "$here/processor_name.sh")" >>"$json"
fi
