"""The mpirun command of a job, and running it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

from errors import LaunchError

ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
PASSED_ON = ENDING | {signal.SIGUSR1, signal.SIGUSR2}
SI_KERNEL = 0x80  # siginfo's code of signals that a terminal sends, to mpirun as well


def check_is_there() -> None:
    if shutil.which("mpirun") is None:
        raise LaunchError("mpirun was not found on PATH; expected Open MPI's. Debian: apt-get install openmpi-bin")


def command(hosts: list, options, agent: str, variables: dict, program: list) -> list:
    """`hosts` with as many slots as they get ranks."""
    ranks = sum(host.slots for host in hosts)
    words = ["mpirun", "-np", str(ranks), "-H", ",".join(f"{host.name}:{host.slots}" for host in hosts)]
    words += ["--map-by", "slot" if options.text("--by", "host") == "host" else "node"]
    further = options.words("--mpirun-options")
    if not {"--bind-to", "-bind-to"} & set(further):
        words += ["--bind-to", "none"]  # else each of two processes would get a single core
    if options.has("--agent"):
        words += ["--mca", "plm", "rsh"]  # else Slurm's srun would go before it
    if agent:
        words += ["--mca", "plm_rsh_agent", agent]
    for name, value in variables.items():
        words += ["-x", f"{name}={value}"]
    return words + further + program


def run(words: list) -> tuple:
    """The exit status as a shell has it, and whether a signal to ddlrun asked for the end. Signals go on to mpirun."""
    passed_on = {number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN}  # nohup's stay ignored
    watched = passed_on | {signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    is_interrupted = False
    try:
        process = subprocess.Popen(words, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, watched))
        while process.poll() is None:
            received = signal.sigwaitinfo(watched)
            if received.si_signo == signal.SIGCHLD:
                continue
            is_interrupted |= received.si_signo in ENDING
            if received.si_code != SI_KERNEL:
                process.send_signal(received.si_signo)
    except OSError as error:
        raise LaunchError(f"{words[0]} cannot be started: {error.strerror}") from None
    finally:
        while True:  # what came while mpirun ended
            late = signal.sigtimedwait(watched, 0)
            if late is None:
                break
            is_interrupted |= late.si_signo in ENDING
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    status = process.returncode
    return (128 - status if status < 0 else status), is_interrupted


def agent_of(options, environment: dict) -> str:
    """Also where it comes from the environment, so that the printed command is complete."""
    return options.text("--agent") or environment.get("OMPI_MCA_plm_rsh_agent", "")


def path_of(program: str) -> str:
    """As all hosts should find it; a name that is not here stays one."""
    if "/" in program:
        return os.path.abspath(program)
    return shutil.which(program) or program
