#!/usr/bin/env bash
# Packs the GPU tests and benchmarks into one file, for a machine with little more than a driver. See `gpu_pack.sh --help`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)

usage() {
  cat <<'EOT'
Usage: gpu_pack.sh FILE [--arch 90] [--jobs N] [--ucx-wheel WHEEL] [--emulated] [--from BUILD]

Builds the GPU tests, the GPU benchmarks and ddl_nmt without MPI, for one CUDA architecture, in build-gpu-pack-ARCH, and
packs them with gpu.sh, its scripts and the required shared libraries into FILE, of at most 40 MB. The ending of FILE
selects the format: .tar.xz, .tar.zst, or .tar.gz, which is twice as large but needs no xz for unpacking.

  here:   benchmarks/gpu_pack.sh ddl-gpu.tar.xz --arch 90
  there:  tar xf ddl-gpu.tar.xz && ddl-gpu/gpu.sh --budget 540 --archive gpu.tar.gz /tmp/gpu

Without xz, `python3 -m tarfile -e ddl-gpu.tar.xz` unpacks it too.

--arch ARCH        compute capability without its dot (default: 90); the programs run on no other
--jobs N           number of concurrent compilers (default: the number of processors)
--ucx-wheel WHEEL  also packs the UCX of this Python wheel, which supports device memory. Debian's does not;
                   device_ucx_test is skipped with it. `pip download --no-deps libucx-cu13` gets it (for drivers of CUDA 12:
                   libucx-cu12). Where the package is installed, gpu.sh finds it without this
--emulated         packs the programs for emulated devices, to try FILE without a GPU
--from BUILD       packs an existing build directory and builds nothing

Not packed: the C library, the driver's libraries, cuBLAS, cuDNN and NCCL, which the other machine must have. gpu.sh reports
a glibc that is too old for the programs.
EOT
}

fail() {
  printf 'gpu_pack.sh: %s\n' "$*" >&2
  exit 2
}

file='' arch=90 jobs=$(nproc) wheel='' emulated='' build=''
while [ $# -gt 0 ]; do
  word=$1
  shift
  case $word in
    --help | -h) usage; exit 0 ;;
    --emulated) emulated=1; continue ;;
    --arch | --jobs | --ucx-wheel | --from) [ $# -gt 0 ] || fail "$word: expected a value after it; see --help" ;;
    -*) fail "unknown option $word; see --help" ;;
    *) [ -z "$file" ] || fail "found '$word', expected one file"; file=$word; continue ;;
  esac
  case $word in
    --arch) arch=$1 ;;
    --jobs) jobs=$1 ;;
    --ucx-wheel) wheel=$1 ;;
    --from) build=$1 ;;
  esac
  shift
done
[ -n "$file" ] || { usage >&2; exit 2; }
[[ $file == *.tar.@(gz|xz|zst) ]] || fail "found '$file', expected a name that ends in .tar.gz, .tar.xz or .tar.zst"
[[ $arch =~ ^[0-9]{2,3}$ ]] || fail "--arch: found '$arch', expected a compute capability without its dot, such as 90"
[[ $jobs =~ ^[1-9][0-9]*$ ]] || fail "--jobs: found '$jobs', expected a number"
[ -z "$wheel" ] || [ -r "$wheel" ] || fail "--ucx-wheel: cannot read $wheel"

programs=(device_test device_nccl_test device_plans_test device_reproducible_test device_program device_perf device_gradients_perf)
[ -n "$emulated" ] || programs+=(device_ucx_test c_device_program nmt_cuda_backend_test nmt_lstm_layers_test ddl_nmt)

# Needs UCX's or cuDNN's headers.
is_optional() { [[ $1 == @(device_ucx_test|nmt_lstm_layers_test) ]]; }
has_target() {
  cmake --build "$build" --target help | grep -E "^(\.\.\. )?$1(:|\$)" >/dev/null
}
build_programs() {
  local name settings targets=()
  settings=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_SKIP_RPATH=ON -DCMAKE_CUDA_ARCHITECTURES="$arch-real" -DDDL_WITH_CUDA=ON
    -DDDL_WITH_MPI=OFF -DBoost_USE_STATIC_LIBS=ON)
  ! command -v ninja >/dev/null || settings+=(-G Ninja)
  cmake -S "$root" -B "$build" "${settings[@]}" >&2
  for name in "${programs[@]}"; do
    is_optional "$name" && ! has_target "$prefix$name" || targets+=("$prefix$name")
  done
  [ -z "$emulated" ] || targets+=(emulated_nccl)
  cmake --build "$build" -j "$jobs" --target "${targets[@]}" >&2
}

copy_programs() {
  local name
  for name in "${programs[@]}"; do
    if [ -x "$bin/$name" ]; then
      cp "$bin/$name" "$bundle/build/bin/"
    elif ! is_optional "$name"; then
      fail "$bin has no $name; build it first, with CUDA"
    fi
  done
}

# Copies the libraries that ldd finds, except those of the C library, the driver and CUDA's packages. Libraries that most
# machines have, perhaps newer ones, go to a separate directory: gpu.sh uses them only if they are missing.
copy_libraries() {
  local needed missing
  [ -z "$emulated" ] || cp "$build/tests/device/emulated/libnccl.so.2" "$bundle/build/lib/"
  needed=$(LD_LIBRARY_PATH=$build/tests/device:$build/lib ldd "$bundle"/build/*/* | awk 'NF > 1 && $1 !~ \
    /^(\/|linux-vdso|lib(c|m|dl|rt|pthread|resolv|cuda|cublas|cublasLt|cudnn|nccl|nvidia-ml)\.so)/ { print $1, $2, $3, $4 }')
  missing=$(awk '$3 == "not" { print $1 }' <<<"$needed" | sort -u | paste -sd ' ')
  [ -z "$missing" ] || fail "these libraries, which the programs need, are not found here: $missing"
  awk '{ print $3 }' <<<"$needed" | sort -u | xargs cp -Lt "$bundle/build/lib/"
  mkdir "$bundle/build/lib/fallback"
  find "$bundle/build/lib" -regex '.*/lib\(stdc\+\+\|gcc_s\|expat\)\.so\..*' -exec mv -t "$bundle/build/lib/fallback" {} +
}

# Copies the files of the wheel that programs load.
copy_ucx() {
  local file
  python3 -m zipfile -e "$wheel" "$work/wheel"
  [ -e "$work/wheel/libucx/lib/ucx/libuct_cuda.so.0" ] || fail "--ucx-wheel: $wheel has no libucx/lib/ucx/libuct_cuda.so.0"
  (
    cd "$work/wheel"
    for file in libucx/lib/*.so.0 libucx/lib/ucx/*.so.0 libucx_*.libs/libcudart-*; do
      [[ $file == *perftest* ]] || cp --parents "$file" "$bundle/ucx/"
    done
  )
}

copy_scripts() {
  local script
  for script in gpu.sh gpu_libraries.sh gpu_steps.sh nmt_reference.sh processor_name.sh pytorch_nmt.py gemm_rate.py; do
    cp "$here/$script" "$bundle/benchmarks/"
  done
  cp "$root"/tests/device/{{device_processes,c_device}_test.sh,python_torch_device_test.py} "$bundle/tests/device/"
  (cd "$root" && cp --parents ddl/python/ddl.py tests/ddl/c_api/torch_training.py "$bundle/")
  printf '#!/bin/sh\nexec bash "$(dirname "$0")/benchmarks/gpu.sh" "$@"\n' >"$bundle/gpu.sh"
  chmod +x "$bundle/gpu.sh"
}

# Prints the newest version of a library's symbols that the programs and the packed libraries need.
newest_of() {
  readelf -VW "$bundle"/build/bin/* "$bundle"/build/lib/*.so* | grep -oE "\b$1_[0-9.]+" | sed 's/.*_//' | sort -Vu | tail -n 1
}
# Prints the description of the bundle that gpu.sh prints and compares with the machine.
describe() {
  echo "commit=$(git -C "$root" describe --always --dirty --exclude '*' --abbrev=12 2>/dev/null || echo unknown)"
  echo "glibc=$(newest_of GLIBC)"
  echo "glibcxx=$(newest_of GLIBCXX)"
  if [ -n "$emulated" ]; then
    echo "toolkit=emulated"
  else
    sed -n 's/^set(CMAKE_CUDA_COMPILER_VERSION "\(.*\)")$/toolkit=\1/p' "$build"/CMakeFiles/*/CMakeCUDACompiler.cmake
    sed -n 's/^CMAKE_CUDA_ARCHITECTURES:[A-Z]*=\([0-9]*\)-real$/arch=\1/p' "$build/CMakeCache.txt"
  fi
}

pack() {
  local part=$work/packed most=40000000 bytes
  tar -C "$work" --owner=0 --group=0 --sort=name -cf - ddl-gpu | case $file in
    *.gz) gzip -9 ;;
    *.xz) xz -T0 -6 ;;
    *.zst) zstd -q -T0 -19 ;;
  esac >"$part"
  bytes=$(stat -c %s "$part")
  if [ "$bytes" -gt $most ]; then
    (cd "$work" && find ddl-gpu -type f -printf '%10s %p\n' | sort -nr | head -n 12) >&2
    fail "$file would have $bytes bytes, expected at most $most; above are its biggest members, as they are before packing"
  fi
  mv "$part" "$file"
}

prefix=${emulated:+emulated_}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/ddl-gpu
mkdir -p "$bundle"/{benchmarks,tests/device,build/bin,build/lib,ucx}
if [ -z "$build" ]; then
  build=$root/build-gpu-pack-$arch
  build_programs
fi
bin=$build/bin${emulated:+/emulated}
copy_programs
copy_libraries
[ -z "$wheel" ] || copy_ucx
copy_scripts
describe >"$bundle/bundle.txt"
find "$bundle/build" -type f -exec strip --strip-unneeded {} +
[ -z "$wheel" ] || find "$bundle/ucx" -name 'lib*.so*' -exec strip --strip-debug {} +
pack
echo "$file: $(stat -c %s "$file") bytes, $(sed 's/=/ /' "$bundle/bundle.txt" | paste -sd ',' | sed 's/,/, /g')"
