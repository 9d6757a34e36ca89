#!/usr/bin/env bash
# Runs the complete correctness matrix, of which CI runs a pairwise cover: `bash tests/full.sh [TABLE]`. Writes the
# table to TABLE (default: tests/full_matrix.md) and its data to a .txt file next to it. Takes several hours on two
# cores; build first. Runs that are in the .txt file are skipped, so it can be stopped and continued; remove the file
# to start over. Settings:
#   DDL_BIN    the directory of matrix_program (default: build/bin)
#   DDL_RANKS  numbers of ranks (default: 1 to 16)
# The exit status is 1 if a case fails.
set -uo pipefail
[ "${1:-}" != --help ] || exec sed -n '2,/^set/s/^#  *//p' "$0"
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
bin=${DDL_BIN:-build/bin}
table=${1:-tests/full_matrix.md}
lines=${table%.md}.txt
read -ra ranks <<<"${DDL_RANKS:-1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16}"
[ -x "$bin/matrix_program" ] || {
  echo "full.sh: $bin has no matrix_program; build first, or set DDL_BIN" >&2
  exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
status=0
touch "$lines"
run() { # ranks, threads or processes, command; skips a run that is in the file
  local what="$1 $2"
  shift 2
  grep -q "^# $what " "$lines" && return
  echo "$what"
  rm -f "$work/lines"
  "$@" --table "$work/lines" || status=1
  [ -s "$work/lines" ] || return
  { echo "# $what $(git rev-parse --short HEAD)"; cat "$work/lines"; } >>"$lines"
}
for n in "${ranks[@]}"; do
  run "$n" threads "$bin/matrix_program" full --ranks "$n"
  command -v mpirun >/dev/null || continue
  run "$n" processes mpirun --oversubscribe --bind-to none -n "$n" "$bin/matrix_program" full
done
grep -v '^#' "$lines" >"$work/lines"

# Format of the lines: collective transport family ranks cases failed.
cross() { # title, first column's field
  awk -v title="$1" -v field="$2" '
    { row = $field; if (!(row in seen)) { seen[row] = 1; rows[++n] = row }
      if (!($2 in known)) { known[$2] = 1; columns[++m] = $2 }
      cases[row, $2] += $5; failed[row, $2] += $6 }
    END {
      printf "| %s |", title; for (c = 1; c <= m; ++c) printf " %s |", columns[c]
      printf "\n| --- |"; for (c = 1; c <= m; ++c) printf " --- |"; printf "\n"
      for (r = 1; r <= n; ++r) {
        printf "| %s |", rows[r]
        for (c = 1; c <= m; ++c) {
          k = cases[rows[r], columns[c]]; f = failed[rows[r], columns[c]]
          printf " %s |", k == "" ? "" : f == 0 ? k : k ", **" f " failed**"
        }
        printf "\n"
      }
    }' "$work/lines"
}
{
  echo "# The full correctness matrix"
  echo
  echo "\`bash tests/full.sh\` with ranks $(awk '{ print $4 }' "$work/lines" | sort -nu | paste -sd' '): $(awk '{ c += $5; f += $6 } END { print c " cases, " f " failed" }' "$work/lines"),"
  echo "at commits $(awk '/^#/ { print $4 }' "$lines" | uniq | paste -sd' ')."
  echo "Each case is one collective with one type, op, kind of values, count and place, compared with a serial result on"
  echo "every rank; memory (registered, plain, shifted) and way of calling (blocking, async) take turns."
  echo
  cross collective 1
  echo
  cross "plans" 3
  echo
  cross ranks 4
} >"$table"
cat "$table"
exit "$status"
