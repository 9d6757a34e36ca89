#!/usr/bin/env bash
# Builds everything and runs all tests: `bash tests/run.sh [ctest's arguments]`. Installs missing packages with apt. With
# CI=true, warnings are errors, and each folder is compiled as one file. The exit status is ctest's.
set -euo pipefail
[ "${1:-}" != --help ] || exec sed -n '2,/^set/s/^#  *//p' "$0"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tests/install_dependencies.sh build tests

preset=release ci=OFF
[ "${CI:-}" != true ] || preset=ci ci=ON
# Sets the options explicitly, because build/ may have been configured with others.
cmake --preset "$preset" -DDDL_BUILD_TESTS=ON -DDDL_BUILD_BENCHMARKS=ON -DDDL_BUILD_EXAMPLES=ON \
  -DDDL_WARNINGS_AS_ERRORS="$ci" -DDDL_UNITY_BUILD="$ci" -DDDL_WITH_CUDA=AUTO
cmake --build --preset "$preset"
exec ctest --preset "$preset" --output-on-failure --no-tests=error --parallel "$(nproc)" "$@"
