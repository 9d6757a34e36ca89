#!/usr/bin/env bash
# Installs the Debian packages on a fresh Debian, and builds and runs an example there. Run by hand, as root:
#   fresh_debian.sh DIRECTORY_OF_DEBS [SUITE]
# Makes a Debian (SUITE, or bookworm) in a temporary directory with debootstrap, from the mirror that this machine's apt
# uses, and removes it afterwards. Only the packages, their dependencies, a compiler and CMake are installed.
set -euo pipefail
debs=$(realpath "$1")
suite=${2:-bookworm}

fail() {
  printf 'fresh_debian.sh: %s\n' "$*" >&2
  exit 1
}
step() { printf '== %s\n' "$*"; }

[ "$(id -u)" = 0 ] || fail "it makes a root directory of its own, for which it must be root"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
compgen -G "$debs/*.deb" >/dev/null || fail "there are no .deb files in $debs: make them with cpack"

# The sources of this machine's apt for the suite: "site release component".
# shellcheck disable=SC2016
sources=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' "Created-By: Packages" |
  awk -v suite="$suite" '$2 == suite || index($2, suite "-") == 1' | sort -u)
mirror=$(awk -v suite="$suite" '$2 == suite && $3 == "main" { print $1; exit }' <<<"$sources")
[ -n "$mirror" ] || fail "apt here has no mirror for $suite; run apt-get update, or name another suite"
proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy)
[ -z "$proxy" ] || export http_proxy=$proxy

root=$(mktemp -d)
remove_root() {
  for system in proc sys; do
    ! mountpoint -q "$root/$system" || umount "$root/$system"
  done
  rm -rf --one-file-system "$root"
}
trap remove_root EXIT
inside() {
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    ${http_proxy:+http_proxy=$http_proxy} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"
}
install_inside() {
  inside apt-get -q install --yes --no-install-recommends "$@" >"$root/apt.out" 2>&1 ||
    fail "apt could not install $*: $(tail -n 20 "$root/apt.out")"
}

step "a fresh Debian $suite"
debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 || fail "debootstrap: $(tail -n 5 "$root.log")"
rm "$root.log"
awk '{ print "deb", $0 }' <<<"$sources" >"$root/etc/apt/sources.list"
cp /etc/hosts "$root/etc/hosts"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
inside apt-get -q update >"$root/apt.out" 2>&1 || fail "apt-get update: $(tail -n 20 "$root/apt.out")"

step "the packages, with nothing but what they depend on"
mkdir "$root/debs"
cp "$debs"/*.deb "$root/debs"
mapfile -t files < <(cd "$root" && find debs -name '*.deb' -printf '/%p\n' | sort)
install_inside "${files[@]}"
mapfile -t packages < <(for file in "${files[@]}"; do dpkg-deb -f "$root$file" Package; done)
# shellcheck disable=SC2016
inside dpkg-query --show --showformat '${Package} ${Version} ${db:Status-Status}\n' "${packages[@]}"
inside dpkg --audit
for program in ddl-topo ddl-plan ddl_nmt; do
  [ ! -e "$root/usr/bin/$program" ] || inside "$program" --help >/dev/null || fail "$program does not run"
done
inside ddl-topo show >"$root/topology.out" || fail "ddl-topo finds no topology"
head -n 3 "$root/topology.out"

step "the example, by pkg-config and by CMake"
install_inside g++ make cmake
mkdir "$root/example"
cp "$root"/usr/share/doc/libddl-dev/examples/perceptron/*.cpp "$root/example"
cat >"$root/example/CMakeLists.txt" <<'EOT'
cmake_minimum_required(VERSION 3.22)
project(example LANGUAGES CXX)
find_package(ddl REQUIRED)
add_executable(by_cmake ddl_trainer.cpp)
target_link_libraries(by_cmake PRIVATE ddl::ddl)
EOT
# shellcheck disable=SC2016
inside bash -euc '
  cd /example
  g++ -std=c++20 -O2 plain_trainer.cpp -o plain
  g++ -std=c++20 -O2 ddl_trainer.cpp $(pkg-config --cflags --libs ddl) -o by_pkg_config
  cmake -S . -B build -DCMAKE_BUILD_TYPE=Release >cmake.out
  cmake --build build >>cmake.out
  mv build/by_cmake .' || fail "the example does not build"

# shellcheck disable=SC2016
inside bash -euc '
  cd /example
  ./plain --checkpoint plain.txt >plain.out
  for program in by_pkg_config by_cmake; do
    WORLD_SIZE=2 RANK=1 ./$program --checkpoint $program.txt >$program.out & other=$!
    WORLD_SIZE=2 RANK=0 ./$program --checkpoint $program.txt >>$program.out
    wait $other
  done
  if command -v mpirun >/dev/null; then
    mpirun --oversubscribe --bind-to none -n 2 ./by_cmake --checkpoint by_mpirun.txt >by_mpirun.out
  else
    echo "mpirun is not among what the packages depend on"
  fi' || fail "the example does not run"
for output in "$root"/example/*.out; do
  last=$(grep "^epoch" "$output" | tail -n 1) || continue
  echo "$(basename "$output" .out): $last"
  accuracy=${last##*points }
  [ "${accuracy%%.*}" -ge 95 ] || fail "the example has learned less than it should have"
done
step "passed"
