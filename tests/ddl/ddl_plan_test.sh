#!/usr/bin/env bash
# The command lines of ddl-plan and of the benchmark scaling: their output, files and error messages.
#   ddl_plan_test.sh DDL_PLAN CHECK_DOCUMENT SCALING|none
set -uo pipefail
plan=$1 check_document=$2 scaling=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
tool=$plan

fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

# status EXPECTED ARGUMENTS...: runs the tool, writes its output to $work/out and $work/err, and checks its status.
status() {
  local expected=$1 found
  shift
  "$tool" "$@" >"$work/out" 2>"$work/err"
  found=$?
  [ "$found" = "$expected" ] ||
    fail "$(basename "$tool") $*: status $found, expected $expected: $(head -c 500 "$work/err")"
}

# says FILE TEXT: checks that FILE (out or err) contains TEXT.
says() { grep -qF -- "$2" "$work/$1" || fail "no '$2' in std$1: $(head -c 1500 "$work/$1")"; }

# refuses STATUS TEXT ARGUMENTS...: expects an empty standard output, and TEXT on standard error.
refuses() {
  local expected=$1 text=$2
  shift 2
  status "$expected" "$@"
  says err "$text"
  [ ! -s "$work/out" ] || fail "$(basename "$tool") $*: wrote to standard output before it failed"
}

# value POINTER...: prints the values at these pointers of the JSON in $work/out.
value() { "$check_document" json "$work/out" "$@" || fail "JSON: $*"; }

# is EXPECTED POINTER: checks a value of the JSON in $work/out.
is() {
  local found
  found=$(value "$2")
  [ "$found" = "$1" ] || fail "$2: found $found, expected $1"
}

# holds CONDITION WHAT: checks a condition in awk's syntax.
holds() { awk "BEGIN { exit !($1) }" || fail "not true: $1 ($2)"; }

# draws FILE TEXT: checks that a picture is well-formed and has these words as a text.
draws() {
  dot -Tsvg -o "$work/picture.svg" "$work/$1" || fail "Graphviz does not draw $1"
  python3 -c 'import sys, xml.etree.ElementTree as xml
sys.exit(not any(element.text == sys.argv[2] for element in xml.parse(sys.argv[1]).iter()))' "$work/picture.svg" "$2" ||
    fail "no '$2' in the picture $1: $(head -c 300 "$work/$1")"
}

reference=(--topology ac922:4 --ranks 16 --bytes 717668352)

# Readable output.
status 0 "${reference[@]}"
says out "ac922:4: 16 ranks placed by host on 4 hosts; 717,668,352 bytes"
says out "all_reduce 717.7 MB f32: "
says out "no plan can take less than"
says out "network 12.5 GB/s"
[ "$(grep -c -e simulated -e verified "$work/out")" = 0 ] || fail "simulated or verified without being asked"
status 0 "${reference[@]}" --explain --verify --simulate
says out "why this plan"
says out "flat ring, ranks "
says out "best of mode r (rings)"
says out "bottleneck: h"
says out "(network, 12.5 GB/s), busy"
says out "what to do"
says out "verified: every element ends with each rank's contribution exactly once"
says out "simulated  "
says out "busiest links"
says out "critical path: "

# JSON output: all results, under stable names.
status 0 "${reference[@]}" --json --verify --simulate
is ac922:4 /topology
is 16 /ranks
is "by host" /placement
is all_reduce /collective
is 717668352 /bytes
is f32 /type
is p /mode
is true /verified
hash=$(value /hash)
[ ${#hash} = 16 ] || fail "hash: found '$hash', expected 16 digits"
read -r predicted simulated bound chunks dimensions phases < <(
  value /predicted_us /simulated_us /bound_us /chunks /dimensions /phases | tr '\n' ' ')
holds "$bound > 0 && $bound <= $simulated && $simulated <= 1.10 * $bound" "the NICs' bound and the plan"
holds "$predicted > 0.8 * $simulated && $predicted < 1.25 * $simulated" "prediction and simulation agree"
holds "$chunks >= 1 && $chunks <= 64 && $dimensions >= 1 && $phases >= 2" "shape"
value /phases/0/phase /phases/0/dimension /phases/0/rounds /phases/0/bytes /phases/0/simulated_end_us >"$work/phase"
value /links/0/link /links/0/kind /links/0/bytes /links/0/utilisation >"$work/link"

# Round-robin placement costs nothing.
status 0 "${reference[@]}" --json --simulate --placement round-robin
is round-robin /placement
dealt_out=$(value /simulated_us)
holds "$dealt_out < 1.01 * $simulated && $dealt_out > 0.99 * $simulated" "round-robin and by host"

# A requested decomposition and number of chunks are used.
status 0 "${reference[@]}" --json --mode r:2x2x4 --chunks 8
is 2x2x4 /decomposition
is 8 /chunks
is r /mode
is 3 /dimensions
is ring /dimensions/0/algorithm
is network\ 12.5\ GB/s /dimensions/2/wires

# A plan that is saved and loaded again is the same.
status 0 "${reference[@]}" --save "$work/plan.json"
status 0 --topology ac922:4 --ranks 16 --plan "$work/plan.json" --json --verify
is "$hash" /hash
is true /verified
"$plan" --topology ac922:4 --plan - --verify <"$work/plan.json" >"$work/out" 2>"$work/err" || fail "--plan -"

# Broadcasts, other types, suffixes of sizes.
status 0 --topology ac922:4 --bytes 64M --collective broadcast --root 5 --verify --json
is broadcast /collective
is 67108864 /bytes
is true /verified
# 16 bits between hosts: half of the bytes there, in what is printed, verified and simulated.
for collective in all_reduce reduce_scatter; do
  status 0 --topology ethernet:4x4 --bytes 64M --collective $collective --json --verify --simulate
  read -r whole < <(value /simulated_us)
  status 0 --topology ethernet:4x4 --bytes 64M --collective $collective --wire bf16 --json --verify --simulate
  is true /verified
  is bf16 /dimensions/1/wire
  read -r narrow < <(value /simulated_us)
  awk -v whole="$whole" -v narrow="$narrow" 'BEGIN { exit !(narrow > 0.45 * whole && narrow < 0.65 * whole) }' ||
    fail "$collective takes $whole us, and in 16 bits $narrow us"
done
status 0 --topology ethernet:4x4 --bytes 64M --wire f16
says out "ring network in f16"
for collective in reduce_scatter all_gather reduce; do
  status 0 --topology ac922:4 --bytes 64M --collective $collective --type bf16 --root 5 --verify --simulate --json \
    --explain --candidates 5
  is $collective /collective
  is bf16 /type
  is true /verified
  read -r predicted simulated bound < <(value /predicted_us /simulated_us /bound_us | tr '\n' ' ')
  holds "$bound <= $simulated && $predicted < 1.3 * $simulated && $simulated < 1.3 * $predicted" "$collective"
  status 0 --topology ac922:4 --bytes 64M --collective $collective --explain --simulate
  says out "$collective 67.11 MB f32: "
  for placement in by-host round-robin; do
    status 0 --topology ethernet:3x3 --bytes 36K --collective $collective --placement $placement --verify \
      --save "$work/pieces.json" --dot "$work/pieces.dot"
    says out verified
    draws pieces.dot "rank 8"
    status 0 --topology ethernet:3x3 --plan "$work/pieces.json" --verify
    says out verified
  done
done
status 0 --topology ac922:4 --bytes 1G --type f64 --json
is 1073741824 /bytes
is f64 /type
status 0 --topology host:1 --bytes 64K --explain --verify --simulate
status 0 --device cpu --ranks 2 --bytes 4K --verify --json
is "this machine" /topology

# The list of all candidates.
status 0 --topology ac922:2 --bytes 1M --candidates 20
says out "plans considered, the first 20"
# Of 64 KiB, the plan with the best prediction is also the best one by simulation.
status 0 --topology ac922:2 --bytes 64K --candidates 3 --json
is 3 /candidates
in_all=$(value /candidates_in_all)
best=$(value /candidates/0/hash)
is "$best" /hash
value /candidates/2/predicted_us /candidates/2/simulated_us /candidates/2/decomposition >"$work/third"
status 0 --topology ac922:1 --bytes 1M --candidates all --json
is "$(value /candidates_in_all)" /candidates
holds "$in_all >= 100" "a search of $in_all plans"

# Stragglers and jitter change only the simulation; the same seed gives the same numbers.
simulated_with() {
  status 0 --topology ethernet:4x1 --bytes 1M --json "$@"
  value /simulated_us
}
plain=$(simulated_with)
slow=$(simulated_with --straggler 2:20)
holds "$slow > $plain" "a straggler slows the others down"
one=$(simulated_with --jitter 0.5 --seed 1)
again=$(simulated_with --jitter 0.5 --seed 1)
other=$(simulated_with --jitter 0.5 --seed 2)
[ "$one" = "$again" ] || fail "the same seed gives $one and $again"
[ "$one" != "$other" ] || fail "another seed gives the same $one"

# Pictures of every kind of machine, the same in each run; large ones say what they leave out.
for topology in host:3 ac922 ac922:4 dgx1v:3 dgx2:2 dgx_a100:5 dgx_h100:2 ethernet:5x3 host:72; do
  status 0 --topology "$topology" --bytes 64M --dot "$work/a.dot" --limit 1e5
  draws a.dot "rank 2"
  [ ! -s "$work/err" ] || fail "the picture of $topology: $(cat "$work/err")"
done
draws a.dot "h0 (and 25 more nodes)"
status 0 --topology ac922:40 --bytes 64M --dot "$work/a.dot"
draws a.dot "32 more hosts not drawn."
status 0 --topology ac922:3 --ranks 10 --bytes 64K --collective broadcast --placement round-robin --dot "$work/b.dot"
draws b.dot "no rank"
status 0 "${reference[@]}" --dot "$work/c.dot"
for words in "rank 15" "network 12.5" "dimension 1" "over network 12.5 GB/s"; do draws c.dot "$words"; done

# Names from a file cannot break a picture.
cat >"$work/odd.json" <<'JSON'
{"ddl_topology": 1, "hosts": ["<b>&\"]};x\\"],
 "nodes": [{"name": "a/\"]};\\", "kind": "package", "host": "<b>&\"]};x\\"}, {"name": "b/<i>&", "kind": "gpu", "host": "<b>&\"]};x\\"},
           {"name": "c/]>", "kind": "gpu", "host": "<b>&\"]};x\\"}],
 "links": [{"from": "a/\"]};\\", "to": "b/<i>&", "kind": "pcie", "bandwidth": 1, "latency": 1},
           {"from": "a/\"]};\\", "to": "c/]>", "kind": "pcie", "bandwidth": 1, "latency": 1}]}
JSON
status 0 --topology "$work/odd.json" --bytes 64K --dot "$work/odd.dot"
draws odd.dot '<i>&'
draws odd.dot '"]};\'

# 65,536 ranks are planned without a schedule; a request that would be too large is refused.
status 0 --topology ethernet:4096x16@100gbit --bytes 64M --mode p:16x64x64 --json
is 65536 /ranks
is null /simulated_us
is null /verified
refuses 1 "--limit" --topology ethernet:4096x16@100gbit --bytes 64M --mode r:65536 --chunks 64 --verify
says err "transfers"
refuses 1 "--simulate: found a schedule of about" "${reference[@]}" --simulate --limit 10

# Help shows examples, after any arguments.
for arguments in --help -h help "--bytes x --help"; do
  # shellcheck disable=SC2086  # several words
  status 0 $arguments
  says out "ddl-plan --topology ac922:4 --ranks 16 --bytes 717668352"
done

# A wrong command line: status 2, with what was found and what was expected.
refuses 2 "found no --bytes"
refuses 2 "ddl-plan --help shows how it is used" --bytes
refuses 2 "--bytes: found '717.7MB', expected a number from 1 to 1099511627776; K, M and G" --bytes 717.7MB
refuses 2 "--bytes: found '64T'" --bytes 64T
refuses 1 "found no plan for all_reduce that the carriers between these devices (cuda_ipc) can run" \
  --topology dgx1v:2 --carriers cuda_ipc --bytes 1000
refuses 2 "--bytes: found '-4'" --bytes=-4
refuses 2 "--bytes: found '0'" --bytes 0
refuses 2 "--bytes: found '99999999999999999999'" --bytes 99999999999999999999
refuses 2 "--bytes: found 10, expected a multiple of 4, the size of an element of f32" --bytes 10
refuses 2 "--bytes: found 72, expected a multiple of 64: a piece of whole elements for each of 16 ranks" \
  --topology ac922:4 --bytes 72 --collective all_gather
refuses 2 "unknown option '--simulat'; the nearest is --simulate" --bytes 4 --simulat
refuses 2 "found 'ac922', expected options alone" ac922
refuses 2 "the nearest preset is 'ac922'" --bytes 4 --topology ac92:4
refuses 2 "--ranks: found 17, expected at most 16: ac922:4 has 16 devices" --bytes 4 --topology ac922:4 --ranks 17
refuses 2 "--ranks: found '0'" --bytes 4 --ranks 0
refuses 2 "--mode: decomposition 2x2x2 has 8 positions, but there are 16 ranks" "${reference[@]}" --mode p:2x2x2
refuses 2 "--mode: " "${reference[@]}" --mode p:
refuses 2 "--mode: mode 'x'" "${reference[@]}" --mode x
refuses 2 "--chunks: found '65', expected an integer from 1 to 64" "${reference[@]}" --chunks 65
refuses 2 "--collective: found 'allreduce', expected one of all_reduce, broadcast, reduce_scatter, all_gather, reduce; the nearest is all_reduce" \
  "${reference[@]}" --collective allreduce
refuses 2 "--type: found 'f31', expected one of f32" "${reference[@]}" --type f31
refuses 2 "--wire: found 'f8', expected one of bf16, f16" "${reference[@]}" --wire f8
refuses 1 "found the wire bf16 for broadcast of f32, expected bf16 or f16 for all_reduce" "${reference[@]}" \
  --collective broadcast --wire bf16
refuses 2 "--placement: found 'random', expected one of by-host, round-robin" "${reference[@]}" --placement random
refuses 2 "--root: found rank 16, expected one from 0 to 15" "${reference[@]}" --collective broadcast --root 16
refuses 2 "--straggler: found rank 16, expected one from 0 to 15" "${reference[@]}" --simulate --straggler 16:2
refuses 2 "--straggler: found '3', expected RANK:FACTOR" "${reference[@]}" --simulate --straggler 3
refuses 2 "--straggler: found '0.5', expected a number from 1" "${reference[@]}" --simulate --straggler 3:0.5
refuses 2 "--jitter: found 'nan'" "${reference[@]}" --simulate --jitter nan
refuses 2 "add --simulate" "${reference[@]}" --jitter 0.1
refuses 2 "--seed: found '-1'" "${reference[@]}" --simulate --seed=-1
refuses 2 "--candidates: found '0'" "${reference[@]}" --candidates 0
refuses 2 "--plan and --mode do not go together" --plan x.json --mode r
refuses 2 "--dot: found '-', expected a file" "${reference[@]}" --dot -

# Wrong files: status 1, with the file and the problem.
refuses 1 "$work/missing.json" --topology "$work/missing.json" --bytes 4
refuses 1 "$work/missing.json" --topology ac922:4 --plan "$work/missing.json"
head -c 100 "$work/plan.json" >"$work/cut.json"
refuses 1 "$work/cut.json" --topology ac922:4 --plan "$work/cut.json"
refuses 1 "found a plan for 16 ranks, expected one for 8" --topology ac922:2 --plan "$work/plan.json"
refuses 1 "$work/no/such/folder" "${reference[@]}" --dot "$work/no/such/folder/x.dot"

# Scaling: a row for each number of workers and each mode. Readers would draw wrong conclusions from wrong figures.
test_scaling() {
  tool=$scaling
  status 0 --topology ac922:4 --json "$work/rows.jsonl"
  says out "simulated, not measured"
  [ "$(wc -l <"$work/rows.jsonl")" = 18 ] || fail "found $(wc -l <"$work/rows.jsonl") rows, expected 18"
  for key in source workers step_ms speedup efficiency hidden mode plan bytes; do
    "$check_document" lines "$work/rows.jsonl" "/$key" >"$work/$key" || fail "rows without $key"
  done
  [ "$(sort -u "$work/source")" = simulated ] || fail "sources: $(sort -u "$work/source")"
  [ "$(sort -u "$work/bytes")" = 717668352 ] || fail "the article's model has $(sort -u "$work/bytes") bytes"
  paste "$work/workers" "$work/step_ms" "$work/speedup" "$work/efficiency" "$work/hidden" "$work/mode" |
    awk '{ step[$6, $1] = $2 }
         $2 < 360 || $3 > $1 * 1.000001 || ($3 - $1 * 360 / $2) ^ 2 > 1e-9 { bad = 1 }
         ($4 - $3 / $1) ^ 2 > 1e-9 || $5 < 0 || $5 > 1 || ($1 == 1 && $2 != 360) { bad = 1 }
         END { exit bad || !(step["overlap+rows", 16] < step["overlap", 16] && step["overlap", 16] < step["after", 16]) }' ||
    fail "rows: $(cat "$work/rows.jsonl")"
  status 0 --workers 1,4 --bytes 1M --compute-ms 2 --buckets 256K --modes after,overlap --json -
  [ "$(wc -l <"$work/out")" = 4 ] || fail "--json - prints other than the rows"
  # A bucket is ready when backward has finished its gradient.
  printf '{"name": "w", "elements": 1024, "ready": %s}\n' 1 0.75 0.5 0.25 >"$work/gradients.jsonl"
  status 0 --gradients "$work/gradients.jsonl" --buckets 4K --workers 16 --modes overlap --compute-ms 100 --update-ms 0 \
    --json "$work/times.jsonl"
  for bucket in 0 1 2 3; do "$check_document" lines "$work/times.jsonl" "/buckets/$bucket/0"; done >"$work/times"
  [ "$(awk '{ printf "%g ", $1 }' "$work/times")" = "25 50 75 100 " ] || fail "buckets are ready at $(cat "$work/times")"
  # Waiting for the slowest of 16 workers, whose expected excess is 1.77 standard deviations (Teichroew, 1956).
  status 0 --workers 16 --spread 10 --modes overlap --gradients 4 --bytes 4K --json "$work/spread.jsonl"
  "$check_document" lines "$work/spread.jsonl" /step_ms | awk '{ exit !($1 > 360 * 1.16 && $1 < 360 * 1.2) }' ||
    fail "with a spread: $(cat "$work/spread.jsonl")"
  status 0 --help
  says out "scaling --topology dgx_h100:64"
  refuses 2 "--modes: found 'later', expected overlap or after" --modes later
  refuses 2 "--workers: found 17, expected at most 16, the devices of ac922:4" --workers 17
  refuses 2 "--workers: found ''" --workers 1,,2
  refuses 2 "--compute-ms: found 'fast'" --compute-ms fast
  refuses 2 "--buckets: found '25MB'" --buckets 25MB
  refuses 2 "the nearest is --workers" --worker 4
  echo '{"name": "w"}' >"$work/bad.jsonl"
  refuses 1 "bad.jsonl, line 1:" --gradients "$work/bad.jsonl"
  refuses 1 "$work/no/such/folder" --json "$work/no/such/folder/rows.jsonl"
}
[ "$scaling" = none ] || test_scaling

[ -z "$(find "$work" -name '*.tmp*')" ] || fail "temporary files are left: $(ls "$work")"
[ "$failures" = 0 ] && echo "all passed"
exit $((failures > 0))
