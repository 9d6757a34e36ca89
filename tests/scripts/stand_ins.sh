# Sourced by the script tests: a directory of programs that stand in for the real ones and record their calls in
# $calls. The PATH of `sandboxed` holds only these and a few harmless tools.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
calls=$work/calls
mkdir "$work/bin"
: >"$calls"
for tool in bash env dirname cat rm nproc mkdir ln; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done

stand_in() { # name, body
  printf '#!%s\nprintf "%%s\\n" "%s $*" >>"%s"\n%s\n' "$(command -v bash)" "$1" "$calls" "${2:-}" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

sandboxed() { PATH=$work/bin "$@" >"$work/output" 2>&1; }

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  printf -- '--- calls\n%s\n--- output\n%s\n' "$(cat "$calls")" "$(cat "$work/output")" >&2
  exit 1
}

expect_call() { grep -qE -- "$1" "$calls" || fail "no call like: $1"; }
expect_no_call() { ! grep -qE -- "$1" "$calls" || fail "an unwanted call like: $1"; }
expect_output() { grep -qF -- "$1" "$work/output" || fail "not in the output: $1"; }
