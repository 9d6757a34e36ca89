#!/usr/bin/env python3
"""The scaling of training steps by number of workers: simulated, emulated and measured rows of one format, the article's
cluster explained, and pictures. Rows are those of `build/bin/scaling --help`.

    benchmarks/scaling.py simulated --json rows.jsonl [flags of build/bin/scaling]
    sudo benchmarks/scaling.py emulated --json rows.jsonl [--bytes 28706720 --wire bf16] [--workers 1,4,8,12,16]
    benchmarks/scaling.py measured --json rows.jsonl --data multi30k/train --preset multi30k [flags of ddl_nmt]
    benchmarks/scaling.py table rows.jsonl ...
    benchmarks/scaling.py article [--json parts.jsonl]
    benchmarks/scaling.py pictures benchmarks/results benchmarks/results/scaling

emulated    runs overlap_perf on 4 network namespaces x 4 ranks with links of 1 Gb/s: real sockets and a real
            GradientReducer, and 360 ms of sleep as compute. 7,176,680 bytes take as long there as the article's 717.7 MB
            at 100 Gb/s. Each row says what the simulator expects of it.
measured    trains with ddl_nmt on 1, 2, ... ranks of this machine (--ranks 1,2), each with --threads (1), and takes the
            median of the words a second of --steps (80), without the first 20; all of it --runs (1) times in turns, of
            which the medians count.
article     fits the article's steps with three constants, predicts each of them from the other five, and simulates what
            each of our methods gives at 16 workers.
pictures    draws FIRST/scaling/*.jsonl and FIRST/single_host into SECOND as SVG and PNG; needs matplotlib.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ARTICLE = {1: 360.0, 2: 450.0, 4: 560.0, 8: 680.0, 12: 690.0, 16: 700.0}  # ms a step: IBM DDL, four V100 a host
GRADIENT_GB = 0.717668352
MPI = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def fail(message):
    sys.exit(f"scaling.py: {message}")


def program(name):
    path = pathlib.Path(os.environ.get("DDL_BIN", HERE.parent / "build/bin")) / name
    return str(path) if path.exists() else fail(f"{path} is missing; build it, or set DDL_BIN")


def run(command, **keywords):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, **keywords)
    return done.stdout if done.returncode == 0 else fail(f"'{' '.join(command)}' ended with status {done.returncode}")


def simulated(flags):
    return [json.loads(line) for line in run([program("scaling"), *flags, "--json", "-"]).splitlines()]


def read(paths):
    rows = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            rows += [json.loads(line) for line in file]
    return rows


def write(rows, path):
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    print(table(rows))


def table(rows):
    columns = ["source", "topology", "mode", "workers", "step_ms", "words_per_s", "speedup", "efficiency", "hidden",
               "simulated_ms"]
    shape = {"step_ms": "{:.1f}", "words_per_s": "{:,.0f}", "speedup": "{:.2f}", "efficiency": "{:.3f}",
             "hidden": "{:.0%}", "simulated_ms": "{:.1f}"}
    cells = [[shape.get(name, "{}").format(row[name]) if row.get(name) is not None else "-" for name in columns]
             for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells)]
    lines = []
    for line in [columns, *cells]:
        lines.append("  ".join(text.ljust(width) if i < 3 else text.rjust(width)
                               for i, (text, width) in enumerate(zip(line, widths))).rstrip())
    return "\n".join(lines)


def emulated(options, flags):
    if flags:
        fail(f"unknown argument '{flags[0]}'; see --help")
    cluster = ["bash", str(HERE / "emulated_cluster.sh")]
    name = f"scaling{os.getpid()}"
    modes = ["overlap"] if options.wire != "f32" else ["after", "overlap"]
    rows = []
    run([*cluster, "up", "--name", name, "--hosts", "4", "--ranks-per-host", "4", "--rate", "1gbit"])
    try:
        for workers in options.workers:
            hosts = ",".join(str(min(4, workers - first)) for first in range(0, workers, 4))
            for mode in modes:
                with tempfile.TemporaryDirectory() as work:
                    command = [*cluster, "run", "--name", name, "--ranks", hosts, "--", program("overlap_perf"),
                               "--bytes", str(options.bytes), "--wire", options.wire, "--undisturbed", "4",
                               "--json", f"{work}/line"]
                    run(command + (["--after-backward"] if mode == "after" else []), env=MPI)
                    line = read([f"{work}/line"])[0]
                full = mode + ("" if options.wire == "f32" else f"+{options.wire}")
                expected = simulated(["--topology", "ethernet:4x4@1gbit", "--gradients", "200", "--bytes",
                                      str(options.bytes), "--update-ms", "0", "--modes", full, "--workers",
                                      str(workers)])[0]
                shown = max(line["step_ms"] - line["compute_ms"], 0)
                rows.append({**expected, "source": "emulated", "topology": "4 namespaces x 4, 1 Gb/s",
                             "step_ms": line["step_ms"], "words_per_s": None,
                             "speedup": workers * line["efficiency"], "efficiency": line["efficiency"],
                             "hidden": max(1 - shown / line["reduce_ms"], 0) if workers > 1 else 0,
                             "reduction_ms": line["reduce_ms"], "simulated_ms": expected["step_ms"],
                             "stolen": line["stolen"]})
    finally:
        run([*cluster, "down", "--name", name])
    write(rows, options.json)


def measured(options, flags):
    text = [] if options.data is None else [f"--train_prefix={options.data}"]
    cpu = run(["bash", str(HERE / "processor_name.sh")]).strip()
    runs = {ranks: [] for ranks in options.ranks}
    for ranks in options.ranks * options.runs:
        with tempfile.TemporaryDirectory() as work:
            run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), program("ddl_nmt"), "train",
                 f"--preset={options.preset}", *text, f"--threads={options.threads}", f"--out_dir={work}/run",
                 f"--num_train_steps={options.steps + 20}", "--steps_per_eval=1000000",
                 "--steps_per_external_eval=0", f"--log_jsonl={work}/log", *flags], env=MPI)
            steps = [row for row in read([f"{work}/log"]) if "step_ms" in row][20:]
        runs[ranks].append({name: statistics.median(row[name] for row in steps) for name in ("step_ms", "words_per_s")})
    first = options.ranks[0]
    rows = []
    for ranks, own in runs.items():
        speedups = [first * each["words_per_s"] / one["words_per_s"] for each, one in zip(own, runs[first])]
        speedup = statistics.median(speedups)
        rows.append({"source": "measured", "topology": f"{cpu}, {options.threads} thread a rank", "workers": ranks,
                     "mode": f"{options.preset} {' '.join(flags)}".strip(),
                     "step_ms": statistics.median(each["step_ms"] for each in own),
                     "words_per_s": statistics.median(each["words_per_s"] for each in own),
                     "speedup": speedup, "efficiency": speedup / ranks, "speedups": speedups})
    write(rows, options.json)


def hosts_of(workers):
    return max(1, workers // 4)


def article_terms(workers):
    """What multiplies the three constants: compute; a copy of all gradients through the host's memory for each of the
    host's GPUs, one after the other; a ring over all GPUs that passes the network."""
    local = min(workers, 4)
    return [1.0, local if local > 1 else 0.0, 2 * (workers - 1) / workers if hosts_of(workers) > 1 else 0.0]


def fit(points):
    """Constants with the least sum of squares of relative errors, by the normal equations."""
    rows = [([term / ms for term in article_terms(workers)], 1.0) for workers, ms in points.items()]
    size = 3
    matrix = [[sum(a[i] * a[j] for a, _ in rows) for j in range(size)] + [sum(a[i] * b for a, b in rows)]
              for i in range(size)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(matrix[k][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for k in range(size):
            if k != i:
                factor = matrix[k][i] / matrix[i][i]
                matrix[k] = [x - factor * y for x, y in zip(matrix[k], matrix[i])]
    return [matrix[i][size] / matrix[i][i] for i in range(size)]


def predict(constants, workers):
    return sum(c * t for c, t in zip(constants, article_terms(workers)))


PARTS = [
    ("after+one_chunk", "GPUs reduce over NVLink first, and each sends a quarter through its host's network card"),
    ("after", "in chunks, so that NVLink and network work at the same time"),
    ("overlap", "in buckets, during backward"),
    ("overlap+rows", "only the rows of embeddings whose words occur"),
    ("overlap+rows+bf16", "16 bits between hosts"),
    ("overlap+rows+sharded", "instead of 16 bits: each GPU updates a part of the parameters, then all gather them"),
]


def article(options, flags):
    if flags:
        fail(f"unknown argument '{flags[0]}'; see --help")
    constants = fit(ARTICLE)
    compute, copy, ring = constants
    print(f"step(n) = {compute:.0f} ms of compute + {copy:.1f} ms x GPUs of a host (a copy at "
          f"{1e3 * GRADIENT_GB / copy:.1f} GB/s) + {ring:.1f} ms x 2(n - 1)/n (a ring at "
          f"{1e3 * GRADIENT_GB / ring:.1f} GB/s)\n")
    print("workers  article ms  fitted ms  error  from the other five  error")
    for workers, ms in ARTICLE.items():
        others = predict(fit({w: t for w, t in ARTICLE.items() if w != workers}), workers)
        print(f"{workers:7}  {ms:10.0f}  {predict(constants, workers):9.0f}  {predict(constants, workers) / ms - 1:+5.1%}  "
              f"{others:19.0f}  {others / ms - 1:+5.1%}")
    print("\nat 16 workers    step ms  speed-up")
    rows = [{"mode": "article", "step_ms": ARTICLE[16], "text": "the article, measured by its authors"},
            {"mode": "fit", "step_ms": predict(constants, 16), "text": "the same by the three constants"}]
    by_mode = {row["mode"]: row for row in simulated(["--workers", "16", "--modes", ",".join(m for m, _ in PARTS)])}
    rows += [{"mode": mode, "step_ms": by_mode[mode]["step_ms"], "text": text} for mode, text in PARTS]
    for row in rows:
        row.update(source="measured by the article" if row["mode"] == "article" else "simulated", workers=16,
                   speedup=16 * ARTICLE[1] / row["step_ms"])
        print(f"{row['mode']:<22} {row['step_ms']:6.1f}  {row['speedup']:8.2f}  {row['text']}")
    for spread in (5, 10):
        row = simulated(["--workers", "16", "--modes", "overlap+rows", "--spread", str(spread)])[0]
        print(f"{'overlap+rows':<22} {row['step_ms']:6.1f}  {row['speedup']:8.2f}  if a worker's compute varied by {spread}%, as "
              "with batches of different lengths")
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("simulated", "emulated", "measured", "article"):
        commands.add_parser(name).add_argument("--json", help="a file to which rows are appended")
    commands.choices["emulated"].add_argument("--bytes", type=int, default=7_176_680)
    commands.choices["emulated"].add_argument("--wire", default="f32", choices=["f32", "bf16", "f16"])
    commands.choices["emulated"].add_argument("--workers", type=numbers, default=[1, 4, 8, 12, 16])
    commands.choices["measured"].add_argument("--data", help="prefix of the training text; none: as the preset says")
    commands.choices["measured"].add_argument("--preset", default="benchmark")
    commands.choices["measured"].add_argument("--ranks", type=numbers, default=[1, 2])
    commands.choices["measured"].add_argument("--threads", type=int, default=1)
    commands.choices["measured"].add_argument("--steps", type=int, default=80)
    commands.choices["measured"].add_argument("--runs", type=int, default=1)
    commands.add_parser("table").add_argument("rows", nargs="+")
    pictures = commands.add_parser("pictures")
    pictures.add_argument("results")
    pictures.add_argument("to")
    options, flags = parser.parse_known_args()
    if options.command == "table":
        print(table(read(options.rows)))
    elif options.command == "pictures":
        import scaling_pictures  # needs matplotlib, which nothing else does

        scaling_pictures.draw(pathlib.Path(options.results), pathlib.Path(options.to), ARTICLE)
    elif options.command == "simulated":
        write(simulated(flags), options.json)
    else:
        {"emulated": emulated, "measured": measured, "article": article}[options.command](options, flags)


if __name__ == "__main__":
    main()
