#!/usr/bin/env bash
# Measures collectives on an emulated cluster and compares them with their targets. See `cluster.sh --help`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT'
Usage: cluster.sh DIRECTORY [--quick] [--undisturbed PERCENT]

Makes 4 emulated hosts with links of 1 Gb/s (emulated_cluster.sh) and runs on them, with ranks placed by host and
round-robin: all_reduce_perf on 4x4 ranks, compared with Open MPI's default, its ring, and its HAN component in both
modes; 16 MiB with DDL_REPRODUCIBLE=1; 4+3+2+1 ranks; broadcast_perf; idle_wait and start_up_time. Measures the links
once (DDL_PROBE=on) and keeps the figures in DIRECTORY. Writes JSON lines to DIRECTORY, which must be new or empty, and
then prints a table of targets (targets.py). Takes about 13 minutes, or 7 with --quick, which does fewer iterations. On
a virtual machine that shares its cores, --undisturbed repeats iterations (all_reduce_perf --help). The exit status is 1
if a target is missed.

DDL_BIN: the directory of the programs (default: build/bin). Needs python3 and the requirements of emulated_cluster.sh.
EOT
}

fail() {
  printf 'cluster.sh: %s\n' "$*" >&2
  exit 2
}

out='' small_iterations=20 large_iterations=7 undisturbed=100
while [ $# -gt 0 ]; do
  word=$1
  shift
  case $word in
    --help | -h) usage; exit 0 ;;
    --quick) small_iterations=7 large_iterations=3 ;;
    --undisturbed) [ $# -gt 0 ] || fail "--undisturbed: expected a number of percent after it"; undisturbed=$1; shift ;;
    -*) fail "unknown option $word; see --help" ;;
    *) [ -z "$out" ] || fail "found '$word', expected one directory"; out=$word ;;
  esac
done
[ -n "$out" ] || { usage >&2; exit 2; }
bin=$(realpath "${DDL_BIN:-$here/../build/bin}")
[ -x "$bin/all_reduce_perf" ] || fail "$bin has no all_reduce_perf; build first, or set DDL_BIN"
command -v python3 >/dev/null || fail "python3 is missing"
[ -z "$(ls -A "$out" 2>/dev/null)" ] || fail "$out holds files; give a new directory"
mkdir -p "$out" || fail "cannot make $out"
out=$(realpath "$out")

name=targets$$
trap 'bash "$here/emulated_cluster.sh" down --name "$name"' EXIT
bash "$here/emulated_cluster.sh" up --name "$name" --hosts 4 --ranks-per-host 4 --rate 1gbit || exit 2
export DDL_CACHE_DIR=$out/cache DDL_PROBE=on
all_reduce_perf=("$bin/all_reduce_perf" --undisturbed "$undisturbed")
broadcast_perf=("$bin/broadcast_perf" --undisturbed "$undisturbed")
on_cluster() { bash "$here/emulated_cluster.sh" run --name "$name" "$@"; }

# Settings of Open MPI: default, ring, or HAN (off by default in 4.1) in its two modes. The pipelined mode of 4.1.4
# crashes in place, so it is measured out of place.
variant_settings() {
  case $1 in
    default) ;;
    ring) printf '%s ' --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4 ;;
    han) printf '%s ' --mca coll_han_priority 100 --mca coll_adapt_priority 0 ;;
    han_simple) printf '%s ' --mca coll_han_priority 100 --mca coll_han_use_simple_allreduce 1 ;;
  esac
}

for placement in host round_robin; do
  for variant in default ring han han_simple; do
    read -ra settings <<<"$(variant_settings "$variant")" || :
    json=$out/cluster_${placement}_$variant.jsonl
    place=in
    [ "$variant" != han ] || place=out
    all_reduce=("${settings[@]}" "${all_reduce_perf[@]}" --place "$place" --baseline mpi --predict --json "$json")
    printf '\n## placed by %s, Open MPI: %s\n' "$placement" "$variant"
    on_cluster --placement "$placement" -- "${all_reduce[@]}" -b 1K -e 2M -n "$small_iterations" -w 2
    on_cluster --placement "$placement" -- "${all_reduce[@]}" -b 4M -e 64M -n "$large_iterations" -w 1
  done
  printf '\n## placed by %s, reproducible; 4+3+2+1 ranks; broadcast\n' "$placement"
  for reproducible in 0 1; do
    DDL_REPRODUCIBLE=$reproducible on_cluster --placement "$placement" -- "${all_reduce_perf[@]}" -b 16M -e 16M \
      -n "$large_iterations" -w 1 --json "$out/reproducible_${reproducible}_$placement.jsonl"
  done
  on_cluster --placement "$placement" --ranks 4,3,2,1 -- "${all_reduce_perf[@]}" --place in -b 16M -e 16M \
    -n "$large_iterations" -w 1 --baseline mpi --predict --json "$out/uneven_$placement.jsonl"
  on_cluster --placement "$placement" -- "${broadcast_perf[@]}" --place in -b 16M -e 16M -n "$large_iterations" \
    -w 1 --baseline mpi --predict --json "$out/broadcast_$placement.jsonl"
done
printf '\n## waiting, starting\n'
on_cluster --ranks 1,1 -- "$bin/idle_wait" --seconds 5 --json "$out/idle_wait_hosts.jsonl"
on_cluster -- "$bin/start_up_time" --json "$out/start_up_time.jsonl"
echo
python3 "$here/targets.py" "$out"
