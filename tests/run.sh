#!/usr/bin/env bash
# Builds everything and runs all tests: `bash tests/run.sh [ctest's arguments]`. Installs missing packages with apt. With
# CI=true, warnings are errors. The exit status is ctest's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tests/install_dependencies.sh build tests

preset=release warnings_as_errors=OFF
[ "${CI:-}" != true ] || preset=ci warnings_as_errors=ON
# Sets the options explicitly, because the quickstart may have configured build/ with others.
cmake --preset "$preset" -DDDL_BUILD_TESTS=ON -DDDL_BUILD_BENCHMARKS=ON -DDDL_BUILD_EXAMPLES=ON \
  -DDDL_WARNINGS_AS_ERRORS="$warnings_as_errors" -DDDL_WITH_CUDA=AUTO
cmake --build --preset "$preset"
exec ctest --preset "$preset" --output-on-failure --no-tests=error --parallel "$(nproc)" "$@"
