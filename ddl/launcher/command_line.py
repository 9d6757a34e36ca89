"""ddlrun's options: what they are, and how a command line is read."""

from __future__ import annotations

import difflib
import shlex
from dataclasses import dataclass, field
from typing import Optional

from errors import UsageError

HELP = """ddlrun: checks the hosts of a job, prints the mpirun command for it, and runs that

  ddlrun --np 2 ddl_nmt --preset=quickstart --out_dir=model
                                           2 ranks on this machine
  ddlrun -H h1:4,h2:4 ./train              8 ranks on two hosts: 0 to 3 on h1, 4 to 7 on h2
  ddlrun -H h1,h2 ./train                  a rank for each GPU of h1 and h2; 1 on each if they have none
  ddlrun -H h1:4,h2:4 --by round_robin ./train
                                           ranks 0, 2, 4, 6 on h1, the others on h2
  ddlrun -H h1:4,h2:4 --dry-run ./train    checks the hosts, prints the command, runs nothing
  ddlrun -H h1:4,h2:4 --mode p:4x2 --dbg_level 1 --timeline trace.json ./train
                                           with DDL_OPTIONS and DDL_TIMELINE for all ranks
  ddlrun -H h1:4,h2:4 --max-restarts 3 ddl_nmt --out_dir=/shared/model ...
                                           starts again from the newest checkpoint when a host or a rank dies
  ddlrun -H h1:4,h2:4,h3:4 --np 8 --max-restarts 3 --checkpoints /shared/run ./train
                                           h3 is a spare
  ddlrun ./train                           inside a Slurm job: on its nodes, with its tasks per node

Usage: ddlrun [OPTIONS] PROGRAM [ARGUMENTS]

Where
  -H, --hosts H1[:N],H2[:N]  hosts, and how many ranks each may have. Without: the nodes of the Slurm job that this
                             is (SLURM_JOB_ID), the file that OMPI_MCA_orte_default_hostfile names, or this machine
  --hostfile FILE            the same from a file, a line a host: "h1 slots=4"
  --np N                     ranks in all; unless given, all that the hosts may have. Hosts that are left over are
                             spares for --max-restarts
  --by host|round_robin      fill one host after the other (default), or deal the ranks out in turns
  --agent COMMAND            what runs a command on another host, as ssh does (default: OMPI_MCA_plm_rsh_agent, srun
                             to check a Slurm job's nodes, else ssh, which must not need a password)

What all ranks get
  --mode M[:GRID], --dbg_level N, --dump_iter N
                             go into DDL_OPTIONS, beside what that already holds
  --timeline FILE            DDL_TIMELINE: a trace of all ranks
  --port N                   checked to be free on all hosts; MASTER_PORT, with MASTER_ADDR the host of rank 0
  DDL_* variables of the environment go along.

How
  --dry-run                  check, print the command, run nothing
  --no-check                 start without asking the hosts
  --check-seconds S          how long a host has to answer (default 8)
  --max-restarts N           when the job fails, check the hosts again, leave out those that cannot take part, and
                             start it again, N times at most. The program must go on from its newest checkpoint
  --checkpoints DIR          where that is (default: the program's --out_dir)
  --mpirun-options "..."     further options for mpirun
  -h, --help

The checks ask all hosts at once: does it answer, has it this version of ddl, as many GPUs of the same kind as the
others, the program at the same path, the port free? The remote end is `ddl-topo check`.
Ends with mpirun's status, with 2 if the command line is wrong, and with 1 if the job could not be started. A program
that ends with 2 is not started again, nor is a job that was ended by SIGINT, SIGTERM, SIGHUP or SIGQUIT, which go on
to mpirun, as SIGUSR1 and SIGUSR2 do.
"""

FLAGS = {  # name: whether it takes a value
    "--hosts": True, "--hostfile": True, "--np": True, "--by": True, "--agent": True, "--mode": True,
    "--dbg_level": True, "--dump_iter": True, "--timeline": True, "--port": True, "--check-seconds": True,
    "--max-restarts": True, "--checkpoints": True, "--mpirun-options": True,
    "--dry-run": False, "--no-check": False, "--help": False,
}
SHORT = {"-H": "--hosts", "-h": "--help", "-np": "--np", "-n": "--np"}


@dataclass
class Options:
    values: dict = field(default_factory=dict)  # by long name; "" for those without value
    program: list = field(default_factory=list)

    def has(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str, otherwise: Optional[str] = None) -> Optional[str]:
        return self.values.get(name, otherwise)

    def integer(self, name: str, otherwise: Optional[int], least: int, most: int) -> Optional[int]:
        text = self.values.get(name)
        if text is None:
            return otherwise
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise UsageError(f"{name}: found '{text}', expected an integer from {least} to {most}")
        return int(text)

    def words(self, name: str) -> list:
        try:
            return shlex.split(self.values.get(name, ""))
        except ValueError as error:
            raise UsageError(f"{name}: found '{self.values[name]}': {error}; expected words as in a shell") from None


def parse(arguments: list) -> Options:
    """Options up to the program's name, then the program and its arguments as they are."""
    options = Options()
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        name = SHORT.get(name, name)
        if name not in FLAGS:
            nearest = difflib.get_close_matches(name, FLAGS, n=1, cutoff=0)[0]
            raise UsageError(f"unknown option '{name}'; the nearest is {nearest}. Options go before the program")
        if name == "--help":
            return Options({"--help": ""})
        if not FLAGS[name] and equals:
            raise UsageError(f"{name} takes no value: found '{word}'")
        if FLAGS[name] and not equals:
            if not rest:
                raise UsageError(f"{name} needs a value")
            value = rest.pop(0)
        if FLAGS[name] and not value:
            raise UsageError(f"{name}: found an empty value")
        if name in options.values:
            raise UsageError(f"{name} is given twice")
        options.values[name] = value
    options.program = rest
    if not rest or not rest[0]:
        raise UsageError("found no program, expected one after the options, as in: ddlrun --np 2 ./train")
    return options
