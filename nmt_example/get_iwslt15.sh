#!/usr/bin/env bash
# Downloads the IWSLT15 English-Vietnamese data of tensorflow/nmt's tutorial, tokenised, with its vocabularies:
#
#   bash nmt_example/get_iwslt15.sh [DIRECTORY]      (default: iwslt15)
#
# gives DIRECTORY/{train,tst2012,tst2013}.{en,vi} (133,317 pairs; 1,553 for validation, 1,268 for the test) and
# DIRECTORY/vocab.{en,vi} (17,191 and 7,709 words). About 32 MB. Then, for instance:
#
#   build/bin/ddl_nmt --preset=iwslt15 --src=en --tgt=vi --vocab_prefix=DIRECTORY/vocab --train_prefix=DIRECTORY/train
#     --dev_prefix=DIRECTORY/tst2012 --test_prefix=DIRECTORY/tst2013 --out_dir=RUN
#
# Existing files are kept, and an interrupted download is resumed.
# IWSLT15_URL: another place that holds the files (http, https or file).
# IWSLT15_CHECK_LINES=0: accept other numbers of lines than upstream's.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

case "${1:-}" in
  -h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
esac
[[ $# -le 1 ]] || fail "expected at most one directory, found: $*"

directory=${1:-iwslt15}
url=${IWSLT15_URL:-https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi}
check_lines=${IWSLT15_CHECK_LINES:-1}
need wc
mkdir -p "$directory" || fail "cannot create $directory"

# get NAME LINES
get() {
  local file=$directory/$1 found
  download "$url/$1" "$file"
  found=$(count_lines "$file")
  if [[ $check_lines != 0 && $found != "$2" ]]; then
    fail "$file has $found lines, expected $2; remove it, and run again"
  fi
}

for part in train:133317 tst2012:1553 tst2013:1268; do
  for language in en vi; do get "${part%:*}.$language" "${part#*:}"; done
  same_lines "$directory/${part%:*}" en vi
done
get vocab.en 17191
get vocab.vi 7709
echo "IWSLT15 is in $directory: train, tst2012 and tst2013, each .en and .vi, and vocab.en and vocab.vi"
