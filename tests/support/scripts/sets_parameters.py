"""Scripts that set their parameters themselves. `sets_parameters.py CASE FOLDER`.

CASE: `clamp` limits them after each step; `last` halves them after the last step; `apart` shifts
them once, differently in each worker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn

import outpace

STEPS, LIMIT = 6, 0.25


def train(case: str, attach: Callable = outpace.attach, rank: int = 0, workers: int = 1) -> dict:
    """Train, and return the parameters of a worker before it leaves."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model: nn.Module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
    model, optimizer = attach(model, torch.optim.RMSprop(model.parameters(), 0.05))
    numbers = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        inputs = torch.randn(8, 6, generator=numbers)[rank::workers]
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), inputs.roll(1, 1)).backward()
        optimizer.step()
        for p in model.parameters():
            if case == "clamp":
                p.data.clamp_(-LIMIT, LIMIT)
            elif case == "last" and step == STEPS - 1:
                p.data.mul_(0.5)
            elif case == "apart" and step == 1:
                p.data.add_(0.1 * rank)
    return {name: value.clone() for name, value in model.state_dict().items()}


if __name__ == "__main__":
    case, folder = sys.argv[1:]
    kept: list = []

    def attach(model, optimizer):
        kept.append(model)
        return outpace.attach(model, optimizer)

    before = train(case, attach, outpace.rank(), outpace.world_size())
    outpace.finish()
    state = {"before": before, "after": kept[0].state_dict()}
    torch.save(state, f"{folder}/{outpace.rank()}.pt")
