#!/usr/bin/env bash
# Bad input to ddl_nmt: the job ends within seconds with one message that says what is wrong and where, and with exit
# status 1 or 2 (0 and a warning where it can continue). Checkpoints do not change.
# Usage: bad_input_test.sh DDL_NMT [LAUNCHER...]
set -u
ddl_nmt=$1
shift
launcher=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work" || exit 1

printf 'a b\nc d\ne f\ng h\n' | tee t.en d.en t.de >d.de
: >empty.en
cp t.de empty.de
printf 'a\nb\n' >short.en
cp t.de short.de
printf 'a\nb\377c\n' >latin.en
cp short.en latin.de
printf 'a\nb d b d b d\nc\na c a c a c\n' >long.en
printf 'x\n' | tee one.en >one.de
printf 'x\ny\n' | tee v.en >v.de
flags=(--src=en --tgt=de --train_prefix=t --dev_prefix=d --num_units=8 --vocab_size=30 --batch_size=1
  --threads=1 --num_train_steps=2 --steps_per_eval=1)

complain() {
  echo "FAILED: $1"
  shift
  for file in "$@"; do sed "s/^/    /" "$file"; done
  touch failed
}

# runs NAME STATUS TEXTS ARGUMENTS...: TEXTS are parts of the message, separated by '|'.
case_number=0
waits=0
runs() {
  local name=$1 status=$2 texts=$3
  shift 3
  local log=log.$((++case_number))
  # A failed mpirun mostly waits, so several run at once.
  if ((++waits > 4)); then wait -n; fi
  (
    timeout 120 "${before[@]}" "${launcher[@]}" "$ddl_nmt" "$@" </dev/null >"$log.out" 2>"$log"
    found=$?
    ((found == status)) || complain "$name: exit status $found, expected $status" "$log"
    lines=$(grep -c '^ddl \[[0-9]*\] error: ' "$log")
    ((lines == (status != 0))) || complain "$name: $lines error messages, expected $((status != 0))" "$log"
    IFS='|'
    for text in $texts; do
      grep -qF -e "$text" "$log" || complain "$name: no \"$text\"" "$log"
    done
  ) &
}
before=()

"$ddl_nmt" "${flags[@]}" --out_dir=out >first 2>&1 || complain "the run that all others start from" first
cp -r out pristine

runs "missing file" 1 "nowhere/t.en" "${flags[@]}" --train_prefix=nowhere/t
runs "missing test file" 1 "nowhere/t.en" "${flags[@]}" --test_prefix=nowhere/t
runs "empty file" 1 "empty.en|empty" "${flags[@]}" --train_prefix=empty
runs "line counts" 1 "short.en has 2 lines|short.de has 4" "${flags[@]}" --train_prefix=short
runs "invalid UTF-8" 1 "latin.en:2|UTF-8" "${flags[@]}" --dev_prefix=latin
runs "unknown flag" 2 "--lerning_rate|did you mean --learning_rate?" "${flags[@]}" --lerning_rate=1
runs "unknown command" 2 "unknown command tarin|did you mean train?" tarin "${flags[@]}"
runs "flag of another command" 2 "ddl_nmt translate does not take --learning_rate" translate --model=out \
  --learning_rate=1
runs "command and no model" 2 "--model is missing" translate
runs "command and no checkpoint" 1 "--model=nowhere" translate --model=nowhere
runs "two inputs to evaluate" 2 "--hyp=t.de and --model=out: choose one" evaluate --hyp=t.de --model=out --ref=t.de
runs "evaluate without a source" 2 "--src_file is missing" evaluate --model=out --ref=t.de
runs "evaluate unequal files" 1 "--hyp=short.en has 2 lines and --ref=t.de 4" evaluate --hyp=short.en --ref=t.de
runs "average over a run" 2 "--out=out: is there already" average --model=out --out=out
runs "average of two kinds" 2 "--model=out and x: choose one" average --model=out --out=new x
runs "average of too many" 1 "--model=out: there are 2 complete checkpoints, expected 3" average --model=out --last=3 --out=new
runs "alignments without attention" 2 "--alignments: the model in out/step-0000000002 has no attention" translate \
  --model=out --alignments
runs "alignments in training" 0 "flags without effect: --scores=true|--alignments=true (this run trains" "${flags[@]}" \
  --scores --alignments
runs "score without targets" 2 "--tgt_file is missing" score --model=out --src_file=t.en
runs "unknown preset" 2 "quikstart|quickstart" --preset=quikstart
runs "a unit that a flag has not" 2 "--steps_per_eval=2h|epochs, as 5e" "${flags[@]}" --steps_per_eval=2h
runs "batch of zero" 2 "--batch_size=0|at least 1" "${flags[@]}" --batch_size=0
runs "a batch that cannot fit" 2 "--batch_size=1000000: training needs|(all that the host has|--batch_size=|fits" "${flags[@]}" \
  --batch_size=1000000 --src_max_len=1000000 --subword_sampling=0.1 --num_units=4096
runs "a workspace that is too small" 2 "--batch_size=3000: training needs|(--workspace=70); --batch_size=" "${flags[@]}" \
  --batch_size=3000 --workspace=70
runs "no batch fits" 2 "--mini_batch_fit: no batch fits|(--workspace=70)" "${flags[@]}" --mini_batch_fit --workspace=70 \
  --num_units=4096
runs "a fitting batch of micro-batches" 2 "--mini_batch_fit and --micro_batch_size=2" "${flags[@]}" --mini_batch_fit \
  --micro_batch_size=2
runs "a search without a dev set" 2 "--dev_prefix is missing: candidates are compared" tune --src=en --tgt=de --train_prefix=t \
  --out_dir=tuned
runs "a search for nothing" 2 "--tune=batch_size: there is no|FLAG=LOW:HIGH" tune "${flags[@]}" --out_dir=tuned --tune=batch_size
runs "a search that cannot work" 2 "--num_layers=1: must be even|--encoder_type=bi" tune "${flags[@]}" --out_dir=tuned2 \
  --tune=num_layers=1:2 --encoder_type=bi
runs "vocabulary and resume" 1 "v.en|out/step-0000000002|--vocab_prefix" "${flags[@]}" --out_dir=out --vocab_prefix=v
runs "vocabulary and inference" 1 "v.en|out/step-0000000002" --infer --out_dir=out --vocab_prefix=v --src=en --tgt=de
runs "other model and resume" 1 '--num_units: the checkpoint has 8|--attention: the checkpoint has ""' "${flags[@]}" \
  --out_dir=out --num_units=16 --attention=luong --num_train_steps=4
runs "other model and inference" 1 "--num_units: the checkpoint has 8" --infer --out_dir=out --num_units=16
runs "other vocabulary and resume" 1 "--vocab_size: the checkpoint has 30, this run asks for 40" "${flags[@]}" \
  --out_dir=out --vocab_size=40
runs "GPUs without processes" 1 "--num_gpus=2|mpirun -np N ddl_nmt --device=cuda" "${flags[@]}" --num_gpus=2
runs "a line that is not there" 2 "--inference_list=1,4|from 0 to 3" --out_dir=out --inference_input_file=t.en \
  --inference_list=1,4
cp t.en kept.en
for output in t.en ./t.en; do
  runs "output over the input" 2 "--inference_output_file=$output is the file that --inference_input_file=t.en reads; give another" \
    --out_dir=out --inference_input_file=t.en --inference_output_file=$output
done
cmp -s t.en kept.en || complain "the input was replaced" t.en
runs "too few references" 1 "--inference_ref_file=short.en has 2 lines and --inference_input_file=t.en 4" --out_dir=out --inference_input_file=t.en \
  --inference_ref_file=short.en
runs "no checkpoint" 1 "--out_dir=nowhere" --infer --out_dir=nowhere
runs "inference from a missing file" 1 "nowhere" --out_dir=out --inference_input_file=nowhere
runs "inference and invalid UTF-8" 1 "latin.en:2|UTF-8" --out_dir=out --inference_input_file=latin.en
runs "inference to nowhere" 1 "--inference_output_file=nowhere/x" --out_dir=out --inference_input_file=t.en \
  --inference_output_file=nowhere/x
runs "inference and long lines" 0 "2 of 4 lines are cut to --src_max_len_infer=3|the first is line 2" \
  --out_dir=out --inference_input_file=long.en --src_max_len_infer=3
runs "no directory for the log" 1 "--log_jsonl=nowhere/x" "${flags[@]}" --log_jsonl=nowhere/x
runs "out_dir below a file" 1 "--out_dir=t.en/x|Not a directory" "${flags[@]}" --out_dir=t.en/x
runs "full disk for the log" 1 "--log_jsonl=/dev/full|No space left" "${flags[@]}" --log_jsonl=/dev/full
runs "full disk for the table" 1 "--log_csv=/dev/full|No space left" "${flags[@]}" --log_csv=/dev/full
runs "a file for the event files" 1 "--log_dir=t.en" "${flags[@]}" --log_dir=t.en
if ((${#launcher[@]} > 0)); then
  runs "fewer sentences than ranks" 2 "one.en|1 sentence pairs|2 ranks" "${flags[@]}" --train_prefix=one
fi

# A truncated checkpoint, and one with a changed byte.
cp -r out cut
truncate -s 100 cut/step-0000000002/model.safetensors
cp -r out altered
printf '\377' | dd of=altered/step-0000000002/model.safetensors bs=1 seek=1000 conv=notrunc status=none
for damaged in cut altered; do
  cp -r $damaged resumed-$damaged
  runs "$damaged checkpoint and resume" 0 \
    "warning|$damaged/step-0000000002/model.safetensors' is damaged|used in its place: 'resumed-$damaged/step-0000000001'" \
    "${flags[@]}" --out_dir=resumed-$damaged --num_train_steps=4
  runs "$damaged checkpoint and inference" 0 \
    "warning|$damaged/step-0000000002/model.safetensors' is damaged|used in its place: '$damaged/step-0000000001'" \
    --infer --out_dir=$damaged
  runs "$damaged checkpoint by name" 1 "$damaged/step-0000000002/model.safetensors' is damaged" --infer \
    --ckpt=$damaged/step-0000000002
done
cp -r cut ruined
rm ruined/step-0000000001/manifest.json
runs "only damaged checkpoints" 1 "all|ruined/step-0000000002/model.safetensors' is damaged|move them away" \
  "${flags[@]}" --out_dir=ruined

# No write permission. Root may write anywhere, so it runs as nobody.
mkdir -m 555 locked
if ((EUID == 0)); then
  before=(setpriv --reuid=65534 --clear-groups env "HOME=$work")
fi
if "${before[@]}" test -x "$ddl_nmt" && ! "${before[@]}" test -w locked; then
  runs "no permission" 1 "--out_dir=locked|Permission denied" "${flags[@]}" --out_dir=locked
  runs "no permission for the log" 1 "--log_jsonl=locked/x|Permission denied" "${flags[@]}" --log_jsonl=locked/x
else
  echo "left out: a directory without write permission (no other user to be)"
fi
before=()

# A full disk: a small tmpfs if it can be mounted, else a limit on the size of files.
cp -r out full
wide=("${flags[@]}" --out_dir=full/run --num_units=128)
mkdir -p full/run
# shellcheck disable=SC2016
mount_and_run='mount -t tmpfs -o size=512k none full/run && exec "$@"'
if unshare -m bash -c "$mount_and_run" mount true 2>/dev/null; then
  before=(unshare -m bash -c "$mount_and_run" mount)
  runs "full disk" 1 "full/run|No space left" "${wide[@]}"
elif ((${#launcher[@]} == 0)); then
  # shellcheck disable=SC2016
  before=(bash -c 'trap "" XFSZ; ulimit -f 200; exec "$@"' limited)
  runs "full disk" 1 "full/run|File too large" "${wide[@]}"
else
  echo "left out: a full disk under mpirun (nothing can be mounted)"
fi
before=()
wait

# Printed once, whatever the number of ranks, with exit status 0.
for flag in --version --help "train --help" "average --help"; do
  # shellcheck disable=SC2086
  timeout 120 "${launcher[@]}" "$ddl_nmt" $flag </dev/null >asked 2>&1 || complain "$flag fails" asked
  (($(grep -c '^ddl_nmt \|^Usage: ' asked) == 1)) || complain "$flag is not printed once" asked
done

# Output to a reader that ends early, or that cannot be written. (Not under mpirun, which forwards the output.)
if ((${#launcher[@]} == 0)); then
  for ((i = 0; i < 3000; ++i)); do echo "a b"; done >many
  timeout 120 "$ddl_nmt" --out_dir=out --inference_input_file=many --inference_output_file=/dev/stdout 2>pipe.log |
    head -1 >/dev/null
  [[ ! -s pipe.log ]] || complain "a broken pipe is taken for an error" pipe.log
  "$ddl_nmt" --infer --out_dir=out <&- >closed 2>&1 || complain "closed standard input" closed
  "$ddl_nmt" --out_dir=out --inference_input_file=t.en >/dev/full 2>full.log && complain "full standard output" full.log
  grep -q 'standard output: No space left' full.log || complain "full standard output" full.log
  # A device must not be replaced by a file.
  mkfifo fifo
  cat fifo >from_fifo &
  timeout 120 "$ddl_nmt" --out_dir=out --inference_input_file=t.en --inference_output_file=fifo 2>fifo.log ||
    complain "a pipe as output file" fifo.log
  [[ -p fifo ]] || complain "a pipe was replaced with a file"
  timeout 60 bash -c 'until (($(wc -l <from_fifo) == 4)); do :; done' || complain "a pipe as output file" from_fifo
fi

diff -r out pristine || complain "the good checkpoints have changed"
"$ddl_nmt" --out_dir=out --inference_input_file=t.en >good 2>&1 || complain "the good checkpoint does not load" good
(($(wc -l <good) == 4)) || complain "the good checkpoint does not translate" good
[[ ! -e failed ]] || exit 1
echo "$case_number cases"
