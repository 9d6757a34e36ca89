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

count_lines() { wc -l <"$1" | tr -d ' '; }

# same_lines PREFIX: PREFIX.en and PREFIX.de must have the same number of lines, at least one.
same_lines() {
  local english german
  english=$(count_lines "$1.en")
  german=$(count_lines "$1.de")
  [[ $english == "$german" ]] || fail "$1.en has $english lines but $1.de has $german; remove them and the downloads, and run again"
  [[ $english != 0 ]] || fail "$1.en and $1.de are empty"
}
