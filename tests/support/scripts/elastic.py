"""A script whose parameters show the divisor of each sample in each epoch; it trains until stopped.

The gradient of a sample is 1 only in the parameter of this sample and epoch. With a learning rate
of 1 each use of a sample by one of n workers, of which the mean is taken, subtracts 1/n there.
"""

import torch
from steps import Steps
from torch.utils.data import DataLoader

import outpace

SAMPLES, EPOCHS, BATCH = 24, 400, 2


class Entries(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.entries = torch.nn.Parameter(torch.zeros(EPOCHS, SAMPLES))

    def forward(self, epoch, samples):
        return self.entries[epoch, samples].sum()


model, steps = Entries(), Steps()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
sampler = outpace.sampler(range(SAMPLES))
loader = DataLoader(range(SAMPLES), batch_size=BATCH, sampler=sampler)
model, optimizer = outpace.attach(model, optimizer, steps=steps)
for epoch in range(sampler.epoch, EPOCHS):
    sampler.set_epoch(epoch)
    for samples in loader:
        optimizer.zero_grad()
        model(epoch, samples).backward()
        if steps.done % 3 == 0:
            optimizer.state_dict()  # in an iteration the servers may be about to move
        outpace.log(done=steps.done, epoch=epoch, workers=outpace.world_size())
        steps.done += 1
        optimizer.step()
