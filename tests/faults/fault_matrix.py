#!/usr/bin/env python3
"""Makes ranks of a job fail in every way, and checks that the job ends soon, names the culprit, and leaves nothing
behind.

usage: fault_matrix.py PROGRAM [--mpirun MPIRUN] [--rounds N] [--workers N] [--only TEXT] [--table FILE]

PROGRAM is fault_program. In a round, each case runs once, every second one with mpirun -enable-recovery; in the next
round, the others do. Several workers share the cases, each in its own network namespace (which needs root), so that
leftovers of one worker's jobs are not attributed to another's. The exit status is 1 if a case fails.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

RANKS = 4
DEADLINE = 2.0
# Time in seconds that mpirun takes to start and to end a job, on a busy machine.
MPIRUN_TAKES = 12.0

# Ranks per host.
PLACES = {"one host": 4, "two hosts": 2, "a host each": 1}
PER_HOST = {**PLACES, "two hosts, MPI": 2}

DEADLY = ("kill", "exit", "fork")
# Faults that do not end the job, and the expected message.
HARMLESS = {
    "memory": "cannot share memory and use the network instead: rank {victim}: shared memory: ",
    "descriptors": "Too many open files",
    "stranger": "",
}


class Case:
    def __init__(self, fault, moment, victim, place):
        self.fault, self.moment, self.victim, self.place = fault, moment, victim, place

    def __str__(self):
        return f"{self.fault} {self.moment}, rank {self.victim}, {self.place}"

    def kinds(self):
        """Returns the kinds of failure that the report may name."""
        if self.fault in DEADLY:
            return ["died"]
        if self.fault in ("throw", "garbage", "allocate"):
            return ["threw"]
        if self.fault in ("stop", "late"):
            return ["stuck"]
        return ["differs"]


def cases():
    for place in PLACES:
        for victim in (0, 2):
            for fault in ("kill", "stop", "exit"):
                for moment in ("before", "inside", "after"):
                    yield Case(fault, moment, victim, place)
            for fault in ("kill", "exit"):
                yield Case(fault, "computing", victim, place)
            for fault in ("throw", "late", "other", "count", "type", "op", "fork", "garbage", "allocate"):
                yield Case(fault, "before", victim, place)
            for fault in ("memory", "descriptors"):
                yield Case(fault, "start", victim, place)
            yield Case("kill", "root_only", victim, place)
            yield Case("stranger", "before", victim, place)
    for fault in ("kill", "other", "count", "type", "op"):
        yield Case(fault, "before", 2, "two hosts, MPI")


def left_behind(mark):
    """Returns processes, sockets and segments of jobs with this mark in their environment."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if mark.encode() in file.read():
                    found.append("process " + path.split("/")[2])
        except OSError:
            pass
    with open("/proc/net/unix", encoding="ascii", errors="replace") as file:
        found += ["socket " + line.split()[-1] for line in file if "@ddl-" in line]
    found += ["segment " + path for path in glob.glob("/dev/shm/ddl*")]
    return found


def run(case, mpirun, program, recovery):
    """Runs a case; returns its problems."""
    with tempfile.TemporaryDirectory() as directory:
        mark = f"DDL_FAULT_MARK={os.path.basename(directory)}"
        report = os.path.join(directory, "report")
        environment = dict(
            os.environ,
            DDL_DEADLINE=str(DEADLINE),
            DDL_REPORT=report,
            OMPI_ALLOW_RUN_AS_ROOT="1",
            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        )
        key, value = mark.split("=")
        environment[key] = value
        per_host = PER_HOST[case.place]
        if case.place.endswith("MPI"):
            environment["DDL_NETWORK"] = "mpi"
        name_host = f'export DDL_HOST_ID=h$((OMPI_COMM_WORLD_RANK/{per_host})); exec "$@"'
        command = [mpirun, "--oversubscribe", "--bind-to", "none"]
        command += ["-enable-recovery"] if recovery else []
        command += ["-n", str(RANKS), "bash", "-c", name_host, "bash"]
        command += [program, case.fault, case.moment, str(case.victim)]
        started = time.monotonic()
        limit = 2 * DEADLINE + MPIRUN_TAKES
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        problems = []
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            problems.append(f"still there after {limit:g} s")
            process.kill()
            for path in glob.glob("/proc/[0-9]*/environ"):
                try:
                    with open(path, "rb") as file:
                        if mark.encode() in file.read():
                            os.kill(int(path.split("/")[2]), 9)
                except OSError:
                    pass
            output, _ = process.communicate()
        took = time.monotonic() - started
        if case.fault in HARMLESS:
            problems += check_success(case, process.returncode, output)
        else:
            # With -enable-recovery the exit status is always 0.
            if process.returncode == 0 and not recovery:
                problems.append("the exit status is 0")
            problems += check_report(case, report + ".json", output)
            problems += check_scopes(case, output)
        # mpirun's last children end shortly after it.
        for _ in range(100):
            left = left_behind(mark)
            if not left:
                break
            time.sleep(0.05)
        problems += ["left behind: " + each for each in left]
        return problems, took, output


def check_success(case, status, output):
    problems = [f"the exit status is {status}"] if status != 0 else []
    if "the job ends" in output:
        problems.append("there is a report, of a job that has ended well")
    # Ranks that share no memory anyway do not report that they cannot.
    expected = HARMLESS[case.fault].format(victim=case.victim)
    if expected not in output and not (case.fault == "memory" and PLACES[case.place] == 1):
        problems.append(f"nobody says '{expected}'")
    return problems


def check_report(case, path, output):
    culprit = f"rank {case.victim}"
    if case.victim == 0 and case.fault in ("kill", "stop", "exit", "fork", "garbage"):
        # Rank 0 gathers the report; without it, each rank prints what it knows.
        expected = ["rank 0 has died"] if case.fault in DEADLY else ["rank 0 (host"]
        if case.fault == "garbage":
            expected = ["rank 0"]
        return [f"nobody says '{text}'" for text in expected if text not in output]
    if "the job ends:" not in output:
        return ["no report on standard error"]
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError) as error:
        return [f"no report as JSON: {error}"]
    problems = []
    failure = report["failure"]
    if failure["kind"] not in case.kinds():
        problems.append(f"the failure is called {failure['kind']}, expected {case.kinds()}")
    if case.kinds() in (["died"], ["threw"]) and failure["rank"] != case.victim:
        problems.append(f"the culprit is rank {failure['rank']}, expected {case.victim}")
    if culprit not in output:
        problems.append(f"nobody names {culprit}")
    ranks = {rank["rank"]: rank for rank in report["ranks"]}
    if len(ranks) != RANKS:
        problems.append(f"the report has {len(ranks)} ranks")
        return problems
    victim = ranks[case.victim]
    life = {"stop": "silent", "garbage": "silent"}.get(case.fault, "dead" if case.fault in DEADLY else "answers")
    if victim["life"] != life:
        problems.append(f"{culprit} is '{victim['life']}', expected '{life}'")
    if failure["kind"] == "differs":
        others = {json.dumps(what_was_called(rank)) for rank in report["ranks"] if rank["rank"] != case.victim}
        if len(others) != 1 or json.dumps(what_was_called(victim)) in others:
            problems.append("the report does not tell what each called")
    return problems


def check_scopes(case, output):
    """Checks which rank the report says is working, and which wait for it; dead ranks cannot report."""
    if case.moment != "root_only":
        return []
    expected = ['waits in root_only "checkpoint" for rank 0']
    expected += ['in root_only "checkpoint"\n'] if case.victim != 0 else []
    return [f"nobody says '{text.strip()}'" for text in expected if text not in output]


def what_was_called(rank):
    same = rank.get("same", {})
    return [same.get(field) for field in ("name", "count", "type", "op", "root")]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--table")
    parser.add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--results", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    up = ["unshare", "--net", "sh", "-c", "ip link set lo up"]
    if arguments.workers > 1 and not arguments.results and subprocess.run(up, capture_output=True).returncode != 0:
        print("network namespaces cannot be made here: one worker does all")
        arguments.workers = 1
    if arguments.workers > 1 and not arguments.results:
        results, turn, failed = share(arguments)
    else:
        results, turn, failed = run_all(arguments)
    if arguments.results:
        with open(arguments.results, "w", encoding="utf-8") as file:
            json.dump([[list(case) + row for case, row in results.items()], turn, failed], file)
        return 0
    print(f"{turn} jobs, {failed} failed")
    if arguments.table:
        with open(arguments.table, "w", encoding="utf-8") as file:
            file.write(table(results, turn, failed))
    return 1 if failed else 0


def share(arguments):
    """Returns the results of workers, which run this program."""
    with tempfile.TemporaryDirectory() as directory:
        workers = []
        for worker in range(arguments.workers):
            path = os.path.join(directory, str(worker))
            command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, "-u"]
            command += [os.path.abspath(__file__), arguments.program, "--mpirun", arguments.mpirun]
            command += ["--rounds", str(arguments.rounds), "--only", arguments.only]
            command += ["--workers", str(arguments.workers), "--worker", str(worker), "--results", path]
            workers.append((subprocess.Popen(command), path))
        results, turn, failed = {}, 0, 0
        for process, path in workers:
            if process.wait() != 0:
                sys.exit(f"a worker ended with status {process.returncode}")
            with open(path, encoding="utf-8") as file:
                rows, turns, failures = json.load(file)
            turn += turns
            failed += failures
            for fault, moment, count, bad, longest in rows:
                row = results.setdefault((fault, moment), [0, 0, 0.0])
                row[0] += count
                row[1] += bad
                row[2] = max(row[2], longest)
        return results, turn, failed


def run_all(arguments):
    """Runs a worker's cases."""
    results = {}
    failed = 0
    turn = 0
    chosen = [case for case in cases() if arguments.only in str(case)]
    for number in range(arguments.rounds):
        for index, case in enumerate(chosen):
            if (number * len(chosen) + index) % arguments.workers != arguments.worker:
                continue
            turn += 1
            recovery = (number + index) % 2 == 1
            problems, took, output = run(case, arguments.mpirun, arguments.program, recovery)
            row = results.setdefault((case.fault, case.moment), [0, 0, 0.0])
            row[0] += 1
            row[2] = max(row[2], took)
            if problems:
                failed += 1
                row[1] += 1
                mode = "with -enable-recovery" if recovery else "plain mpirun"
                print(f"FAILED: {case}, {mode}, {took:.1f} s: {'; '.join(problems)}\n{output}", flush=True)
    return results, turn, failed


def table(results, jobs, failed):
    lines = [
        "# The fault matrix",
        "",
        f"`tests/faults/fault_matrix.py`: {jobs} jobs of {RANKS} ranks on one, two and four hosts (of one",
        f"machine), deadline {DEADLINE:g} s, plain mpirun and mpirun -enable-recovery in turn; {failed} failed.",
        "",
        "| what goes wrong | when | jobs | failed | longest, s, mpirun's own start and end counted |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (fault, moment), (count, bad, longest) in results.items():
        lines.append(f"| {fault} | {moment} | {count} | {bad} | {longest:.1f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
