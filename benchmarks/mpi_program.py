#!/usr/bin/env python3
"""Measures what an unmodified MPI program gains by libddl_mpi: runs mpi_collectives alternately with and without it, on
this host (2 and 4 processes) or on the emulated cluster (4x4), and with --intel also by Intel MPI and oneCCL, and
prints times and their ratios. A virtual machine's cores are near each other in some runs and far in others, which is a
factor of two in small calls: on this host, a time is the median of the runs on cores of one kind, near or far. Even
there, runs of one program differ by a fifth and more in small calls, so these run more often. The machine should be
otherwise idle."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# Sizes, runs in each round, iterations in each run.
HOST_RUNS = [([16, 128, 1024], 8, 20),
             ([16384, 65536, 262144, 1 << 20], 3, 20),
             ([4 << 20, 16 << 20, 64 << 20], 1, 5)]
# A cache line goes there and back in 0.05 us between two threads of a core, in 0.1 between two cores with one third-level
# cache, in 0.5 between two such caches (measured on a Zen 3 and a Zen 4).
FAR_US = 0.25
CLUSTER_SIZES = [1024, 16384, 65536, 262144, 1 << 20, 4 << 20]


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def times_of(command, environment):
    """Runs the program once. Returns {(collective, bytes): us}, and "near" or "far" by the cores that it ran on, or
    "moved" if they were near at one end of the run and far at the other."""
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"mpi_program.py: exit status {done.returncode} of: {' '.join(command)}")
    found, cores = {}, set()
    for line in done.stdout.splitlines():
        if line.startswith("cores "):
            cores.add("near" if float(line.split()[1]) < FAR_US else "far")
        if not line.startswith("MPI_"):  # a remark of oneCCL
            continue
        name, size, time, verdict = line.split()
        if verdict != "right":
            sys.exit(f"mpi_program.py: {name} of {size} bytes gave a wrong result: {' '.join(command)}")
        found[name, int(size)] = float(time)
    return found, cores.pop() if len(cores) == 1 else "moved"


def compare(where, ways, sizes, options, rounds, by_cores, rounds_of_oneccl=0):
    """Runs each way's command in turns, `rounds` times, and `by_cores` on until each way has half as many runs on cores
    that are alike, at most three times as often. Returns JSON rows with medians over these runs, and the times and cores
    of all; the ratio is that of the fastest MPI without libddl_mpi to the way "ddl"."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    runs = {way: [] for way in ways}
    cores = {way: [] for way in ways}

    def fewest(kind):
        return min(kinds.count(kind) for way, kinds in cores.items() if way != "oneccl")

    for done in range(3 * rounds if by_cores else rounds):
        kind = max(("near", "far"), key=fewest)
        if done >= rounds and fewest(kind) >= (rounds + 1) // 2:
            break
        for way, command in ways.items():
            if way == "oneccl" and done >= rounds_of_oneccl:
                continue
            times, found = times_of(command + [*options, *map(str, sizes)], environment)
            runs[way].append(times)
            cores[way].append(found)
    kind = max(("near", "far"), key=fewest)
    if not by_cores or fewest(kind) == 0:
        kind = "any"
    rows = []
    for name, size in runs["ddl"][0]:
        all_times = {way: [run[name, size] for run in found] for way, found in runs.items()}
        alike = {way: [time for time, found in zip(found, cores[way]) if way == "oneccl" or kind in ("any", found)]
                 for way, found in all_times.items()}
        times = {way: statistics.median(found) for way, found in alike.items()}
        best = min(time for way, time in times.items() if way in ("mpi", "intel"))
        rows.append({"where": where, "collective": name, "bytes": size, "memory":
                     "MPI_Alloc_mem" if "--allocated" in options else "malloc",
                     "calls": "after barriers" if "--barriers" in options else "back to back", "cores": kind,
                     "runs": {way: len(found) for way, found in alike.items()},
                     **{f"{way}_us": round(time, 2) for way, time in times.items()},
                     "ratio": round(best / times["ddl"], 2), "by_round": all_times, "cores_by_round": cores})
    return rows


def print_table(rows):
    def series(row):
        return row["where"], row["cores"], row["memory"], row["calls"]

    for where in dict.fromkeys(map(series, rows)):
        chosen = [row for row in rows if series(row) == where]
        names = list(dict.fromkeys(row["collective"] for row in chosen))
        ways = [field for field in chosen[0] if field.endswith("_us")]
        print(f"\n{where[0]}, {where[1]} cores, memory from {where[2]}, calls {where[3]}: the fastest MPI's time "
              f"divided by that with libddl_mpi ({', '.join(ways)})")
        print("| bytes | " + " | ".join(names) + " |")
        print("| --- " * (len(names) + 1) + "|")
        for size in dict.fromkeys(row["bytes"] for row in chosen):
            cells = []
            for name in names:
                row = next(r for r in chosen if r["collective"] == name and r["bytes"] == size)
                cells.append(f"{row['ratio']:.2f} ({', '.join(f'{row[way]:.4g}' for way in ways)})")
            print(f"| {size_text(size)} | " + " | ".join(cells) + " |")


def intel_programs(prefix, build):
    """Compiles mpi_collectives for Intel MPI, and with its collectives by oneCCL. Returns {way: program}."""
    common = ["-O2", f"-I{prefix}/include"]
    main = f"{build}/mpi_collectives.o"
    libraries = [f"-L{prefix}/lib", "-lmpi", f"-Wl,-rpath-link,{prefix}/lib"]
    programs = {way: f"{build}/{way}" for way in ("intel", "oneccl")}
    for command in (["cc", *common, "-c", str(HERE / "mpi_collectives.c"), "-o", main],
                    ["cc", main, "-o", programs["intel"], *libraries],
                    ["c++", "-std=c++17", *common, str(HERE / "oneccl_collectives.cpp"), main, "-o", programs["oneccl"],
                     "-l:libccl.so.1", *libraries]):
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stderr}mpi_program.py: --intel={prefix}: expected a Python environment with impi-rt, "
                     "impi-devel, oneccl and oneccl-devel from PyPI, with include/mpi.h and lib/libccl.so.1; failed: "
                     f"{' '.join(command)}")
    return programs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", action="store_true",
                        help="on 4 emulated hosts with 4 processes each (emulated_cluster.sh; takes 2 minutes)")
    parser.add_argument("--placement", choices=["host", "round_robin"], default="host",
                        help="of the cluster's ranks (default: %(default)s)")
    parser.add_argument("--allocated", action="store_true", help="memory from MPI_Alloc_mem, not malloc")
    parser.add_argument("--barriers", action="store_true", help="a barrier before each call, not calls back to back")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way; on this host 8 times as many up to 1 KiB, "
                        "3 times up to 1 MiB, more if its cores moved, and a third of oneCCL (default: %(default)s)")
    parser.add_argument("--intel", type=pathlib.Path, metavar="DIR",
                        help="also Intel MPI and oneCCL, on this host: a Python environment with `pip install impi-rt "
                        "impi-devel oneccl oneccl-devel`; oneCCL is not in the ratio")
    parser.add_argument("--json", metavar="FILE", help="append a JSON line per row")
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "build" / "bin",
                        help="where the programs are (default: build/bin, and the library ../lib)")
    arguments = parser.parse_args()
    program = arguments.bin.resolve() / "mpi_collectives"
    library = arguments.bin.resolve().parent / "lib" / "libddl_mpi.so"
    for path in (program, library):
        if not path.exists():
            parser.error(f"{path} is missing; build first, or give --bin")
    if arguments.intel and arguments.cluster:
        parser.error("--intel is for one host, --cluster for the emulated cluster; give one of them")
    options = ["--allocated"] * arguments.allocated + ["--barriers"] * arguments.barriers

    def ways(launch):
        return {"mpi": launch + [str(program)], "ddl": launch + ["env", f"LD_PRELOAD={library}", str(program)]}

    rows = []
    if arguments.cluster:
        cluster = ["bash", str(HERE / "emulated_cluster.sh")]
        name = ["--name", f"mpi{os.getpid()}"]
        subprocess.run(cluster + ["up", *name], check=True)
        try:
            launch = cluster + ["run", *name, "--placement", arguments.placement, "--"]
            where = f"emulated 4x4, placed by {arguments.placement}"
            rows += compare(where, ways(launch), CLUSTER_SIZES, options + ["--iterations", "3"], arguments.rounds,
                            by_cores=False)
        finally:
            subprocess.run(cluster + ["down", *name], check=True)
    else:
        with tempfile.TemporaryDirectory() as build:
            intel = arguments.intel and arguments.intel.resolve()
            programs = intel_programs(intel, build) if intel else {}
            for ranks in (2, 4):
                launch = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
                peers = {way: ["env", f"LD_LIBRARY_PATH={intel}/lib", "CCL_ATL_TRANSPORT=mpi",
                               f"{intel}/bin/mpiexec", "-n", str(ranks), path] for way, path in programs.items()}
                for sizes, runs, iterations in HOST_RUNS:
                    rows += compare(f"one host, {ranks} processes", ways(launch) | peers, sizes,
                                    options + ["--iterations", str(iterations)], runs * arguments.rounds,
                                    by_cores=True, rounds_of_oneccl=(arguments.rounds + 2) // 3)
    print_table(rows)
    if arguments.json:
        with open(arguments.json, "a") as out:
            for row in rows:
                out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
