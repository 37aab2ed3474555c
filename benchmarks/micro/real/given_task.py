"""A task whose gradient costs nothing, because it was computed before."""

from __future__ import annotations

from typing import Any

import torch

import outpace


class _Given(torch.autograd.Function):
    """A loss of a vector, with the same gradient each time."""

    gradient = torch.empty(0)

    @staticmethod
    def forward(_: Any, vector: torch.Tensor) -> torch.Tensor:
        if len(_Given.gradient) != len(vector):
            _Given.gradient = torch.full_like(vector, 1e-6)
        return vector[0].detach().clone()

    @staticmethod
    def backward(_: Any, __: torch.Tensor) -> torch.Tensor:
        return _Given.gradient


class _Vector(torch.nn.Module):
    def __init__(self, elements: int) -> None:
        super().__init__()
        self.vector = torch.nn.Parameter(torch.zeros(elements))

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = _Given.apply(self.vector)
        return loss


def make(elements: int) -> outpace.Task:
    samples = torch.zeros(8, 1), torch.zeros(8, 1)
    return outpace.Task(model=_Vector(elements), loss=lambda loss, _: loss, train=samples)
