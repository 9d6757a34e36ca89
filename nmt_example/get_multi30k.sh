#!/usr/bin/env bash
# Downloads Multi30k (task 1, English-German, raw text) and unpacks it:
#
#   bash nmt_example/get_multi30k.sh [DIRECTORY]      (default: multi30k)
#
# gives DIRECTORY/{train,val,test_2016_flickr}.{en,de}. Then, for instance:
#
#   build/bin/ddl_nmt --preset multi30k --src en --tgt de --train_prefix DIRECTORY/train
#     --dev_prefix DIRECTORY/val --test_prefix DIRECTORY/test_2016_flickr --out_dir RUN
#
# Existing files are kept, and an interrupted download is resumed.
# MULTI30K_URL: another place that holds the .gz files (http, https or file).
# MULTI30K_CHECK_LINES=0: accept other numbers of lines than upstream's.
# The captions come with the Flickr30k images' terms: research, non-commercial.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

case "${1:-}" in
  -h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
esac
[[ $# -le 1 ]] || fail "expected at most one directory, found: $*"

directory=${1:-multi30k}
url=${MULTI30K_URL:-https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw}
check_lines=${MULTI30K_CHECK_LINES:-1}
need gzip wc mktemp
mkdir -p "$directory" || fail "cannot create $directory"

unpack() {
  local name=$1
  local archive=$directory/download/$name.gz
  [[ -s $directory/$name ]] && return 0
  download "$url/$name.gz" "$archive"
  if ! gzip -dc "$archive" >"$directory/$name.new"; then
    rm -f "$directory/$name.new" "$archive"
    fail "$url/$name.gz is not a whole gzip file; it has been removed, run the script again"
  fi
  mv "$directory/$name.new" "$directory/$name"
}

for part in train:29000 val:1014 test_2016_flickr:1000; do
  name=${part%:*}
  lines=${part#*:}
  for language in en de; do
    unpack "$name.$language"
    found=$(count_lines "$directory/$name.$language")
    if [[ $check_lines != 0 && $found != "$lines" ]]; then
      fail "$directory/$name.$language has $found lines, expected $lines; remove it and $directory/download/$name.$language.gz, and run again"
    fi
  done
  same_lines "$directory/$name"
done
rm -rf "$directory/download"
echo "Multi30k is in $directory: train, val and test_2016_flickr, each .en and .de"
