#!/usr/bin/env bash
# Builds the libFuzzer programs with Clang and sanitizers into build-fuzz/, and runs each of their readers:
#   bash tests/fuzz/run.sh [SECONDS each, default 60 [PART...]]
# Parts: topology, library, c_api, nmt; default: all. Starts from corpus/; new inputs are kept in build-fuzz/found/.
# Ends with an error after all readers if one of them has a finding.
set -euo pipefail
[ "${1:-}" != --help ] || exec sed -n '2,/^set/s/^#  *//p' "$0"
seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || { echo "run.sh: found '$seconds', expected seconds; see --help" >&2; exit 2; }
parts=("${@:2}")
[ ${#parts[@]} -gt 0 ] || parts=(topology library c_api nmt)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash tests/install_dependencies.sh build tests fuzz
cmake -G Ninja -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DCMAKE_C_COMPILER=clang-16 -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
  -DDDL_BUILD_FUZZERS=ON -DDDL_SANITIZE=address,undefined -DDDL_WITH_MPI=OFF -DDDL_WITH_CUDA=OFF -DDDL_WITH_UCX=OFF \
  -DDDL_BUILD_TESTS=ON -DDDL_BUILD_BENCHMARKS=OFF -DDDL_BUILD_EXAMPLES=ON -DDDL_UNITY_BUILD=ON
cmake --build build-fuzz --target "${parts[@]/%/_fuzzer}"
failed=()
for part in "${parts[@]}"; do
  program=build-fuzz/bin/${part}_fuzzer
  for reader in $("$program"); do
    found=build-fuzz/found/$reader
    mkdir -p "$found"
    log=build-fuzz/$reader.log
    if DDL_FUZZ_READER=$reader "$program" -max_total_time="$seconds" -timeout=60 -print_final_stats=1 \
      -artifact_prefix="build-fuzz/$reader-" "$found" "tests/fuzz/corpus/$reader" >"$log" 2>&1; then
      echo "$reader: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s"
    else
      tail -n 60 "$log"
      echo "run.sh: $reader failed; the whole output is in $log" >&2
      failed+=("$reader")
    fi
  done
done
[ ${#failed[@]} -eq 0 ] || { echo "run.sh: findings in: ${failed[*]}" >&2; exit 1; }
