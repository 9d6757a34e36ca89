#!/usr/bin/env bash
# The perceptron of ddl/examples trains alike with any number of ranks. Arguments: see job.sh.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"

"$plain" --help | grep -q -- "--learning_rate" || fail "--help does not say what can be set"
if "$plain" --epochs many >help.out 2>&1; then fail "--epochs many was taken"; fi
grep -q "expected a number" help.out || fail "a wrong number is not explained"

"$plain" --checkpoint plain.txt >plain.out
for ranks in 1 2 4; do
  # Ranks start from different weights, which are one model only after the broadcast.
  job "ranks$ranks" "$ranks" "$trainer" --init_seed "{rank}1" --checkpoint "ranks$ranks.{rank}.txt"
  as_accurate "ranks$ranks" plain
  written_once "ranks$ranks" "^epoch 20" 1
  [ "$(ls ranks"$ranks".*.txt)" = "ranks$ranks.0.txt" ] || fail "not just rank 0 has written its checkpoint"
  [ "$(wc -l <"ranks$ranks.0.txt")" = "$(wc -l <plain.txt)" ] || fail "ranks$ranks.0.txt is not complete"
done

# The same global batches and rates give the same steps: after two epochs the weights agree except for rounding.
for ranks in 1 2 4; do
  job "same$ranks" "$ranks" "$trainer" --epochs 2 --batch_size $((64 / ranks)) \
    --learning_rate "$(awk "BEGIN { print 0.04 / $ranks }")" --init_seed "{rank}1" --checkpoint "same$ranks.txt"
  same_numbers "same$ranks.txt" same1.txt 0.001
done
echo passed
