# Sourced by the get_*.sh scripts: downloads and their checks.

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

need() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || fail "$tool is missing; install it, for instance: apt-get install $tool"
  done
}

# download URL FILE: downloads to FILE.part, which becomes FILE when it is complete. Resumes an interrupted
# download from FILE.part, and keeps an existing FILE.
download() {
  local url=$1 file=$2
  [[ -s $file ]] && return 0
  mkdir -p "$(dirname "$file")"
  echo "downloading $url"
  transfer "$url" "$file.part" || {
    # If the server cannot resume, or the part is already complete, start again.
    [[ -e $file.part ]] || fail "downloading $url failed; run the script again to go on"
    echo "starting again: $url"
    rm -f "$file.part"
    transfer "$url" "$file.part" || fail "downloading $url failed; run the script again to go on"
  }
  [[ -s $file.part ]] || fail "$url is empty"
  mv "$file.part" "$file"
}

transfer() {
  local url=$1 part=$2
  if command -v curl >/dev/null; then
    curl --fail --location --silent --show-error --retry 3 --connect-timeout 30 --continue-at - --output "$part" "$url"
  elif [[ $url == file://* ]]; then
    cp "${url#file://}" "$part"
  elif command -v wget >/dev/null; then
    wget --no-verbose --tries=3 --timeout=30 --continue --output-document="$part" "$url"
  else
    fail "neither curl nor wget is there; install one, for instance: apt-get install curl"
  fi
}

# same_sum FILE SUM [ARCHIVE]: FILE must have this SHA-256, or MD5 if SUM has 32 digits. ARCHIVE: what it came from.
same_sum() {
  local file=$1 expected=$2 kind=sha256 found
  [[ ${#expected} != 32 ]] || kind=md5
  found=$("${kind}sum" <"$file")
  [[ ${found%% *} == "$expected" ]] ||
    fail "$file has the $kind sum ${found%% *}, expected $expected; remove it${3:+ and $3}, and run again"
}

count_lines() { wc -l <"$1" | tr -d ' '; }

# same_lines PREFIX [A B]: PREFIX.A and PREFIX.B (en and de) must have the same number of lines, at least one.
same_lines() {
  local one=$1.${2:-en} other=$1.${3:-de}
  local lines other_lines
  lines=$(count_lines "$one")
  other_lines=$(count_lines "$other")
  [[ $lines == "$other_lines" ]] || fail "$one has $lines lines but $other has $other_lines; remove them and the downloads, and run again"
  [[ $lines != 0 ]] || fail "$one and $other are empty"
}
