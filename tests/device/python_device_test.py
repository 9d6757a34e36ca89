"""CUDA arrays in ddl.py, on two emulated devices: python_device_test.py LIBRARY, the emulated CUDA runtime. Its devices' memory
is the host's."""

import ctypes
import sys
import threading
import types

import ddl
import numpy as np
from python_support import reduce_what_backward_reaches, refused

cuda = ctypes.CDLL(sys.argv[1])
for name in ("cudaMalloc", "cudaStreamCreateWithFlags", "cudaStreamSynchronize"):
    getattr(cuda, name).argtypes = {"cudaMalloc": [ctypes.c_void_p, ctypes.c_size_t],
                                    "cudaStreamCreateWithFlags": [ctypes.c_void_p, ctypes.c_uint],
                                    "cudaStreamSynchronize": [ctypes.c_void_p]}[name]
ddl.init("-dbg_level 0")
rank, size, number = ddl.rank(), ddl.size(), ddl.local_rank() % 2
assert cuda.cudaSetDevice(number) == 0
stream = ctypes.c_void_p()
assert cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), 1) == 0


def on_device(values):
    """A view of a copy on the device."""
    values = np.asarray(values)
    memory = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(memory), max(1, values.nbytes)) == 0
    block = (ctypes.c_byte * values.nbytes).from_address(memory.value)
    view = np.frombuffer(block, values.dtype).reshape(values.shape)
    view[...] = values
    return view


class Array:
    """As CuPy's, of whose interface it has what the module reads."""

    def __init__(self, values, number=None):
        self.values = on_device(values)
        if number is not None:
            self.device = types.SimpleNamespace(id=number)

    @property
    def __cuda_array_interface__(self):
        return {**self.values.__array_interface__, "strides": None, "version": 3, "stream": stream.value}

    def expect(self, expected):
        assert cuda.cudaStreamSynchronize(stream) == 0
        assert (self.values == expected).all(), (self.values, expected)


class Tensor:
    """As torch's on a device."""

    def __init__(self, values, requires_grad=False):
        self.values, self.requires_grad, self.is_leaf, self.layout = on_device(values), requires_grad, True, "torch.strided"
        self.device, self.dtype, self.shape = types.SimpleNamespace(type="cuda", index=number), f"torch.{values.dtype}", values.shape
        self.grad, self.hooks = None, []

    data_ptr = lambda self: self.values.ctypes.data
    numel = lambda self: self.values.size
    is_contiguous = lambda self: True
    new_zeros = lambda self, shape: Tensor(np.zeros(shape, "float32"))
    detach = lambda self: self
    zero_ = lambda self: self.values.fill(0)

    def copy_(self, other):
        self.values[:] = other.values

    def register_post_accumulate_grad_hook(self, hook):
        self.hooks.append(hook)
        return types.SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def backward(self, value):
        if self.grad is None:
            self.grad = Tensor(np.zeros(self.shape, "float32"))
        self.grad.values += value
        # Autograd calls hooks on a thread of its own.
        thread = threading.Thread(target=lambda: [hook(self) for hook in self.hooks])
        thread.start()
        thread.join()


# The first array makes the communicator.
assert ddl.device() == -1
sums = Array(np.full((2, 5), rank + 1, "float32"), number)
ddl.all_reduce(sums)
sums.expect(size * (size + 1) / 2)
assert ddl.device() == number
ddl.all_reduce(sums, "avg")
sums.expect(size * (size + 1) / 2)
root = Array(np.full(3, rank, "int64"))
ddl.broadcast(root, root=size - 1)
root.expect(size - 1)
part, pieces = Array(np.zeros(3, "int32")), Array(np.ones(3 * size, "int32"))
ddl.reduce_scatter(pieces, part)
part.expect(size)
part.values[:] = rank
ddl.all_gather(part, pieces)
pieces.expect(np.repeat(np.arange(size), 3))
tensor = Tensor(np.full(3, 1.0, "float32"))
ddl.all_reduce(tensor)
assert cuda.cudaStreamSynchronize(None) == 0 and (tensor.values == size).all()

# Arrays of a model, on the device and in host memory.
model = {"w": Array(np.full(7, rank, "float32")), "moments": [Array(np.full(2, rank, "float64")), np.full(2, rank)]}
ddl.broadcast_parameters(model, root=size - 1)
model["w"].expect(size - 1)
model["moments"][0].expect(size - 1)
assert (model["moments"][1] == size - 1).all()

# What is refused, with words that help.
on_host = np.zeros(3, "float32")
assert refused("expected host memory", ddl.all_reduce_start, sums) == "unsupported"
refused(".get()", ddl.check_same, {"w": sums})
refused("expected host memory", ddl.reduce, tensor)
refused("output: found host memory, expected memory of a CUDA device, as input", ddl.all_gather, part, np.zeros(3 * size, "int32"))
refused("gradient 'b': found host memory, expected memory of a CUDA device, as gradient 'a'", ddl.Reducer,
        {"a": sums, "b": on_host}, gradients="sum")
refused("gradient 'a': found memory of a CUDA device", ddl.Reducer, {"b": on_host, "a": sums}, gradients="sum")
refused(f"device 7, expected one on device {number}", ddl.all_reduce, Array(on_host, 7))
refused("call wait()", ddl.Reducer({"b": on_host}, gradients="sum").finish, 1)

# A reducer with an embedding.
weights, rows = Array(np.zeros(5, "float32")), Array(np.zeros((10, 4), "float32"))
reducer = ddl.Reducer({"weights": weights, "rows": rows}, gradients="sum", row_width={"rows": 4})
for step in range(3):
    weights.values[:], rows.values[:], rows.values[1] = rank + 1, 0, 2
    reducer.ready("rows", rows=[1])
    reducer.ready(0)
    if step == 0:
        reducer.finish(weight=2)
        weights.expect((size + 1) / 4)
        assert reducer.result().weight == 2 * size
    else:
        found = reducer.wait(weight=2)
        assert found.weight == 2 * size and found.finite and (weights.values == (size + 1) / 4).all()
    assert (rows.values[1] == 1).all() and (rows.values[2:] == 0).all()
refused("index: found 9", reducer.ready, 9)
reducer.close()

# A torch module on the device, with micro-batches.
parameters = {name: Tensor(np.zeros(3, "float32"), requires_grad=True) for name in ("used", "dropped", "elsewhere", "nowhere")}
module = types.SimpleNamespace(named_parameters=parameters.items)
reducer = ddl.Reducer(module, gradients="mean", micro_batches=True)
reduce_what_backward_reaches(parameters, reducer)
for each in parameters.values():
    each.grad = None
for micro_batch in range(2):
    reducer.begin(1)
    parameters["used"].grad = None  # as zero_grad() does: of means each micro-batch leaves its own
    parameters["used"].backward(4 * micro_batch)
    if micro_batch == 0:
        with reducer.no_sync():
            reducer.wait()
    else:
        assert reducer.wait().weight == 2 * size
assert (parameters["used"].grad.values == 2).all() and parameters["nowhere"].grad is None
ddl.finalize()
if rank == 0:
    print(f"rank 0 of {size} passed")
