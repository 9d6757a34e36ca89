#!/usr/bin/env bash
# A model that ddl_nmt has exported gives the same words in PyTorch. Exit status 77: there is no PyTorch.
# Usage: export_test.sh DDL_NMT PYTHON TRANSLATE_EXPORTED_PY
set -u
ddl_nmt=$1 python=$2 script=$3
"$python" -c 'import torch' 2>/dev/null || { echo "left out: $python cannot import torch"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
  echo "FAILED: $1"
  head -n 20 log
  exit 1
}

printf '%s\n' the a dog cat sees hears old new >v.en
printf '%s\n' der eine Hu@@ nd Ka@@ tze sieht hoert >v.de
printf 'the dog\na cat\nold dog\nnew cat\n' >t.en
printf 'der Hu@@ nd\neine Ka@@ tze\nHu@@ nd\nKa@@ tze\n' >t.de
awk 'BEGIN {
  srand(1)
  split("the a dog cat sees hears old new unknown", word, " ")
  for (i = 0; i < 100; ++i) {
    line = ""
    for (n = int(rand() * 7); n > 0; --n) line = line word[1 + int(rand() * 9)] " "
    print line
  }
}' >text

# Another program would read the file and write other words. Large weights make untrained models differ by the line.
number=0
for flags in "--attention=scaled_luong --encoder_type=bi --residual --num_layers=4 --forget_bias=0.5 --init_weight=1" \
  "--attention=scaled_luong --encoder_type=gnmt --num_layers=3 --init_weight=1" \
  "--attention=normed_bahdanau --output_bias --tie_output" \
  "--num_layers=2 --subword_option=bpe" \
  "--attention=bahdanau --vocab_prefix= --vocab_size=24 --share_vocab --subword_option= --tgt_max_len_infer=8"; do
  model=model$((++number))
  if [[ $flags == *vocab_size* ]] && ! "$python" -c 'import sentencepiece' 2>/dev/null; then
    echo "left out: SentencePiece, which $python cannot import"
    continue
  fi
  # shellcheck disable=SC2086
  "$ddl_nmt" train --src=en --tgt=de --train_prefix=t --vocab_prefix=v --num_units=16 --init_weight=1.5 --batch_size=1 \
    --threads=1 --learning_rate=0 --num_train_steps=1 $flags --out_dir=$model >log 2>&1 || fail "training with $flags"
  "$ddl_nmt" export --model=$model --out=$model.safetensors >log 2>&1 || fail "exporting with $flags"
  "$ddl_nmt" translate --model=$model --threads=1 <text >$model.here 2>log || fail "translating with $flags"
  "$python" "$script" $model.safetensors <text >$model.there 2>log || fail "translating in PyTorch with $flags"
  diff $model.here $model.there >log || fail "other words in PyTorch with $flags"
  (($(sort -u $model.here | wc -l) > 5)) || fail "translations that are too alike to test anything, with $flags"
done
"$ddl_nmt" export --model=model1 --out=model1.safetensors >log 2>&1 && fail "an export that replaces a file"
grep -q -- '--out=model1.safetensors: is there already' log || fail "the message of an export that would replace a file"
