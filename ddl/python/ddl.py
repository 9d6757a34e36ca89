"""Data-parallel training from Python: the C library (ddl/ddl.h) on numpy arrays, torch tensors and CUDA arrays.

    import ddl

    with ddl.init():                                  # mpirun's rank and size; without mpirun one rank
        ddl.broadcast_parameters({"w": weights})      # all ranks start from rank 0's
        reducer = ddl.Reducer({"w": gradient}, gradients="sum")
        for samples in ddl.Sampler(len(data), batch_size=64):
            backward(samples, when_ready=reducer.ready)   # reducer.ready("w") as soon as that gradient is final
            reducer.wait(weight=len(samples))             # gradients are now means over all ranks' samples
            update(rate=ddl.learning_rate(0.1, "linear"))

Functions that all ranks must call together, in the same order and with arrays of the same size and type, are called
collective. An array is a numpy array, a torch tensor, or anything in host memory that has __array_interface__, __dlpack__ or
the buffer protocol (array.array, memoryview, ctypes arrays). Nothing is copied: arrays must be contiguous, writable where a
function writes, and of a type in `TYPES`. This module keeps references while a reducer or a started call uses them.

all_reduce, broadcast, reduce_scatter, all_gather, broadcast_parameters and Reducer also take CUDA arrays: torch tensors, and
what has __cuda_array_interface__, as CuPy's. They queue their work on torch's current stream, or on the stream that the
interface names, and do not wait for the device. A rank uses one device: the one that `init` is given, else that of its first
CUDA array, whose call is then collective. The library must be built with CUDA.

Errors are `ddl.Error`, with the library's message and a `code` such as "mismatch"; wrong arguments are ValueErrors too. After
an error of a collective function the job cannot go on.

The library is libddl_c.so.0: the file that DDL_LIBRARY names, else the one beside this file (in a wheel), else the one that
was installed with this file (`cmake --install`), else the one that the loader finds.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import math
import numbers
import os
import pathlib
import sys
from typing import Any, Iterator, Literal, Mapping, Sequence

__all__ = ["ArgumentError", "Checkpoint", "Error", "Job", "Reducer", "Sampler", "Step", "Work", "abort", "all_gather",
           "all_gather_start", "all_reduce", "all_reduce_start", "barrier", "broadcast", "broadcast_parameters",
           "broadcast_start", "check_same", "device", "empty", "finalize", "init", "learning_rate", "local_rank", "rank",
           "reduce", "reduce_scatter", "reduce_scatter_start", "root_only", "scope", "size", "version"]

TYPES = {"uint8": 0, "int32": 1, "int64": 2, "float32": 3, "float64": 4, "float16": 5, "bfloat16": 6}
OPS = {"sum": 0, "avg": 1, "min": 2, "max": 3, "prod": 4}
KINDS = {"sum": 1, "mean": 2}
RULES = {"none": 0, "linear": 1, "square_root": 2}
WIRES = {None: 0, "float16": TYPES["float16"], "bfloat16": TYPES["bfloat16"]}
REQUESTS = (None, "save", "save_and_end")

Array = Any  #: Of host memory or of a CUDA device, as the module's text says.
Arrays = Any  #: A dict of names and arrays, a list (whose names are numbers), or a torch module; dicts and lists may nest.
Op = Literal["sum", "avg", "min", "max", "prod"]


class Error(RuntimeError):
    """What the library says went wrong. `code` is ddl.h's name in lower case: "mismatch", "timeout", "peer_failed", ..."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


class ArgumentError(Error, ValueError):
    """Code "invalid_argument": the caller passed something that cannot work."""


def _error(code, message):
    return (ArgumentError if code == "invalid_argument" else Error)(code, message)


class _Parameter(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("values", ctypes.c_void_p), ("count", ctypes.c_int64), ("type", ctypes.c_int),
                ("gradient", ctypes.c_void_p), ("gradient_type", ctypes.c_int), ("row_width", ctypes.c_int64),
                ("summands", ctypes.c_void_p), ("summand_count", ctypes.c_int)]


class _Options(ctypes.Structure):
    _fields_ = [("gradients", ctypes.c_int), ("bucket_bytes", ctypes.c_int64), ("wire", ctypes.c_int),
                ("after_backward", ctypes.c_int), ("leave_sums", ctypes.c_int), ("on_device", ctypes.c_int), ("micro_batches", ctypes.c_int),
                ("broadcast_values", ctypes.c_int), ("narrow_sums", ctypes.c_int)]


class Step(ctypes.Structure):
    """The result of a step's reduction, the same on all ranks: `weight` (items of all ranks), `norm` (of the mean
    gradients), `finite` (0: a gradient is not finite, and no rank should update its model)."""
    _fields_ = [("weight", ctypes.c_double), ("norm", ctypes.c_double), ("finite", ctypes.c_int)]


def _load():
    name = "libddl_c.so.0"
    here = pathlib.Path(__file__).resolve().parent
    installed = [folder / name for folder in (here, here.parent.parent) if (folder / name).exists()]
    path = os.environ.get("DDL_LIBRARY") or (str(installed[0]) if installed else name)
    try:
        library = ctypes.CDLL(path)
    except OSError as problem:
        raise ImportError(f"{problem}; expected {name} beside {__file__}, in the loader's path, or as DDL_LIBRARY "
                          "names it") from None
    integer, pointer, text, int64 = ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
    signatures = {
        "init": [text], "init_mpi": [text, pointer], "finalize": [], "abort": [text], "rank": [], "size": [], "local_rank": [],
        "malloc": [pointer, ctypes.c_size_t, ctypes.c_size_t], "free": [pointer],
        "all_reduce": [pointer, int64, integer, integer], "broadcast": [pointer, int64, integer, integer],
        "reduce_scatter": [pointer, pointer, int64, integer, integer],
        "all_gather": [pointer, pointer, int64, integer], "reduce": [pointer, int64, integer, integer, integer],
        "barrier": [], "test": [pointer, pointer], "wait": [pointer],
        "all_reduce_start": [pointer, int64, integer, integer, pointer],
        "broadcast_start": [pointer, int64, integer, integer, pointer],
        "reduce_scatter_start": [pointer, pointer, int64, integer, integer, pointer],
        "all_gather_start": [pointer, pointer, int64, integer, pointer],
        "reducer_create": [pointer, integer, pointer, pointer], "reducer_rebind": [pointer, pointer, integer], "reducer_begin": [pointer, ctypes.c_double],
        "reducer_ready": [pointer, integer], "reducer_ready_rows": [pointer, integer, pointer, int64],
        "reducer_absent": [pointer, integer], "reducer_wait": [pointer, ctypes.c_double, pointer],
        "reducer_no_sync": [pointer, integer], "reducer_has_gradient": [pointer, integer, pointer], "reducer_free": [pointer],
        "sampler_create": [int64, int64, ctypes.c_uint64, integer, pointer],
        "sampler_next": [pointer, pointer, pointer], "sampler_steps_per_epoch": [pointer, pointer],
        "sampler_free": [pointer],
        "learning_rate": [ctypes.c_double, integer, int64, int64, pointer],
        "check_same": [pointer, integer], "broadcast_parameters": [pointer, integer, integer],
        "checkpoint_create": [text, integer, integer, pointer, pointer, pointer],
        "checkpoint_save": [pointer, int64, pointer, integer],
        "checkpoint_restore": [pointer, pointer, integer, pointer], "checkpoint_poll": [pointer, pointer],
        "checkpoint_free": [pointer], "root_begin": [text], "root_end": [text], "scope_begin": [text],
        "scope_end": [],
        "device_init": [integer], "device": [],
        "device_all_reduce": [pointer, int64, integer, integer, pointer],
        "device_broadcast": [pointer, int64, integer, integer, pointer],
        "device_reduce_scatter": [pointer, pointer, int64, integer, integer, pointer],
        "device_all_gather": [pointer, pointer, int64, integer, pointer],
        "device_broadcast_parameters": [pointer, integer, integer, pointer],
        "reducer_ready_on": [pointer, integer, pointer],
        "reducer_ready_rows_on": [pointer, integer, pointer, int64, pointer],
        "reducer_finish": [pointer, ctypes.c_double, pointer], "reducer_result": [pointer, pointer],
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
        raise _error(_library.ddl_error_name(code).decode(), _in_python(_library.ddl_error_message().decode()))


def _in_python(message):
    """A message of the library with this module's names: "reducer.wait: gradient 3 ('w') ...; call reducer.ready(3)"."""
    return message.replace("ddl_reducer_", "reducer.").replace("(DDL_GIVEN)", "()")


def _made(function, *arguments):
    """Calls a function whose last argument receives a handle, and returns the handle."""
    handle = ctypes.c_void_p()
    _call(function, *arguments, ctypes.byref(handle))
    return handle


def _choice(what, name, choices):
    if name not in choices:
        raise _error("invalid_argument",
                     f"{what}: found {name!r}, expected one of {', '.join(repr(each) for each in choices)}")
    return choices[name]


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("dimensions", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


# DLPack's numbers: kinds of devices whose memory the host reaches (CPU, page-locked by CUDA); how a type's code is spelt.
_DLPACK_HOST = (1, 3)
_DLPACK_TYPES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_DLPACK_READ_ONLY, _DLPACK_COPIED = 1, 2
# A DLManagedTensorVersioned has flags, behind version, context and deleter, and then the tensor.
_DLPACK_FLAGS, _DLPACK_TENSOR = 24, 32
_BYTES = ("bool", "bool8", "int8")  # masks of modules: copied, never reduced
_INTERFACE_TYPES = {"|b1": "bool", "|i1": "int8", "|u1": "uint8", "<i4": "int32", "<i8": "int64", "<f2": "float16",
                    "<f4": "float32", "<f8": "float64"}


def _is_dense(shape, strides, unit):
    """Whether elements of `unit` are in C order without gaps. `strides`: None if the protocol says so by that."""
    if strides is None or 0 in shape:
        return True
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != unit:
            return False
        unit *= extent
    return True


class _Memory:
    """Where an array's elements are: `address`, `count`, and `type`, whose name is `kind`. `device`: None in host memory, else
    CUDA's number, or -1 if the array does not tell; `stream`: where work on it is queued. `devices`: whether they may be."""

    def __init__(self, array, what="the array", writable=True, as_bytes=(), devices=False):
        """`as_bytes`: names of one-byte types to take for uint8, where nothing is computed."""
        self.what, self.is_contiguous, self.is_writable = what, True, True
        self.device, self.takes_devices = None, devices
        if hasattr(array, "data_ptr"):
            self._read_torch(array)
        elif hasattr(array, "__array_interface__"):
            self._read_interface(array, array.__array_interface__)
        elif hasattr(array, "__cuda_array_interface__"):
            self._require_devices("an array on a CUDA device")
            self._read_interface(array, array.__cuda_array_interface__)
            self.device = getattr(getattr(array, "device", None), "id", -1)
        elif hasattr(array, "__dlpack__"):
            self._read_dlpack(array)
        else:
            self._read_buffer(array)
        self.type = _choice(f"{what}: type", "uint8" if self.kind in as_bytes else self.kind, TYPES)
        if not self.is_contiguous:
            self._refuse("strided elements, expected contiguous ones (C order); pass a contiguous copy")
        if writable and not self.is_writable:
            self._refuse("a read-only array, expected one that can be written")
        self.stream = None if self.device is None else _stream_of(array)

    def _refuse(self, found, code="invalid_argument"):
        raise _error(code, f"{self.what}: found {found}")

    def _refuse_device(self, found):
        self._refuse(f"{found}, expected host memory; copy it to the host first (torch: .cpu(), CuPy: .get()). CUDA arrays may "
                     "be given to all_reduce, broadcast, reduce_scatter, all_gather, which do not wait for the device, "
                     "broadcast_parameters and Reducer", "unsupported")

    def _require_devices(self, found):
        if not self.takes_devices:
            self._refuse_device(found)

    def _read_torch(self, tensor):
        if tensor.device.type == "cuda":
            self._require_devices(f"a tensor on {tensor.device}")
            self.device = tensor.device.index
        elif tensor.device.type != "cpu":
            self._refuse_device(f"a tensor on {tensor.device}")
        if str(tensor.layout) != "torch.strided":
            self._refuse(f"a tensor whose layout is {tensor.layout}, expected torch.strided; pass .to_dense()")
        if tensor.requires_grad and not tensor.is_leaf:
            self._refuse("a tensor that autograd computes with, expected one outside of its graph; pass .detach()")
        self.address, self.count, self.is_contiguous = tensor.data_ptr(), tensor.numel(), tensor.is_contiguous()
        self.kind = str(tensor.dtype).removeprefix("torch.")

    def _read_interface(self, array, interface):
        shape = interface["shape"]
        if shape == () and isinstance(array, numbers.Number):  # of numpy's, which have the address of a copy
            self._refuse(f"a number, {type(array).__name__}, expected an array; pass numpy.array([x])")
        if not isinstance(interface.get("data"), tuple):
            self._refuse(f"{type(array).__name__} without an address in its array interface; pass numpy.array(x)")
        self.address, read_only = interface["data"]
        spelt = interface["typestr"]
        self.kind = _INTERFACE_TYPES.get(spelt, spelt)
        if spelt[0] != ">" and self.kind not in TYPES:  # types of numpy's extensions, as bfloat16, have names alone
            self.kind = getattr(getattr(array, "dtype", None), "name", spelt)
        self.count, self.is_writable = math.prod(shape), not read_only
        self.is_contiguous = _is_dense(shape, interface.get("strides"), int(spelt[2:]))

    def _read_dlpack(self, array):
        if array.__dlpack_device__()[0] not in _DLPACK_HOST:
            self._refuse_device(f"{type(array).__name__} on device {tuple(array.__dlpack_device__())} (DLPack's numbers)")
        try:
            capsule = array.__dlpack__(max_version=(1, 0))
        except TypeError:  # an exporter of version 0
            capsule = array.__dlpack__()
        name = _capsule_name(capsule)
        address = _capsule_pointer(capsule, name)
        if name == b"dltensor_versioned":
            flags = ctypes.c_uint64.from_address(address + _DLPACK_FLAGS).value
            self.is_writable = not flags & (_DLPACK_READ_ONLY | _DLPACK_COPIED)
            address += _DLPACK_TENSOR
        tensor = _DLTensor.from_address(address)
        shape = tensor.shape[:tensor.dimensions]
        self.address, self.count = (tensor.data or 0) + tensor.offset, math.prod(shape)
        self.kind = f"{_DLPACK_TYPES.get(tensor.code, tensor.code)}{tensor.bits}"
        self.is_contiguous = _is_dense(shape, tensor.strides[:tensor.dimensions] if tensor.strides else None, 1)

    def _read_buffer(self, array):
        try:
            view = memoryview(array)
        except TypeError:
            self._refuse(f"{type(array).__name__}, expected a numpy array, a torch tensor, or what shares its memory by "
                         "__array_interface__, __dlpack__ or the buffer protocol")
        import numpy
        values = numpy.asarray(view)
        self._read_interface(values, values.__array_interface__)


_capsule_name, _capsule_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
_capsule_name.argtypes, _capsule_name.restype = [ctypes.py_object], ctypes.c_char_p
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def _stream_of(array):
    """The stream in whose order the array is used."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch.cuda.current_stream(array.device).cuda_stream
    stream = getattr(array, "__cuda_array_interface__", {}).get("stream")
    return None if stream == 1 else stream  # the interface's number of the default stream


def _use_device(memory):
    """The first array on a device chooses it."""
    own = device()
    if own < 0:
        _call("device_init", memory.device)
    elif memory.device not in (-1, own):
        memory._refuse(f"an array on CUDA device {memory.device}, expected one on device {own}, which this rank uses")


def _require_same_place(memory, first):
    if (memory.device is None) != (first.device is None):
        places = ("host memory", "memory of a CUDA device")
        memory._refuse(f"{places[memory.device is not None]}, expected {places[first.device is not None]}, as {first.what}")


def _run(function, memory, *arguments):
    """Calls a collective for where `memory` is."""
    if memory.device is None:
        return _call(function, *arguments)
    _use_device(memory)
    _call(f"device_{function}", *arguments, memory.stream)


def _pair(input_array, output_array, pieces_in, pieces_out, devices=False):
    """The memory of both arrays, and the number of elements of a piece."""
    memory_in = _Memory(input_array, "input", writable=False, devices=devices)
    memory_out = _Memory(output_array, "output", devices=devices)
    _require_same_place(memory_out, memory_in)
    count = memory_in.count // pieces_in
    if memory_in.type != memory_out.type or memory_in.count != count * pieces_in or memory_out.count != count * pieces_out:
        raise _error("invalid_argument",
                     f"found {memory_in.count} {memory_in.kind} elements of input and {memory_out.count} {memory_out.kind} "
                     f"of output, expected the same type, {pieces_in} pieces in and {pieces_out} out")
    return memory_in, memory_out, count


def _named(arrays, prefix=""):
    """Pairs of name and array."""
    if hasattr(arrays, "state_dict"):
        arrays = arrays.state_dict()
    for name, each in arrays.items() if hasattr(arrays, "items") else enumerate(arrays):
        if isinstance(each, (dict, list, tuple)) or hasattr(each, "state_dict"):
            yield from _named(each, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", each


def _tensors(arrays):
    return _structures([(name, _Memory(array, f"tensor {name!r}", as_bytes=_BYTES)) for name, array in _named(arrays)])


def _structures(named):
    """Of pairs of name and memory."""
    tensors = (_Parameter * len(named))()
    for tensor, (name, memory) in zip(tensors, named):
        tensor.name, tensor.values, tensor.count, tensor.type = name.encode(), memory.address, memory.count, memory.type
    return tensors


# The job.


class Job:
    """`with ddl.init():` ends the job where its block ends. An exception that leaves the block on one rank ends all ranks,
    which raise an Error with its text."""

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind, problem, trace):
        if isinstance(problem, SystemExit) and not problem.code:
            problem = None
        _leave(problem)


def _leave(problem):
    if _library.ddl_rank() < 0:
        return
    # Errors of the job itself have reached the other ranks.
    if problem is not None and (not isinstance(problem, Error) or problem.code in ("invalid_argument", "unsupported")):
        abort(f"{type(problem).__name__}: {problem}")
    try:
        finalize()
    except Error:  # of a step that the problem has cut short
        if problem is None:
            raise


@atexit.register
def _leave_after_traceback():
    problem = getattr(sys, "last_value", None)
    if problem is not None:
        _leave(problem)


_in_use: set[Work | Reducer] = set()  # the library reads and writes their arrays


def init(options: str | None = None, comm=None, device: int | None = None) -> Job:
    """Joins the job that mpirun, or variables RANK and WORLD_SIZE, tell of; else one of this process alone. `options`: as
    DDL_OPTIONS ("-mode p -dbg_level 1"), which they take the place of. `comm`: an mpi4py communicator, whose processes alone
    are the ranks, in its order; call finalize() before MPI.Finalize(). `device`: CUDA's number of this rank's device, or -1:
    by LOCAL_RANK, or its index on its host. An exception that ends this process then ends all ranks, with its text. Once a
    process. Collective."""
    text = None if options is None else options.encode()
    if comm is None:
        _call("init", text)
    else:
        from mpi4py import MPI
        _call("init_mpi", text, MPI._addressof(comm))
    if device is not None:
        _call("device_init", device)
    return Job()


def finalize() -> None:
    """Leaves the job. Arrays of `empty` must not be used afterwards. Collective, unless there was an error."""
    try:
        _call("finalize")
    finally:
        _in_use.clear()


def abort(reason) -> None:
    """This rank cannot go on: the others fail with `reason`. Not collective."""
    _call("abort", str(reason).encode())


def rank() -> int:
    """0 to size() - 1."""
    return _number("rank")


def size() -> int:
    """The number of ranks."""
    return _number("size")


def local_rank() -> int:
    """This rank's index among those of its host."""
    return _number("local_rank")


def device() -> int:
    """CUDA's number of this rank's device, or -1 as long as it uses none."""
    return _library.ddl_device()


def _number(function):
    value = getattr(_library, f"ddl_{function}")()
    if value < 0:
        raise _error("not_initialized", _library.ddl_error_message().decode())
    return value


def version() -> str:
    """Of the library: "0.1.0"."""
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


def all_reduce(array: Array, op: Op = "sum") -> None:
    """Afterwards all ranks' array holds the reduction of all. Collective."""
    memory = _Memory(array, devices=True)
    _run("all_reduce", memory, memory.address, memory.count, memory.type, _choice("op", op, OPS))


def broadcast(array: Array, root: int = 0) -> None:
    """Afterwards all ranks' array holds `root`'s. Collective."""
    memory = _Memory(array, devices=True)
    _run("broadcast", memory, memory.address, memory.count, memory.type, root)


def reduce(array: Array, op: Op = "sum", root: int = 0) -> None:
    """Afterwards `root`'s array holds the reduction of all ranks'; the others' is as it was. Collective."""
    memory = _Memory(array)
    _call("reduce", memory.address, memory.count, memory.type, _choice("op", op, OPS), root)


def reduce_scatter(input_array: Array, output: Array, op: Op = "sum") -> None:
    """`output` gets piece number rank() of the reduction, whose size() pieces are equal. Collective."""
    memory_in, memory_out, count = _pair(input_array, output, size(), 1, devices=True)
    _run("reduce_scatter", memory_out, memory_in.address, memory_out.address, count, memory_in.type, _choice("op", op, OPS))


def all_gather(input_array: Array, output: Array) -> None:
    """`output` gets all ranks' inputs, by rank. Collective."""
    memory_in, memory_out, count = _pair(input_array, output, 1, size(), devices=True)
    _run("all_gather", memory_out, memory_in.address, memory_out.address, count, memory_in.type)


def barrier() -> None:
    """Returns after every rank has called it. Collective."""
    _call("barrier")


class Work:
    """A call that is under way: its arrays must be left alone until `wait` returns. One that is never waited for keeps them
    until finalize()."""

    def __init__(self, handle, *arrays):
        self._handle, self._arrays = handle, arrays
        _in_use.add(self)

    def test(self) -> bool:
        """Whether it is over. Does not block."""
        if self._handle is None:
            return True
        done = ctypes.c_int()
        _call("test", self._handle, ctypes.byref(done))
        return done.value == 1

    def wait(self) -> None:
        """Returns when it is over; raises what it ended with. Again: at once."""
        handle, self._handle = self._handle, None
        try:
            _call("wait", handle)
        finally:
            _in_use.discard(self)
            self._arrays = ()


def all_reduce_start(array: Array, op: Op = "sum") -> Work:
    """`all_reduce` without waiting: a Work."""
    memory = _Memory(array)
    return Work(_made("all_reduce_start", memory.address, memory.count, memory.type, _choice("op", op, OPS)), array)


def broadcast_start(array: Array, root: int = 0) -> Work:
    """`broadcast` without waiting: a Work."""
    memory = _Memory(array)
    return Work(_made("broadcast_start", memory.address, memory.count, memory.type, root), array)


def reduce_scatter_start(input_array: Array, output: Array, op: Op = "sum") -> Work:
    """`reduce_scatter` without waiting: a Work."""
    memory_in, memory_out, count = _pair(input_array, output, size(), 1)
    return Work(_made("reduce_scatter_start", memory_in.address, memory_out.address, count, memory_in.type,
                      _choice("op", op, OPS)), input_array, output)


def all_gather_start(input_array: Array, output: Array) -> Work:
    """`all_gather` without waiting: a Work."""
    memory_in, memory_out, count = _pair(input_array, output, 1, size())
    return Work(_made("all_gather_start", memory_in.address, memory_out.address, count, memory_in.type), input_array,
                output)


# Training.


class Reducer:
    """Replaces each rank's gradients with their weighted mean over all ranks, while backward runs.

    `gradients_of`: a dict of names and arrays of a floating type, or a list; they stay where they are. Or a torch module: its parameters
    that are trained then get gradients that stay, whatever `zero_grad` does, become ready by themselves in backward, and are
    absent where backward does not reach them. `gradients`: "sum" if backward leaves sums over this rank's items, "mean" if
    means (a loss that is a mean); it has no default. `row_width`: a dict of names and elements of a row, for embeddings of
    which a step touches few rows. `wire`: "bfloat16" or "float16" between hosts. `leave_sums`: `wait` leaves sums over all
    ranks' items, not means. `narrow_sums`: 16-bit gradients are summed in their own type, in half the memory and bytes, not in
    float32. Same on all ranks. Collective.

    A step: `begin(weight)` (for means; for sums `wait(weight)` will do), `ready(name)` once for each gradient or `absent(name)`
    in its place, `wait()`. From `ready` until `wait` a gradient must be left alone.

    CUDA arrays, all of one device: a gradient is final once the work that is queued on its stream by then is done. `wait`
    waits for the device; `finish` only queues the step's end. `micro_batches`: True if there will be some (`no_sync`) of means,
    which take memory of the gradients' size. Not of float64.
    """

    def __init__(self, gradients_of: Arrays, *, gradients: Literal["sum", "mean"], bucket_bytes: int = 0,
                 wire: Literal["bfloat16", "float16", None] = None, overlap: bool = True,
                 row_width: Mapping[str, int] | None = None, leave_sums: bool = False, micro_batches: bool = False,
                 narrow_sums: bool = False):
        self._hooks = []
        self._reduces, self._means = True, gradients == "mean"
        self._followed: dict[str, tuple[Any, Any]] = {}  # of a torch module: parameter and gradient by name
        self._addresses: dict[str, int] = {}  # of these gradients
        self._unreached: set[str] = set()  # of these, the names that backward has not come to in this step
        self._is_refused = False  # its module has been converted: no step of it can be ended
        if hasattr(gradients_of, "named_parameters"):
            gradients_of = self._follow(gradients_of)
        named = list(_named(gradients_of))
        self._index = {name: index for index, (name, _) in enumerate(named)}
        self._widths = dict(row_width or {})
        for name in self._widths:
            _choice("row_width", name, self._index)
        items, memories = self._structures_of(named)
        self._arrays = [array for _, array in named]
        self._is_on_device = bool(memories) and memories[0].device is not None
        for memory in memories if self._is_on_device else ():
            _use_device(memory)
        options = _Options(_choice("gradients", gradients, KINDS), bucket_bytes, _choice("wire", wire, WIRES),
                           not overlap, leave_sums, self._is_on_device, micro_batches, 0, narrow_sums)
        self._handle = _made("reducer_create", items, len(items), ctypes.byref(options))
        _in_use.add(self)
        for name, (parameter, _) in self._followed.items():
            hook = functools.partial(self._reached, name)
            self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))

    def _structures_of(self, named):
        """Structures, and memory, of pairs of name and gradient."""
        memories = []
        items = (_Parameter * len(named))()
        for item, (name, array) in zip(items, named):
            if getattr(array, "requires_grad", False):
                raise _error("invalid_argument",
                             f"gradient {name!r}: found a parameter, expected its gradient; or pass the module")
            memory = _Memory(array, f"gradient {name!r}", devices=True)
            memories.append(memory)
            _require_same_place(memory, memories[0])
            item.name, item.gradient, item.count, item.type = name.encode(), memory.address, memory.count, memory.type
            item.row_width = self._widths.get(name, 0)
        return items, memories

    def rebind(self, gradients_of: Arrays) -> None:
        """Takes other arrays for the same gradients (names, types and sizes), for trainers that make new ones in each step;
        what was learned is kept. Between steps; not for CUDA arrays. A module needs none of it. Not collective."""
        if self._followed:
            raise _error("invalid_argument", "rebind: found a reducer of a torch module, whose gradients stay; expected arrays")
        named = list(_named(gradients_of))
        items, _ = self._structures_of(named)
        _call("reducer_rebind", self._handle, items, len(items))
        self._arrays = [array for _, array in named]

    def _follow(self, module):
        """Gradients, by name, of a torch module's parameters."""
        trained = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
        if not all(hasattr(parameter, "register_post_accumulate_grad_hook") for _, parameter in trained):
            version = getattr(sys.modules.get("torch"), "__version__", "of an unknown version")
            raise _error("unsupported", f"a module: found torch {version}, which does not tell when a gradient is complete; expected "
                         "2.1 or later (pip install 'torch>=2.1'). Or pass the gradients as a dict, {name: parameter.grad}, and call "
                         "ready(name) for each after backward")
        self._module = module
        for name, parameter in trained:
            parameter.grad = parameter.detach().new_zeros(parameter.shape)
            self._followed[name] = parameter, parameter.grad
            self._addresses[name] = parameter.grad.data_ptr()
        self._unreached = set(self._followed)
        return {name: gradient for name, (_, gradient) in self._followed.items()}

    def _refuse_moved(self, name):
        self._is_refused = True
        raise _error("invalid_argument", f"gradient {name!r}: found it or its parameter replaced since the reducer was made; "
                     "make the reducer after calls that replace them (.to(), .double(), new layers), or make another one")

    def _check_in_place(self, name):
        if self._followed[name][1].data_ptr() != self._addresses[name]:
            self._refuse_moved(name)

    def _reached(self, name, parameter):
        self._check_in_place(name)
        gradient = self._followed[name][1]
        if parameter.grad is not gradient:  # zero_grad() drops a gradient, and autograd then makes another
            gradient.copy_(parameter.grad)
            parameter.grad = gradient
        self._unreached.discard(name)
        self.ready(name)

    def _number(self, which):
        return self._index.get(which, which) if not isinstance(which, str) else _choice("gradient", which, self._index)

    def begin(self, weight: float) -> None:
        """Starts a step over `weight` items of this rank, before backward; for sums `wait` may be told instead."""
        _call("reducer_begin", self._handle, weight)

    def ready(self, which: str | int, rows: Sequence[int] | None = None) -> None:
        """Gradient `which` (name or index) is final for this step; `rows`: those that hold anything but zeros. Any thread."""
        number = self._number(which)
        place, stream = "", ()
        if self._is_on_device:
            place, stream = "_on", (_stream_of(self._arrays[number] if number in range(len(self._arrays)) else None),)
        if rows is None:
            return _call(f"reducer_ready{place}", self._handle, number, *stream)
        import numpy
        numbers = numpy.ascontiguousarray(rows, dtype="int32")
        return _call(f"reducer_ready_rows{place}", self._handle, number, numbers.ctypes.data, numbers.size, *stream)

    def absent(self, which: str | int) -> None:
        """Gradient `which` gets no value on this rank in this step. Any thread."""
        _call("reducer_absent", self._handle, self._number(which))

    def wait(self, weight: float | None = None) -> Step:
        """Ends the step: the gradients are now means over all ranks' items. Collective."""
        dropped = self._report_unreached()
        step = Step(finite=1)
        if not self._is_on_device:
            _call("reducer_wait", self._handle, -1.0 if weight is None else weight, ctypes.byref(step))
        else:
            self._queue_end(weight)
            if self._reduces:
                step = self.result()
                if self._followed:
                    self.has_gradient(0)  # collective, and which names are dropped may differ between ranks
        if self._means and not self._reduces:
            for _, gradient in self._followed.values():
                gradient.zero_()
        for name in dropped:
            if not self._reduces or not self.has_gradient(name):
                self._followed[name][0].grad = None  # as with one rank: optimisers pass over the parameter
        return step

    def finish(self, weight: float | None = None) -> None:
        """On devices, in place of `wait`: what is queued on the stream behind it sees the means. Gradients of a module that
        no rank has reached are zeros. Collective."""
        if not self._is_on_device:
            raise _error("invalid_argument", "finish: found gradients in host memory, expected CUDA arrays; call wait()")
        self._report_unreached()
        self._queue_end(weight)

    def result(self) -> Step:
        """Waits for the step that `finish` has ended. Once a step, if at all."""
        step = Step()
        _call("reducer_result", self._handle, ctypes.byref(step))
        return step

    def _queue_end(self, weight):
        _call("reducer_finish", self._handle, -1.0 if weight is None else weight, _stream_of(self._arrays[0]))

    def _report_unreached(self):
        """Ends backward of a module; returns the names of those of the gradients that zero_grad() has dropped."""
        for name in self._followed:
            self._check_in_place(name)
        now = dict(self._module.named_parameters()) if self._unreached else {}
        for name in self._unreached:  # or else backward reaches another parameter, which nobody follows
            if now.get(name) is not self._followed[name][0]:
                self._refuse_moved(name)
        dropped = [name for name in self._unreached if self._followed[name][0].grad is None]
        for name in dropped:
            parameter, parameter.grad = self._followed[name]
            if not (self._is_on_device and self._reduces):  # else the reducer writes all of it, on another stream
                parameter.grad.zero_()
        for name in self._unreached:
            self.absent(name)
        self._unreached = set(self._followed)
        return dropped

    def has_gradient(self, which: str | int) -> bool:
        """Of the last step: whether any rank had a value for the gradient, so that it was not absent on all."""
        has_value = ctypes.c_int()
        _call("reducer_has_gradient", self._handle, self._number(which), ctypes.byref(has_value))
        return has_value.value == 1

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, `wait` ends a micro-batch and reduces nothing; the next `wait` outside reduces all of them. Sums are added
        up by backward, which goes on from what is there; means start from zero in each micro-batch, for which a module's
        are zeroed here and other arrays by the caller."""
        _call("reducer_no_sync", self._handle, 1)
        self._reduces = False
        try:
            yield
        finally:
            self._reduces = True
            _call("reducer_no_sync", self._handle, 0)

    def close(self) -> None:
        """Waits for what is under way, and frees it; finalize() does so for those that are left."""
        for hook in self._hooks:
            hook.remove()
        handle, self._handle = self._handle, None
        try:
            _call("reducer_free", handle)
        except ArgumentError:  # a step has begun
            if not self._is_refused:
                raise
        finally:
            _in_use.discard(self)


class Sampler:
    """Deals samples 0 to count - 1 to the ranks, `batch_size` a rank and step: each to exactly one rank in each epoch. Without
    end; `steps_per_epoch` says how long an epoch is. Iterating gives lists of indices. One list of an
    epoch may be short, or empty where `count` is no multiple of size(): its rank calls `reducer.begin(0)` and `reducer.wait()`,
    and takes the step as the others do. A torch DataLoader with workers draws batches ahead of the trainer, and a checkpoint
    saves how far the sampler is: such a trainer saves between epochs. Same arguments on all ranks."""

    def __init__(self, count: int, *, batch_size: int, seed: int = 1, shuffle: bool = True):
        self._handle = _made("sampler_create", count, batch_size, seed, 1 if shuffle else 0)
        steps = ctypes.c_int64()
        _call("sampler_steps_per_epoch", self._handle, ctypes.byref(steps))
        self.steps_per_epoch = steps.value

    def __iter__(self) -> Sampler:
        return self

    def __next__(self) -> list[int]:
        samples, count = ctypes.POINTER(ctypes.c_size_t)(), ctypes.c_size_t()
        _call("sampler_next", self._handle, ctypes.byref(samples), ctypes.byref(count))
        return samples[:count.value]


def learning_rate(rate: float, rule: Literal["none", "linear", "square_root"], step: int = 0, ramp_steps: int = 0) -> float:
    """`rate` times 1 ("none"), size() ("linear") or its root ("square_root"), growing from `rate` over `ramp_steps` steps."""
    scaled = ctypes.c_double()
    _call("learning_rate", rate, _choice("rule", rule, RULES), step, ramp_steps, ctypes.byref(scaled))
    return scaled.value


def broadcast_parameters(arrays: Arrays, root: int = 0) -> None:
    """Gives every rank `root`'s arrays (a dict of names, a list, or a torch module), and makes sure that all have the same bits
    then (CUDA arrays are not compared). A "mismatch" names the first that differs in name, type or size. Collective."""
    on_host, on_device = [], []
    for name, array in _named(arrays):
        memory = _Memory(array, f"tensor {name!r}", as_bytes=_BYTES, devices=True)
        (on_host if memory.device is None else on_device).append((name, memory))
    _call("broadcast_parameters", _structures(on_host), len(on_host), root)
    for _, memory in on_device:
        _use_device(memory)
    if on_device:
        _call("device_broadcast_parameters", _structures(on_device), len(on_device), root, on_device[0][1].stream)


def check_same(arrays: Arrays) -> None:
    """Raises a "mismatch" that names the first array whose bits differ between ranks. Collective."""
    tensors = _tensors(arrays)
    _call("check_same", tensors, len(tensors))


class Checkpoint:
    """Checkpoints in `directory`, which keeps the newest `keep`. What `reducer` has learned and where `sampler` stands are
    saved and restored with them.
    `handle_signals`: SIGUSR1 asks for a save, SIGTERM for a save and an end; see `poll`. Collective."""

    def __init__(self, directory: str | os.PathLike, *, keep: int = 5, reducer: Reducer | None = None,
                 sampler: Sampler | None = None, handle_signals: bool = False):
        self._states = reducer, sampler
        self._handle = _made("checkpoint_create", os.fspath(directory).encode(), keep, 1 if handle_signals else 0,
                             None if reducer is None else reducer._handle, None if sampler is None else sampler._handle)

    def save(self, step: int, arrays: Arrays) -> None:
        """Saves rank 0's arrays (a dict of names, a list, or a torch module; dicts and lists may nest, as in
        {"model": model, "moments": moments}); durable when it returns. Collective."""
        tensors = _tensors(arrays)
        _call("checkpoint_save", self._handle, step, tensors, len(tensors))

    def restore(self, arrays: Arrays) -> int | None:
        """Fills the arrays, on all ranks, from the newest checkpoint that is whole; the step it was saved with, or None if
        there is none. Collective."""
        tensors, step = _tensors(arrays), ctypes.c_int64()
        _call("checkpoint_restore", self._handle, tensors, len(tensors), ctypes.byref(step))
        return None if step.value < 0 else step.value

    def poll(self) -> Literal[None, "save", "save_and_end"]:
        """What signals have asked of any rank: None, "save" or "save_and_end". Once a step. Collective."""
        request = ctypes.c_int()
        _call("checkpoint_poll", self._handle, ctypes.byref(request))
        return REQUESTS[request.value]

    def close(self) -> None:
        """Gives the signals back; finalize() does so for those that are left."""
        handle, self._handle = self._handle, None
        _call("checkpoint_free", handle)


@contextlib.contextmanager
def root_only(name: str) -> Iterator[bool]:
    """`with ddl.root_only("log") as is_root:` — the others wait at the end for rank 0, however long it takes. An exception
    on rank 0 is raised on all ranks. Collective."""
    is_root = _library.ddl_root_begin(name.encode()) == 1
    try:
        yield is_root
    except Exception as problem:
        if is_root:
            _call("root_end", f"{type(problem).__name__}: {problem}".encode())
        raise
    _call("root_end", None)


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Names in the timeline (DDL_TIMELINE) what this rank does inside."""
    _call("scope_begin", name.encode())
    try:
        yield
    finally:
        _call("scope_end")
