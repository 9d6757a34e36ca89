#!/usr/bin/env bash
# Translates sentences of random words with random weights. See `nmt_translate.sh --help`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT2'
Usage: nmt_translate.sh [flags] [-- flags of ddl_nmt]

Translates sentences of random words, all of the same length, by beam search with a model of random weights. Such a model
hardly ever ends a sentence, so translations are cut off at twice the source's length, in ddl_nmt and in pytorch_nmt.py.
The model has scaled Luong attention with input feeding. Prints sentences/s, without the time to start and to read the model;
with --pytorch also PyTorch's, and the ratio. Flags after -- are passed to the translation last, such as --dtype=mixed.

  --units N --layers N --vocabulary N  of the model (default 512, 2, 8000)
  --words N            of a source (default 30)
  --beam N             (default 5)
  --sentences N        to translate (default 256)
  --batches "N ..."    sentences at a time; the fastest counts (default "64 128")
  --pytorch PYTHON     runs pytorch_nmt.py with this interpreter, before and after; the faster of the two counts
  --peer_batches "N ..."  PyTorch's (default "32 64")
  --arithmetic A       of PyTorch, of the list in its --help (default f32)
  --steps N            batches that PyTorch translates each time (default 3); one before them is not timed
  --json FILE          to which a JSON line is appended for each program and batch

DDL_NMT: the program (default: build/bin/ddl_nmt).
EOT2
}

fail() {
  printf 'nmt_translate.sh: %s\n' "$*" >&2
  exit 2
}

units=512 layers=2 vocabulary=8000 words=30 beam=5 sentences=256 batches="64 128" pytorch="" peer_batches="32 64"
arithmetic=f32 steps=3 json=""
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --units | --layers | --vocabulary | --words | --beam | --sentences | --batches | --pytorch | --peer_batches | \
      --arithmetic | --steps | --json)
      [ $# -gt 1 ] || fail "$1 needs a value; see --help"
      printf -v "${1#--}" %s "$2"; shift 2 ;;
    --) shift; break ;;
    *) fail "unknown argument '$1'; see --help" ;;
  esac
done
for list in units layers vocabulary words beam sentences batches peer_batches steps; do
  [ -n "${!list}" ] || fail "--$list is empty, expected a number above 0"
  for number in ${!list}; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || fail "--$list: found '$number', expected a number above 0"
  done
done
program=${DDL_NMT:-$here/../build/bin/ddl_nmt}
[ -x "$program" ] || fail "$program is missing; build it, or set DDL_NMT"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{ printf '<unk>\n<s>\n</s>\n'; seq -f 'w%.0f' $((vocabulary - 3)); } >"$work/vocab.a"
cp "$work/vocab.a" "$work/vocab.b"
awk -v sentences="$sentences" -v words="$words" -v known=$((vocabulary - 3)) 'BEGIN {
  srand(1)
  for (s = 0; s < sentences; ++s) {
    for (w = 0; w < words; ++w) printf "%sw%d", w ? " " : "", 1 + int(rand() * known)
    print ""
  }
}' >"$work/text.a"
cp "$work/text.a" "$work/text.b"

# A checkpoint of the model as it is initialised.
"$program" --num_units="$units" --num_layers="$layers" --encoder_type=bi --attention=scaled_luong --batch_size=1 \
  --train_prefix="$work/text" --src=a --tgt=b --vocab_prefix="$work/vocab" --learning_rate=1e-30 --num_train_steps=1 \
  --out_dir="$work/run" >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "the model could not be made"; }

peer() {
  [ -n "$pytorch" ] || return 0
  local batch
  for batch in $peer_batches; do
    printf 'batch %s: ' "$batch"
    "$pytorch" "$here/pytorch_nmt.py" --device cpu --arithmetic "$arithmetic" --units "$units" --layers "$layers" --attention \
      --vocabulary "$vocabulary" --batch "$batch" --words "$words" --translate "$beam" --steps "$steps" --warm_up 1 \
      ${json:+--json "$json"} 2>"$work/errors" | tee -a "$work/peer" || { cat "$work/errors" >&2; fail "PyTorch failed"; }
  done
}

peer
for batch in $batches; do
  "$program" --infer --out_dir="$work/run" --inference_input_file="$work/text.a" --inference_output_file="$work/translations" \
    --beam_width="$beam" --tgt_max_len_infer=$((2 * words)) --infer_batch_size="$batch" "$@" >"$work/out" 2>"$work/errors" ||
    { cat "$work/errors" >&2; fail "the translation failed"; }
  cp "$work/out" /tmp/m/infer.out
  rate=$(sed -n 's/^translated .* \([0-9.]*\) lines\/s$/\1/p' "$work/out")
  printf '%s\n' "$rate" >>"$work/ours"
  printf 'batch %s: ddl_nmt: %s sentences/s (%s words written; %s)\n' "$batch" "$rate" "$(wc -w <"$work/translations")" "${*:-f32}"
  [ -z "$json" ] || printf '{"benchmark":"nmt_translate","sentences_per_s":%s,"beam":%s,"units":%s,"layers":%s,"vocabulary":%s,"batch":%s,"words":%s,"sentences":%s,"flags":"%s","cpu":"%s"}\n' \
    "$rate" "$beam" "$units" "$layers" "$vocabulary" "$batch" "$words" "$sentences" "$*" "$(bash "$here/processor_name.sh")" >>"$json"
done
peer
if [ -n "$pytorch" ]; then
  theirs=$(sed -n 's/.* \([0-9.]*\) sentences\/s.*/\1/p' "$work/peer" | sort -g | tail -n 1)
  awk -v theirs="$theirs" -v ours="$(sort -g "$work/ours" | tail -n 1)" -v a="$arithmetic" \
    'BEGIN { printf "ddl_nmt has %.2f times the sentences/s of PyTorch in %s (the best batch of each)\n", ours / theirs, a }'
fi
