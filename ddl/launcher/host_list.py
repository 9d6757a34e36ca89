"""The hosts of a job, from whichever source names them, and the placement of ranks on them."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass, replace
from typing import Optional

from errors import LaunchError, UsageError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
SLOTS = re.compile(r"[1-9][0-9]{0,5}")


@dataclass(frozen=True)
class Host:
    name: str
    slots: Optional[int] = None  # the most ranks that it may have; None: not given


def make_host(name: str, slots: Optional[str], origin: str) -> Host:
    if not name:
        raise UsageError(f"{origin}: found an empty name, expected hosts with commas between, as in h1:4,h2:4")
    if not NAME.fullmatch(name):
        raise UsageError(f"{origin}: found the host '{name}', expected a name or an IPv4 address: letters, digits, "
                         "dots, - and _")
    if slots is not None and not SLOTS.fullmatch(slots):
        raise UsageError(f"{origin}: host {name}: found '{slots}' as its number of ranks, expected 1 to 999999, as in "
                         f"{name}:4")
    return Host(name, int(slots) if slots else None)


def without_repeats(hosts: list, origin: str) -> list:
    for name, count in Counter(host.name for host in hosts).items():
        if count > 1:
            raise UsageError(f"{origin}: found the host {name} {count} times, expected each once; several ranks on it "
                             f"are {name}:{count}")
    return hosts


def from_text(text: str, origin: str) -> list:
    hosts = []
    for item in text.split(","):
        name, colon, slots = item.strip().partition(":")
        hosts.append(make_host(name, slots if colon else None, f"{origin} {text}"))
    return without_repeats(hosts, f"{origin} {text}")


def from_file(path: str, origin: str) -> list:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise UsageError(f"{origin} {path}: cannot be read: {error.strerror}") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        where = f"{origin} {path}, line {number}"
        settings = dict(word.partition("=")[::2] for word in words[1:])
        unknown = set(settings) - {"slots", "max_slots", "max-slots"}
        if unknown:
            raise UsageError(f"{where}: found '{sorted(unknown)[0]}', expected a host and slots=N")
        hosts.append(make_host(words[0], settings.get("slots"), where))
    if not hosts:
        raise UsageError(f"{origin} {path}: found no host, expected a line for each, as in: h1 slots=4")
    return without_repeats(hosts, f"{origin} {path}")


def slurm_tasks(text: str) -> list:
    """Parses SLURM_TASKS_PER_NODE: '2(x3),1' is [2, 2, 2, 1]."""
    tasks = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", item)
        if not match:
            raise LaunchError(f"SLURM_TASKS_PER_NODE='{text}': found '{item}', expected numbers as in 2(x3),1; give "
                              "the hosts with -H")
        tasks += [int(match[1])] * int(match[2] or 1)
    return tasks


def from_slurm(environment: dict) -> list:
    nodes = environment["SLURM_JOB_NODELIST"]
    command = ["scontrol", "show", "hostnames", nodes]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"the nodes of Slurm's job {environment['SLURM_JOB_ID']}: {' '.join(command)}: {error}; give "
                          "the hosts with -H") from None
    names = answer.stdout.split()
    if answer.returncode != 0 or not names:
        raise LaunchError(f"the nodes of Slurm's job {environment['SLURM_JOB_ID']}: {' '.join(command)} ended with "
                          f"{answer.returncode} and {len(names)} names: {answer.stderr.strip()}; give the hosts with -H")
    tasks = [None] * len(names)
    if environment.get("SLURM_TASKS_PER_NODE"):
        tasks = slurm_tasks(environment["SLURM_TASKS_PER_NODE"])
    if len(tasks) != len(names):
        raise LaunchError(f"found SLURM_TASKS_PER_NODE for {len(tasks)} nodes, expected {len(names)} as in "
                          f"SLURM_JOB_NODELIST={nodes}; give the hosts with -H")
    return [Host(name, count) for name, count in zip(names, tasks)]


def is_in_slurm(environment: dict) -> bool:
    return bool(environment.get("SLURM_JOB_ID") and environment.get("SLURM_JOB_NODELIST"))


def find(options, environment: dict) -> list:
    """The hosts of the first source that names any: options, Slurm, Open MPI's setting; else this machine."""
    if options.has("--hosts") and options.has("--hostfile"):
        raise UsageError("-H and --hostfile both name hosts: give one")
    if options.has("--hosts"):
        return from_text(options.text("--hosts"), "-H")
    if options.has("--hostfile"):
        return from_file(options.text("--hostfile"), "--hostfile")
    if is_in_slurm(environment):
        return from_slurm(environment)
    if environment.get("OMPI_MCA_orte_default_hostfile"):
        return from_file(environment["OMPI_MCA_orte_default_hostfile"], "OMPI_MCA_orte_default_hostfile")
    return [Host("localhost")]


def with_slots(hosts: list, np: Optional[int], gpus: dict) -> list:
    """Gives slots to hosts without a number of ranks. They share the part of `np` that the other hosts leave; without
    `np` each gets one slot per GPU (`gpus`: known numbers by host name), or one."""
    open_hosts = [host for host in hosts if host.slots is None]
    shares = {host.name: max(1, gpus.get(host.name, 0)) for host in open_hosts}
    if np is not None and open_hosts:
        left = max(0, np - sum(host.slots or 0 for host in hosts))
        each, more = divmod(left, len(open_hosts))
        shares = {host.name: max(1, each + (i < more)) for i, host in enumerate(open_hosts)}
    return [replace(host, slots=shares.get(host.name, host.slots)) for host in hosts]


def by_host(hosts: list, np: int) -> list:
    """The hosts that get ranks, filled one after the other; `slots` becomes the number of ranks."""
    filled = []
    for host in hosts:
        count = min(host.slots, np)
        np -= count
        if count > 0:
            filled.append(replace(host, slots=count))
    return filled


def round_robin(hosts: list, np: int) -> list:
    """As by_host, but places ranks in turn on the hosts that still have slots."""
    counts = {host.name: 0 for host in hosts}
    while np > 0:
        for host in hosts:
            if np > 0 and counts[host.name] < host.slots:
                counts[host.name] += 1
                np -= 1
    return [replace(host, slots=counts[host.name]) for host in hosts if counts[host.name] > 0]


def place(hosts: list, np: Optional[int], by: str) -> list:
    room = sum(host.slots for host in hosts)
    if np is not None and np > room:
        raise UsageError(f"--np {np}: found {room} slots on {len(hosts)} host{'s' * (len(hosts) != 1)}, expected {np}; "
                         "allow hosts more ranks with -H HOST:N")
    return (by_host if by == "host" else round_robin)(hosts, room if np is None else np)
