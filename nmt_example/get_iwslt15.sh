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
# Existing files are kept, and an interrupted download is resumed. Texts are checked by their SHA-256.
# IWSLT15_URL: another place that holds the files (http, https or file).
# IWSLT15_CHECK=0: accept other texts than upstream's.
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
need wc sha256sum
mkdir -p "$directory" || fail "cannot create $directory"

# get NAME LINES [SUM]
get() {
  local file=$directory/$1 found
  download "$url/$1" "$file"
  [[ ${IWSLT15_CHECK:-1} != 0 ]] || return 0
  found=$(count_lines "$file")
  [[ $found == "$2" ]] || fail "$file has $found lines, expected $2; remove it, and run again"
  [[ -z ${3:-} ]] || same_sum "$file" "$3"
}

get train.en 133317 c26dfeed74b6bf3752f5ca552f2412456f0de153f7c804df8717931fb3a5c78a
get train.vi 133317 707206edf2dc0280273952c7b70544ea8a1363aa69aaeb9d70514b888dc3067d
get tst2012.en 1553 b8fbcd0d4199d41276421d1f7228298df67dd9e2c5c134c2ee8cdf3ec27801e2
get tst2012.vi 1553 01004078b3f36b0c46e81b65fc6851230b3c823405c76d1d82ef3b786b512ff0
get tst2013.en 1268 3860ce60bc5b85d96cc2d3d580cf1bc9d62440e939c1b964676d3607c4e8f1df
get tst2013.vi 1268 29af16842808da2812b8fd4d47fc05d082ba870e60ab7755090ad04b380994cd
get vocab.en 17191
get vocab.vi 7709
for part in train tst2012 tst2013; do same_lines "$directory/$part" en vi; done
echo "IWSLT15 is in $directory: train, tst2012 and tst2013, each .en and .vi, and vocab.en and vocab.vi"
