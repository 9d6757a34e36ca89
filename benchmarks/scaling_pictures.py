"""The pictures of scaling.py, from result files. Readable in black and white."""
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot
from matplotlib.ticker import FuncFormatter

pyplot.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "ddl",
                        "svg.fonttype": "none", "figure.constrained_layout.use": True})
LINES = [("-", "o", "#000000"), ("--", "s", "#555555"), ("-.", "^", "#2874a6"), (":", "D", "#999999")]


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def save(figure, to, name):
    for kind, extra in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 110})):
        figure.savefig(to / f"{name}.{kind}", **extra)
    pyplot.close(figure)


def draw_scaling(results, to, article):
    rows = read(results / "scaling/simulated.jsonl")
    series = [("the article, measured", list(article), list(article.values()))]
    for mode, name in (("after", "ours after backward, simulated"), ("overlap+rows", "ours, simulated")):
        chosen = [row for row in rows if row["mode"] == mode]
        series.append((name, [row["workers"] for row in chosen], [row["step_ms"] for row in chosen]))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3.2))
    for (name, workers, ms), (style, marker, colour) in zip(series, LINES):
        left.plot(workers, ms, style, marker=marker, color=colour, label=name, markersize=4)
        right.plot(workers, [n * 360 / t for n, t in zip(workers, ms)], style, marker=marker, color=colour, markersize=4)
    right.plot([1, 16], [1, 16], ":", color="#999999")
    right.annotate("ideal", (8.6, 9.4), color="#666666")
    left.set(xlabel="workers (V100, four a host)", ylabel="ms a step", ylim=(0, 750), xticks=workers)
    right.set(xlabel="workers", ylabel="speed-up", xticks=workers)
    left.legend(frameon=False, loc="lower right")
    save(figure, to, "scaling")


def draw_parts(results, to):
    rows = [row for row in read(results / "scaling/article_parts.jsonl") if not row["mode"].endswith("sharded")]
    names = {"article": "the article (measured)", "fit": "the same, by three constants",
             "after+one_chunk": "+ NVLink first", "after": "+ in chunks", "overlap": "+ during backward",
             "overlap+rows": "+ rows of embeddings", "overlap+rows+bf16": "+ 16 bits between hosts"}
    figure, axes = pyplot.subplots(figsize=(7, 2.9))
    for i, row in enumerate(rows):
        measured = row["mode"] == "article"
        axes.barh(i, 360, color="#d0d0d0", edgecolor="black", linewidth=0.6)
        axes.barh(i, row["step_ms"] - 360, left=360, color="#2874a6" if measured else "#7fb3d5", edgecolor="black",
                  linewidth=0.6, hatch="//" if measured else "")
        axes.annotate(f"{row['step_ms']:.0f} ms, {16 * 360 / row['step_ms']:.1f}x", (row["step_ms"] + 6, i), va="center")
    axes.set(yticks=range(len(rows)), yticklabels=[names[row["mode"]] for row in rows], xlim=(0, 830),
             xlabel="ms a step at 16 workers: compute (grey), and what communication adds")
    axes.invert_yaxis()
    save(figure, to, "parts")


def draw_step(results, to):
    rows = {row["mode"]: row for row in read(results / "scaling/simulated.jsonl") if row["workers"] == 16}
    figure, axes = pyplot.subplots(figsize=(8, 2.2))
    ticks = []
    for i, (mode, name) in enumerate((("after", "after backward"), ("overlap", "during backward"),
                                      ("overlap+rows", "... with rows"))):
        row = rows[mode]
        axes.barh(3 * i, row["compute_ms"], height=0.8, color="#d0d0d0", edgecolor="black", linewidth=0.6)
        for _, begin, end in row["buckets"]:
            axes.barh(3 * i + 1, end - begin, left=begin, height=0.8, color="#7fb3d5", edgecolor="black", linewidth=0.4)
        axes.annotate(f"{row['step_ms']:.0f} ms", (max(row["step_ms"], row["compute_ms"]) + 4, 3 * i + 0.7), va="center")
        ticks += [(3 * i, f"{name}: compute"), (3 * i + 1, "reductions")]
    axes.set(yticks=[at for at, _ in ticks], yticklabels=[text for _, text in ticks], xlim=(0, 500),
             xlabel="ms from the begin of a step at 16 workers, simulated")
    axes.invert_yaxis()
    save(figure, to, "step")


def draw_bandwidth(results, to):
    figure, axes = pyplot.subplots(figsize=(6, 3.2))
    folder = results / "emulated_cluster"
    files = [("cluster_host_default", "Open MPI, default"), ("cluster_host_ring", "Open MPI, ring"),
             ("cluster_host_han", "Open MPI, HAN")]
    ours = read(folder / "cluster_host_default.jsonl")
    factor = 2 * 15 / 16 / 1e6
    series = [("ours", [row["bytes"] for row in ours], [row["busbw"] * 1e3 for row in ours])]
    for file, name in files:
        rows = {row["bytes"]: row for row in read(folder / f"{file}.jsonl")}
        series.append((name, list(rows), [factor * row["bytes"] / (row["baseline_us"] / 1e6) for row in rows.values()]))
    for (name, sizes, rates), (style, marker, colour) in zip(series, LINES):
        axes.plot(sizes, rates, style, marker=marker, color=colour, label=name, markersize=3)
    # A host sends and receives 2 x 3/4 of the bytes at 0.956 x 1 Gb/s.
    bound = factor * 1e6 * 0.956 * 125 / 1.5
    axes.axhline(bound, color="#999999", linewidth=0.8)
    axes.annotate("bound of the links", (1024, bound * 1.02), color="#666666")
    axes.set(xscale="log", xlabel="bytes of an all-reduce, 4 hosts x 4 ranks, 1 Gb/s, emulated",
             ylabel="bus bandwidth, MB/s", ylim=(0, bound * 1.12))
    sizes = [1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26]
    axes.set_xticks(sizes)
    axes.xaxis.set_major_formatter(FuncFormatter(
        lambda size, _: f"{size / 1024:.0f} KiB" if size < 1 << 20 else f"{size / (1 << 20):.0f} MiB"))
    axes.minorticks_off()
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 0.93))
    save(figure, to, "bandwidth")


def draw(results, to, article):
    to.mkdir(parents=True, exist_ok=True)
    draw_scaling(results, to, article)
    for picture in (draw_parts, draw_step, draw_bandwidth):
        picture(results, to)
