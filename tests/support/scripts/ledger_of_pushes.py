"""A script whose parameters show the applied gradients, like the task of `tests/kills`.

Each sample has two separate parameters, one on each of two servers, and the gradient of a sample is
1 in them and 0 elsewhere. A worker sees each of its samples once, and logs the sample of each step.
Arguments: the number of samples, and a file: if it does not exist, worker 1 makes it in its 30th
step and is killed.
"""

import os
import pathlib
import signal
import sys

import torch
from steps import Steps
from torch.utils.data import DataLoader

import outpace

samples = range(int(sys.argv[1]))
died = [pathlib.Path(path) for path in sys.argv[2:]]


class Ledger(torch.nn.Module):
    """Two entries for each sample; the output is the sum of the entries of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(len(samples)))
        self.second = torch.nn.Parameter(torch.zeros(len(samples)))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return (self.first[numbers] + self.second[numbers]).sum()


model, steps = Ledger(), Steps()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=1.0)
sampler = outpace.sampler(samples)
model, optimizer = outpace.attach(model, optimizer, scheduler=scheduler, steps=steps)
for epoch in range(sampler.epoch, 1):
    sampler.set_epoch(epoch)
    for numbers in DataLoader(samples, batch_size=1, sampler=sampler):
        optimizer.zero_grad()
        if outpace.rank() == 1 and steps.done == 29 and died and not died[0].exists():
            died[0].touch()
            os.kill(os.getpid(), signal.SIGKILL)
        model(numbers).backward()
        optimizer.step()
        scheduler.step()
        steps.done += 1
        outpace.log(sample=float(numbers))
