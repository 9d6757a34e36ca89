"""The main program of ddlrun: checks, starts and restarts a job."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import sys

import checkpoints
import command_line
import host_list
import mpirun
import rank_environment
from errors import Interrupted, LaunchError, UsageError
from host_check import Checker
from remote import Remote, find_tool, is_this_machine

USAGE_STATUS = 2  # also of programs, which are not restarted: a wrong command line stays wrong


def tell(text: str) -> None:
    print(f"ddlrun: {text}", file=sys.stderr, flush=True)


def ranks_text(hosts: list) -> str:
    ranks = sum(host.slots for host in hosts)
    return (f"{len(hosts)} host{'s' * (len(hosts) != 1)} with {ranks} rank{'s' * (ranks != 1)}: "
            + ", ".join(host.name for host in hosts))


class Launch:
    def __init__(self, options, environment: dict, folder: str):
        self.options = options
        self.by = options.text("--by", "host")
        if self.by not in ("host", "round_robin"):
            raise UsageError(f"--by: found '{self.by}', expected host or round_robin")
        self.np = options.integer("--np", None, 1, 1 << 24)
        self.restarts = options.integer("--max-restarts", 0, 0, 1_000_000)
        self.checkpoints = checkpoints.directory_of(options)
        if self.restarts and options.has("--no-check"):
            raise UsageError("--max-restarts checks the hosts before it restarts a job, so it excludes --no-check")
        self.variables = rank_environment.collect(options, environment)
        port = options.integer("--port", None, 1, 65535)
        self.program = [mpirun.path_of(options.program[0])] + options.program[1:]
        seconds = options.integer("--check-seconds", 8, 1, 3600)
        options.words("--mpirun-options")
        if not options.has("--dry-run"):
            mpirun.check_is_there()
        self.hosts = host_list.find(options, environment)
        self.agent = mpirun.agent_of(options, environment)
        self.local = next((host.name for host in self.hosts if is_this_machine(host.name)), None)
        self.placed = []  # the hosts of the job that runs
        self.checker = None
        if not options.has("--no-check"):
            remote = Remote(self.agent, environment.get("OMPI_MCA_plm_rsh_args", ""), host_list.is_in_slurm(environment))
            self.checker = Checker(find_tool(folder), remote, self.program[0], port, seconds)

    def check(self) -> None:
        """Raises LaunchError unless all hosts can take part. For the first start."""
        gpus = {}
        if self.checker:
            survey = self.checker.survey([host.name for host in self.hosts])
            for note in survey.notes:
                tell(f"note: {note}")
            bad = [host.name for host in self.hosts if host.name in survey.problems]
            for name in bad:
                for problem in survey.problems[name]:
                    tell(f"error: host {name}: {problem}")
            if bad:
                raise LaunchError(f"{len(bad)} of {len(self.hosts)} hosts cannot take part: {', '.join(bad)}; nothing "
                                  "was started")
            gpus, self.local = survey.gpus(), survey.local
        self.hosts = host_list.with_slots(self.hosts, self.np, gpus)

    def remaining(self) -> list:
        """The hosts that can still take part."""
        survey = self.checker.survey([host.name for host in self.hosts])
        for host in self.hosts:
            for problem in survey.problems.get(host.name, []):
                tell(f"host {host.name} is left out: {problem}")
        return [host for host in self.hosts if host.name not in survey.problems]

    def has_lost_host(self) -> bool:
        """Whether a host of the job that runs no longer answers."""
        try:
            survey = self.checker.survey([host.name for host in self.placed])
        except LaunchError:
            return False
        lost = [host.name for host in self.placed if host.name not in survey.reports]
        if lost:
            tell(f"the job has no ranks here any more, and {', '.join(lost)} cannot be reached: ends mpirun")
        return bool(lost)

    def local_first(self, placed: list) -> list:
        """Moves this machine to the front: mpirun gives it the first ranks, wherever -H names it."""
        local = [host for host in placed if host.name == self.local]
        if local and local[0] != placed[0]:
            tell(f"note: rank 0 is on {local[0].name}: mpirun begins with the host that it runs on")
        return local + [host for host in placed if host not in local]

    def command(self, hosts: list, is_restart: bool) -> list:
        np = self.np
        if is_restart and np is not None:
            np = min(np, sum(host.slots for host in hosts))
        placed = self.local_first(host_list.place(hosts, np, self.by))
        self.placed = placed
        ranks = sum(host.slots for host in placed)
        variables, note = rank_environment.fit_grid(self.variables, ranks, is_restart)
        if note:
            tell(f"note: {note}")
        if self.options.has("--port"):
            variables = dict(variables, MASTER_ADDR=placed[0].name)
        if is_restart:
            tell(f"starts on {ranks_text(placed)}")
        return mpirun.command(placed, self.options, self.agent, variables, self.program)

    def run(self) -> int:
        self.check()
        words = self.command(self.hosts, is_restart=False)
        if self.options.has("--dry-run"):
            print(shlex.join(words))
            return 0
        for restart in itertools.count(1):
            print(shlex.join(words), file=sys.stderr, flush=True)
            watch = self.has_lost_host if self.checker and self.placed[0].name == self.local else None
            status, is_interrupted = mpirun.run(words, watch)
            if is_interrupted or status in (0, USAGE_STATUS, 128 + signal.SIGINT) or not self.restarts:
                return status
            if restart > self.restarts:
                tell(f"the job ended with status {status}; all {self.restarts} restarts are used up")
                return status
            words = self.restart(restart, status)

    def restart(self, number: int, status: int) -> list:
        tell(f"the job ended with status {status}; restart {number} of {self.restarts}")
        hosts = self.remaining()
        if not hosts:
            raise LaunchError(f"no host is left of {', '.join(host.name for host in self.hosts)}; bring one back and "
                              "start again")
        words = self.command(hosts, is_restart=True)
        newest = checkpoints.newest(self.checkpoints)
        tell(f"the newest checkpoint is {newest}" if newest else
             f"there is no checkpoint in {self.checkpoints} yet: the job begins from the start")
        return words


def end(number, _frame) -> None:
    raise Interrupted(number)


def main(arguments: list, folder: str) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, mpirun.PASSED_ON - mpirun.ENDING)  # pending until a job runs
    for number in mpirun.ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup's ignored signals stay ignored
            signal.signal(number, end)
    try:
        options = command_line.parse(arguments)
        if options.has("--help"):
            print(command_line.HELP, end="")
            return 0
        return Launch(options, dict(os.environ), folder).run()
    except UsageError as error:
        tell(f"{error}\nddlrun --help shows how it is used.")
        return error.status
    except (LaunchError, Interrupted) as error:
        tell(str(error))
        return error.status
