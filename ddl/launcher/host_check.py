"""Checks all hosts of a job at once by running `ddl-topo check` on them."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections import Counter
from dataclasses import dataclass, field
from typing import Optional

from errors import LaunchError
from remote import Answer, Remote, ask_all, is_this_machine

HERE = ""  # the name of this machine if it is none of the job's hosts


@dataclass
class Survey:
    """The results of a check, by host name."""

    reports: dict = field(default_factory=dict)
    problems: dict = field(default_factory=dict)  # lists of sentences; only hosts with problems have a key
    notes: list = field(default_factory=list)
    local: Optional[str] = None  # the job's host that is this machine

    def gpus(self) -> dict:
        return {name: len(report["gpus"]) for name, report in self.reports.items()}


class Checker:
    """Checks hosts; `program` and `port` may be None. All hosts should have the GPUs that most of them had at the first
    check."""

    def __init__(self, tool: str, remote: Remote, program, port, seconds: int):
        self.tool, self.remote, self.seconds = tool, remote, seconds
        self.questions = (["--program", program] if program else []) + (["--port", str(port)] if port else [])
        self.gpus = None

    def command(self, name: str) -> list:
        if name == HERE or is_this_machine(name):
            return [self.tool, "check"] + self.questions
        there = shlex.quote(self.tool)
        questions = " ".join(map(shlex.quote, self.questions))
        return self.remote.command(name, f"if [ -x {there} ]; then exec {there} check {questions}; "
                                         f"else exec ddl-topo check {questions}; fi")

    def survey(self, names: list) -> Survey:
        """Checks all hosts, and this machine to compare with. Raises LaunchError if this machine's own check fails."""
        mine = next((name for name in names if is_this_machine(name)), HERE)
        answers = ask_all({name: self.command(name) for name in names + [HERE] * (mine == HERE)}, self.seconds)
        found = Survey()
        for name, answer in answers.items():
            report = self.report_of(answer)
            if report is None:
                found.problems[name] = [self.explain(name, answer)]
            else:
                found.reports[name] = report
        if mine not in found.reports:
            raise LaunchError(f"this machine: {found.problems[mine][0]}")
        reference = found.reports[mine]
        found.reports.pop(HERE, None)
        self.compare(found, reference)
        return found

    @staticmethod
    def report_of(answer: Answer) -> Optional[dict]:
        for line in reversed(answer.output.splitlines()):  # a login script may have printed other lines
            with contextlib.suppress(ValueError):
                report = json.loads(line)
                if isinstance(report, dict) and "ddl_check" in report:
                    return report
        return None

    def explain(self, name: str, answer: Answer) -> str:
        is_here = name == HERE or is_this_machine(name)
        try_it = shlex.join(self.command(name) if is_here else self.remote.command(name, "true"))
        last = (answer.error.strip().splitlines() or ["it printed nothing"])[-1]
        if answer.status is None:
            return f"{last}, expected the host to be up and to answer; try: {try_it}"
        if answer.status == 127:
            return (f"found neither {self.tool} nor ddl-topo on PATH there, expected the version of ddl that this "
                    "machine has; install it there, best at the same place")
        if "unknown command 'check'" in answer.error:
            return "found a version of ddl from before `ddl-topo check`, expected this machine's; install that there"
        return f"found no answer (status {answer.status}: {last}), expected the host to be up; try: {try_it}"

    def compare(self, found: Survey, mine: dict) -> None:
        kinds = Counter(tuple(sorted(report["gpus"])) for report in found.reports.values())
        if self.gpus is None and kinds:
            self.gpus = kinds.most_common(1)[0][0]
        seen = {}
        for name, report in found.reports.items():
            if report["identity"] == mine["identity"]:
                found.local = found.local or name
            twin = seen.setdefault(report["identity"], name)
            problems = list(self.differences(report, mine))
            if twin != name:
                problems.append(f"found the same machine as {twin}, expected another; name it once, with the sum of "
                                "their ranks")
            if problems:
                found.problems[name] = problems
        cpus = {report["cpus"] for report in found.reports.values()}
        if not self.gpus and len(cpus) > 1:
            found.notes.append(f"the hosts have from {min(cpus)} to {max(cpus)} CPUs; all wait for the slowest")

    def differences(self, report: dict, mine: dict):
        if report["version"] != mine["version"]:
            yield (f"found ddl {report['version']}, expected {mine['version']} as on this machine; install that there")
        gpus = tuple(sorted(report["gpus"]))
        if gpus != self.gpus:
            yield (f"found {devices_text(gpus)}, expected {devices_text(self.gpus)} as most hosts have; leave it out, or "
                   "start without asking the hosts: --no-check")
        program = report.get("program", {"state": "executable"})
        if program["state"] != "executable":
            is_mine = report["identity"] == mine["identity"]
            expected = ("a program to start; build it, or give its path" if is_mine else
                        "the program where it is on this machine; copy it there, or keep it on a file system that all "
                        "hosts share")
            yield f"found {program['path']} {program['state']}, expected {expected}"
        port = report.get("port", {"free": True})
        if not port["free"]:
            yield (f"found port {port['number']} not free ({port['reason']}), expected to listen there; choose another "
                   f"--port, or end what `ss -ltnp 'sport = :{port['number']}'` shows")


def devices_text(gpus: tuple) -> str:
    return " and ".join(f"{count} x {model}" for model, count in Counter(gpus).items()) or "no GPUs"
