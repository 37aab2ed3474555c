"""An optimizer that exists only in this script, and learning rates that each worker sets itself.

`own_optimizer.py KIND RATES`: KIND is `own` or a class of torch.optim; with RATES `apart` worker 1
halves its rate after two steps. Each worker saves what it has trained before it leaves the run.
"""

from __future__ import annotations

import sys

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


if __name__ == "__main__":
    kind, rates = sys.argv[1:]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    model[0].bias.requires_grad_(False)
    make = Own if kind == "own" else getattr(torch.optim, kind)
    model, optimizer = outpace.attach(model, make(model.parameters(), lr=0.02))
    data = torch.Generator().manual_seed(outpace.rank())
    for step in range(STEPS):
        inputs = torch.randn(8, 6, generator=data)
        if rates == "apart" and step == 2 and outpace.rank() == 1:
            optimizer.param_groups[0]["lr"] /= 2
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), inputs[:, :3]).backward()
        optimizer.step()
    trained = {"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"]}
    torch.save(trained, outpace.output_dir() / "end.pt")
    outpace.finish()
