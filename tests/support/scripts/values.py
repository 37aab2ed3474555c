"""A bfloat16 model with frozen parameters and unusual buffers. `values.py KIND FOLDER`.

Each worker saves its model at the end. KIND `plateau`: the second worker's loss rises, and its
learning rate falls; `rates`: its `nesterov` differs; `unfreezes`: a frozen parameter is trained
after a step.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import outpace

STEPS = 4
COUNT = 2.0**24  # the next number cannot be represented as float32


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base, self.head = nn.Linear(6, 64), nn.Linear(64, 3, dtype=torch.bfloat16)
        self.base.requires_grad_(False)
        self.register_buffer("frequencies", 1 / 10_000 ** (torch.arange(6) / 6), persistent=False)
        self.register_buffer("mask", torch.tensor([0.0, 0.0, float("-inf")]))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("count", torch.tensor(COUNT, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.5 * self.mean + 0.5 * x.mean(0)  # another tensor each time
        self.count += 1
        rows = x.shape[0]
        if not hasattr(self, "table") or len(self.table) < rows:
            self.register_buffer("table", torch.zeros(rows, 6))
        x = self.base(x * self.frequencies.cos() + self.table[:rows])
        return torch.softmax(self.head(x.bfloat16()).float() + self.mask, 1)


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(4 + step, 6, generator=torch.Generator().manual_seed(100 * rank + step))


if __name__ == "__main__":
    kind, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    rank, model = outpace.rank(), Net()
    if rank:
        model.frequencies += 1  # worker 0's are used
    settings = {"nesterov": kind == "rates" and rank == 1, "momentum": 0.9}
    optimizer = torch.optim.SGD(model.parameters(), 0.1, **settings)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    model, optimizer = outpace.attach(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(rank, step))[:, 0].log().mean().neg().backward()
        optimizer.step()
        if kind == "plateau":
            schedule.step(float(step if rank else -step))
        if kind == "unfreezes":
            model.base.bias.requires_grad_(True)
    outpace.finish()
    state = {**model.state_dict(), "frequencies": model.frequencies}
    torch.save(state, folder / f"{rank}.pt")
