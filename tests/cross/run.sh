#!/usr/bin/env bash
# Builds for another architecture and runs the tests emulated. See `run.sh --help`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
  cat <<'EOT'
Usage: sudo bash tests/cross/run.sh ARCHITECTURE [ctest's arguments]

Cross-compiles everything but the CUDA code for Debian's ARCHITECTURE, arm64 or ppc64el, and runs the tests within a
root of that architecture's packages, each process emulated by QEMU:
  build-ARCHITECTURE/root   the root, made once (10 minutes; remove it to make it anew)
  build-ARCHITECTURE        the build (an hour of one core)
A test may take ten times as long as it may on the machine itself. What QEMU 7.2 does differently from a processor:
  - It keeps the order of this machine's loads and stores, so that a missing fence of a weakly ordered processor is not found.
  - For arm64 it lets a sequentially consistent load pass an earlier such store: two threads that each store and then look for
    the other's store can both miss it. So sleepers miss rings, and doorbell_test fails (with ppc64el it passes).
  - It does not give pages back, which some cases of host_memory_test expect, and needs memory for address space: engine_test,
    and each process of a job, takes up to 20 GB. `-LE mpi -E "open_host_memory|engine_test"` leaves these out.
  - A program that is started with standard input closed finds an open file there, so nmt_bad_input_test fails.
oneDNN 2.6's sgemm for these architectures allocates memory once a call, which a case of nmt_training_step_test counts and takes for the
trainer's.
Needs root, for chroot and mounts, and on Debian `tests/install_dependencies.sh cross`.
EOT
}

[ "${1:-}" != --help ] || { usage; exit 0; }
architecture=${1:-}
case $architecture in
  arm64) emulator=qemu-aarch64 ;;
  ppc64el) emulator=qemu-ppc64le ;;
  *) usage >&2; exit 2 ;;
esac
shift
build=$PWD/build-$architecture
root=$build/root
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root, for chroot and mounts" >&2; exit 2; }

bash tests/install_dependencies.sh cross
if [ ! -e "/proc/sys/fs/binfmt_misc/$emulator" ]; then
  [ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
  cat "/usr/lib/binfmt.d/$emulator.conf" >/proc/sys/fs/binfmt_misc/register
fi

if [ ! -e "$root" ]; then
  # The compiler runs on this machine; tests that call it are left out.
  packages=$(bash tests/install_dependencies.sh --list build tests | grep -Evx 'g\+\+|doxygen|help2man')
  # The release alone: a mirror may keep its updates for other architectures incomplete.
  release=$(. /etc/os-release && echo "$VERSION_CODENAME")
  # shellcheck disable=SC2016
  mapfile -t archive < <(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' "Release: $release")
  mkdir -p "$build"
  rm -rf "$root.new"
  mmdebstrap --variant=minbase --architectures="$architecture" --include="libstdc++-12-dev ${packages//$'\n'/ }" \
    "$release" "$root.new" "${archive[@]}"
  # Absolute links would lead the cross compiler out of the root.
  find "$root.new" -xdev -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
    ln -snf "$(realpath -sm --relative-to="$(dirname "$link")" "$root.new$(readlink "$link")")" "$link"
  done
  mv "$root.new" "$root"
fi

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDDL_WARNINGS_AS_ERRORS=ON -DDDL_UNITY_BUILD=ON \
  -DDDL_WITH_CUDA=OFF -DDDL_WITH_MPI=ON --toolchain "$PWD/tests/cross/toolchain.cmake" \
  -DDDL_CROSS_ARCHITECTURE="$architecture" -DDDL_CROSS_ROOT="$root"
ninja -C "$build"

# shellcheck disable=SC2016
exec unshare --mount sh -euc 'root=$1 here=$2
  shift 2
  for place in proc dev sys; do mount --rbind "/$place" "$root/$place"; done
  mount -t tmpfs tmpfs "$root/tmp"
  mkdir -p "$root$here"
  mount --bind "$here" "$root$here"
  exec chroot "$root" env -i CI="${CI:-}" HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"' \
  sh "$root" "$PWD" ctest --test-dir "$build" --output-on-failure "$@"
