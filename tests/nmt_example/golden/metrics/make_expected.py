#!/usr/bin/env python3
"""Writes expected.tsv: the results of the sacrebleu package for every NAME.hyp and NAME.ref in this directory.

Run it after adding a pair of files. Columns: name, BLEU, four precisions, brevity penalty, lengths of
hypotheses and references, chrF, TER.
"""
import pathlib

import sacrebleu


def lines(path):
    # str.splitlines() would also split at characters that belong to the text.
    return path.read_bytes().decode().removesuffix("\n").split("\n")


here = pathlib.Path(__file__).parent
with open(here / "expected.tsv", "w") as out:
    for hypotheses in sorted(here.glob("*.hyp")):
        score = sacrebleu.corpus_bleu(
            lines(hypotheses), [lines(hypotheses.with_suffix(".ref"))], force=True
        )
        numbers = [score.score, *score.precisions, score.bp]
        fields = [hypotheses.stem, *(f"{x:.8f}" for x in numbers), str(score.sys_len), str(score.ref_len)]
        chrf = sacrebleu.corpus_chrf(lines(hypotheses), [lines(hypotheses.with_suffix(".ref"))])
        ter = sacrebleu.corpus_ter(lines(hypotheses), [lines(hypotheses.with_suffix(".ref"))])
        fields += [f"{chrf.score:.8f}", f"{ter.score:.8f}"]
        out.write("\t".join(fields) + "\n")
