#!/usr/bin/env bash
# Configures a project outside the tree that uses the library by add_subdirectory, builds what it needs, and runs its
# program. Otherwise projects that contain the library's source could not build it.
#   subdirectory_test.sh CMAKE CTEST SOURCE [FLAG OF CMAKE...]
set -euo pipefail
cmake=$1 ctest=$2 source=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source"/tests/ddl/package/{subdirectory,consumer.cpp} "$work"
# Fast, because only the build is tested: without optimisation and debug information. Each file alone, as is the default.
"$cmake" -S "$work/subdirectory" -B "$work/build" -DDDL_SOURCE="$source" -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DDDL_WITH_CUDA=OFF "$@"
"$cmake" --build "$work/build" --parallel 2 --target consumer
"$ctest" --test-dir "$work/build" --output-on-failure --no-tests=error
