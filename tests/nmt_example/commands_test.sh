#!/usr/bin/env bash
# The commands of ddl_nmt, on files and on pipes.
# Usage: commands_test.sh DDL_NMT [LAUNCHER...]
set -u
ddl_nmt=$1
shift
launcher=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

complain() {
  echo "FAILED: $1"
  shift
  for file in "$@"; do sed "s/^/    /" "$file" | head -n 20; done
  touch failed
}

run() { timeout 120 "${launcher[@]}" "$ddl_nmt" "$@"; }

# An untrained model with large weights, whose translations differ with the line.
printf '%s\n' the a dog cat sees hears old new >v.en
printf '%s\n' der eine Hund Katze sieht hoert >v.de
printf 'the dog\na cat\nold dog\nnew cat\n' >t.en
printf 'der Hund\neine Katze\nHund\nKatze\n' >t.de
make_model() {
  run train --src=en --tgt=de --train_prefix=t --vocab_prefix=v --num_units=16 --num_layers=1 --init_weight=1.5 \
    --attention=scaled_luong --batch_size=1 --threads=1 --learning_rate=0 --num_train_steps=2 --steps_per_eval=1 \
    "$@" >log 2>&1 || complain "training with $*" log
}
if [ "$(uname -m)" = x86_64 ]; then
  # Who trains in mixed precision where that is slower would not learn it.
  ONEDNN_MAX_CPU_ISA=AVX2 make_model --out_dir=slow --dtype=mixed
  grep -q "dtype=mixed: .*f32 computes faster here" log || complain "no notice of slow mixed precision" log
fi
make_model --out_dir=model
awk 'BEGIN {
  srand(1)
  split("the a dog cat sees hears old new", word, " ")
  for (i = 0; i < 5000; ++i) {
    line = ""
    for (n = int(rand() * 6); n > 0; --n) line = line word[1 + int(rand() * 8)] " "
    print line
  }
}' >text

# A person who types a sentence would wait for its translation until they end the input.
coproc translator { run translate --model=model --threads=1 2>interactive.log; }
# shellcheck disable=SC2154  # coproc sets it, until the process ends
translator_id=$translator_PID
for line in "the old dog sees a cat" "a cat"; do
  echo "$line" >&"${translator[1]}"
  read -r -t 60 answer <&"${translator[0]}" || complain "no translation of a line while the input is open" interactive.log
  echo "$answer" >>answers
done
exec {input}>&"${translator[1]}"-
exec {input}>&-
wait "$translator_id" || complain "the end of the input" interactive.log
printf 'the old dog sees a cat\na cat\n' | run translate --model=model --threads=1 >at_once 2>log
cmp -s answers at_once || complain "lines one by one have other translations than together" answers at_once log

# Translations would stand beside other lines than theirs, where the text is longer than what is translated together.
run translate --model=model <text >whole 2>log || complain "a long text" log
(($(wc -l <whole) == 5000)) || complain "a long text has $(wc -l <whole) translations" log
for first in 1 2001 4901; do
  tail -n +$first text | head -n 100 | run translate --model=model >part 2>log
  tail -n +$first whole | head -n 100 | cmp -s - part || complain "the order of lines from $first" log
done
(($(sort -u whole | wc -l) > 50)) || complain "the translations are too alike to test anything"
run --infer --out_dir=model --inference_input_file=text --inference_output_file=by_flags >log 2>&1
cmp -s whole by_flags || complain "tensorflow/nmt's flags give other translations" log
run translate --model=model --inference_input_file=text --inference_ref_file=whole --inference_output_file=scored \
  --metrics=accuracy >log 2>&1
grep -q 'accuracy = 100' log || complain "references beside a long text" log

# A file cut off in the middle would be taken for a whole one.
{ head -n 4000 text; printf 'a \377\n'; } >invalid
run translate --model=model --inference_input_file=invalid --inference_output_file=cut >log 2>&1 &&
  complain "invalid UTF-8 is accepted" log
grep -q 'invalid:4001: invalid UTF-8 at byte 2' log || complain "invalid UTF-8 in a long file" log
for file in cut*; do [[ ! -e $file ]] || complain "$file is left of translations that failed"; done
head -c 1000 /dev/zero | run translate --model=model >out 2>log && complain "binary input is accepted" log
grep -q 'standard input:1: NUL byte' log || complain "binary input" log
echo dog | iconv -t UTF-16 | run translate --model=model >out 2>log && complain "UTF-16 is accepted" log
grep -q 'standard input:1: found UTF-16.*iconv' log || complain "UTF-16" log

# Scores would be those of another line, or depend on how the lines are spread over ranks.
printf 'dog\nthe dog\n\na cat\n' >some.en
printf 'Hund\n\nKatze\neine Katze\n' >some.de
run score --model=model --src_file=some.en --tgt_file=some.de >scores 2>log || complain "scoring" log
(($(wc -l <scores) == 4)) || complain "not one score a line" scores
for line in 1 2 3 4; do
  sed -n ${line}p some.en >one.en
  sed -n ${line}p some.de >one.de
  run score --model=model --src_file=one.en --tgt_file=one.de >one 2>log
  sed -n ${line}p scores | paste - one |
    awk '{ if (($1 - $3) ^ 2 > 1e-6 || ($2 - $4) ^ 2 > 1e-6 || $1 >= 0) exit 1 }' || complain "score of line $line" one scores
done
head -n 200 text >long.en
head -n 200 whole >long.de
tac long.de >other.de
for target in long other; do
  run score --model=model --src_file=long.en --tgt_file=$target.de 2>log | awk '{ sum += $1 } END { print sum }' >sum.$target
done
awk '{ getline other <"sum.other"; exit !($1 > other) }' sum.long ||
  complain "the model's own translations are not the most probable" sum.long sum.other
run score --model=model --src_file=some.en --tgt_file=v.de >log 2>&1 && complain "files of unequal length" log
grep -q -- '--tgt_file=v.de has 6 lines and --src_file=some.en 4' log || complain "files of unequal length" log

# Models together would not be heard both, a directory's comma would hide it, or a name that is missing would crash.
run translate --model=model,model --inference_input_file=text --inference_output_file=twice >log 2>&1
cmp -s whole twice || complain "a model beside itself translates otherwise" log
cp -r model with,comma
run translate --model=with,comma --inference_input_file=text --inference_output_file=comma >log 2>&1
cmp -s whole comma || complain "a directory whose name has a comma" log
for paths in model, , model,,model; do
  run translate --model=$paths <some.en >out 2>log && complain "--model=$paths is accepted" log
  grep -q -- "--model=$paths: found an empty path, expected one, or several with commas between" log ||
    complain "the message of --model=$paths" log
done
run translate --model=model --scores <some.en >out 2>log || complain "--scores" log
awk -F'\t' 'NR == 3 { if ($0 != "") exit 1; next } NF != 2 || $2 >= 0 { exit 1 }' out || complain "not a score after each translation" out

# Words would be aligned otherwise in another batch, on other ranks, or by the command that is given the translation.
run translate --model=model --beam_width=3 --alignments <some.en >out 2>log || complain "--alignments" log
cut -f1 out >some.out
run score --model=model --src_file=some.en --tgt_file=some.out --alignments >scores 2>log || complain "scoring with --alignments" log
for line in 1 2 3 4; do
  sed -n ${line}p some.en | "$ddl_nmt" translate --model=model --beam_width=3 --alignments >one 2>log
  [[ $(sed -n ${line}p out) == "$(cat one)" ]] || complain "the alignment of line $line" out one
  [[ $(sed -n ${line}p out | cut -f2) == "$(sed -n ${line}p scores | cut -f3)" ]] || complain "the alignment of pair $line" out scores
done
run translate --model=model,model --beam_width=3 --num_translations_per_input=2 --scores --alignments <some.en >out 2>log
awk -F'\t' 'NR == 5 || NR == 6 { if ($0 != "") exit 1; next }
  NF != 3 || split($1, words, " ") != split($3, pairs, " ") { exit 1 }' out || complain "alignments after scores" out log

# A score would be that of other translations than the file's, or the model's.
run evaluate --hyp=whole --ref=whole --metrics=bleu,accuracy >found 2>log || complain "evaluating a file" log
[[ $(cut -d' ' -f1-3 found) == $'BLEU = 100.00\naccuracy = 100.00' ]] || complain "evaluating a file" found
run evaluate --model=model --src_file=text --ref=whole --metrics=accuracy >found 2>log || complain "evaluating a model" log
grep -q 'accuracy = 100' found || complain "evaluating a model" found

# The mean would not be one, or another checkpoint's.
make_model --out_dir=trained --learning_rate=0.5
run average --model=trained --out=mean >log 2>&1 || complain "averaging" log
grep -q 'mean/step-0000000002 is the mean of 2 checkpoints: trained/step-0000000001, trained/step-0000000002' log ||
  complain "averaging" log
run average --out=mean_again trained/step-0000000002 trained/step-0000000001 >log 2>&1 || complain "averaging a list" log
for model in mean mean_again trained trained/step-0000000001; do
  run score --model=$model --src_file=long.en --tgt_file=long.de >"scores.${model//\//.}" 2>log || complain "scoring by $model" log
done
cmp -s scores.mean scores.mean_again || complain "the mean depends on the order"
cmp -s scores.mean scores.trained && complain "the mean is the last checkpoint"
cmp -s scores.mean scores.trained.step-0000000001 && complain "the mean is the first checkpoint"
run average --out=same model/step-0000000001 model/step-0000000002 >log 2>&1
run translate --model=same <text >by_mean 2>log
cmp -s whole by_mean || complain "the mean of equal checkpoints is another model" log

# What a search found would not be what training takes.
run tune --src=en --tgt=de --train_prefix=t --dev_prefix=t --vocab_prefix=v --num_units=16 --num_layers=1 --batch_size=1 --threads=1 \
  --optimizer=adam --num_train_steps=6 --rung_steps=1 --tune=learning_rate=1e-9,0.01 --out_dir=tuned >out 2>log ||
  complain "a search" out log
grep -q '^best: --learning_rate=0.01$' out || complain "the best of a search" out
run train --config=tuned/best.json --out_dir=by_config >by_config.out 2>log || complain "training with tuned/best.json" by_config.out log
run train --config=tuned/best.json --out_dir=tuned/learning_rate=0.01 >out 2>log || complain "going on from a candidate" out log
grep -q 'going on from step 1' out || complain "going on from a candidate" out
score() { run score --model="$1" --src_file=t.en --tgt_file=t.de 2>log; }
[[ $(score by_config) == "$(score tuned/learning_rate=0.01)" ]] || complain "a candidate goes another way than a run of its own" log

# A text larger than memory could not be translated.
if ((${#launcher[@]} == 0)); then
  mkfifo pipe_in pipe_out
  "$ddl_nmt" translate --model=model --src_max_len_infer=2 --threads=1 <pipe_in >pipe_out 2>log &
  process=$!
  exec {input}>pipe_in {output}<pipe_out
  peak() { sed -n 's/^VmHWM: *\([0-9]*\) kB/\1/p' "/proc/$process/status"; }
  line=$(printf 'dog %.0s' {1..8000})
  send() {
    for ((i = 0; i < $1; ++i)); do echo "$line"; done >&"$input" &
    for ((i = 0; i < $1; ++i)); do read -r -t 60 answer <&"$output" || return 1; done
  }
  send 300 || complain "lines of 32 kB" log
  before=$(peak)
  send 3000 || complain "100 MB of lines" log
  after=$(peak)
  exec {input}>&- {output}<&-
  wait $process || complain "the end of 100 MB" log
  ((after - before < 50000)) || complain "memory grows with the text: from $before kB to $after kB"
fi

[[ ! -e failed ]] || exit 1
