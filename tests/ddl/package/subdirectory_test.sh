#!/usr/bin/env bash
# Configures a project outside the tree that takes the library in by add_subdirectory, builds what it needs of it, and
# runs its program. Lost otherwise: everybody who keeps the library's source in their own.
#   subdirectory_test.sh CMAKE CTEST SOURCE [FLAG OF CMAKE...]
set -euo pipefail
cmake=$1 ctest=$2 source=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source"/tests/ddl/package/{subdirectory,consumer.cpp} "$work"
# Unoptimised and without debug information: it is the build that is tested.
"$cmake" -S "$work/subdirectory" -B "$work/build" -DDDL_SOURCE="$source" -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DDDL_WITH_CUDA=OFF "$@"
"$cmake" --build "$work/build" --parallel 2 --target consumer
"$ctest" --test-dir "$work/build" --output-on-failure --no-tests=error
