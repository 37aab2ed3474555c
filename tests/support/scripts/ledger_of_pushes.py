"""A script whose parameters are a ledger, as the task of `tests/kills`: which gradients they have.

Each sample has two parameters of its own, one on each of two servers, and the gradient of a sample
is 1 there and 0 elsewhere. A worker sees each of its samples once, and logs the sample of each
step. Arguments: the number of samples, and what else the script does:

load: before step 60 it loads another state into its optimizer, which changes no step.
fetch: before every tenth step, and after `outpace.finish`, it reads the state of its optimizer.
"""

import sys

import torch
from torch.utils.data import DataLoader

import outpace

samples, does = range(int(sys.argv[1])), sys.argv[2:]


class Ledger(torch.nn.Module):
    """Two entries for each sample; the output is the sum of those of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(len(samples)))
        self.second = torch.nn.Parameter(torch.zeros(len(samples)))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return (self.first[numbers] + self.second[numbers]).sum()


class Steps:
    """Counts steps."""

    count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


model, steps = Ledger(), Steps()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=1.0)
sampler = outpace.sampler(samples)
model, optimizer = outpace.attach(model, optimizer, scheduler=scheduler, steps=steps)
for epoch in range(sampler.epoch, 1):
    sampler.set_epoch(epoch)
    for numbers in DataLoader(samples, batch_size=1, sampler=sampler):
        if "load" in does and steps.count == 60:
            state = {n: {"momentum_buffer": torch.ones(len(samples))} for n in range(2)}
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        if "fetch" in does and steps.count % 10 == 9:
            optimizer.state_dict()
        optimizer.zero_grad()
        model(numbers).backward()
        optimizer.step()
        scheduler.step()
        steps.count += 1
        outpace.log(sample=float(numbers))
if "fetch" in does:
    outpace.finish()
    optimizer.state_dict()
