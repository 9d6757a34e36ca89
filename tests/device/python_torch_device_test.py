"""CUDA tensors and a module on a device, on any number of ranks. Skipped where torch or a device is missing."""

import copy
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


class Net(torch.nn.Module):
    """With a layer that every second step leaves out."""

    def __init__(self):
        super().__init__()
        self.first, self.odd, self.last = torch.nn.Linear(64, 256), torch.nn.Linear(256, 256), torch.nn.Linear(256, 1)
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, inputs, step):
        hidden = torch.tanh(self.first(inputs))
        return self.last(torch.tanh(self.odd(hidden)) if step % 2 else hidden)


def train(model, batches, reducer=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step, (inputs, targets) in enumerate(batches):
        optimizer.zero_grad(set_to_none=step != 2)
        if reducer:
            reducer.begin(len(inputs))
        torch.nn.functional.mse_loss(model(inputs, step), targets).backward()
        if reducer:
            reducer.wait()
        optimizer.step()


# Ranks that share each batch learn what one process learns from all of it.
torch.manual_seed(1)
everything = [(torch.randn(4 * size, 64, device=device), torch.randn(4 * size, 1, device=device)) for _ in range(6)]
mine = [(inputs[rank::size], targets[rank::size]) for inputs, targets in everything]
torch.manual_seed(rank)
model = Net().to(device)
ddl.broadcast_parameters(model)
alone = copy.deepcopy(model)
with torch.cuda.stream(torch.cuda.Stream()):
    torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
    reducer = ddl.Reducer(model, gradients="mean")
    train(model, mine, reducer)
    train(alone, everything)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, dict(alone.named_parameters())[name], rtol=1e-4, atol=1e-5,
                                   msg=lambda text: f"{name}: {text}")
    ddl.check_same({name: values.cpu() for name, values in model.state_dict().items()})
ddl.finalize()
if rank == 0:
    print(f"rank 0 of {size} passed")
