"""A torch model and its training, for tests of modules on the host and on devices."""

import copy

import ddl
import torch


class Net(torch.nn.Module):
    """With a layer that every second step leaves out, one that is never used, a frozen parameter, and a convolution, whose
    gradients may have other strides."""

    def __init__(self):
        super().__init__()
        self.first, self.odd, self.last = torch.nn.Conv2d(1, 3, 3), torch.nn.Linear(12, 12), torch.nn.Linear(12, 1)
        self.unused = torch.nn.Linear(2, 2)
        self.frozen = torch.nn.Parameter(torch.full((2,), float(ddl.rank())), requires_grad=False)

    def forward(self, images, step):
        hidden = torch.tanh(self.first(images)).flatten(1)
        return self.last(torch.tanh(self.odd(hidden)) if step % 2 else hidden)


def train(model, batches, reducer=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step, (images, targets) in enumerate(batches):
        optimizer.zero_grad(set_to_none=step != 2)
        if reducer:
            reducer.begin(len(images))
        torch.nn.functional.mse_loss(model(images, step), targets).backward()
        if reducer:
            reducer.wait()
        optimizer.step()


def ranks_learn_what_one_process_learns(device="cpu", layout=torch.contiguous_format, **tolerances):
    """Ranks that share each batch learn the same model as one process with the whole batch."""
    rank, size = ddl.rank(), ddl.size()
    torch.manual_seed(1)
    everything = [(torch.randn(4 * size, 1, 4, 4).to(device), torch.randn(4 * size, 1).to(device)) for _ in range(6)]
    torch.manual_seed(rank)
    model = Net().to(device)
    ddl.broadcast_parameters(model)
    alone = copy.deepcopy(model)
    reducer = ddl.Reducer(model, gradients="mean")
    train(model, [(images[rank::size].to(memory_format=layout), targets[rank::size]) for images, targets in everything],
          reducer)
    train(alone, everything)
    ddl.check_same({name: values.cpu() for name, values in model.state_dict().items()})
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, dict(alone.named_parameters())[name], **tolerances,
                                   msg=lambda text: f"{name}: {text}")
    reducer.close()
