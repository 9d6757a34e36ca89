#!/usr/bin/env bash
# LibTorch's trainer of ddl/examples trains as well on several ranks as alone. Arguments: see job.sh.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"

"$plain" plain.pt >plain.out
for ranks in 1 2; do
  job "ranks$ranks" "$ranks" "$trainer" "ranks$ranks.{rank}.pt" "{rank}1" # seeds of different initial weights
  as_accurate "ranks$ranks" plain
  written_once "ranks$ranks" "^epoch 16" 1
  [ "$(ls ranks"$ranks".*.pt)" = "ranks$ranks.0.pt" ] || fail "not just rank 0 has written its checkpoint"
done
echo passed
