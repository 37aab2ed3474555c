"""Trains a model of a given width on a device, with the two lines of Outpace or without a run.

Each worker writes the seconds of its steps, and with --gradients the gradients of all steps, to
FOLDER/RANK.pt.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import nn

import outpace


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--gradients", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(3)
    width = options.width
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.Tanh())]
    model: nn.Module = nn.Sequential(*layers).to(options.device)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = outpace.attach(model, optimizer)
    drawn = torch.Generator().manual_seed(outpace.rank())
    steps_s, gradients = [], []
    for _ in range(options.steps):
        began = time.perf_counter()
        inputs = torch.randn(64, width, generator=drawn).to(options.device)
        optimizer.zero_grad()
        (model(inputs) - inputs).square().mean().backward()
        if options.gradients:
            gradients += [p.grad.detach().cpu().clone() for p in model.parameters()]  # type: ignore[union-attr]
        optimizer.step()
        if options.device != "cpu":
            torch.cuda.synchronize()
        steps_s.append(time.perf_counter() - began)
    outpace.finish()
    torch.save(
        {"steps_s": steps_s, "gradients": gradients}, options.folder / f"{outpace.rank()}.pt"
    )


if __name__ == "__main__":
    main()
