"""Scripts that fail. `wrong.py CASE`."""

from __future__ import annotations

import argparse
import collections
import sys

import torch
from torch import nn

import outpace


def step(model: nn.Module, optimizer: torch.optim.Optimizer, factor: float = 1.0) -> None:
    (model(torch.ones(2, 3)).square().mean() * factor).backward()
    optimizer.step()
    optimizer.zero_grad()


def main(case: str) -> None:
    rank = outpace.rank()
    second = rank == 1
    model = nn.Linear(3, 3 if second and case == "shapes" else 2)
    if case == "refused" and second:
        argparse.ArgumentParser().parse_args(["--unknown"])
    if case == "dtypes" and second:
        model.bias.data = model.bias.data.double()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9 if case == "state" else 0.0)
    if case == "nan-weights" and second:
        nn.init.constant_(model.weight, float("nan"))
    if case == "state" and second:
        step(model, optimizer)
    if case == "unattached" and second:
        return
    model, optimizer = outpace.attach(model, optimizer)
    for iteration in range(6):
        bad = second and iteration == 3
        if bad and case == "raises":
            raise ValueError("no luck")
        if bad and case == "clears":
            optimizer.state = collections.defaultdict(dict)
        if bad and case == "lr":
            optimizer.param_groups[0]["lr"] = float("nan")
        is_nan = case == "all-nan" or (bad and case == "nan")
        step(model, optimizer, float("nan") if is_nan else 1.0)
    outpace.finish()


if __name__ == "__main__":
    main(sys.argv[1])
