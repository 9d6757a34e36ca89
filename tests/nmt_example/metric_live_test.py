#!/usr/bin/env python3
"""metric_live_test.py SCORES_OF_FILES: compares this program with the installed sacrebleu package on random corpora."""
import pathlib
import random
import subprocess
import sys
import tempfile

import sacrebleu

PIECES = (
    ["a", "b", "c", "the", "Haus", "über", "5", "17", "1990", "0", "x1", "2b", "é", "ß", "日本", "😀"]
    + list(".,-'\"!?;:()[]{}<>/\\|&%$#@*+=_~^`")
    + ["&quot;", "&amp;", "&lt;", "&gt;", "&amp;lt;", "<skipped>", "..", ",.", "-", "–", "…"]
    + ["\u00a0", "\u2009", "\u3000", "\u202f", "\u200b", "\u0085", "\u2028", "\t", "\x1c", "\x0b", " "]
)


def segment(rng, length):
    return "".join(rng.choice(PIECES) + rng.choice(["", " ", " ", "  "]) for _ in range(length))


def corpus(rng):
    references = [segment(rng, rng.randrange(0, 25)) for _ in range(rng.randrange(1, 30))]
    hypotheses = []
    for reference in references:
        kind = rng.random()
        if kind < 0.1:
            hypotheses.append("")
        elif kind < 0.3:
            hypotheses.append(segment(rng, rng.randrange(0, 20)))
        else:
            keep = rng.choice([0.6, 0.9, 0.97])
            kept = (c if rng.random() < keep else rng.choice(PIECES) for c in reference)
            hypotheses.append("".join(kept)[: rng.choice([8, 40, 1000])])
    return hypotheses, references


def main():
    rng = random.Random(20240501)
    worst = 0.0
    nonzero = 0
    with tempfile.TemporaryDirectory() as folder:
        for trial in range(150):
            hypotheses, references = corpus(rng)
            paths = []
            for name, lines in (("hyp", hypotheses), ("ref", references)):
                paths.append(pathlib.Path(folder) / name)
                paths[-1].write_bytes("".join(line + "\n" for line in lines).encode())
            found = [float(x) for x in subprocess.check_output([sys.argv[1], *paths], text=True).split()]
            score = sacrebleu.corpus_bleu(hypotheses, [references], force=True)
            chrf = sacrebleu.corpus_chrf(hypotheses, [references])
            ter = sacrebleu.corpus_ter(hypotheses, [references])
            expected = [score.score, *score.precisions, score.bp, score.sys_len, score.ref_len, chrf.score, ter.score]
            difference = max(abs(a - b) for a, b in zip(found, expected, strict=True))
            worst = max(worst, difference)
            nonzero += score.score > 0
            if not difference < 1e-6:
                print(f"corpus {trial}: found {found}, sacrebleu says {expected}")
                for hypothesis, reference in zip(hypotheses, references):
                    print(repr(hypothesis), repr(reference))
                return 1
    if nonzero < 100:
        print(f"only {nonzero} corpora have a score above 0; the comparison is worth little")
        return 1
    print(f"150 random corpora agree with sacrebleu {sacrebleu.__version__}; largest difference {worst:.2e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
