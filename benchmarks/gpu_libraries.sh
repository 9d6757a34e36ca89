# Finds the libraries that the GPU programs need. Sourced by gpu.sh; uses its packed() and temporary.

# Prints the directories of python3's packages.
python_folders() {
  python3 -c 'import sys; print("\n".join(path for path in sys.path if path.endswith("-packages")))' 2>/dev/null
}

# Prints the directory of a library. Searches LD_LIBRARY_PATH, the bundle, the dynamic loader's directories, Python
# packages and the CUDA toolkit.
find_library() { # soname, the bundle's directory of libraries
  local folder known
  local -a folders
  IFS=: read -ra folders <<<"${LD_LIBRARY_PATH:-}"
  for folder in "${folders[@]}"; do
    [ -z "$folder" ] || [ ! -e "$folder/$1" ] || { echo "$folder"; return; }
  done
  [ ! -e "$2/$1" ] || { echo "$2"; return; }
  known=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | awk -v name="$1" '$1 == name { print $NF; exit }')
  [ -z "$known" ] || { dirname "$known"; return; }
  while read -r folder; do
    for known in "$folder"/nvidia/*/lib/"$1" "$folder/torch/lib/$1"; do
      [ ! -e "$known" ] || { dirname "$known"; return; }
    done
  done < <(python_folders)
  [ ! -e "/usr/local/cuda/lib64/$1" ] || { echo /usr/local/cuda/lib64; return; }
  return 1
}

# Finds a UCX that was built with CUDA: the bundle's, or that of the Python package libucx.
find_ucx() { # the bundle
  local folder
  while read -r folder; do
    [ ! -e "$folder/libucx/lib/libucp.so.0" ] || { echo "$folder/libucx/lib"; return; }
  done < <(echo "$1/ucx"; python_folders)
  return 1
}

# Prints the version that the library reports, if python3 can query it; else that of its file name.
version_of() { # library, file
  local version='' file
  file=$(readlink -f "$2")
  version=$(timeout 30 python3 - "$1" "$file" 2>/dev/null <<'EOT'
import ctypes, sys
name, library = sys.argv[1], ctypes.CDLL(sys.argv[2])
def asked(function, *arguments):
    number = ctypes.c_int()
    getattr(library, function)(*arguments, ctypes.byref(number))
    return number.value
def parts(number):
    return [number // 10000, number // 100 % 100, number % 100]
if name == "libcublas":
    found = [asked("cublasGetProperty", part) for part in range(3)]
else:
    found = parts(asked("ncclGetVersion") if name == "libnccl" else library.cudnnGetVersion())
print(".".join(map(str, found)))
EOT
  )
  [ -n "$version" ] || version=${file##*.so.}
  echo "$version"
}

# Links those of the bundle's fallback libraries that are missing or too old on this machine.
link_fallbacks() { # the bundle's directory of libraries, the directory for the links
  local file folder
  mkdir -p "$2"
  for file in "$1"/fallback/*.so.*; do
    if folder=$(find_library "${file##*/}" /) &&
      { [[ $file != */libstdc++* ]] || grep -qF "GLIBCXX_$(packed glibcxx)" "$folder/${file##*/}"; }; then
      continue
    fi
    ln -s "$file" "$2/"
  done
}

# Sets cublas, cudnn, nccl and ucx to "version (directory)" or "missing", and library_path for the programs: the caller's
# path and the directories that it lacks.
find_libraries() { # the bundle, its programs
  local name soname folder own=$1/build/lib
  library_path=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}
  ucx="the system's"
  [ ! -e "$own/libucp.so.0" ] || ucx="packed, without CUDA"
  if folder=$(find_ucx "$1"); then
    library_path+=$folder:
    ucx="with CUDA ($folder)"
  fi
  [ ! -d "$own/fallback" ] || link_fallbacks "$own" "$temporary/lib"
  library_path+=$own:$temporary/lib
  for name in libcublas libcudnn libnccl; do
    case $name in
      libcublas)  # ddl_nmt loads it by this name
        soname=$(grep -aohE 'libcublas\.so\.[0-9]+' "${@:2}" 2>/dev/null | head -n 1)
        soname=${soname:-libcublas.so.13}
        ;;
      libcudnn) soname=libcudnn.so.9 ;;
      libnccl) soname=libnccl.so.2 ;;
    esac
    if folder=$(find_library "$soname" "$own"); then
      # The loader finds the others by itself.
      [[ ! $folder =~ -packages/|^/usr/local/cuda || :$library_path: == *:$folder:* ]] || library_path+=:$folder
      printf -v "${name#lib}" '%s' "$(LD_LIBRARY_PATH=$library_path version_of "$name" "$folder/$soname") ($folder)"
    else
      printf -v "${name#lib}" '%s' "missing ($soname)"
    fi
  done
}
