"""Scripts that save and load the state of their optimizer. `checkpoints.py CASE FOLDER`.

Except for `attach` the script is plain PyTorch, so a test can also call it without Outpace.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import outpace

STEPS = 4
Make = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


class Net(nn.Module):
    """One parameter is frozen, one is never used, and one has no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 7), nn.Linear(7, 6)
        self.frozen, self.unused = nn.Linear(6, 6), nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.frozen.requires_grad_(False)

    def loss(self, step: int) -> torch.Tensor:
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
        return (self.scale * self.second(self.first(self.frozen(x)).tanh()) - x).square().mean()


KINDS: dict[str, Make] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.01, amsgrad=True),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.01),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.1),
    "nadam": lambda groups: torch.optim.NAdam(groups, lr=0.01),
}


def made(kind: str) -> tuple[Net, torch.optim.Optimizer]:
    torch.set_num_threads(1)
    torch.manual_seed(2)
    model = Net()
    bias = [p for n, p in model.named_parameters() if "bias" in n]
    rest = [p for n, p in model.named_parameters() if "bias" not in n]
    return model, KINDS[kind]([{"params": bias, "lr": 0.02}, {"params": rest}])


def train(model: Net, optimizer: torch.optim.Optimizer, begin: int, steps: int = STEPS) -> None:
    for step in range(begin, begin + steps):
        model.loss(step).backward()
        optimizer.step()
        optimizer.zero_grad()


def checkpoint(model: Net, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def kept(kind: str, attach: Callable[..., Any], finish: Callable[[], None]) -> list[dict[str, Any]]:
    """Return checkpoints around `attach`, after steps, a return, more steps, and the end."""
    model, optimizer = made(kind)
    train(model, optimizer, 0, 2)
    saved = [checkpoint(model, optimizer)]
    model, optimizer = attach(model, optimizer)
    saved.append(checkpoint(model, optimizer))
    train(model, optimizer, 2)
    saved.append(checkpoint(model, optimizer))
    try:
        optimizer.load_state_dict(copy.deepcopy(saved[0]["optimizer"]))
    except outpace.ConfigError as error:
        sys.stderr.write(f"{error}\n")
    saved.append(checkpoint(model, optimizer))
    train(model, optimizer, 2 + STEPS)
    saved.append(checkpoint(model, copy.deepcopy(optimizer)))
    finish()
    saved.append(checkpoint(model, optimizer))
    return saved


if __name__ == "__main__":
    kind, folder = sys.argv[1:]
    torch.save(kept(kind, outpace.attach, outpace.finish), f"{folder}/{outpace.rank()}.pt")
