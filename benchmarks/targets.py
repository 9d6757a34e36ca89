#!/usr/bin/env python3
"""Compares measured figures with their targets: targets.py DIRECTORY, to which single_host.sh or cluster.sh has written
JSON lines. Prints a table; the exit status is 1 if a target is missed."""

import json
import pathlib
import statistics
import sys

MIB = 1 << 20
LINK = 0.956 * 1e9 / 8 / 1e6  # bytes/us: TCP's payload at 1 Gb/s with MTU 1500
VARIANTS = ("default", "ring", "han", "han_simple")


class Table:
    def __init__(self, directory):
        self.directory = directory
        self.rows = []

    def lines(self, name):
        """Returns a file's JSON lines; none if there is no file."""
        path = self.directory / (name + ".jsonl")
        return [json.loads(line) for line in path.open()] if path.exists() else []

    def add(self, where, what, found, limit, text="{:.2f}", at_most=False, note=""):
        is_met = found <= limit if at_most else found >= limit
        sign = "<=" if at_most else ">="
        self.rows.append((where, what, sign + " " + text.format(limit), text.format(found), note, is_met))

    def print(self):
        head = ("where", "what", "target", "measured", "at", "")
        cells = [head] + [row[:5] + ("ok" if row[5] else "MISSED",) for row in self.rows]
        widths = [max(len(row[i]) for row in cells) for i in range(6)]
        for row in cells:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        return 0 if all(row[5] for row in self.rows) else 1


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def place(line):
    return size_text(line["bytes"]) + (" in place" if line["in_place"] else " out of place")


def add_least(table, where, what, lines, value, limit, text="{:.2f}"):
    """The line with the least value must reach the limit."""
    if lines:
        worst = min(lines, key=value)
        table.add(where, what, value(worst), limit, text, note=place(worst))


def ratio(line):
    return line["ratio"]


def at_least(lines, size):
    return [line for line in lines if line["bytes"] >= size]


def single_host(table):
    two = "1 host, 2 ranks"
    registered = table.lines("2_ranks_registered")
    large = at_least(registered, 64 * MIB)
    add_least(table, two, "64 MiB registered, against MPI", large, ratio, 5)
    add_least(table, two, "64 MiB registered, of a read+write loop", table.lines("2_ranks_loop"), ratio, 0.7)
    add_least(table, two, "64 MiB plain, against MPI", at_least(table.lines("2_ranks_plain"), 64 * MIB), ratio, 2.5)
    add_least(table, two, "8 B to 64 MiB, against MPI, the worst", registered, ratio, 0.95)
    if registered:
        table.add(two, "8 B to 64 MiB, against MPI, the median", statistics.median(map(ratio, registered)), 1.5)
    add_least(table, "1 host, 4 ranks", "1 to 64 MiB, against MPI", table.lines("4_ranks"), ratio, 4)
    add_least(table, "4 threads", "1 to 64 MiB, of threads' reads and writes", table.lines("4_threads"), ratio, 1)
    add_least(table, "64 threads", "1 MiB, of threads' reads and writes", table.lines("64_threads"), ratio, 0.5)


def all_reduce_bound(line):
    """us; 2(H-1)/H x bytes over a link."""
    hosts = line["hosts"]
    return 2 * (hosts - 1) / hosts * line["bytes"] / LINK


def of_bound(line):
    return all_reduce_bound(line) / line["time_us"]


def reproducible(table, where, placement):
    """Each place's time with DDL_REPRODUCIBLE=1, divided by that without."""
    normal = {place(line): line["time_us"] for line in table.lines(f"reproducible_0_{placement}")}
    slow = {place(line): line["time_us"] / normal[place(line)]
            for line in table.lines(f"reproducible_1_{placement}") if place(line) in normal}
    if slow:
        worst = max(slow, key=slow.get)
        table.add(where, "reproducible, times the normal time", slow[worst], 2.5, at_most=True, note=worst)


def stolen(table):
    """What the hypervisor took while it was measured; nothing is wanted of it, but times depend on it."""
    shares = [line["stolen"] for path in table.directory.glob("*.jsonl") for line in map(json.loads, path.open())
              if "stolen" in line]
    if shares:
        print(f"taken by the machine's hypervisor: {statistics.mean(shares):.1%} of its time on average, "
              f"up to {max(shares):.0%} of a line's\n")


def cluster(table):
    for placement in ("host", "round_robin"):
        where = f"4x4 by {placement}"
        runs = {variant: table.lines(f"cluster_{placement}_{variant}") for variant in VARIANTS}
        default = runs["default"]
        against_all = [line for lines in runs.values() for line in lines]
        add_least(table, where, "16 MiB and up, of the bound", at_least(default, 16 * MIB), of_bound, 0.95)
        add_least(table, where, "4 MiB, of the bound",
                  [line for line in default if line["bytes"] == 4 * MIB], of_bound, 0.85)
        add_least(table, where, "4 MiB and up, against MPI's default", at_least(default, 4 * MIB), ratio, 1.3)
        add_least(table, where, "4 MiB and up, against the best of MPI's", at_least(against_all, 4 * MIB), ratio,
                  1.15 if placement == "host" else 2)
        add_least(table, where, "1 to 256 KiB, against the best of MPI's",
                  [line for line in against_all if 1024 <= line["bytes"] <= 256 * 1024], ratio, 1)
        off = [abs(line["simulated_us"] / line["time_us"] - 1) for line in at_least(default, MIB)
               if "simulated_us" in line]
        if off:
            table.add(where, "1 MiB and up, simulated time is off by", max(off), 0.1, at_most=True)
        add_least(table, where, "broadcast of 16 MiB, of the link's rate", table.lines(f"broadcast_{placement}"),
                  lambda line: line["bytes"] / LINK / line["time_us"], 0.9)
        reproducible(table, where, placement)
        add_least(table, f"4+3+2+1 by {placement}", "16 MiB, of the bound", table.lines(f"uneven_{placement}"),
                  of_bound, 0.9)


def both(table):
    for name in ("idle_wait", "idle_wait_hosts"):
        lines = table.lines(name)
        if lines:
            worst = max(lines, key=lambda line: line["core_share"])
            where = f"{worst['ranks']} ranks on {worst['hosts']} hosts"
            table.add(where, f"waiting {worst['seconds']} s, of a core", worst["core_share"], 0.02, "{:.4f}",
                      at_most=True, note=worst["call"])
    for line in table.lines("start_up_time"):
        table.add(f"{line['ranks']} ranks on {line['hosts']} hosts", "start-up beyond MPI_Init, s",
                  line["context_s"], 2, at_most=True)


def main(arguments):
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    directory = pathlib.Path(arguments[0])
    if not directory.is_dir():
        print(f"targets.py: found no directory '{directory}'; single_host.sh and cluster.sh make one",
              file=sys.stderr)
        return 2
    table = Table(directory)
    single_host(table)
    cluster(table)
    both(table)
    if not table.rows:
        print(f"targets.py: {directory} has no JSON lines of single_host.sh or cluster.sh", file=sys.stderr)
        return 2
    stolen(table)
    return table.print()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
