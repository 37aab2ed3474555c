"""An optimizer that servers do not know takes the steps of its worker: `own_optimizer.py KIND`.

KIND is `own`, whose class exists only in this script, or a class with its module. Each worker saves
what it has trained before it leaves the run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

import torch

import outpace

STEPS = 6


class Own(torch.optim.Optimizer):
    """Steps along the sign of the momentum, as Lion does; part of its state is one number."""

    def __init__(self, params, lr: float = 0.01) -> None:
        # A function cannot be sent to another process, so only this one can take the steps.
        super().__init__(params, {"lr": lr, "direction": torch.sign})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    state.setdefault("momentum", torch.zeros_like(p)).lerp_(p.grad, 0.1)
                    state["largest"] = p.grad.abs().max().reshape(1)
                    p.sub_(group["direction"](state["momentum"]), alpha=group["lr"])


def train(kind: str, attach: Callable = outpace.attach, ranks: range | None = None) -> dict:
    """Train, and return the model and the optimizer's state. ranks: whose data are used."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    model[0].bias.requires_grad_(False)
    library, _, name = kind.rpartition(".")
    make = getattr(import_module(library), name) if library else Own
    model, optimizer = attach(model, make(model.parameters(), lr=0.02))
    getattr(optimizer, "train", list)()  # of schedulefree
    data = [torch.Generator().manual_seed(rank) for rank in ranks or [outpace.rank()]]
    for _ in range(STEPS):
        inputs = torch.cat([torch.randn(8, 6, generator=each) for each in data])
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), inputs[:, :3]).backward()
        optimizer.step()
    getattr(optimizer, "eval", list)()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"]}


if __name__ == "__main__":
    torch.save(train(sys.argv[1]), outpace.output_dir() / "end.pt")
    outpace.finish()
