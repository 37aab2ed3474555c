"""A script in whose result each sample of each epoch can be counted.

The gradient of a sample is 1 in the parameter of this sample and epoch alone, so with a learning
rate as large as the number of workers, and averages over them, each parameter ends at -1.
"""

import torch
from torch.utils.data import DataLoader

import outpace

SAMPLES, EPOCHS = 40, 3


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = torch.nn.Parameter(torch.zeros(EPOCHS, SAMPLES))

    def forward(self, epoch, samples):
        return self.counts[epoch, samples].sum()


model = Counts()
optimizer = torch.optim.SGD(model.parameters(), lr=float(outpace.world_size()))
sampler = outpace.sampler(range(SAMPLES))
loader = DataLoader(range(SAMPLES), batch_size=2, sampler=sampler)
model, optimizer = outpace.attach(model, optimizer)
for epoch in range(sampler.epoch, EPOCHS):
    sampler.set_epoch(epoch)
    for samples in loader:
        optimizer.zero_grad()
        model(epoch, samples).backward()
        optimizer.step()
