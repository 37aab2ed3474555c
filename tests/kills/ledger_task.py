"""A task whose parameters are a ledger: they show which gradients were applied, and how often.

Each sample has separate parameters, the same number on each of two servers, and the gradient of a
sample is 1 in them and 0 elsewhere. A worker sees each of its samples once. So after plain SGD a
parameter is 0 if its gradient is missing, and twice as large as the others if it was applied twice.
Large blocks are exchanged in shared memory, so `copies` sets their size.
"""

from __future__ import annotations

import torch

import outpace


class Ledger(torch.nn.Module):
    """Twice `copies` entries for each sample; its output is their sum."""

    def __init__(self, samples: int, copies: int) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(samples, copies))
        self.second = torch.nn.Parameter(torch.zeros(samples, copies))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return (self.first[numbers] + self.second[numbers]).sum(-1)


def make_task(samples: int, copies: int = 1) -> outpace.Task:
    data = torch.arange(samples), torch.zeros(samples)
    return outpace.Task(Ledger(samples, copies), lambda output, _: output.sum(), data, data)
