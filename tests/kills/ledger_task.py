"""A task whose parameters are a ledger: which gradients are in them, and how often.

Each sample has two parameters of its own, one on each of two servers, and the gradient of a sample
is 1 there and 0 elsewhere. A worker sees each of its samples once. So after plain SGD a parameter
is 0 if its gradient is missing, and twice as large as the others if it was applied twice.
"""

from __future__ import annotations

import torch

import outpace


class Ledger(torch.nn.Module):
    """Two entries for each sample; its output is their sum."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(samples))
        self.second = torch.nn.Parameter(torch.zeros(samples))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.first[numbers] + self.second[numbers]


def make_task(samples: int) -> outpace.Task:
    data = torch.arange(samples), torch.zeros(samples)
    return outpace.Task(Ledger(samples), lambda output, _: output.sum(), data, data)
