#!/usr/bin/env python3
"""Draws part of a timeline (DDL_TIMELINE) as a picture, for documents. Needs matplotlib.

    benchmarks/timeline_picture.py TRACE.json PICTURE.svg [--step 40] [--from US --to US] [--ranks 0,1]
    benchmarks/timeline_picture.py trace.rank*.json PICTURE.png      the parts that a failed job has written

A step is an event "step" of rank 0's trainer (Timeline::scope("step")), numbered from 1.
"""
import argparse
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot
from matplotlib.patches import Patch

COLOURS = {
    "forward": "#7fb3d5", "loss": "#a9cce3", "backward": "#2874a6", "optimizer": "#d4ac0d", "batch": "#d5d8dc",
    "wait for gradients": "#e74c3c", "all_reduce": "#27ae60", "reduce_scatter": "#58d68d", "all_gather": "#1e8449",
    "broadcast": "#a569bd", "barrier": "#839192",
}
OTHER = "#b7950b"
LEFT_OUT = {"step"}
HEIGHT = 0.8


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+")
    parser.add_argument("picture")
    parser.add_argument("--step", type=int, help="draw this step of rank 0 and everything that overlaps with it")
    parser.add_argument("--from", dest="begin", type=float, help="microseconds")
    parser.add_argument("--to", dest="end", type=float, help="microseconds")
    parser.add_argument("--ranks", help="comma-separated numbers; default: all")
    parser.add_argument("--phases", action="store_true", help="also the phases of the collectives' plans")
    return parser.parse_args()


def read(names):
    events = []
    for name in names:
        with open(name, encoding="utf-8") as file:
            events += json.load(file)["traceEvents"]
    return events


def window(events, options):
    spans = [e for e in events if e["ph"] == "X"]
    if not spans:
        sys.exit("timeline_picture.py: the trace holds no spans")
    begin = min(e["ts"] for e in spans) if options.begin is None else options.begin
    end = max(e["ts"] + e["dur"] for e in spans) if options.end is None else options.end
    if options.step is not None:
        first = min(e["pid"] for e in spans)
        steps = sorted((e for e in spans if e["name"] == "step" and e["pid"] == first), key=lambda e: e["ts"])
        if not 1 <= options.step <= len(steps):
            sys.exit(f"timeline_picture.py: found {len(steps)} steps, expected one with the number {options.step}")
        step = steps[options.step - 1]
        begin, end = step["ts"], step["ts"] + step["dur"]
    return begin, end


def rows_of(events, ranks, phases):
    """Returns (pid, tid) and the name of each row, from the top down."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xi"}
    is_phase = {(e["pid"], e["tid"]) for e in events if e.get("cat") == "phase"}
    order = {"trainer": 0, "gradients": 1, "collectives": 2}
    rows = [key for key in names if key in used and key[0] in ranks and (phases or key not in is_phase)]
    rows.sort(key=lambda key: (key[0], order.get(names[key].split(" (")[0], 3), key[1]))
    return [(key, names[key]) for key in rows]


def main():
    options = arguments()
    events = read(options.traces)
    begin, end = window(events, options)
    everyone = sorted({e["pid"] for e in events if e["ph"] == "X"})
    ranks = everyone if options.ranks is None else [int(word) for word in options.ranks.split(",")]
    shown = [e for e in events if e["ph"] in "Xi" and e["ts"] < end and e["ts"] + e.get("dur", 0) > begin]
    rows = rows_of([e for e in events if e["ph"] == "M"] + shown, ranks, options.phases)
    place = {key: len(rows) - 1 - i for i, (key, _) in enumerate(rows)}
    figure, axes = pyplot.subplots(figsize=(11, 0.8 + 0.26 * len(rows)))
    seen = {}
    for event in shown:
        y = place.get((event["pid"], event["tid"]))
        if y is None or event["name"] in LEFT_OUT:
            continue
        left = (max(event["ts"], begin) - begin) / 1e3
        if event["ph"] == "i":
            mark = "|" if event["name"].startswith("ready") else "v"
            axes.plot(left, y, mark, color="black", markersize=5)
            continue
        right = (min(event["ts"] + event["dur"], end) - begin) / 1e3
        colour = COLOURS.get(event["name"], OTHER)
        axes.barh(y, right - left, HEIGHT, left, color=colour, linewidth=0)
        seen[event["name"] if colour != OTHER else "other"] = colour
    for (rank, _), y in place.items():
        below = [p for (r, _), p in place.items() if r == rank]
        if y == min(below) and y > 0:
            axes.axhline(y - 0.5, color="black", linewidth=0.5)
    axes.set_yticks(list(place.values()), [f"rank {key[0]}  {name}" for key, name in rows], fontsize=7)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(0, (end - begin) / 1e3)
    axes.set_xlabel("ms")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    handles = [Patch(color=colour, label=name) for name, colour in seen.items()]
    axes.legend(handles=handles, ncols=8, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    figure.tight_layout()
    figure.savefig(options.picture, dpi=110)


if __name__ == "__main__":
    main()
