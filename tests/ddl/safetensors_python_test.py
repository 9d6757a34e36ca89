"""Reads the library's file with the safetensors package, and writes one for the library to read."""
import sys

import numpy
from safetensors.numpy import load_file, save_file

ours, theirs = sys.argv[1:]
tensors = load_file(ours)
expected = {
    "weights": numpy.array([[1, 2, 3], [4, 5, 6]], dtype=numpy.float32),
    "moments": numpy.array([0.5, -0.25], dtype=numpy.float64),
    "counts": numpy.array([-7], dtype=numpy.int32),
    "steps": numpy.array([1 << 40, -1], dtype=numpy.int64),
    "bytes \u00fc\"\\": numpy.array([0, 255, 3], dtype=numpy.uint8),
    "empty": numpy.zeros((0, 3), dtype=numpy.float32),
    "scalar": numpy.array(0.75, dtype=numpy.float32),
}
assert tensors.keys() == expected.keys(), tensors.keys()
for name, value in expected.items():
    found = tensors[name]
    assert found.dtype == value.dtype, (name, found.dtype, value.dtype)
    assert found.shape == value.shape, (name, found.shape, value.shape)
    assert (found == value).all(), (name, found, value)
save_file(expected, theirs, metadata={"writer": "python"})
