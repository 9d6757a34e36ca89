#!/usr/bin/env bash
# The bundle of gpu_pack.sh runs on a machine with only a shell and its tools: in an empty root file system.
#   gpu_bundle_test.sh SOURCE BUILD
# Exit status 77: only root can change the root.
set -uo pipefail
source_folder=$1 build=$2
[ "$(id -u)" = 0 ] || { echo "skipped: only root can make a root file system"; exit 77; }
[ "${3:-}" = inside ] || unshare --mount true 2>/dev/null || { echo "skipped: unshare --mount is not allowed here"; exit 77; }
# File systems that are mounted below are private to this process and end with it.
[ "${3:-}" = inside ] || exec unshare --mount bash "$0" "$1" "$2" inside
work=$(mktemp -d)
machine=$work/machine
clean_up() {
  umount "$machine/proc" 2>/dev/null
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# Copies programs and the libraries that they load, to the same paths as here.
copy_programs() {
  local program path
  for program in "$@"; do
    path=$(readlink -f "$(command -v "$program")") || fail "$program is missing here"
    install -D "$path" "$machine/usr/bin/$program"
    ldd "$path" 2>/dev/null | grep -oE '/[^ ]+' | xargs -r cp -L --parents -t "$machine" 2>/dev/null
  done
}
make_machine() {
  local device
  mkdir -p "$machine"/{proc,dev/shm,tmp,usr/bin,root} || fail "cannot make $machine"
  ln -s usr/bin "$machine/bin"
  copy_programs bash sh env timeout sleep grep sed awk tar gzip getconf ldd cat head tail sort uniq paste tr cut wc seq mkdir \
    mktemp rm mv cp ln ls chmod dirname basename readlink realpath stat date uname tee id setsid
  for device in null zero urandom; do cp -a "/dev/$device" "$machine/dev/"; done
  ln -s /proc/self/fd "$machine/dev/fd"
  mount -t proc proc "$machine/proc" || { echo "skipped: /proc cannot be mounted here"; exit 77; }
}
on_machine() { # command
  chroot "$machine" /usr/bin/env -i PATH=/usr/bin HOME=/root bash -c "$1" >"$work/printed" 2>&1
}
row_of() { # step, result
  grep -qE "^$1 +$2" "$work/printed" || fail "$1 is not $2: $(cat "$work/printed")"
}

runs_from_one_file() {
  bash "$source_folder/benchmarks/gpu_pack.sh" "$machine/ddl-gpu.tar.gz" --emulated --from "$build" || fail "cannot pack"
  on_machine 'tar xf ddl-gpu.tar.gz && ddl-gpu/gpu.sh --bundle ddl-gpu.tar.gz --only smoke,tests,bench --quick /tmp/gpu' ||
    fail "$(cat "$work/printed")"
  for step in smoke_{libraries,1,2} device_test device_reproducible_test device_processes device_perf_nccl_1; do
    row_of "$step" ok
  done
  row_of gemm_rate "left out"
  head -n 1 "$machine/tmp/gpu/gpu.jsonl" | grep -q '"commit":"[^"]' || fail "gpu.jsonl does not name the commit"
  tar tzf "$machine/tmp/gpu.tar.gz" | grep /device_perf_4.txt >/dev/null || fail "the archive lacks a step's output"
}

# A C library that is too old for the packed programs.
says_what_is_too_old() {
  on_machine 'sed -i "s/^glibc=.*/glibc=99.1/" ddl-gpu/bundle.txt && ddl-gpu/gpu.sh /tmp/old' && fail "an old glibc is accepted"
  grep -q "the packed programs need 99.1 or later" "$work/printed" || fail "an old glibc is not told: $(cat "$work/printed")"
}

make_machine
runs_from_one_file
says_what_is_too_old
echo passed
