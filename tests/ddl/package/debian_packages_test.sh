#!/usr/bin/env bash
# Makes the Debian packages of a build and inspects them, without installing anything.
#   debian_packages_test.sh CPACK BUILD SOURCE PACKAGE...
set -euo pipefail
cpack=$1 build=$2 source=$3
shift 3
packages=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

"$cpack" --config "$build/CPackConfig.cmake" -B "$work" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip >"$work/cpack.out" 2>&1 ||
  fail "cpack: $(cat "$work/cpack.out")"
made=$(find "$work" -maxdepth 1 -name '*.deb' -printf '%f\n' | sed 's/_.*//' | sort | xargs)
[ "$made" = "$(printf '%s\n' "${packages[@]}" | sort | xargs)" ] || fail "made $made, expected ${packages[*]}"

field() { dpkg-deb -f "$work/$1"_*.deb "$2"; }
contents() { dpkg-deb --fsys-tarfile "$work/$1"_*.deb | tar t; }
depends() { # package, what it must depend on, as the start of a dependency
  local dependency
  for dependency in "${@:2}"; do
    grep -qF -- ", $dependency" <<<", $(field "$1" Depends)" || fail "$1 does not depend on $dependency: $(field "$1" Depends)"
  done
}
holds() { # package, ends of paths
  local path
  for path in "${@:2}"; do
    grep -q -- "/$path\$" <<<"$(contents "$1")" || fail "$1 does not have $path"
  done
}

for package in "${packages[@]}"; do
  ! grep -qv '^\./\(usr/.*\)\?$' <<<"$(contents "$package")" || fail "$package has files outside /usr"
  holds "$package" "share/doc/$package/copyright"
  [ "$(field "$package" Section)" != devel ] || fail "$package has no section of its own"
  description=$(field "$package" Description)
  [ "$(wc -l <<<"$description")" -ge 3 ] || fail "$package: its description is only: $description"
  [ "$(head -n 1 <<<"$description" | wc -c)" -le 81 ] || fail "$package: the first line of its description is too long"
  contents "$package" | grep -v '/$' >>"$work/files"
  dpkg-deb -x "$work/$package"_*.deb "$work/root"
done
[ -z "$(sort "$work/files" | uniq -d)" ] || fail "in two packages: $(sort "$work/files" | uniq -d)"

holds libddl0 'libddl_c\.so\.[0-9]*' 'libddl_c\.so\.[0-9.]*'
holds libddl-dev 'include/ddl/ddl\.hpp' 'include/ddl/ddl\.h' 'include/ddl/topology/plan\.hpp' 'libddl\.a' 'libddl_collectives\.a' \
  'libddl_topology\.a' 'libddl_c\.so' 'cmake/ddl/ddlConfig\.cmake' 'cmake/ddl/ddlTargets\.cmake' 'cmake/ddl/ddlCTargets\.cmake' 'pkgconfig/ddl\.pc' 'pkgconfig/ddl_c\.pc' \
  'examples/perceptron/ddl_trainer\.cpp'
holds python3-ddl 'lib/python3/dist-packages/ddl\.py'
holds ddl-tools 'bin/ddl-topo' 'bin/ddl-plan'
! command -v help2man >/dev/null || holds ddl-tools 'man1/ddl-plan\.1' 'man1/ddlrun\.1'
[ ! -e "$source/ddl/launcher/ddlrun" ] || holds ddl-tools 'bin/ddlrun'

version=$(field libddl0 Version)
depends python3-ddl "libddl0 (= $version)" python3
depends libddl-dev "libddl0 (= $version)" libexpat1-dev libfmt-dev libhwloc-dev libspdlog-dev pkg-config zlib1g-dev
for package in libddl0 ddl-tools; do depends "$package" "libc6 (" "libstdc++6 (" libfmt libexpat1 libhwloc15; done
grep -qw graphviz <<<"$(field ddl-tools Recommends)" || fail "ddl-tools does not recommend graphviz, which draws plans"
requires=$(sed -n 's/^Requires.*://p' "$(find "$work/root" -name ddl.pc)")
if grep -qw ucx <<<"$requires"; then depends libddl-dev libucx-dev && depends libddl0 libucx0; fi
if grep -q 'libddl_mpi\.so$' <<<"$(contents libddl0)"; then depends libddl-dev libopenmpi-dev; fi
if [[ " ${packages[*]} " == *" ddl-nmt "* ]]; then
  holds ddl-nmt bin/ddl_nmt
  depends ddl-nmt libdnnl libsentencepiece
  "$work"/root/usr/bin/ddl_nmt --help >/dev/null || fail "ddl_nmt does not run"
fi
grep -q '^libddl_c 0 libddl0 (>= ' <<<"$(dpkg-deb -I "$work"/libddl0_*.deb shlibs)" || fail "libddl0 does not say who provides libddl_c"

# Neither packages nor programs contain the path of their build.
! grep -rqF -e "$source" -e "$build" "$work"/root/usr/lib "$work"/root/usr/include "$work"/root/usr/share ||
  fail "knows the build's folder: $(grep -rlF -e "$source" -e "$build" "$work/root/usr" | xargs)"
find "$work/root/usr" -type f \( -path '*/bin/*' -o -name '*.so*' \) | while read -r file; do
  ! grep -qE 'R(UN)?PATH' <<<"$(readelf -d "$file" 2>/dev/null)" || fail "$file has a path of its own for libraries"
done
grep -q all_reduce <<<"$("$work"/root/usr/bin/ddl-plan --topology host:4 --ranks 4 --bytes 1M)" || fail "ddl-plan does not run"
echo "${#packages[@]} packages of $version"
