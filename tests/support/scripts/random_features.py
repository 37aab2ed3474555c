"""A model with random features that its `state_dict` leaves out. `random_features.py FOLDER`."""

from __future__ import annotations

import sys

import torch
from torch import nn

import outpace


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 1)
        self.register_buffer("features", torch.randn(3, 8), persistent=False)
        self.register_buffer("mask", torch.rand(8) < 0.5, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head((x @ self.features).cos() * self.mask)


if __name__ == "__main__":
    model = Net()  # each worker draws other numbers
    model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), 0.1))
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.rand(2, 3)).square().mean().backward()
        optimizer.step()
    outpace.finish()
    torch.save((model.features, model.mask), f"{sys.argv[1]}/{outpace.rank()}.pt")
