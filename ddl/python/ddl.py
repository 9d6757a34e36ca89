"""Data-parallel training from Python: the C library (ddl/ddl.h) on numpy arrays and torch tensors in host memory.

    import ddl

    ddl.init()                                    # mpirun's rank and size; one rank without mpirun
    ddl.broadcast_parameters({"w": weights})      # all ranks start with rank 0's parameters
    reducer = ddl.Reducer({"w": gradient}, gradients="sum")
    for samples in ddl.Sampler(len(data), batch_size=64):
        backward(samples, when_ready=reducer.ready)   # calls reducer.ready("w") as soon as that gradient is final
        reducer.wait(weight=len(samples))             # the gradients are now means over all ranks' samples
        update(rate=ddl.learning_rate(0.1, "linear"))
    ddl.finalize()

All ranks must call collective functions together, in the same order, with arrays of the same size and type. Arrays must be
contiguous, and their memory must stay valid while a reducer or a started call uses it; this module keeps references to them.
Errors are `ddl.Error`, with the library's message and a `code` such as "mismatch".

The library is libddl_c.so.0: the file that DDL_LIBRARY names, else the one beside this file (in a wheel), else the one that
the loader finds.
"""

import contextlib
import ctypes
import os
import pathlib

__all__ = ["Checkpoint", "Error", "Reducer", "Sampler", "Step", "Work", "abort", "all_gather", "all_gather_start",
           "all_reduce", "all_reduce_start", "barrier", "broadcast", "broadcast_parameters", "broadcast_start", "check_same", "empty",
           "finalize", "init", "learning_rate", "local_rank", "rank", "reduce", "reduce_scatter",
           "reduce_scatter_start", "root_only", "scope", "size", "version"]

TYPES = {"uint8": 0, "int32": 1, "int64": 2, "float32": 3, "float64": 4, "float16": 5, "bfloat16": 6}
OPS = {"sum": 0, "avg": 1, "min": 2, "max": 3, "prod": 4}
KINDS = {"sum": 1, "mean": 2}
RULES = {"none": 0, "linear": 1, "square_root": 2}
WIRES = {None: 0, "float16": TYPES["float16"], "bfloat16": TYPES["bfloat16"]}
REQUESTS = (None, "save", "save_and_end")


class Error(RuntimeError):
    """An error of the library; `code` is "invalid_argument", "mismatch", "timeout", ..."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class _Gradient(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("values", ctypes.c_void_p), ("count", ctypes.c_int64),
                ("row_width", ctypes.c_int64)]


class _Options(ctypes.Structure):
    _fields_ = [("gradients", ctypes.c_int), ("bucket_bytes", ctypes.c_int64), ("wire", ctypes.c_int),
                ("after_backward", ctypes.c_int)]


class _Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("values", ctypes.c_void_p), ("count", ctypes.c_int64),
                ("type", ctypes.c_int)]


class Step(ctypes.Structure):
    """The result of a step's reduction, the same on all ranks: `weight` (items of all ranks), `norm` (of the mean
    gradients), `finite` (0: a gradient is not finite, and no rank should update its model)."""
    _fields_ = [("weight", ctypes.c_double), ("norm", ctypes.c_double), ("finite", ctypes.c_int)]


def _load():
    name = "libddl_c.so.0"
    beside = pathlib.Path(__file__).resolve().parent / name
    path = os.environ.get("DDL_LIBRARY") or (str(beside) if beside.exists() else name)
    try:
        library = ctypes.CDLL(path)
    except OSError as problem:
        raise ImportError(f"{problem}; expected {name} beside {__file__}, in the loader's path, or as DDL_LIBRARY "
                          "names it") from None
    integer, pointer, text, int64 = ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
    signatures = {
        "init": [text], "finalize": [], "abort": [text], "rank": [], "size": [], "local_rank": [],
        "malloc": [pointer, ctypes.c_size_t, ctypes.c_size_t], "free": [pointer],
        "all_reduce": [pointer, int64, integer, integer], "broadcast": [pointer, int64, integer, integer],
        "reduce_scatter": [pointer, pointer, int64, integer, integer],
        "all_gather": [pointer, pointer, int64, integer], "reduce": [pointer, int64, integer, integer, integer],
        "barrier": [], "test": [pointer, pointer], "wait": [pointer],
        "all_reduce_start": [pointer, int64, integer, integer, pointer],
        "broadcast_start": [pointer, int64, integer, integer, pointer],
        "reduce_scatter_start": [pointer, pointer, int64, integer, integer, pointer],
        "all_gather_start": [pointer, pointer, int64, integer, pointer],
        "reducer_create": [pointer, integer, pointer, pointer], "reducer_begin": [pointer, ctypes.c_double],
        "reducer_ready": [pointer, integer], "reducer_ready_rows": [pointer, integer, pointer, int64],
        "reducer_absent": [pointer, integer], "reducer_wait": [pointer, ctypes.c_double, pointer],
        "reducer_no_sync": [pointer, integer], "reducer_free": [pointer],
        "sampler_create": [int64, int64, ctypes.c_uint64, integer, pointer],
        "sampler_next": [pointer, pointer, pointer], "sampler_steps_per_epoch": [pointer, pointer],
        "sampler_free": [pointer],
        "learning_rate": [ctypes.c_double, integer, int64, int64, pointer],
        "check_same": [pointer, integer], "broadcast_parameters": [pointer, integer, integer],
        "checkpoint_create": [text, integer, integer, pointer, pointer],
        "checkpoint_save": [pointer, int64, pointer, integer],
        "checkpoint_restore": [pointer, pointer, integer, pointer], "checkpoint_poll": [pointer, pointer],
        "checkpoint_free": [pointer], "root_begin": [text], "root_end": [text], "scope_begin": [text],
        "scope_end": [],
    }
    for function, arguments in signatures.items():
        getattr(library, f"ddl_{function}").argtypes = arguments
    for function in ("error_message", "error_name", "version"):
        getattr(library, f"ddl_{function}").restype = text
    return library


_library = _load()


def _call(function, *arguments):
    code = getattr(_library, f"ddl_{function}")(*arguments)
    if code != 0:
        raise Error(_library.ddl_error_name(code).decode(), _library.ddl_error_message().decode())


def _made(function, *arguments):
    """Calls a function whose last argument receives a handle, and returns the handle."""
    handle = ctypes.c_void_p()
    _call(function, *arguments, ctypes.byref(handle))
    return handle


def _choice(what, name, choices):
    if name not in choices:
        raise Error("invalid_argument",
                    f"{what}: found {name!r}, expected one of {', '.join(repr(each) for each in choices)}")
    return choices[name]


class _Memory:
    """The memory of an array: `address`, `count` and `type`."""

    def __init__(self, array, what="the array", writable=True):
        if hasattr(array, "data_ptr"):  # torch
            if array.device.type != "cpu":
                raise Error("unsupported", f"{what}: found a tensor on {array.device}, expected one in host memory")
            self.address, self.count = array.data_ptr(), array.numel()
            name, contiguous, writes = str(array.dtype).removeprefix("torch."), array.is_contiguous(), True
        elif hasattr(array, "__array_interface__"):  # numpy
            self.address, read_only = array.__array_interface__["data"]
            self.count, name = array.size, array.dtype.name
            contiguous, writes = array.flags["C_CONTIGUOUS"], not read_only
        elif hasattr(array, "__cuda_array_interface__"):
            raise Error("unsupported", f"{what}: found an array in a device's memory, expected one in host memory")
        else:
            raise Error("invalid_argument",
                        f"{what}: found {type(array).__name__}, expected a numpy array or a torch tensor")
        self.type = _choice(f"{what}: type", name, TYPES)
        if not contiguous:
            raise Error("invalid_argument", f"{what}: found strided elements, expected contiguous ones; pass a copy")
        if writable and not writes:
            raise Error("invalid_argument", f"{what}: found a read-only array, expected one that can be written")


def _pair(input_array, output_array, pieces_in, pieces_out):
    """The memory of both arrays, and the number of elements of a piece."""
    memory_in, memory_out = _Memory(input_array, "input", writable=False), _Memory(output_array, "output")
    count = memory_in.count // pieces_in
    if memory_in.type != memory_out.type or memory_in.count != count * pieces_in or memory_out.count != count * pieces_out:
        raise Error("invalid_argument",
                    f"found {memory_in.count} {input_array.dtype} elements of input and {memory_out.count} "
                    f"{output_array.dtype} of output, expected the same type, {pieces_in} pieces in and {pieces_out} out")
    return memory_in, memory_out, count


def _named(arrays):
    """Pairs of name and array, of a dict or of a list; arrays of a list are named by their index."""
    return list(arrays.items()) if hasattr(arrays, "items") else [(str(i), each) for i, each in enumerate(arrays)]


def _tensors(arrays):
    named = _named(arrays)
    tensors = (_Tensor * len(named))()
    for tensor, (name, array) in zip(tensors, named):
        memory = _Memory(array, f"tensor {name!r}")
        tensor.name, tensor.values, tensor.count, tensor.type = name.encode(), memory.address, memory.count, memory.type
    return tensors


# The job.


def init(options=None, comm=None):
    """Joins the job that mpirun started. `options`: as DDL_OPTIONS ("-mode p -dbg_level 1"). `comm`: mpi4py's
    COMM_WORLD, for programs that use mpi4py; other communicators are refused. Collective."""
    if comm is not None:
        from mpi4py import MPI  # initialises MPI, which the library then uses
        if MPI.Comm.Compare(comm, MPI.COMM_WORLD) not in (MPI.IDENT, MPI.CONGRUENT):
            raise Error("unsupported", "comm: found a communicator of some processes, expected MPI.COMM_WORLD")
    _call("init", None if options is None else options.encode())


def finalize():
    """Leaves the job. Arrays of `empty` must not be used afterwards. Collective unless an error occurred."""
    _call("finalize")


def abort(reason):
    """Makes the other ranks fail with `reason`, because this rank cannot continue. Not collective."""
    _call("abort", str(reason).encode())


def rank():
    """This rank, from 0 to size() - 1."""
    return _number("rank")


def size():
    """The number of ranks."""
    return _number("size")


def local_rank():
    """This rank's index among the ranks of its host."""
    return _number("local_rank")


def _number(function):
    value = getattr(_library, f"ddl_{function}")()
    if value < 0:
        raise Error("not_initialized", _library.ddl_error_message().decode())
    return value


def version():
    """The version of the library, such as "0.1.0"."""
    return _library.ddl_version().decode()


def empty(shape, dtype="float32"):
    """A numpy array of zeros in memory that the ranks of a host share, so that collectives on it need no copies. Valid
    until finalize()."""
    import numpy
    kind = numpy.dtype(dtype)
    count = int(numpy.prod(shape, dtype=numpy.int64))
    memory = ctypes.c_void_p()
    _call("malloc", ctypes.byref(memory), 64, max(1, count * kind.itemsize))
    block = (ctypes.c_byte * (count * kind.itemsize)).from_address(memory.value)
    return numpy.frombuffer(block, dtype=kind, count=count).reshape(shape)


# Collectives, in place unless there is an `output`.


def all_reduce(array, op="sum"):
    """Replaces the array on all ranks with the reduction of all ranks' arrays. Collective."""
    memory = _Memory(array)
    _call("all_reduce", memory.address, memory.count, memory.type, _choice("op", op, OPS))


def broadcast(array, root=0):
    """Replaces the array on all ranks with `root`'s. Collective."""
    memory = _Memory(array)
    _call("broadcast", memory.address, memory.count, memory.type, root)


def reduce(array, op="sum", root=0):
    """Replaces `root`'s array with the reduction of all ranks' arrays. Collective."""
    memory = _Memory(array)
    _call("reduce", memory.address, memory.count, memory.type, _choice("op", op, OPS), root)


def reduce_scatter(input_array, output, op="sum"):
    """Reduces all ranks' inputs; `output` receives this rank's piece of size() equal pieces. Collective."""
    memory_in, memory_out, count = _pair(input_array, output, size(), 1)
    _call("reduce_scatter", memory_in.address, memory_out.address, count, memory_in.type, _choice("op", op, OPS))


def all_gather(input_array, output):
    """`output` receives all ranks' inputs, in the order of ranks. Collective."""
    memory_in, memory_out, count = _pair(input_array, output, 1, size())
    _call("all_gather", memory_in.address, memory_out.address, count, memory_in.type)


def barrier():
    """Returns after every rank has called it. Collective."""
    _call("barrier")


class Work:
    """A call in flight. Its arrays must not be used until it is complete."""

    def __init__(self, handle, *arrays):
        self._handle, self._arrays = handle, arrays

    def test(self):
        """Whether the call is complete. Does not block."""
        if self._handle is None:
            return True
        done = ctypes.c_int()
        _call("test", self._handle, ctypes.byref(done))
        return done.value == 1

    def wait(self):
        """Returns when the call is complete; raises its error."""
        handle, self._handle = self._handle, None
        self._arrays, arrays = (), self._arrays
        _call("wait", handle)
        del arrays


def all_reduce_start(array, op="sum"):
    """Starts an `all_reduce` and returns a Work."""
    memory = _Memory(array)
    return Work(_made("all_reduce_start", memory.address, memory.count, memory.type, _choice("op", op, OPS)), array)


def broadcast_start(array, root=0):
    """Starts a `broadcast` and returns a Work."""
    memory = _Memory(array)
    return Work(_made("broadcast_start", memory.address, memory.count, memory.type, root), array)


def reduce_scatter_start(input_array, output, op="sum"):
    """Starts a `reduce_scatter` and returns a Work."""
    memory_in, memory_out, count = _pair(input_array, output, size(), 1)
    return Work(_made("reduce_scatter_start", memory_in.address, memory_out.address, count, memory_in.type,
                      _choice("op", op, OPS)), input_array, output)


def all_gather_start(input_array, output):
    """Starts an `all_gather` and returns a Work."""
    memory_in, memory_out, count = _pair(input_array, output, 1, size())
    return Work(_made("all_gather_start", memory_in.address, memory_out.address, count, memory_in.type), input_array,
                output)


# Training.


class Reducer:
    """Replaces each rank's gradients with their weighted mean over all ranks, while backward runs.

    `gradients_of`: a dict of names and float32 arrays, or a list; the arrays are reduced in place. `gradients`: "sum" if
    backward computes sums over this rank's items, "mean" if it computes means. `row_width`: a dict of names and elements
    per row, for embeddings of which a step touches few rows. `wire`: "bfloat16" or "float16" between hosts. Collective.
    """

    def __init__(self, gradients_of, *, gradients, bucket_bytes=0, wire=None, overlap=True, row_width=()):
        named = _named(gradients_of)
        self._index = {name: index for index, (name, _) in enumerate(named)}
        self._arrays = [array for _, array in named]
        widths = dict(row_width)
        for name in widths:
            _choice("row_width", name, self._index)
        items = (_Gradient * len(named))()
        for item, (name, array) in zip(items, named):
            memory = _Memory(array, f"gradient {name!r}")
            if memory.type != TYPES["float32"]:
                raise Error("unsupported", f"gradient {name!r}: found {array.dtype}, expected float32")
            item.name, item.values, item.count = name.encode(), memory.address, memory.count
            item.row_width = widths.get(name, 0)
        options = _Options(_choice("gradients", gradients, KINDS), bucket_bytes, _choice("wire", wire, WIRES),
                           0 if overlap else 1)
        self._handle = _made("reducer_create", items, len(items), ctypes.byref(options))

    def _number(self, which):
        return self._index.get(which, which) if not isinstance(which, str) else _choice("gradient", which, self._index)

    def begin(self, weight):
        """Starts a step over `weight` items; for sums the weight may be given to `wait` instead."""
        _call("reducer_begin", self._handle, weight)

    def ready(self, which, rows=None):
        """Tells that gradient `which` (name or index) is final for this step. `rows`: the rows that are not zero.
        Thread-safe."""
        if rows is None:
            return _call("reducer_ready", self._handle, self._number(which))
        numbers = (ctypes.c_int32 * len(rows))(*rows)
        return _call("reducer_ready_rows", self._handle, self._number(which), numbers, len(rows))

    def absent(self, which):
        """Tells that gradient `which` has no value on this rank in this step."""
        _call("reducer_absent", self._handle, self._number(which))

    def wait(self, weight=None):
        """Ends the step: the gradients are now means over all ranks' items. Returns a Step. Collective."""
        step = Step()
        _call("reducer_wait", self._handle, -1.0 if weight is None else weight, ctypes.byref(step))
        return step

    @contextlib.contextmanager
    def no_sync(self):
        """A context in which `wait` ends a micro-batch without reducing anything."""
        _call("reducer_no_sync", self._handle, 1)
        try:
            yield
        finally:
            _call("reducer_no_sync", self._handle, 0)

    def close(self):
        """Frees the reducer; finalize() frees the remaining ones."""
        handle, self._handle = self._handle, None
        _call("reducer_free", handle)


class Sampler:
    """Distributes samples 0 to count - 1 over the ranks, `batch_size` per rank and step. Each goes to exactly one rank
    in each epoch. Iterating gives lists of indices without end; an epoch has `steps_per_epoch` of them."""

    def __init__(self, count, *, batch_size, seed=1, shuffle=True):
        self._handle = _made("sampler_create", count, batch_size, seed, 1 if shuffle else 0)
        steps = ctypes.c_int64()
        _call("sampler_steps_per_epoch", self._handle, ctypes.byref(steps))
        self.steps_per_epoch = steps.value

    def __iter__(self):
        return self

    def __next__(self):
        samples, count = ctypes.POINTER(ctypes.c_size_t)(), ctypes.c_size_t()
        _call("sampler_next", self._handle, ctypes.byref(samples), ctypes.byref(count))
        return samples[:count.value]


def learning_rate(rate, rule, step=0, ramp_steps=0):
    """`rate` times 1 ("none"), size() ("linear") or sqrt(size()) ("square_root"), growing from `rate` over the first
    `ramp_steps` steps."""
    scaled = ctypes.c_double()
    _call("learning_rate", rate, _choice("rule", rule, RULES), step, ramp_steps, ctypes.byref(scaled))
    return scaled.value


def broadcast_parameters(arrays, root=0):
    """Copies `root`'s arrays (a dict of names, or a list) to every rank, and checks that all ranks have the same bits
    afterwards. Collective."""
    tensors = _tensors(arrays)
    _call("broadcast_parameters", tensors, len(tensors), root)


def check_same(arrays):
    """Raises a "mismatch" that names the first array whose bits differ between ranks, if any do. Collective."""
    tensors = _tensors(arrays)
    _call("check_same", tensors, len(tensors))


class Checkpoint:
    """Checkpoints in `directory`, which keeps the newest `keep`. The state of `sampler` is saved and restored with them.
    `handle_signals`: SIGUSR1 asks for a save, SIGTERM for a save and an end; see `poll`. Collective."""

    def __init__(self, directory, *, keep=5, sampler=None, handle_signals=False):
        self._sampler = sampler
        self._handle = _made("checkpoint_create", os.fspath(directory).encode(), keep, 1 if handle_signals else 0,
                             None if sampler is None else sampler._handle)

    def save(self, step, arrays):
        """Saves rank 0's arrays (a dict of names, or a list). The checkpoint is durable on return. Collective."""
        tensors = _tensors(arrays)
        _call("checkpoint_save", self._handle, step, tensors, len(tensors))

    def restore(self, arrays):
        """Fills the arrays on all ranks from the newest undamaged checkpoint. Returns its step, or None if there is no
        checkpoint. Collective."""
        tensors, step = _tensors(arrays), ctypes.c_int64()
        _call("checkpoint_restore", self._handle, tensors, len(tensors), ctypes.byref(step))
        return None if step.value < 0 else step.value

    def poll(self):
        """The request of signals to any rank: None, "save" or "save_and_end". To be called once per step. Collective."""
        request = ctypes.c_int()
        _call("checkpoint_poll", self._handle, ctypes.byref(request))
        return REQUESTS[request.value]

    def close(self):
        """Restores the signal handlers and frees the object; finalize() does so for the remaining ones."""
        handle, self._handle = self._handle, None
        _call("checkpoint_free", handle)


@contextlib.contextmanager
def root_only(name):
    """`with ddl.root_only("log") as is_root:` makes the other ranks wait at the end for rank 0, without a deadline. An
    exception on rank 0 is raised on all ranks. Collective."""
    is_root = _library.ddl_root_begin(name.encode()) == 1
    try:
        yield is_root
    except Exception as problem:
        if is_root:
            _call("root_end", f"{type(problem).__name__}: {problem}".encode())
        raise
    _call("root_end", None)


@contextlib.contextmanager
def scope(name):
    """Records the body as a span called `name` in the timeline (DDL_TIMELINE)."""
    _call("scope_begin", name.encode())
    try:
        yield
    finally:
        _call("scope_end")
