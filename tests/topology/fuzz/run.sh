#!/usr/bin/env bash
# Builds the libFuzzer programs of the file parsers with Clang and sanitizers into build-fuzz/ and runs each:
#   bash tests/topology/fuzz/run.sh [SECONDS each, default 60]
# Starts from corpus/; new inputs are kept in build-fuzz/found/. Ends with an error at the first finding.
set -euo pipefail
seconds=${1:-60}
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
readers=(decomposition json measurements mode nccl_xml plan_json)

bash tests/install_dependencies.sh build tests fuzz
cmake -G Ninja -B build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Release \
  -DDDL_BUILD_FUZZERS=ON -DDDL_SANITIZE=address,undefined -DDDL_WITH_MPI=OFF -DDDL_WITH_CUDA=OFF \
  -DDDL_BUILD_TESTS=ON -DDDL_BUILD_BENCHMARKS=OFF -DDDL_BUILD_EXAMPLES=OFF
programs=("${readers[@]/#/topology_}")
cmake --build build-fuzz --target "${programs[@]/%/_fuzzer}"
for reader in "${readers[@]}"; do
  found=build-fuzz/found/$reader
  mkdir -p "$found"
  log=build-fuzz/$reader.log
  if ! build-fuzz/bin/"topology_${reader}_fuzzer" -max_total_time="$seconds" -print_final_stats=1 \
    -artifact_prefix=build-fuzz/ "$found" "tests/topology/fuzz/corpus/$reader" >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "run.sh: $reader failed; the whole output is in $log" >&2
    exit 1
  fi
  echo "$reader: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s"
done
