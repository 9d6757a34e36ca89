#!/usr/bin/env bash
# Otherwise the quickstart would not build, start or print what the README promises.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/stand_ins.sh"

# A copy of the checkout's scripts, so that nothing is built or removed in the real one.
mkdir -p "$work/a checkout/tests" "$work/a checkout/nmt_example"
cp "$1/tests/install_dependencies.sh" "$work/a checkout/tests/"
cp "$1/nmt_example/quickstart.sh" "$work/a checkout/nmt_example/"
quickstart="$work/a checkout/nmt_example/quickstart.sh"

stand_in id 'echo 0'
stand_in dpkg-query 'printf installed'
stand_in apt-get
stand_in ddl_nmt '[ "$1" != translate ] || cat >/dev/null'  # or who pipes to it may be killed
stand_in cmake "mkdir -p build-quickstart/bin; ln -sf '$work/bin/ddl_nmt' build-quickstart/bin/ddl_nmt"
stand_in mpirun 'echo "root allowed: $OMPI_ALLOW_RUN_AS_ROOT$OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"; pwd'

sandboxed bash "$quickstart" --num_train_steps=7 || fail "the quickstart"
expect_call '^cmake -S \. -B build-quickstart .*-DDDL_BUILD_TESTS=OFF .*-DDDL_BUILD_BENCHMARKS=OFF'
[ -e /dev/nvidia0 ] || expect_call '^cmake .*-DDDL_WITH_CUDA=OFF'
expect_call '^cmake --build build-quickstart --target ddl_nmt$'
expect_call '^mpirun --oversubscribe --bind-to none -np 2 build-quickstart/bin/ddl_nmt train --preset=quickstart .*--num_train_steps=7$'
expect_call '^ddl_nmt report build-quickstart/model$'
expect_call '^ddl_nmt translate --model=build-quickstart/model$'
expect_output 'root allowed: 11'
expect_output "$work/a checkout/build-quickstart/model"
expect_output "cd $(printf %q "$work/a checkout")"
expect_output 'export OMPI_ALLOW_RUN_AS_ROOT=1'
expect_output 'build-quickstart/bin/ddl_nmt translate --model=build-quickstart/model'

# Each suggested next command is valid shell, and the scripts that it names are part of the project.
sed -n '/What to type next/,$p' "$work/output" | sed 1d | bash -n || fail "the lines to type next are not shell"
while read -r named; do
  [ -f "$1/$named" ] || fail "a line to type next names $named, which does not exist"
done < <(grep -oE '(nmt_example|tests)/[a-z0-9_]+\.sh' "$work/output" | sort -u)

# A failing build or training ends the quickstart without suggestions.
stand_in mpirun 'exit 3'
sandboxed bash "$quickstart" && fail "a failed training passes"
grep -q 'type next' "$work/output" && fail "a failed training ends with advice"
stand_in cmake 'exit 1'
: >"$calls"
sandboxed bash "$quickstart" && fail "a failed build passes"
expect_no_call '^mpirun'
echo passed
