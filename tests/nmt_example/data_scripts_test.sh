#!/usr/bin/env bash
# data_scripts_test.sh NMT_EXAMPLE: runs the get_*.sh scripts on local stand-ins for the downloads. Otherwise
# users might get half a corpus.
set -euo pipefail
scripts=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

check() { # check WHAT COMMAND...
  local what=$1
  shift
  if "$@"; then
    echo "ok: $what"
  else
    echo "FAILED: $what"
    failures=$((failures + 1))
  fi
}
says() { grep -qF -- "$1" "$work/output"; }
passes() { "$@" >"$work/output" 2>&1 || { cat "$work/output"; return 1; }; }
refuses() { ! "$@" >"$work/output" 2>&1; }
equal() { [[ "$1" == "$2" ]] || { echo "found: $1, expected: $2"; return 1; }; }

# --- Multi30k ---
upstream=$work/multi30k-upstream
mkdir "$upstream"
for part in train val test_2016_flickr test_2017_flickr test_2017_mscoco test_2018_flickr; do
  for language in en de cs; do
    seq 1000 | sed "s/^/$language /" | gzip -1 >"$upstream/$part.$language.gz"
  done
done
export MULTI30K_URL=file://$upstream MULTI30K_CHECK=0
multi30k() { bash "$scripts/get_multi30k.sh" "$@"; }

check "multi30k: gets and unpacks all files" passes multi30k "$work/m"
check "multi30k: the first line is there" equal "$(head -1 "$work/m/train.de")" "de 1"
check "multi30k: the last line is there" equal "$(tail -1 "$work/m/test_2018_flickr.en")" "en 1000"
check "multi30k: leaves the twelve files only" equal "$(ls "$work/m" | wc -l | tr -d ' ')" 12
check "multi30k: another language" passes multi30k "$work/cs" cs
check "multi30k: ... has the test sets that there are" equal "$(cd "$work/cs" && echo test*.cs)" "test_2016_flickr.cs test_2018_flickr.cs"
check "multi30k: another text than upstream's is refused" refuses env MULTI30K_CHECK=1 bash "$scripts/get_multi30k.sh" "$work/m"
check "multi30k: ... with its sum" says "train.en has the sha256 sum $(sha256sum <"$work/m/train.en" | cut -d ' ' -f 1), expected"
mv "$upstream" "$upstream.away"
check "multi30k: run again, downloads nothing" passes multi30k "$work/m"
check "multi30k: a missing source is an error" refuses multi30k "$work/m2"
check "multi30k: ... that names the file" says "train.en.gz"
mv "$upstream.away" "$upstream"
check "multi30k: ... and the next run goes on" passes multi30k "$work/m2"

mkdir -p "$work/m3/download"
head -c 1000 "$upstream/train.en.gz" >"$work/m3/download/train.en.gz.part"
check "multi30k: an interrupted download is continued" passes multi30k "$work/m3"
check "multi30k: ... to the same text" cmp "$work/m/train.en" "$work/m3/train.en"

head -c 500 "$upstream/val.de.gz" >"$work/cut" && mv "$work/cut" "$upstream/val.de.gz"
check "multi30k: a cut-off archive is refused" refuses multi30k "$work/m4"
check "multi30k: ... by name" says "val.de.gz is not a whole gzip file"
check "multi30k: ... leaving no half text" test ! -e "$work/m4/val.de"
seq 999 | gzip >"$upstream/val.de.gz"
check "multi30k: unequal languages are refused" refuses multi30k "$work/m4"
check "multi30k: ... with both numbers" says "1000 lines but"
check "multi30k: another argument is refused" refuses multi30k a b
check "multi30k: ... with the languages" says "expected de, fr or cs"
check "multi30k: --help explains" passes multi30k --help
check "multi30k: ... the variable" says "MULTI30K_URL"

# --- IWSLT15 ---
upstream=$work/iwslt15-upstream
mkdir "$upstream"
for part in train.en:133317 train.vi:133317 tst2012.en:1553 tst2012.vi:1553 tst2013.en:1268 tst2013.vi:1268 \
  vocab.en:17191 vocab.vi:7709; do
  seq "${part#*:}" >"$upstream/${part%:*}"
done
export IWSLT15_URL=file://$upstream IWSLT15_CHECK=0
iwslt15() { bash "$scripts/get_iwslt15.sh" "$@"; }

check "iwslt15: gets all files" passes iwslt15 "$work/i"
check "iwslt15: the last line is there" equal "$(tail -1 "$work/i/train.vi")" 133317
check "iwslt15: leaves the eight files only" equal "$(ls "$work/i" | wc -l | tr -d ' ')" 8
mv "$upstream" "$upstream.away"
check "iwslt15: run again, downloads nothing" passes iwslt15 "$work/i"
mv "$upstream.away" "$upstream"
check "iwslt15: another text than upstream's is refused" refuses env IWSLT15_CHECK=1 bash "$scripts/get_iwslt15.sh" "$work/i2"
check "iwslt15: ... with its sum" says "train.en has the sha256 sum $(sha256sum <"$work/i/train.en" | cut -d ' ' -f 1), expected c26dfeed"
seq 133316 >"$upstream/train.en"
check "iwslt15: a wrong number of lines is refused" refuses env IWSLT15_CHECK=1 bash "$scripts/get_iwslt15.sh" "$work/i4"
check "iwslt15: ... with both numbers" says "133316 lines, expected 133317"
seq 133317 >"$upstream/train.en"
seq 1552 >"$upstream/tst2012.vi"
check "iwslt15: unequal languages are refused" refuses iwslt15 "$work/i3"
check "iwslt15: ... by name" says "tst2012.vi has 1552"
check "iwslt15: --help explains" passes iwslt15 --help
check "iwslt15: ... the variable" says "IWSLT15_URL"

# --- WMT16 ---
upstream=$work/wmt16-upstream
tree=$work/tree
mkdir -p "$upstream" "$tree/nc/training-parallel-nc-v11" "$tree/cc" "$tree/ep" "$tree/dev/dev" "$tree/test/test"
for language in en de; do
  seq -f "ep $language %g" 5 >"$tree/ep/europarl-v7.de-en.$language"
  seq -f "cc $language %g" 4 >"$tree/cc/commoncrawl.de-en.$language"
  echo "other pair" >"$tree/cc/commoncrawl.fr-en.$language"
  seq -f "nc $language %g" 3 >"$tree/nc/training-parallel-nc-v11/news-commentary-v11.de-en.$language"
  seq -f "2013 $language %g" 2 >"$tree/dev/dev/newstest2013.$language"
  kind=$([[ $language == de ]] && echo src || echo ref)
  for year in 2014 2015 2016; do
    folder=$([[ $year == 2016 ]] && echo test/test || echo dev/dev)
    {
      echo '<srcset setid="newstest" srclang="any">'
      echo '<doc docid="a"><hl>'
      echo "<seg id=\"1\"> $year $language &quot;A&amp;B&quot; &lt; </seg>"
      echo '</hl><p>'
      echo '<seg id="2"></seg>'
      printf '<seg id="3">last &amp;lt;</seg>\r\n'
      echo '</p></doc></srcset>'
    } >"$tree/$folder/newstest$year-deen-$kind.$language.sgm"
  done
done
tar -czf "$upstream/de-en.tgz" -C "$tree/ep" .
tar -czf "$upstream/training-parallel-commoncrawl.tgz" -C "$tree/cc" .
tar -czf "$upstream/training-parallel-nc-v11.tgz" -C "$tree/nc" .
tar -czf "$upstream/dev.tgz" -C "$tree/dev" .
tar -czf "$upstream/test.tgz" -C "$tree/test" .
export WMT16_URL=file://$upstream WMT16_CHECK=0
wmt16() { bash "$scripts/get_wmt16.sh" "$@"; }

check "wmt16: gets and prepares everything" passes wmt16 "$work/w"
check "wmt16: says how many pairs" says "12 pairs"
check "wmt16: notes test sets of another size" says "newstest2015 has 3 lines, WMT16's has 2169"
check "wmt16: train is Europarl, Common Crawl, News Commentary" equal \
  "$(sed -n '1p;6p;10p' "$work/w/train.de" | paste -sd,)" "ep de 1,cc de 1,nc de 1"
check "wmt16: segments become plain lines" equal \
  "$(paste -sd, "$work/w/newstest2016.en")" '2016 en "A&B" <,,last &lt;'
check "wmt16: newstest2013 is taken as it is" equal "$(head -1 "$work/w/newstest2013.de")" "2013 de 1"
check "wmt16: nothing unfinished is left" equal "$(find "$work/w" -name '*.new' -o -name '*.part')" ""
before=$(cksum "$work"/w/*.en)
mv "$upstream" "$upstream.away"
check "wmt16: run again, downloads nothing" passes wmt16 "$work/w"
check "wmt16: ... and changes nothing" equal "$(cksum "$work"/w/*.en)" "$before"
mv "$upstream.away" "$upstream"

check "wmt16: another archive than upstream's is refused" refuses env WMT16_CHECK=1 bash "$scripts/get_wmt16.sh" "$work/w5"
check "wmt16: ... by name" says "training-parallel-commoncrawl.tgz has the sha256 sum"
check "wmt16: ... and is not taken by the next run either" refuses env WMT16_CHECK=1 bash "$scripts/get_wmt16.sh" "$work/w5"

cp "$upstream/dev.tgz" "$work/dev.tgz"
head -c 300 "$work/dev.tgz" >"$upstream/dev.tgz"
check "wmt16: a cut-off archive is refused" refuses wmt16 "$work/w2"
check "wmt16: ... by name" says "dev.tgz is not a whole archive"
cp "$work/dev.tgz" "$upstream/dev.tgz"
check "wmt16: ... and the next run gets it again" passes wmt16 "$work/w2"

echo "one more" >>"$tree/cc/commoncrawl.de-en.en"
tar -czf "$upstream/training-parallel-commoncrawl.tgz" -C "$tree/cc" .
check "wmt16: unequal languages are refused" refuses wmt16 "$work/w3"
check "wmt16: ... with both numbers" says "13 lines but"
rm "$tree/cc/commoncrawl.de-en.de"
tar -czf "$upstream/training-parallel-commoncrawl.tgz" -C "$tree/cc" .
check "wmt16: a missing member is refused" refuses wmt16 "$work/w4"
check "wmt16: ... by name" says "holds no commoncrawl.de-en.de"

[[ $failures == 0 ]] || { echo "$failures checks failed"; exit 1; }
echo "all checks passed"
