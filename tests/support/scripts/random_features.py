"""A model with random features that its `state_dict` leaves out, and a frozen random layer.

`random_features.py FOLDER STEPS [KILLED]`; the worker KILLED is killed in the 10th step, once.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

import outpace


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base, self.head = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 1)
        self.register_buffer("features", torch.randn(3, 8), persistent=False)
        self.register_buffer("mask", torch.rand(8) < 0.5, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.base((x @ self.features).cos() * self.mask))


if __name__ == "__main__":
    model = Net()  # each worker draws other numbers
    model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), 0.1))
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    killed = [int(worker) for worker in sys.argv[3:]]
    for step in range(steps):
        if step == 10 and outpace.rank() in killed and not (folder / "died").exists():
            (folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(torch.rand(2, 3)).square().mean().backward()
        optimizer.step()
    outpace.finish()
    torch.save((model.features, model.mask, model.base.weight), folder / f"{outpace.rank()}.pt")
