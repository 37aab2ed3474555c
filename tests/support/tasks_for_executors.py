"""Tasks that behave in ways an executor must cope with."""

from __future__ import annotations

import os
import random

import numpy as np
import torch
from torch import nn

import outpace


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(64, 4, generator=generator), torch.randint(2, (64,), generator=generator)


def linear() -> outpace.Task:
    return outpace.Task(nn.Linear(4, 2), nn.functional.cross_entropy, data())


def dropout() -> outpace.Task:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))
    return outpace.Task(model, nn.functional.cross_entropy, data())


def another_one_in_every_process() -> outpace.Task:
    return outpace.Task(nn.Linear(4, 2), nn.functional.cross_entropy, data(os.getpid()))


class Branching(nn.Module):
    """Takes a decision that depends on values, which vmap cannot handle."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output = self.inner(inputs)
        return output if output.sum() > 0 else -output


def branching() -> outpace.Task:
    return outpace.Task(Branching(), nn.functional.cross_entropy, data())


class Failing(nn.Module):
    """Raises at its n-th use in a process other than the one that made the tests."""

    def __init__(self, uses: int, main: int) -> None:
        super().__init__()
        self.inner, self.left, self.main = nn.Linear(4, 2), uses, main

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.left -= os.getpid() != self.main
        if self.left < 0:
            raise ArithmeticError("out of luck")
        return self.inner(inputs)


def failing(uses: int, main: int) -> outpace.Task:
    return outpace.Task(Failing(uses, main), nn.functional.cross_entropy, data())


class Noting(nn.Module):
    """Adds a line to a file with every gradient."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.inner, self.path = nn.Linear(4, 2), path

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with open(self.path, "a") as file:
            file.write("gradient\n")
        return self.inner(inputs)


def noting(path: str) -> outpace.Task:
    return outpace.Task(Noting(path), nn.functional.cross_entropy, data())


class Skipping(nn.Module):
    """Sometimes leaves out a layer, by Python's generator or numpy's."""

    def __init__(self) -> None:
        super().__init__()
        self.often, self.always = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        skip = random.random() < 0.15 or np.random.random() < 0.15
        return self.always(inputs if skip else inputs + self.often(inputs))


def skipping() -> outpace.Task:
    return outpace.Task(Skipping(), nn.functional.cross_entropy, data(), data(1))


def not_a_number() -> outpace.Task:
    def loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output, targets) * float("nan")

    return outpace.Task(nn.Linear(4, 2), loss, data())


class Shifted(torch.utils.data.Dataset):
    """Draws from all three global generators."""

    def __init__(self) -> None:
        self.inputs, self.targets = data()

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        shift = random.random() + np.random.random() + torch.rand(()).item()
        return self.inputs[index] + shift, self.targets[index]


def augmented() -> outpace.Task:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    return outpace.Task(model, nn.functional.cross_entropy, Shifted(), Shifted())
