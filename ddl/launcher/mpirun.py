"""Builds the mpirun command of a job, and runs it."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import time

from errors import Interrupted, LaunchError

ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
PASSED_ON = ENDING | {signal.SIGUSR1, signal.SIGUSR2}
LOOK_SECONDS = 5  # between looks at mpirun's processes
SI_KERNEL = 0x80  # si_code of signals from a terminal, which mpirun receives as well


def check_is_there() -> None:
    if shutil.which("mpirun") is None:
        raise LaunchError("mpirun was not found on PATH; expected Open MPI's. Debian: apt-get install openmpi-bin")


def command(hosts: list, options, agent: str, variables: dict, program: list) -> list:
    """The mpirun command. The `slots` of `hosts` are their numbers of ranks."""
    ranks = sum(host.slots for host in hosts)
    words = ["mpirun", "-np", str(ranks), "-H", ",".join(f"{host.name}:{host.slots}" for host in hosts)]
    words += ["--map-by", "slot" if options.text("--by", "host") == "host" else "node"]
    further = options.words("--mpirun-options")
    if not {"--bind-to", "-bind-to"} & set(further):
        words += ["--bind-to", "none"]  # mpirun binds each of up to two processes to a single core otherwise
    if options.has("--agent"):
        words += ["--mca", "plm", "rsh"]  # otherwise Slurm's srun has precedence over the agent
    if agent:
        words += ["--mca", "plm_rsh_agent", agent]
    for name, value in variables.items():
        words += ["-x", f"{name}={value}"]
    return words + further + program


def has_children(process: int) -> bool:
    for path in glob.glob(f"/proc/{process}/task/*/children"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
            if file.read().strip():
                return True
    return False


def end_now(process) -> None:
    """mpirun ends at once at a second SIGTERM within 5 s, and removes its files."""
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(1)
    process.kill()


def run(words: list, has_lost_host) -> tuple:
    """Runs mpirun and passes signals on to it. When mpirun has no process here, neither a rank nor an agent that starts
    a host, and `has_lost_host()`, ends mpirun, which would wait for that host until TCP gives up after 15 minutes. None
    for `has_lost_host` never ends mpirun. Returns the exit status as a shell gives it, and whether a signal asked
    ddlrun to end."""
    passed_on = {number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN}  # nohup's stay ignored
    watched = passed_on | {signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    is_interrupted = False
    try:
        process = subprocess.Popen(words, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, watched))
        while process.poll() is None:
            received = signal.sigtimedwait(watched, LOOK_SECONDS)
            if received is None:
                try:
                    if has_lost_host and not has_children(process.pid) and has_lost_host():
                        end_now(process)
                except Interrupted as end:
                    is_interrupted = True
                    process.send_signal(end.number)
                continue
            if received.si_signo == signal.SIGCHLD:
                continue
            is_interrupted |= received.si_signo in ENDING
            if received.si_code != SI_KERNEL:
                process.send_signal(received.si_signo)
    except OSError as error:
        raise LaunchError(f"{words[0]} cannot be started: {error.strerror}") from None
    finally:
        while True:  # consumes signals that arrived while mpirun was ending
            late = signal.sigtimedwait(watched, 0)
            if late is None:
                break
            is_interrupted |= late.si_signo in ENDING
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    status = process.returncode
    return (128 - status if status < 0 else status), is_interrupted


def agent_of(options, environment: dict) -> str:
    """The agent of the command line or the environment; the command names both, so that the printed one is complete."""
    return options.text("--agent") or environment.get("OMPI_MCA_plm_rsh_agent", "")


def path_of(program: str) -> str:
    """The program's absolute path, which all hosts should have; a name that is not on PATH here stays a name."""
    if "/" in program:
        return os.path.abspath(program)
    return shutil.which(program) or program
