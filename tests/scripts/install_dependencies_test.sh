#!/usr/bin/env bash
# Otherwise the first command of the README would fail on a machine without the packages.
set -uo pipefail
script=$1/tests/install_dependencies.sh
. "$(dirname "${BASH_SOURCE[0]}")/stand_ins.sh"

stand_in id 'echo 0'
stand_in dpkg-query 'case ${!#} in g++ | libfmt-dev) printf installed ;; cmake) printf config-files ;; *) exit 1 ;; esac'
stand_in apt-get 'echo "frontend $DEBIAN_FRONTEND"'
stand_in sudo 'exec "$@"'

# As root: updates, then installs exactly the missing packages without questions.
sandboxed bash "$script" build || fail "as root"
expect_call '^apt-get -q update$'
expect_call '^apt-get -q install --yes --no-install-recommends cmake ninja-build .*libopenmpi-dev.* zlib1g-dev$'
expect_no_call '^apt-get .*(g\+\+|libfmt-dev|libgtest-dev)'
expect_no_call '^sudo'
expect_output 'frontend noninteractive'
sandboxed bash "$script" build tests || fail "with tests"
expect_call '^apt-get .*install .* libgtest-dev'

# As another user: uses sudo, or prints the command to type.
stand_in id 'echo 1000'
: >"$calls"
sandboxed bash "$script" build || fail "through sudo"
expect_call '^sudo env DEBIAN_FRONTEND=noninteractive apt-get -q install --yes'
rm "$work/bin/sudo"
: >"$calls"
sandboxed bash "$script" build && fail "neither root nor sudo"
expect_output 'apt-get install cmake'
expect_no_call '^apt-get'

# A failing apt-get makes the script fail.
stand_in id 'echo 0'
stand_in apt-get 'exit 100'
sandboxed bash "$script" build && fail "apt-get's failure is lost"

# Does nothing if nothing is missing.
stand_in dpkg-query 'printf installed'
: >"$calls"
sandboxed bash "$script" build tests || fail "nothing missing"
expect_no_call '^apt-get'

# Without apt: prints the libraries' names.
rm "$work/bin/apt-get"
sandboxed bash "$script" build tests || fail "without apt"
for word in oneDNN SentencePiece 'Open MPI' GoogleTest; do expect_output "$word"; done

sandboxed bash "$script" biuld && fail "an unknown part passes"
expect_output "unknown part 'biuld'"
echo passed
