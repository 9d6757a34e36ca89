"""What tests of ddl.py share."""

import ddl
import numpy as np


def refused(words, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except ddl.Error as error:
        assert words in str(error), f"found {error!r}, expected {words!r}"
        return error.code
    raise AssertionError(f"{function} took {arguments} {named}; expected an error with {words!r}")


def reduce_what_backward_reaches(parameters, reducer):
    """Three steps of a module's stand-ins for parameters "used", "dropped" (by zero_grad), "elsewhere" (reached on rank 0
    only) and "nowhere": gradients become ready by themselves, and are absent where backward does not reach them."""
    rank, size = ddl.rank(), ddl.size()
    for _ in range(3):
        reducer.begin(1)
        parameters["dropped"].grad = None  # as zero_grad() does
        parameters["used"].grad.zero_()
        parameters["elsewhere"].grad = parameters["nowhere"].grad = None
        parameters["dropped"].backward(2 * rank)
        parameters["used"].backward(rank)
        if rank == 0:
            parameters["elsewhere"].backward(size)
        assert reducer.wait().weight == size
        assert parameters["nowhere"].grad is None
        for name, mean in (("used", (size - 1) / 2), ("dropped", size - 1), ("elsewhere", 1)):
            assert (parameters[name].grad.values == np.float32(mean)).all(), (name, parameters[name].grad.values)
