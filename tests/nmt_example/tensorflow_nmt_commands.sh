#!/usr/bin/env bash
# The commands of tensorflow/nmt's README, the article's, and one for each way of translating, after ddl_nmt, on a small
# text: a command that is copied from there would not run, or write something else. To add one, add a line.
# Usage: tensorflow_nmt_commands.sh DDL_NMT HPARAMS_DIRECTORY [LAUNCHER...]
set -u
ddl_nmt=$1
hparams=$2
shift 2
launcher=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
  echo "FAILED: $1"
  shift
  for file in "$@"; do sed "s/^/    /" "$file"; done
  exit 1
}

# runs NAME TEXTS ARGUMENTS...: TEXTS are parts of what is printed, separated by '|'.
commands=0
runs() {
  local name=$1 texts=$2
  shift 2
  ((++commands))
  timeout 120 "${launcher[@]}" "$ddl_nmt" "$@" </dev/null >log 2>&1 || fail "$name: exit status $?" log
  local IFS='|'
  for text in $texts; do grep -qF -e "$text" log || fail "$name: no \"$text\"" log; done
}

# has NAME FILE LINES: checks the number of lines.
has() { (($(wc -l <"$2") == $3)) || fail "$1: $2 has $(wc -l <"$2") lines, expected $3" "$2" log; }

# The texts: IWSLT's, in words, and WMT's, in pieces.
mkdir nmt_data wmt16
words=(một hai ba bốn năm sáu)
for name in train tst2012 tst2013; do
  for ((i = 0; i < 40; ++i)); do
    echo "${words[i % 6]} ${words[i % 5]} ${words[i % 4]}" >>nmt_data/$name.vi
    echo "w$((i % 6)) w$((i % 5)) w$((i % 4))" >>nmt_data/$name.en
  done
done
printf '<unk>\n<s>\n</s>\nmột\nhai\nba\nbốn\nnăm\nsáu\n' >nmt_data/vocab.vi
printf '<unk>\n<s>\n</s>\nw0\nw1\nw2\nw3\nw4\nw5\n' >nmt_data/vocab.en
for name in train.tok.clean newstest2013.tok newstest2014.tok newstest2015.tok; do
  for ((i = 0; i < 40; ++i)); do
    echo "der@@ $((i % 6)) ei@@ n hau@@ s" >>wmt16/$name.bpe.32000.de
    echo "the@@ $((i % 6)) a ho@@ use" >>wmt16/$name.bpe.32000.en
  done
done
printf 'der@@\nei@@\nn\nhau@@\ns\n0\n1\n2\n3\n4\n5\n' >wmt16/vocab.bpe.32000.de
printf 'the@@\na\nho@@\nuse\n0\n1\n2\n3\n4\n5\n' >wmt16/vocab.bpe.32000.en
head -3 nmt_data/tst2013.vi >my_infer_file.vi

# What makes a run short.
short=(--num_train_steps=6 --num_units=16 --batch_size=8 --threads=1)

# tensorflow/nmt's README.
iwslt=(--src=vi --tgt=en --vocab_prefix=nmt_data/vocab --train_prefix=nmt_data/train --dev_prefix=nmt_data/tst2012
  --test_prefix=nmt_data/tst2013 --num_train_steps=12000 --steps_per_stats=100 --num_layers=2 --num_units=128
  --dropout=0.2 --metrics=bleu)
runs "NMT without attention" "dev BLEU = |test BLEU = " "${iwslt[@]}" --out_dir=nmt_model "${short[@]}"
runs "inference" "" --out_dir=nmt_model --inference_input_file=my_infer_file.vi \
  --inference_output_file=nmt_model/output_infer
has "inference" nmt_model/output_infer 3
runs "NMT with attention" "attention/scale" --attention=scaled_luong "${iwslt[@]}" --out_dir=nmt_attention_model \
  "${short[@]}"
runs "inference with attention" "" --out_dir=nmt_attention_model --inference_input_file=my_infer_file.vi \
  --inference_output_file=nmt_attention_model/output_infer
wmt=(--src=de --tgt=en --vocab_prefix=wmt16/vocab.bpe.32000)
wmt_data=(--train_prefix=wmt16/train.tok.clean.bpe.32000 --dev_prefix=wmt16/newstest2013.tok.bpe.32000
  --test_prefix=wmt16/newstest2015.tok.bpe.32000)
runs "GNMT" "test BLEU = " "${wmt[@]}" --hparams_path="$hparams/wmt16_gnmt_4_layer.json" --out_dir=deen_gnmt \
  "${wmt_data[@]}" "${short[@]}"
runs "GNMT's inference" "BLEU = " "${wmt[@]}" --ckpt=deen_gnmt/best_bleu \
  --hparams_path="$hparams/wmt16_gnmt_4_layer.json" --out_dir=deen_gnmt \
  --inference_input_file=wmt16/newstest2014.tok.bpe.32000.de --inference_output_file=deen_gnmt/output_infer \
  --inference_ref_file=wmt16/newstest2014.tok.bpe.32000.en --num_units=16
has "GNMT's inference" deen_gnmt/output_infer 40
runs "IWSLT's standard settings" "test BLEU = " "${iwslt[@]:0:6}" --hparams_path="$hparams/iwslt15.json" \
  --out_dir=iwslt15 "${short[@]}"

# The article's model, and flags that say where and how fast to compute.
runs "the article's" "test BLEU = |computes on the CPU|change nothing here: --time_major=false" "${wmt[@]}" \
  "${wmt_data[@]}" --out_dir=article --num_layers=4 --num_units=1024 --encoder_type=bi --dropout=0.2 --optimizer=sgd \
  --learning_rate=1.0 --decay_scheme=luong10 --num_train_steps=340000 --batch_size=128 --subword_option=bpe \
  --metrics=bleu --num_gpus=1 --time_major=false --num_intra_threads=4 "${short[@]}"
grep -Eq "(ref|nmt): .*@@" log && fail "the article's: pieces that are not joined" log

# A softmax among words that are drawn for each step, and among all from step 6 on.
runs "sampled softmax" "dev ppl |test BLEU = " "${iwslt[@]}" --out_dir=sampled_softmax --num_sampled_softmax=4 "${short[@]}"
runs "going on without sampling" "--num_sampled_softmax: 0, the checkpoint had 4|going on from step 6" \
  --out_dir=sampled_softmax --num_sampled_softmax=0 --num_train_steps=8

# Given vectors, of another size than the cells.
tail -n +4 nmt_data/vocab.en | sed 's/$/ 0.1 -0.2 0.3 0.4 0.5/' >nmt_data/vectors.en
sed -i '1i 6 5' nmt_data/vectors.en
runs "given vectors" " 9 x 5 " "${iwslt[@]}" --out_dir=vectors \
  --embed_prefix=nmt_data/vectors "${short[@]}"
runs "going on with given vectors" "going on from step 6" --out_dir=vectors --num_train_steps=8
runs "translating with given vectors" "" --out_dir=vectors --inference_input_file=my_infer_file.vi \
  --inference_output_file=kept --beam_width=3
has "translating with given vectors" kept 3

# A language model, of the target's files alone.
lm=(--tgt=en --vocab_prefix=nmt_data/vocab --train_prefix=nmt_data/train --dev_prefix=nmt_data/tst2012
  --test_prefix=nmt_data/tst2013)
runs "a language model" "dev ppl |test ppl " --preset=word_lm "${lm[@]}" --out_dir=lm "${short[@]}"
for how in --beam_width=0 --beam_width=3 --sampling_temperature=1; do
  runs "its sentences, $how" "" --out_dir=lm --inference_input_file=my_infer_file.vi --inference_output_file=kept $how
  has "its sentences, $how" kept 3
done

# Metrics and checkpoints.
runs "several metrics" "test BLEU = |test ROUGE-L = |test accuracy = |test word accuracy = |test chrF = |average of 2" \
  "${iwslt[@]}" --metrics=bleu,rouge,accuracy,word_accuracy,chrf,tokenized_bleu --avg_ckpts --num_keep_ckpts=2 \
  --out_dir=metrics "${short[@]}" --steps_per_eval=3 --steps_per_external_eval=3
for keeper in best_bleu best_rouge avg_best_chrf avg_checkpoints; do
  runs "translating with $keeper" "" --ckpt=metrics/$keeper --inference_input_file=my_infer_file.vi \
    --inference_output_file=kept
  has "translating with $keeper" kept 3
done
runs "going on" "--num_train_steps: 8, the checkpoint had 6|going on from step 6" --out_dir=metrics --num_train_steps=8
runs "going on with what was saved" "--num_train_steps: 8 as in the checkpoint, not 9" --out_dir=metrics \
  --num_train_steps=9 --override_loaded_hparams=false
runs "going on with this command" "--metrics: bleu, the checkpoint had bleu,rouge" "${iwslt[@]}" --out_dir=metrics \
  --override_loaded_hparams=true "${short[@]}" --num_train_steps=9

# Data.
sed 's/^<s>$/<go>/; s/^<\/s>$/<end>/' nmt_data/vocab.vi >nmt_data/named.vi
sed 's/^<s>$/<go>/; s/^<\/s>$/<end>/' nmt_data/vocab.en >nmt_data/named.en
runs "special words" "16 training pairs" "${iwslt[@]}" --out_dir=named --vocab_prefix=nmt_data/named --sos='<go>' \
  --eos='<end>' --max_train=16 "${short[@]}"
runs "special words in other places" "" "${iwslt[@]}" --out_dir=unchecked --vocab_prefix=nmt_data/named --sos='<go>' \
  --eos='<end>' --check_special_token=false "${short[@]}"
runs "bytes" "embedding/encoder             261 x 16" "${iwslt[@]}" --out_dir=bytes --use_char_encode "${short[@]}"
runs "bytes, going on" "going on from step 6|test BLEU = " --out_dir=bytes --num_train_steps=8
runs "translating bytes" "" --out_dir=bytes --inference_input_file=my_infer_file.vi --inference_output_file=kept
has "translating bytes" kept 3

# Ways of translating.
infer=(--out_dir=nmt_attention_model --inference_input_file=nmt_data/tst2013.vi --inference_output_file=output)
runs "beam search" "" "${infer[@]}" --infer_mode=beam_search --beam_width=4 --num_translations_per_input=3
has "beam search" output 120
runs "sampling" "" "${infer[@]}" --infer_mode=sample --sampling_temperature=0.8 --num_translations_per_input=2
has "sampling" output 80
cp output sampled
runs "sampling again" "" "${infer[@]}" --sampling_temperature=0.8 --num_translations_per_input=2 --infer_batch_size=3
cmp -s output sampled || fail "sampling again: other samples" output sampled
runs "some lines" "accuracy = " "${infer[@]}" --inference_list=5,0,39 --inference_ref_file=nmt_data/tst2013.en \
  --metrics=accuracy
has "some lines" output 3
"$ddl_nmt" --out_dir=nmt_attention_model --inference_input_file=nmt_data/tst2013.vi >all 2>log || fail "all lines" log
sed -n '6p;40p' all >expected
sed -n '1p;3p' output | cmp -s - expected || fail "some lines: not those of --inference_list" output all

echo "$commands commands"
