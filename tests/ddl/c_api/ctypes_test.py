"""The C API from Python: ctypes_test.py LIBRARY, on any number of ranks."""

import ctypes
import sys

ddl = ctypes.CDLL(sys.argv[1])
ddl.ddl_error_message.restype = ctypes.c_char_p
ddl.ddl_error_name.restype = ctypes.c_char_p
ddl.ddl_allreduce.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int]
F64, SUM = 4, 0


def check(result):
    if result != 0:
        raise RuntimeError(f"{ddl.ddl_error_name(result).decode()}: {ddl.ddl_error_message().decode()}")


check(ddl.ddl_init(None))
rank, size = ddl.ddl_rank(), ddl.ddl_size()
values = (ctypes.c_double * 1000)(*[rank + 1] * 1000)
check(ddl.ddl_allreduce(values, len(values), F64, SUM))
assert set(values) == {size * (size + 1) / 2}, set(values)
try:
    check(ddl.ddl_allreduce(values, -5, F64, SUM))
    raise AssertionError("a negative count was taken")
except RuntimeError as error:
    assert "count: found -5" in str(error), error
check(ddl.ddl_finalize())
if rank == 0:
    print(f"{size} ranks passed")
