"""A script whose parameters say how often each sample was used; worker 1 is killed in step 30.

Each sample has a parameter of its own, and the gradient of a sample is 1 there and 0 elsewhere.
The argument is a file that is made when the worker is killed, so that it is killed once.
"""

import os
import pathlib
import signal
import sys

import torch
from torch.utils.data import DataLoader

import outpace


class Ledger(torch.nn.Module):
    """One entry for each sample; the output is the sum of those of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = torch.nn.Parameter(torch.zeros(160))
        self.calls = 0

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        died = pathlib.Path(sys.argv[1])
        if outpace.rank() == 1 and self.calls == 30 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.entries[samples].sum()


model = Ledger()
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)  # the mean of two workers
sampler = outpace.sampler(range(160))
model, optimizer = outpace.attach(model, optimizer)
for epoch in range(sampler.epoch, 2):
    sampler.set_epoch(epoch)
    for samples in DataLoader(range(160), batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        model(samples).backward()
        optimizer.step()
