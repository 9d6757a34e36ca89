"""ddlrun's options, help text and command-line parser."""

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
  -H, --hosts H1[:N],H2[:N]  hosts, and the number of ranks that each may have (default: the nodes of the Slurm job of
                             SLURM_JOB_ID, the file that OMPI_MCA_orte_default_hostfile names, or this machine)
  --hostfile FILE            hosts from a file, one per line: "h1 slots=4"
  --np N                     number of ranks (default: all that the hosts may have). Hosts that are left over are
                             spares for --max-restarts
  --by host|round_robin      fill one host after the other (default), or place ranks on the hosts in turn
  --agent COMMAND            command that runs another on a host, as ssh does (default: OMPI_MCA_plm_rsh_agent, srun
                             to check a Slurm job's nodes, else ssh, which must not ask for a password)

Environment of all ranks
  --mode M[:GRID], --dbg_level N, --dump_iter N
                             are added to DDL_OPTIONS
  --timeline FILE            DDL_TIMELINE: a trace of all ranks
  --port N                   MASTER_PORT, which must be free on all hosts; MASTER_ADDR is the host of rank 0
  All ranks also get the DDL_* variables of the environment.

How
  --dry-run                  check the hosts, print the command, run nothing
  --no-check                 start without checking the hosts
  --check-seconds S          time that a host has to answer (default 8)
  --max-restarts N           when the job fails, check the hosts again, leave out those that cannot take part, and
                             start the job again, at most N times. The program must resume from its newest checkpoint
  --checkpoints DIR          directory of the checkpoints (default: the program's --out_dir)
  --mpirun-options "..."     further options for mpirun
  -h, --help

The checks run on all hosts at once, by `ddl-topo check`: each host must answer and have the same version of ddl, as
many GPUs of the same kind as most hosts, the program at the same path and the port free.
The exit status is mpirun's, 2 if the command line is wrong, and 1 if the job cannot be started. A program that ends
with 2 is not started again, nor is a job that was ended by SIGINT, SIGTERM, SIGHUP or SIGQUIT. ddlrun passes these
signals on to mpirun, as well as SIGUSR1 and SIGUSR2.
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
    values: dict = field(default_factory=dict)  # by long name; "" for options without a value
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
    """Reads options up to the program's name; the program and its arguments stay as they are."""
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
