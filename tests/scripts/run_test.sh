#!/usr/bin/env bash
# Lost otherwise: tests/run.sh or CI that passes without having built or run the tests.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/stand_ins.sh"

stand_in id 'echo 0'
stand_in dpkg-query 'printf installed'
stand_in apt-get
stand_in cmake
stand_in ctest 'exit "${ctest_status:-0}"'

unset CI
sandboxed bash "$1/tests/run.sh" -R progress || fail "run.sh"
expect_call '^cmake --preset release -DDDL_BUILD_TESTS=ON .*-DDDL_WARNINGS_AS_ERRORS=OFF'
expect_call '^cmake --build --preset release$'
expect_call '^ctest --preset release --output-on-failure --no-tests=error .*-R progress$'

: >"$calls"
DDL_FUZZ_SECONDS=0 sandboxed bash "$1/.ci/run" || fail ".ci/run"
expect_call '^cmake --preset ci -DDDL_BUILD_TESTS=ON .*-DDDL_WARNINGS_AS_ERRORS=ON'
expect_call '^ctest --preset ci'

ctest_status=8 sandboxed bash "$1/tests/run.sh"
[ $? = 8 ] || fail "ctest's exit status is lost"
stand_in cmake 'exit 1'
: >"$calls"
sandboxed bash "$1/tests/run.sh" && fail "a failed build passes"
expect_no_call '^ctest'
echo passed
