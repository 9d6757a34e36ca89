"""Torch tensors and modules, on two or more ranks: python_torch_test.py DIRECTORY. Skipped if torch is missing."""

import contextlib
import copy
import sys

import ddl

try:
    import torch
except ImportError as problem:
    print(f"skipped: {problem}")
    sys.exit(1)

import torch_training

torch.set_num_threads(1)
ddl.init("-dbg_level 0")
rank, size = ddl.rank(), ddl.size()

for dtype in (torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
    for shape in ((2, 3), (), (0,)):
        values = torch.ones(shape, dtype=dtype)
        ddl.all_reduce(values)
        assert (values == size).all(), values
for found, words in ((torch.ones(4, 4).t(), "strided"), (torch.ones(2).to_sparse(), ".to_dense()"),
                     (torch.ones(2, requires_grad=True) * 2, ".detach()"), (torch.ones(2, device="meta"), "meta"),
                     (torch.ones(2, dtype=torch.bool), "'bool'")):
    try:
        ddl.all_reduce(found)
        raise AssertionError(f"{found} is not refused")
    except ddl.Error as error:
        assert words in str(error), error


for layout in (torch.contiguous_format, torch.channels_last):
    torch_training.ranks_learn_what_one_process_learns(layout=layout)

# Micro-batches of means as torch's users write them: gradients are not zeroed in between, or dropped.
for zero in (lambda module: None, lambda module: module.zero_grad(set_to_none=False), lambda module: module.zero_grad()):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    alone = copy.deepcopy(model)
    reducer = ddl.Reducer(model, gradients="mean")
    for step in range(2):
        batches = torch.randn(3 * size, 5, 4)
        for part in range(3):
            reducer.begin(5)
            with reducer.no_sync() if part < 2 else contextlib.nullcontext():
                model(batches[part * size + rank]).square().mean().backward()
                reducer.wait()
            if part < 2:
                zero(model)
        alone.zero_grad()
        alone(batches).square().mean().backward()
        torch.testing.assert_close(model.weight.grad, alone.weight.grad)
        torch.testing.assert_close(model.bias.grad, alone.bias.grad)
        model.zero_grad(set_to_none=step == 0)
    reducer.close()

# Masks of bool travel with a module's parameters.
masked = torch_training.Net()
masked.register_buffer("mask", torch.arange(4) % 2 == rank % 2)
ddl.broadcast_parameters(masked)
assert masked.mask.tolist() == [True, False, True, False]

# A module that has been converted: the library would write to memory that is freed, or nobody would reduce.
for convert in (lambda module: module.double(), lambda module: module.to("meta"),
                lambda module: setattr(module, "weight", torch.nn.Parameter(torch.zeros(2, 4)))):
    model = torch.nn.Linear(4, 2)
    reducer = ddl.Reducer(model, gradients="sum")
    convert(model)
    try:
        model(torch.ones(1, 4, dtype=model.weight.dtype, device=model.weight.device)).sum().backward()
        reducer.wait(1)
        raise AssertionError("a converted module is not refused")
    except ddl.ArgumentError as error:
        assert "replaced" in str(error), error
    reducer.close()

checkpoint = ddl.Checkpoint(sys.argv[1])
model, restored = masked, torch_training.Net()
restored.register_buffer("mask", torch.zeros(4, dtype=torch.bool))
checkpoint.save(1, {"model": model})
assert checkpoint.restore({"model": restored}) == 1
assert all((a == b).all() for a, b in zip(model.state_dict().values(), restored.state_dict().values()))
ddl.finalize()
if rank == 0:
    print(f"{size} ranks passed")
