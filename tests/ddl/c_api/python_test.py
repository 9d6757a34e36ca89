"""ddl.py on any number of ranks: python_test.py DIRECTORY, with ddl.py in PYTHONPATH and the library as DDL_LIBRARY says.
DIRECTORY is for checkpoints."""

import pathlib
import sys

import numpy as np

import ddl


def refused(words, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except ddl.Error as error:
        assert words in str(error), f"found {error!r}, expected {words!r}"
        return error.code
    raise AssertionError(f"{function} took {arguments} {named}; expected an error with {words!r}")


assert refused("there is no job", ddl.barrier) == "not_initialized"
ddl.init("-dbg_level 0")
rank, size = ddl.rank(), ddl.size()
assert ddl.version() == "0.1.0" and ddl.local_rank() == rank

# Collectives.
for dtype in ("uint8", "int32", "int64", "float16", "float32", "float64"):
    values = np.full((3, 7), rank + 1, dtype)
    ddl.all_reduce(values)
    assert (values == size * (size + 1) // 2).all(), (dtype, values)
shared = ddl.empty((2, size), "float64")
shared[:] = rank
ddl.all_reduce(shared, "max")
assert shared.shape == (2, size) and (shared == size - 1).all()
ddl.reduce(values, "min", root=size - 1)
root = np.array([rank])
ddl.broadcast(root, root=size - 1)
assert root[0] == size - 1
pieces = np.empty(3 * size, "int64")
ddl.all_gather(np.full(3, rank), pieces)
assert (pieces == np.repeat(np.arange(size), 3)).all()
part = np.empty(3, "int64")
works = [ddl.reduce_scatter_start(np.ones(3 * size, "int64"), part), ddl.all_reduce_start(root, "prod")]
while not works[1].test():
    pass
for work in works:
    work.wait()
assert (part == size).all()
ddl.barrier()

# What is refused, with words that help.
assert refused("strided", ddl.all_reduce, np.zeros((4, 4))[:, 1]) == "invalid_argument"
refused("type: found 'complex128'", ddl.all_reduce, np.zeros(2, complex))
refused("found list", ddl.all_reduce, [1.0])
refused("op: found 'mean'", ddl.all_reduce, values, "mean")
frozen = np.zeros(2)
frozen.setflags(write=False)
refused("read-only", ddl.all_reduce, frozen)
refused("elements of input", ddl.all_gather, np.zeros(3), np.zeros(3 * size + 1))
refused("gradients: found None", ddl.Reducer, {"w": np.zeros(2, "float32")}, gradients=None)
refused("found float64, expected float32", ddl.Reducer, {"w": np.zeros(2)}, gradients="sum")

# A reducer with an embedding, by name and by index.
weights, rows = np.zeros(5, "float32"), np.zeros((10, 4), "float32")
reducer = ddl.Reducer({"weights": weights, "rows": rows}, gradients="sum", row_width={"rows": 4})
for _ in range(3):
    weights[:], rows[:], rows[1] = rank + 1, 0, 2
    reducer.ready("rows", rows=[1])
    reducer.ready(0)
    step = reducer.wait(weight=2)
    assert step.weight == 2 * size and step.finite and (weights == (size + 1) / 4).all() and (rows[1] == 1).all()
with reducer.no_sync():
    weights[:] = 1
    reducer.ready("weights"), reducer.absent("rows")
    reducer.wait(1)
weights[:], rows[:] = 2, 0
reducer.ready("weights"), reducer.absent("rows")
reducer.wait(1)
assert (weights == 1).all(), weights
refused("gradient: found 'weight'", reducer.ready, "weight")
reducer.close()

# Data, checkpoints, and what rank 0 does alone.
sampler = ddl.Sampler(100, batch_size=3, seed=7)
counted = np.zeros(100, "int64")
for _, samples in zip(range(sampler.steps_per_epoch), sampler):
    counted[samples] += 1
ddl.all_reduce(counted)
assert (counted == 1).all(), counted
assert ddl.learning_rate(0.5, "linear", step=5, ramp_steps=10) == 0.5 * (1 + (size - 1) * 0.5)
checkpoint = ddl.Checkpoint(pathlib.Path(sys.argv[1]), sampler=sampler)
assert checkpoint.restore({"w": weights}) is None and checkpoint.poll() is None
checkpoint.save(3, {"w": weights})
after = next(sampler)
weights[:] = 0
assert checkpoint.restore({"w": weights}) == 3 and (weights == 1).all() and next(sampler) == after
checkpoint.close()
ddl.check_same({"w": weights})
model = {"w": np.full(4, rank, "float64"), "b": np.full(2, rank)}
ddl.broadcast_parameters(model, root=size - 1)
assert (model["w"] == size - 1).all() and (model["b"] == size - 1).all()
if size > 1:
    weights[0] = rank
    assert refused("parameter 0 is 'w'", ddl.check_same, {"w": weights}) == "mismatch"
with ddl.scope("evaluation"), ddl.root_only("log") as is_root:
    assert is_root == (rank == 0)
try:
    with ddl.root_only("log") as is_root:
        if is_root:
            raise OSError("full")
    raise AssertionError("rank 0's error is lost")
except (ddl.Error, OSError) as error:
    assert "OSError: full" in str(error) if rank != 0 else True
ddl.finalize()
if rank == 0:
    print(f"{size} ranks passed")
