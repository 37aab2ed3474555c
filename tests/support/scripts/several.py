"""Scripts of several workers. `several.py CASE FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import outpace
from outpace.tasks.data.digits import digits_cnn
from outpace.tasks.samples import Sampler

STEPS = 8


class Net(nn.Module):
    """`odd` is used by rank 0 in odd steps."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.odd = nn.Linear(6, 7), nn.Linear(6, 7)
        self.norm, self.frozen = nn.BatchNorm1d(7), nn.Linear(7, 7)
        self.frozen.requires_grad_(False)

    def loss(self, rank: int, step: int) -> torch.Tensor:
        x = torch.randn(9, 6, generator=torch.Generator().manual_seed(100 * rank + step))
        y = self.body(x)
        if rank == 0 and step % 2:
            y = y + self.odd(x)
        return self.frozen(self.norm(y)).square().mean() - y.mean()


def net(rank: int = 0) -> Net:
    torch.manual_seed(rank)
    model = Net()
    model.norm.running_mean += rank
    return model


def optimizer_of(model: Net) -> torch.optim.Optimizer:
    groups = [{"params": model.odd.parameters(), "lr": 0.1}, {"params": model.body.parameters()}]
    return torch.optim.AdamW(groups, lr=0.01)


def together(folder: Path) -> None:
    """Rank 1 skips step 3, for its gradient overflows."""
    rank = outpace.rank()
    model = net(rank)
    model, optimizer = outpace.attach(model, optimizer_of(model))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(STEPS):
        overflows = (rank, step) == (1, 3)
        scaler.scale(model.loss(rank, step) * (float("inf") if overflows else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    outpace.finish()


def digits(folder: Path) -> None:
    """Train as the task digits-cnn does."""
    torch.manual_seed(5)
    task = digits_cnn()
    optimizer = torch.optim.SGD(task.model.parameters(), 0.05, momentum=0.9)
    model, optimizer = outpace.attach(task.model, optimizer)
    inputs, targets = task.train
    sampler = Sampler(len(inputs), outpace.world_size(), 16, seed=5)
    for step in range(STEPS):
        batch = sampler.indices(outpace.rank(), step)
        loss = task.loss(model(inputs[batch]), targets[batch])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    case, folder = sys.argv[1:]
    globals()[case](Path(folder))
