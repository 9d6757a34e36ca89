"""CUDA tensors and a module on a device, on any number of ranks. Skipped where torch or a device is missing."""

import sys

import ddl

try:
    import torch
except ImportError as problem:
    print(f"skipped: {problem}")
    sys.exit(1)
if not torch.cuda.is_available():
    print("skipped: torch finds no CUDA device")
    sys.exit(1)

import torch_training

ddl.init("-dbg_level 0", device=-1)
rank, size = ddl.rank(), ddl.size()
device = torch.device("cuda", ddl.device())
torch.cuda.set_device(device)

for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
    with torch.cuda.stream(stream):
        for dtype in (torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
            values = torch.ones((2, 3), dtype=dtype, device=device)
            ddl.all_reduce(values)
            assert (values == size).all(), values
        pieces = torch.empty(3 * size, device=device)
        ddl.all_gather(torch.full((3,), float(rank), device=device), pieces)
        assert (pieces.cpu() == torch.arange(size).repeat_interleave(3)).all(), pieces


with torch.cuda.stream(torch.cuda.Stream()):
    torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
    torch_training.ranks_learn_what_one_process_learns(device, rtol=1e-4, atol=1e-5)
ddl.finalize()
if rank == 0:
    print(f"rank 0 of {size} passed")
