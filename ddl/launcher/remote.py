"""Runs a command on each of many hosts at once and collects the answers."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass
from typing import Optional

from errors import Interrupted, LaunchError, UsageError
from mpirun import ENDING

AT_ONCE = 400  # each command takes two file descriptors, and the usual limit of a process is 1024
BETWEEN_LOOKS = 0.01  # seconds
OVER_SSH = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=5"]


@dataclass
class Answer:
    status: Optional[int]  # exit status; None if there is none, see `error`
    output: str = ""
    error: str = ""


def find_tool(folder: str) -> str:
    """ddl-topo beside ddlrun, or on PATH."""
    beside = os.path.join(folder, "ddl-topo")
    found = beside if os.access(beside, os.X_OK) else shutil.which("ddl-topo")
    if not found:
        raise LaunchError(f"ddl-topo, which checks a host, was found neither at {beside} nor on PATH; build or install "
                          "it, or start without asking the hosts: --no-check")
    return os.path.abspath(found)


def is_this_machine(name: str) -> bool:
    """Compares names only; the check finds other names of this machine by its identity."""
    mine = socket.gethostname()
    return name in ("localhost", "127.0.0.1", mine, mine.partition(".")[0])


class Remote:
    """Runs shell command lines on hosts. `agent` is as in plm_rsh_agent, alternatives separated by colons. Without it
    srun reaches a Slurm job's nodes, and ssh all other hosts."""

    def __init__(self, agent: str, agent_arguments: str, is_in_slurm: bool):
        self.uses_srun = is_in_slurm and not agent and shutil.which("srun") is not None
        self.agent = agent or "ssh"
        try:
            self.choices = [shlex.split(choice) for choice in self.agent.split(":") if choice.strip()]
            self.arguments = shlex.split(agent_arguments)
        except ValueError as error:
            raise UsageError(f"the agent '{self.agent} {agent_arguments}': {error}") from None

    def program(self) -> list:
        for words in self.choices:
            if shutil.which(words[0]):
                return words + OVER_SSH * (os.path.basename(words[0]) == "ssh")
        raise LaunchError(f"the agent '{self.agent}' was not found or is not executable; expected a command that runs "
                          "another on a host, as ssh does")

    def command(self, host: str, line: str) -> list:
        if self.uses_srun:
            return ["srun", "--overlap", "--quiet", "--nodes=1", "--ntasks=1", f"--nodelist={host}", "sh", "-c", line]
        # Runs `line` in sh, because the user's login shell on the host may be another one.
        return self.program() + self.arguments + [host, "sh -c " + shlex.quote(line)]


class Running:
    """The running commands. After `end`, commands that are added later are killed, too."""

    def __init__(self):
        self.lock = threading.Lock()
        self.processes = []
        self.is_over = False

    def add(self, process) -> None:
        with self.lock:
            self.processes.append(process)
            is_over = self.is_over
        if is_over:
            kill(process)

    def end(self) -> None:
        with self.lock:
            self.is_over = True
            processes = list(self.processes)
        for process in processes:
            kill(process)


def ask(command: list, seconds: int, running: Running) -> Answer:
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, errors="replace", start_new_session=True)
    except OSError as error:
        return Answer(None, error=f"{command[0]} cannot be started: {error.strerror}")
    running.add(process)
    try:
        output, error = process.communicate(timeout=seconds)
        return Answer(process.returncode, output, error)
    except subprocess.TimeoutExpired:
        kill(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        return Answer(None, error=f"no answer within {seconds} s")


def ask_all(commands: dict, seconds: int) -> dict:
    """The answers by the keys of `commands`. Kills commands that take too long, and all of them when a signal asks ddlrun
    to end. Polls for signals instead of using a handler, which could interrupt any statement."""
    running = Running()
    ending = {number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN}  # nohup's stay ignored
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    try:
        with concurrent.futures.ThreadPoolExecutor(max_workers=min(len(commands), AT_ONCE)) as threads:
            asked = {name: threads.submit(ask, command, seconds, running) for name, command in commands.items()}
            while concurrent.futures.wait(asked.values(), timeout=BETWEEN_LOOKS).not_done:
                received = signal.sigtimedwait(ending, 0)
                if received:
                    running.end()
                    raise Interrupted(received.si_signo)
            return {name: answer.result() for name, answer in asked.items()}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def kill(process) -> None:
    """Kills the process and its children."""
    if process.returncode is None:  # otherwise its process id may have been reused
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
