#!/usr/bin/env bash
# Installs the missing packages that the build needs, with apt and without questions:
#   install_dependencies.sh [--list] build [tests] [fuzz] [cross]
# --list: prints the parts' packages, installed or not, and does nothing.
# On systems without apt it only lists the libraries; CMake then finds them.
set -euo pipefail
[ "${1:-}" != --help ] || exec sed -n '2,/^set/s/^#  *//p' "$0"

# Debian's libdnnl-dev needs OpenCL but does not depend on it.
build_packages=(
  g++ cmake ninja-build pkg-config
  libopenmpi-dev openmpi-bin libucx-dev libdnnl-dev ocl-icd-opencl-dev libsentencepiece-dev
  libhwloc-dev libboost-program-options-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libexpat1-dev
  libcairo2-dev libyaml-cpp-dev zlib1g-dev
)
test_packages=(libgtest-dev libboost-context-dev iproute2 dpkg-dev file python3-numpy python3-mpi4py doxygen
  graphviz help2man)
fuzz_packages=(clang-16 libclang-rt-16-dev libomp-16-dev)
cross_packages=(cmake ninja-build pkg-config mmdebstrap arch-test qemu-user-static g++-aarch64-linux-gnu
  g++-powerpc64le-linux-gnu)
needed="a C++20 compiler (GCC 12 or newer), CMake 3.22, Ninja, pkg-config, Open MPI 4.1, UCX 1.12, hwloc 2,
oneDNN 2.6, SentencePiece 0.1.97, Boost.Program_options, fmt 9, spdlog, nlohmann-json, Expat and zlib;
yaml-cpp, if --config shall read YAML, and Cairo, if ddl_nmt report shall draw"
needed_for_tests="; for the tests GoogleTest, Boost.Context if there is CUDA, iproute2 for the emulated cluster,
Graphviz, and Python 3 with numpy"
needed_for_fuzz="; for fuzzing Clang 16 with libFuzzer"
needed_for_cross="; for other architectures cross compilers, QEMU for user programs, and mmdebstrap"

packages=()
list=
if [ "${1:-}" = --list ]; then
  list=yes
  shift
fi
for part in "$@"; do
  case $part in
    build) packages+=("${build_packages[@]}") ;;
    tests) packages+=("${test_packages[@]}") needed+=$needed_for_tests ;;
    fuzz) packages+=("${fuzz_packages[@]}") needed+=$needed_for_fuzz ;;
    cross) packages+=("${cross_packages[@]}") needed+=$needed_for_cross ;;
    *)
      echo "install_dependencies.sh: unknown part '$part'; parts are: build tests fuzz cross" >&2
      exit 2
      ;;
  esac
done
if [ "$list" ]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  printf 'This is not Debian or Ubuntu, so nothing is installed. Needed are %s.\n' "$needed"
  exit 0
fi

is_installed() { [ "$(dpkg-query --show --showformat '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    printf 'Missing packages, and neither root nor sudo to install them. As root, type:\n  apt-get install %s\n' \
      "${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing: ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q)
"${apt[@]}" update
"${apt[@]}" install --yes --no-install-recommends "${missing[@]}"
