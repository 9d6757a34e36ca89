#!/usr/bin/env bash
# The regression in C of ddl/examples has the plain one's result on any number of ranks. Arguments: see job.sh.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"

"$plain" plain.txt >plain.out
{ for i in $(seq 20); do echo "$i"; done; echo -1; } >truth.txt
same_numbers plain.txt truth.txt 0.02
for ranks in 1 2 4; do
  job "ranks$ranks" "$ranks" "$trainer" "ranks$ranks.{rank}.txt" "{rank}1" # seeds of different initial weights
  written_once "ranks$ranks" "^step 1024" 1
  [ "$(ls ranks"$ranks".*.txt)" = "ranks$ranks.0.txt" ] || fail "not just rank 0 has written its checkpoint"
  same_numbers "ranks$ranks.0.txt" plain.txt 1e-9
done
echo passed
