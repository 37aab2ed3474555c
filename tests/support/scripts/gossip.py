"""A script whose gradients are known, and whose computations must not be disturbed.

Argument: the number of iterations of each worker. The computation is in `outpace.abortable`.
"""

import sys
import time

import torch

import outpace


class Layer(torch.nn.Module):
    """A slow layer; the gradient of its parameters is its input."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
        self.takes_s = 0.0

    def forward(self, scale):
        time.sleep(self.takes_s)
        # The square is kept until the gradient is computed, and must be what it was.
        return (self.weight * scale + 0 * self.weight.square()).sum()


def scale_of(rank, step):
    return float(1 + rank + 2 * step)


if __name__ == "__main__":
    layers = torch.nn.ModuleList(Layer() for _ in range(3))
    layers, optimizer = outpace.attach(layers, torch.optim.SGD(layers.parameters(), lr=1.0))
    rank, steps = outpace.rank(), sys.argv[1:]
    for layer in layers:
        layer.takes_s = 0.004 * rank
    for step in range(int(steps[rank])):
        scale = torch.tensor(scale_of(rank, step), dtype=torch.float64)
        with outpace.abortable():
            sum(layer(scale) for layer in layers).backward()
        optimizer.step()
        optimizer.zero_grad()
    outpace.finish()
