"""Jobs of mpi4py's communicators: five processes form two jobs of two ranks, in reverse order, and one of one rank. Skipped
if mpi4py is missing."""

import sys

import numpy as np

import ddl

try:
    from mpi4py import MPI
except ImportError as problem:
    print(f"skipped: {problem}")
    sys.exit(1)

world = MPI.COMM_WORLD
assert world.size == 5, world.size
group = world.Split(4 if world.rank == 4 else world.rank % 2, -world.rank)
if world.rank == 4:
    try:
        ddl.init(comm=MPI.COMM_NULL)
        raise AssertionError("MPI_COMM_NULL is a job")
    except ValueError as error:
        assert "MPI_COMM_NULL" in str(error), error
with ddl.init("-dbg_level 0", comm=group):
    assert (ddl.rank(), ddl.size()) == (group.rank, group.size), (ddl.rank(), ddl.size())
    group.Free()
    values = np.array([world.rank])
    ddl.all_reduce(values)
    assert values[0] == {0: 2, 1: 4}[world.rank % 2] if world.rank < 4 else 4, values
    ddl.broadcast(values)
assert world.allreduce(1) == 5  # MPI is still usable
if world.rank == 0:
    print("passed")
