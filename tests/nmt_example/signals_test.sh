#!/usr/bin/env bash
# Signals to one rank of a job under mpirun. SIGUSR1: the job saves and continues. SIGTERM: the job saves and ends with
# exit status 0, and a run that resumes has the losses of one that was never interrupted. Otherwise the work since the
# last checkpoint would be lost whenever machines are taken back.
# Usage: signals_test.sh DDL_NMT LAUNCHER...
set -u
ddl_nmt=$1
shift
launcher=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
flags=(--builtin_corpus=200 --src=en --tgt=de --num_units=8 --vocab_size=60 --batch_size=4 --threads=1 --optimizer=adam
  --learning_rate=0.002 --steps_per_eval=1000000)

fail() {
  echo "FAILED: $1"
  shift
  for file in "$@"; do sed "s/^/    /" "$file"; done
  exit 1
}

# until_there NAME COMMAND...: repeats the command until it succeeds, while the job runs.
until_there() {
  local name=$1
  shift
  until "$@"; do
    kill -0 "$job" 2>/dev/null || fail "the job ended before there was $name" log
    read -r -t 0.05 _ <>"$work/pause"
  done
}
steps_done() { (($(wc -l <run.jsonl) >= $1)); }
is_saved() { compgen -G 'run/step-*/manifest.json' >/dev/null; }

mkfifo pause
for form in --sharded_checkpoints=false --sharded_checkpoints=true; do
  rm -rf run
  : >run.jsonl
  "${launcher[@]}" "$ddl_nmt" "${flags[@]}" "$form" --out_dir=run --log_jsonl=run.jsonl \
    --num_train_steps=100000000 >log 2>&1 &
  job=$!
  until_there "a step" steps_done 3
  # Only rank 1 gets the signal; the other ranks learn of it from rank 1.
  rank=$(for pid in $(pgrep -P $job -f ddl_nmt); do
    tr '\0' '\n' <"/proc/$pid/environ" | grep -q '^OMPI_COMM_WORLD_RANK=1$' && echo "$pid"
  done)
  [[ -n $rank ]] || fail "rank 1 is not to be found" log
  kill -USR1 "$rank"
  until_there "a checkpoint" is_saved
  first=$(echo run/step-*)
  until_there "a step after the checkpoint" steps_done $((10#${first##*-} + 3))
  kill -TERM "$rank"
  wait $job
  status=$?
  ((status == 0)) || fail "exit status $status after SIGTERM" log
  grep -q 'ended by SIGTERM after step [0-9]*, which is saved in run' log || fail "no line that says so" log
  last=$(($(wc -l <run.jsonl)))
  [[ -e $first/manifest.json ]] || fail "SIGUSR1's checkpoint is gone" log
  [[ -e run/step-$(printf %010d $last)/manifest.json ]] || fail "step $last is not saved" log

  end=$((last + 5))
  "${launcher[@]}" "$ddl_nmt" "${flags[@]}" "$form" --out_dir=run --log_jsonl=run.jsonl --num_train_steps=$end \
    >log 2>&1 || fail "it does not go on" log
  grep -q "going on from step $last" log || fail "it does not go on from step $last" log
  "${launcher[@]}" "$ddl_nmt" "${flags[@]}" --log_jsonl=whole.jsonl --num_train_steps=$end >log 2>&1 ||
    fail "the run that is never interrupted" log
  for file in run whole; do grep -o '"step": [0-9]*, "loss": [^,]*' $file.jsonl >$file.losses; done
  (($(wc -l <whole.losses) == end)) || fail "no losses to compare" whole.jsonl
  diff run.losses whole.losses >difference || fail "other losses" difference
done
