"""A script of several workers. `peers.py sgd|uneven FOLDER`.

Each worker saves its model at the end. A test does the same in one process.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import outpace

STEPS = 8
Scheduler = torch.optim.lr_scheduler.LRScheduler


class Net(nn.Module):
    """`odd` is used by rank 0 in odd steps, `unused` by nobody; tied weights, BatchNorm, frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.odd, self.unused = nn.Linear(6, 7), nn.Linear(6, 7), nn.Linear(2, 2)
        self.norm, self.frozen, self.tied = nn.BatchNorm1d(7), nn.Linear(7, 7), nn.Linear(6, 7)
        self.tied.weight = self.body.weight
        self.frozen.requires_grad_(False)

    def loss(self, rank: int, step: int) -> torch.Tensor:
        x = torch.randn(9, 6, generator=torch.Generator().manual_seed(100 * rank + step))
        y = self.body(x) + self.tied(x)
        if rank == 0 and step % 2:
            y = y + self.odd(x)
        return self.frozen(self.norm(y)).square().mean() - y.mean()


def net(rank: int = 0) -> Net:
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    model = Net()
    model.norm.running_mean += rank
    return model


def groups(model: Net) -> list[dict]:
    """Two, of different learning rates; without the frozen ones."""
    odd = [*model.odd.parameters(), *model.unused.parameters()]
    taken = {id(p) for p in [*odd, *model.frozen.parameters()]}
    rest = [p for p in model.parameters() if id(p) not in taken]
    return [{"params": odd, "lr": 0.02}, {"params": rest}]


def sgd(model: Net) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups(model), lr=0.01, momentum=0.9, weight_decay=0.01)


def scheduler_of(optimizer: torch.optim.Optimizer) -> Scheduler:
    """Return a scheduler that also changes the momentum, or the first beta."""
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, STEPS + 1)


def overflows(rank: int, step: int) -> bool:
    """Return True if this worker's gradients overflow in this step; only one worker's do."""
    return (rank, step) == (1, 3)


def train(folder: Path, steps: int) -> None:
    """Train from different values in each worker, with a GradScaler."""
    rank = outpace.rank()
    model = net(rank)
    model, optimizer = outpace.attach(model, sgd(model))
    scheduler = scheduler_of(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(steps):
        factor = float("inf") if overflows(rank, step) else 1.0
        scaler.scale(model.loss(rank, step) * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad()
    outpace.finish()
    torch.save(model.state_dict(), folder / f"{rank}.pt")


if __name__ == "__main__":
    case, folder = sys.argv[1], Path(sys.argv[2])
    # uneven: rank n takes n steps fewer, and its schedule is further ahead.
    train(folder, STEPS - (outpace.rank() if case == "uneven" else 0))
