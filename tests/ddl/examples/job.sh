# For tests of trainers. Sets `plain`, `trainer`, `launcher` (empty: none) and `work` from the script's arguments:
#   PLAIN_TRAINER DDL_TRAINER [mpirun and its flags, the last of which takes the number of ranks]
# shellcheck shell=bash disable=SC2034
set -euo pipefail
plain=$1 trainer=$2
shift 2
launcher=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset "${!OMPI_COMM_@}" "${!PMIX_@}" MASTER_PORT
export DDL_SOCKET=@ddl-example-$$ DDL_DEADLINE=120

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  tail -n 20 ./*.out >&2
  exit 1
}

# Runs a program as a job; "{rank}" in its arguments becomes each rank's number. All output goes to NAME.out.
job() { # name, ranks, program and its arguments
  local name=$1 ranks=$2 rank processes=()
  shift 2
  if [ "${#launcher[@]}" -gt 0 ]; then
    # shellcheck disable=SC2016
    "${launcher[@]}" "$ranks" bash -c 'exec "${@//\{rank\}/$OMPI_COMM_WORLD_RANK}"' rank "$@" >"$name.out" 2>&1 ||
      fail "$name failed"
    return
  fi
  : >"$name.out"
  for ((rank = 0; rank < ranks; ++rank)); do
    RANK=$rank WORLD_SIZE=$ranks "${@//\{rank\}/$rank}" >>"$name.out" 2>&1 &
    processes+=($!)
  done
  for rank in "${!processes[@]}"; do
    wait "${processes[$rank]}" || fail "rank $rank of $name failed"
  done
}

# Checks that exactly one rank has written this.
written_once() { # name, words, how often that one writes them
  local lines
  lines=$(grep -c "$2" "$1.out") || true
  [ "$lines" = "$3" ] || fail "$1: $lines lines with '$2', expected $3"
}

# Checks that two files of numbers agree.
same_numbers() { # file, file, tolerance
  [ "$(wc -l <"$1")" = "$(wc -l <"$2")" ] || fail "$1 and $2 have not as many numbers"
  [ -s "$1" ] || fail "$1 is empty"
  paste "$1" "$2" | awk -v tolerance="$3" '
    { difference = $1 - $2; if (difference < 0) difference = -difference }
    !(difference <= tolerance) { print "line " NR ": " $0; exit 1 }' >difference.out ||
    fail "$1 and $2 differ by more than $3: $(cat difference.out)"
}

# Prints the last accuracy that a trainer has printed, in hundredths of a percent.
accuracy() { # name
  sed -n 's/.*accuracy on test points \([0-9]*\)\.\([0-9][0-9]\)%.*/\1\2/p' "$1.out" | tail -n 1
}

# Checks that the accuracy is at most one percentage point below the plain trainer's.
as_accurate() { # name, name of the plain trainer's run
  local found wanted
  found=$(accuracy "$1") wanted=$(($(accuracy "$2") - 100))
  [ "$wanted" -ge 9500 ] || fail "$2: accuracy $wanted is too low to compare with"
  [ "$found" -ge "$wanted" ] || fail "$1: accuracy $found of 10000, expected $wanted at least"
}

# A trainer that prints 40 epochs, whose mini-batches are split over the ranks: its parameters are the plain one's.
# The tolerance: 1,920 steps each round a parameter of up to 4 by 2e-7 at most, by chance 1e-5 in all (found: 2e-6).
# A step that leaves out 1 sample of 64 changes parameters by 0.2.
same_training() {
  local ranks
  "$plain" plain.txt >plain.out
  for ranks in 1 2 3 4; do
    job "ranks$ranks" "$ranks" "$trainer" "ranks$ranks.{rank}.txt" "{rank}1" # of first weights that differ
    as_accurate "ranks$ranks" plain
    written_once "ranks$ranks" "^epoch 40" 1
    [ "$(ls ranks"$ranks".*.txt)" = "ranks$ranks.0.txt" ] || fail "not just rank 0 has written its checkpoint"
    same_numbers "ranks$ranks.0.txt" plain.txt 1e-4
  done
}
