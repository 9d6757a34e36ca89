"""ddl.py on any number of ranks: python_test.py DIRECTORY, with ddl.py in PYTHONPATH and the library in DDL_LIBRARY.
DIRECTORY is for checkpoints."""

import array
import ctypes
import gc
import pathlib
import sys
import types

import ddl
import numpy as np
from python_support import reduce_what_backward_reaches, refused


def shared(values, *names):
    """An array that exposes its memory only by these attributes of numpy, like arrays of other libraries."""
    return type("Shared", (), {name: property(lambda self, name=name: getattr(values, name)) for name in names})()


class Tensor:
    """A stand-in for torch's tensor, with the functions that the module uses."""

    def __init__(self, values, device="cpu", requires_grad=False, is_leaf=True, layout="torch.strided"):
        self.values, self.device, self.layout = values, types.SimpleNamespace(type=device, index=0), layout
        self.dtype, self.requires_grad, self.is_leaf = f"torch.{values.dtype}", requires_grad, is_leaf
        self.shape = values.shape

    data_ptr = lambda self: self.values.ctypes.data
    numel = lambda self: self.values.size
    is_contiguous = lambda self: self.values.flags.c_contiguous
    new_zeros = lambda self, shape: Tensor(np.zeros(shape, "float32"))
    detach = lambda self: self
    zero_ = lambda self: self.values.fill(0)

    def copy_(self, other):
        self.values[:] = other.values


class Parameter(Tensor):
    """A trained parameter: backward adds to its gradient, or makes one, and then calls the hooks."""

    def __init__(self, values):
        super().__init__(values, requires_grad=True)
        self.grad, self.hooks = None, []

    def register_post_accumulate_grad_hook(self, hook):
        self.hooks.append(hook)
        return types.SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def backward(self, value):
        if self.grad is None:
            self.grad = Tensor(np.zeros(self.shape, "float32"))
        self.grad.values += value
        for hook in self.hooks:
            hook(self)


assert refused("there is no job", ddl.barrier) == "not_initialized"
ddl.init("-dbg_level 0")
rank, size = ddl.rank(), ddl.size()
assert ddl.version() == "0.1.0" and ddl.local_rank() == rank

# Collectives.
for dtype in ("uint8", "int32", "int64", "float16", "float32", "float64"):
    values = np.full((3, 7), rank + 1, dtype)
    ddl.all_reduce(values)
    assert (values == size * (size + 1) // 2).all(), (dtype, values)
block = ddl.empty((2, size), "float64")
block[:] = rank
ddl.all_reduce(block, "max")
assert block.shape == (2, size) and (block == size - 1).all()
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

# Arrays of any library, without copies.
for values in (array.array("d", [rank, 1]), memoryview(np.array([rank, 1])), (ctypes.c_float * 2)(rank, 1), bytearray([rank, 1])):
    ddl.all_reduce(values)
    assert list(values) == [size * (size - 1) // 2, size], list(values)
for protocol in (["__array_interface__"], ["__dlpack__", "__dlpack_device__"]):
    for dtype in ("uint8", "int32", "int64", "float16", "float32", "float64"):
        values = np.arange(6, dtype=dtype).reshape(2, 3)
        ddl.all_reduce(shared(values, *protocol))
        assert (values.ravel() == np.arange(6) * size).all(), (protocol, values)
    refused("strided", ddl.all_reduce, shared(values[:, 1:], *protocol))
    refused("type: found ", ddl.all_reduce, shared(np.zeros(2, complex), *protocol))
    ddl.all_reduce(shared(values[:0], *protocol))
ones = np.full(3, 0x3F80, "uint16")  # as bfloat16


class BFloat16:
    __dlpack_device__ = ones.__dlpack_device__

    def __dlpack__(self):
        capsule = ones.__dlpack__()
        ddl._DLTensor.from_address(ddl._capsule_pointer(capsule, b"dltensor")).code = 4
        return capsule


ddl.all_reduce(BFloat16())
assert ((ones.astype("uint32") << 16).view("float32") == size).all(), ones
tensor = Tensor(np.full(3, rank, "int64"), requires_grad=True)
ddl.all_reduce(tensor, "max")
assert (tensor.values == size - 1).all()

# A started call keeps its array even if its Work is dropped: it would write to memory that is used otherwise.
dropped = np.zeros(1000)
count = sys.getrefcount(dropped)
ddl.all_reduce_start(dropped)
gc.collect()
assert sys.getrefcount(dropped) == count + 1

# Wrong calls, with helpful messages.
assert refused("strided", ddl.all_reduce, np.zeros((4, 4))[:, 1]) == "invalid_argument"
refused("type: found 'complex128'", ddl.all_reduce, np.zeros(2, complex))
refused("found list", ddl.all_reduce, [1.0])
refused("op: found 'mean'", ddl.all_reduce, values, "mean")
frozen = np.zeros(2)
frozen.setflags(write=False)
refused("read-only", ddl.all_reduce, frozen)
refused("read-only", ddl.all_reduce, b"bytes")
refused("'>f4'", ddl.all_reduce, np.zeros(2, ">f4"))
refused("a number, float32", ddl.all_reduce, np.float32(1))
on_device = Tensor(values, device="cuda")
assert refused(".cpu()", ddl.all_reduce_start, on_device) == "unsupported"
assert refused(".get()", ddl.check_same, [types.SimpleNamespace(__cuda_array_interface__={})]) == "unsupported"
if ddl._library.ddl_device_wait(None) != 1:  # else it has CUDA, and asks for a device first
    assert refused("built without CUDA", ddl.all_reduce, on_device) == "unsupported"
    refused("built without CUDA", ddl.Reducer, {"w": on_device}, gradients="sum")
elsewhere = types.SimpleNamespace(__dlpack__=None, __dlpack_device__=lambda: (2, 1))
assert refused("device (2, 1)", ddl.broadcast, elsewhere) == "unsupported"
refused(".to_dense()", ddl.all_reduce, Tensor(values, layout="torch.sparse_coo"))
refused(".detach()", ddl.all_reduce, Tensor(values, requires_grad=True, is_leaf=False))
refused("found a parameter", ddl.Reducer, {"w": Parameter(np.zeros(2, "float32"))}, gradients="sum")
try:
    ddl.all_reduce([1.0])
except ValueError as error:
    assert error.code == "invalid_argument"
refused("elements of input", ddl.all_gather, np.zeros(3), np.zeros(3 * size + 1))
refused("gradients: found None", ddl.Reducer, {"w": np.zeros(2, "float32")}, gradients=None)
refused("is i32; expected f32, f64, f16 or bf16", ddl.Reducer, {"w": np.zeros(2, "int32")}, gradients="sum")

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
refused("call wait()", reducer.finish, 1)
reducer.close()

# Gradients of other types; 16-bit gradients are summed in 32 bits.
wide, narrow = np.zeros(3), np.zeros(2, "float16")
reducer = ddl.Reducer({"wide": wide, "narrow": narrow}, gradients="sum")
wide[:], narrow[:] = 1 + 2.0**-40, 60000
reducer.ready("narrow"), reducer.ready("wide")
assert reducer.wait(1).finite and (wide == 1 + 2.0**-40).all() and (narrow == 60000).all()
reducer.close()

# With sums of 16 bits, the same overflow.
reducer = ddl.Reducer([narrow], gradients="sum", narrow_sums=True)
narrow[:] = 60000
reducer.ready(0)
assert reducer.wait(1).finite == (size == 1)
reducer.close()

# An update that takes sums would have to multiply means by the weight.
sums = np.full(3, rank + 1, "float32")
reducer = ddl.Reducer([sums], gradients="sum", leave_sums=True)
reducer.ready(0)
assert reducer.wait(5).weight == 5 * size and (sums == size * (size + 1) / 2).all()
reducer.close()

# New arrays for the same gradients; messages that name this module's functions.
arrays = {"a": np.zeros(3, "float32"), "b": np.zeros(2, "float32")}
reducer = ddl.Reducer(arrays, gradients="mean")
for step in range(3):
    arrays = {name: np.full(each.size, rank, "float32") for name, each in arrays.items()}
    reducer.rebind(arrays)
    reducer.begin(1)
    reducer.ready("b"), reducer.ready("a")
    reducer.wait()
    assert all((each == np.float32((size - 1) / 2)).all() for each in arrays.values())
reducer.begin(1)
refused("end it with reducer.wait()", reducer.rebind, arrays)
reducer.ready("a")
refused("gradient 1 ('b') was not made ready in this step; call reducer.ready(1)", reducer.wait)
refused("reducer.wait() without reducer.begin(weight)", reducer.wait)
refused("found gradient 'b' of 3 f32, expected 'b' of 2 f32", reducer.rebind,
        {"a": np.zeros(3, "float32"), "b": np.zeros(3, "float32")})
reducer.begin(1)
refused("never waited for", reducer.close)

# A torch module: gradients become ready automatically, even if dropped, and are absent where backward does not reach.
# Debian's torch is older than what reducers of modules need: an AttributeError would not say so.
old = types.SimpleNamespace(named_parameters=lambda: [("w", Tensor(np.zeros(3, "float32"), requires_grad=True))])
assert refused("expected 2.1 or later (pip install", ddl.Reducer, old, gradients="mean") == "unsupported"
parameters = {name: Parameter(np.zeros(3, "float32")) for name in ("used", "dropped", "elsewhere", "nowhere")}
frozen = Tensor(np.zeros(3, "float32"))
module = types.SimpleNamespace(named_parameters=lambda: [*parameters.items(), ("frozen", frozen)])
reducer = ddl.Reducer(module, gradients="mean")
reduce_what_backward_reaches(parameters, reducer)
parameters["used"].grad.zero_()
reducer.begin(1 if rank == 0 else 0)  # the others' batches are empty
if rank == 0:
    parameters["used"].backward(3)
reducer.wait()
assert (parameters["used"].grad.values == 3).all()
reducer.close()
assert not parameters["used"].hooks

# Data, checkpoints, and work of rank 0.
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
nested = {"model": types.SimpleNamespace(state_dict=lambda: {"w": weights}), "moments": [np.full(2, 5.0), np.zeros(1)]}
checkpoint.save(4, nested)
weights[:], nested["moments"][0][:] = 0, 0
assert checkpoint.restore(nested) == 4 and (weights == 1).all() and (nested["moments"][0] == 5).all()
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
