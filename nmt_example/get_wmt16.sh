#!/usr/bin/env bash
# Downloads the WMT16 German-English data that tensorflow/nmt trains on, and prepares raw text:
#
#   bash nmt_example/get_wmt16.sh [DIRECTORY]      (default: wmt16)
#
# gives DIRECTORY/train.{en,de} (Europarl v7, Common Crawl, News Commentary v11; about 4.5 million
# pairs) and DIRECTORY/newstest{2013,2014,2015,2016}.{en,de}. About 2 GB to download, 6 GB on disk.
# The trainer learns subwords itself (--vocab_size), so nothing is tokenised here. Then, for instance:
#
#   build/bin/ddl_nmt --src de --tgt en --train_prefix DIRECTORY/train
#     --dev_prefix DIRECTORY/newstest2013 --test_prefix DIRECTORY/newstest2015 --out_dir RUN
#
# Existing files are kept, and an interrupted download is resumed. Archives whose sum is known are checked.
# WMT16_URL: another place that holds all five archives (http, https or file).
# WMT16_CHECK=0: accept other archives than upstream's.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

case "${1:-}" in
  -h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
esac
[[ $# -le 1 ]] || fail "expected at most one directory, found: $*"

directory=${1:-wmt16}
archives=$directory/download
need gzip tar sed find wc sha256sum md5sum
mkdir -p "$archives" || fail "cannot create $archives"

# archive NAME UPSTREAM [SUM]: downloads an archive and unpacks it into a folder of its own, once.
archive() {
  local name=$1 upstream=$2 sum=${3:-}
  local folder=$archives/${name%.tgz}
  [[ -e $folder/.unpacked ]] && return 0
  download "${WMT16_URL:-$upstream}/$name" "$archives/$name"
  [[ -z $sum || ${WMT16_CHECK:-1} == 0 ]] || same_sum "$archives/$name" "$sum"
  rm -rf "$folder"
  mkdir -p "$folder"
  if ! tar -xzf "$archives/$name" -C "$folder"; then
    rm -rf "$folder" "${archives:?}/$name"
    fail "$name is not a whole archive; it has been removed, run the script again"
  fi
  touch "$folder/.unpacked"
}

# member ARCHIVE NAME: the path of a file in an unpacked archive, in whatever folder it is.
member() {
  local found
  found=$(find "$archives/$1" -type f -name "$2" | sort | sed -n 1p)
  [[ -n $found ]] || fail "$1.tgz holds no $2; upstream may have changed"
  echo "$found"
}

# segments FILE: the text of an SGML file's segments, one per line, including empty ones.
segments() {
  local segment='.*<seg[^>]*>\(.*\)<\/seg>.*'
  sed -n "s/\r\$//; s/$segment/\1/I; T; s/^[[:space:]]*//; s/[[:space:]]*\$//; s/&quot;/\"/g; s/&apos;/'/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g; p" "$1"
}

test_set() {
  local name=$1 lines=$2 from=$3 language kind file found
  [[ -s $directory/$name.en && -s $directory/$name.de ]] && return 0
  for language in de en; do
    if [[ $name == newstest2013 ]]; then
      file=$(member "$from" "$name.$language")
      cat "$file" >"$directory/$name.$language.new"
    else
      kind=$([[ $language == de ]] && echo src || echo ref)
      file=$(member "$from" "$name-deen-$kind.$language.sgm")
      segments "$file" >"$directory/$name.$language.new"
      found=$(grep -ci '<seg' "$file" || true)
      [[ $found == "$(count_lines "$directory/$name.$language.new")" ]] ||
        fail "$file: $found segments, but $(count_lines "$directory/$name.$language.new") could be read"
    fi
  done
  mv "$directory/$name.de.new" "$directory/$name.de"
  mv "$directory/$name.en.new" "$directory/$name.en"
  same_lines "$directory/$name"
  found=$(count_lines "$directory/$name.en")
  [[ $found == "$lines" ]] || echo "note: $directory/$name has $found lines, WMT16's has $lines" >&2
}

archive de-en.tgz https://www.statmt.org/europarl/v7
archive training-parallel-commoncrawl.tgz https://www.statmt.org/wmt13 \
  c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5
archive training-parallel-nc-v11.tgz https://data.statmt.org/wmt16/translation-task \
  cfe8ab047e05043476e498ee765c98e939c7b7d6d294e856344c84476b619d6a
archive dev.tgz https://data.statmt.org/wmt16/translation-task
archive test.tgz https://data.statmt.org/wmt16/translation-task 3d809cd0c2c86adb2c67034d15c4e446

if [[ ! -s $directory/train.en || ! -s $directory/train.de ]]; then
  for language in de en; do
    europarl=$(member de-en "europarl-v7.de-en.$language")
    common_crawl=$(member training-parallel-commoncrawl "commoncrawl.de-en.$language")
    news=$(member training-parallel-nc-v11 "news-commentary-v11.de-en.$language")
    cat "$europarl" "$common_crawl" "$news" >"$directory/train.$language.new"
  done
  mv "$directory/train.de.new" "$directory/train.de"
  mv "$directory/train.en.new" "$directory/train.en"
fi
same_lines "$directory/train"
test_set newstest2013 3000 dev
test_set newstest2014 3003 dev
test_set newstest2015 2169 dev
test_set newstest2016 2999 test
echo "WMT16 is in $directory: train ($(count_lines "$directory/train.en") pairs) and newstest2013 to 2016, each .en and .de"
echo "$archives (the downloads) can be removed"
