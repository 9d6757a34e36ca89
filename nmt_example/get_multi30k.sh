#!/usr/bin/env bash
# Downloads Multi30k (task 1, raw text), English with one other language, and unpacks it:
#
#   bash nmt_example/get_multi30k.sh [DIRECTORY [LANGUAGE]]      (default: multi30k de; or fr, cs)
#
# gives DIRECTORY/{train,val,test_2016_flickr,...}.{en,LANGUAGE}: 29,000 and 1,014 pairs, and the test sets of 2016, 2017 and
# 2018 that LANGUAGE has. Then, for instance:
#
#   build/bin/ddl_nmt --preset multi30k --src en --tgt de --train_prefix DIRECTORY/train
#     --dev_prefix DIRECTORY/val --test_prefix DIRECTORY/test_2016_flickr --out_dir RUN
#
# Existing files are kept, and an interrupted download is resumed. Texts are checked by their SHA-256.
# MULTI30K_URL: another place that holds the .gz files (http, https or file).
# MULTI30K_CHECK=0: accept other texts than upstream's.
# The captions come with the Flickr30k images' terms: research, non-commercial.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

case "${1:-}" in
  -h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
esac
[[ $# -le 2 ]] || fail "expected at most a directory and a language, found: $*"

directory=${1:-multi30k}
language=${2:-de}
url=${MULTI30K_URL:-https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw}
# Of the texts of upstream's commit a3d2e0d.
sums='
460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6  train.en
1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227  val.en
399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182  test_2016_flickr.en
ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98  test_2017_flickr.en
43051fdfa86fd5395182e718a94ca67b1b227b9f7c79596ff0f6b813216981d2  test_2017_mscoco.en
4e585c2dd525911a6ea7730e9d0b516239af3f1b1ffae6a2130223cfb639f25e  test_2018_flickr.en
2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72  train.de
660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660  val.de
4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16  test_2016_flickr.de
c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081  test_2017_flickr.de
58277df3c75f92f7145a11b910b553d1cf82c439249d4dc237c899609eafac22  test_2017_mscoco.de
39fcc8b3331d76fb42d648d019c6898b0d5e58baac87bc2a0bb93f44ec8db207  test_2018_flickr.de
5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d  train.fr
5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc  val.fr
cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6  test_2016_flickr.fr
6f3764e31dac41e9455e612958bcfd4e877c5e15cd66df2c2b2be6d9bd83e5b6  test_2017_flickr.fr
39cde3f43f32b0a6bf29ce4917a46329ff32e53070c2fac87506695a740ae0a0  test_2017_mscoco.fr
234b4a887da0da4801a3e2c6f21336231ff7dd46daeb80cfa1b551c8bbb78239  test_2018_flickr.fr
2be68b38c8d586ff4f54eb13cc6e1baaaa053695b3f070d3038303a47f2268da  train.cs
d53827e469b0a1ca8d57e9e26b2b64c4bc4b33f5479c7b03ae87ae5c882c3e33  val.cs
45adb85f688de8407fddcbe1b36dca15d12aab868149b337e2576f2d6d2ff8d8  test_2016_flickr.cs
1db59fe6980c9b3f9bade65122a985e71150214837d76f4768a5a8384c0b2dc7  test_2018_flickr.cs
'
[[ $language =~ ^(de|fr|cs)$ ]] || fail "found the language \"$language\", expected de, fr or cs"
need gzip wc sha256sum
mkdir -p "$directory" || fail "cannot create $directory"

unpack() {
  local name=$1 expected=$2
  local archive=$directory/download/$name.gz
  if [[ ! -s $directory/$name ]]; then
    download "$url/$name.gz" "$archive"
    if ! gzip -dc "$archive" >"$directory/$name.new"; then
      rm -f "$directory/$name.new" "$archive"
      fail "$url/$name.gz is not a whole gzip file; it has been removed, run the script again"
    fi
    mv "$directory/$name.new" "$directory/$name"
  fi
  [[ ${MULTI30K_CHECK:-1} == 0 ]] || same_sum "$directory/$name" "$expected" "$archive"
}

parts=()
while read -r sum name; do
  [[ $name == *."$language" ]] || continue
  part=${name%.*}
  english=$(grep " $part.en\$" <<<"$sums")
  unpack "$part.en" "${english%% *}"
  unpack "$name" "$sum"
  same_lines "$directory/$part" en "$language"
  parts+=("$part")
done <<<"$sums"
rm -rf "$directory/download"
echo "Multi30k is in $directory, each part as .en and .$language: ${parts[*]}"
