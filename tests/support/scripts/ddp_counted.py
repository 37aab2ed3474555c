"""As `counted.py`, for torchrun: each sample of each epoch has a parameter of its own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import outpace

SAMPLES, EPOCHS = 40, 3


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = torch.nn.Parameter(torch.zeros(EPOCHS, SAMPLES))

    def forward(self, epoch, samples):
        return self.counts[epoch, samples].sum()


dist.init_process_group("gloo")
model = DistributedDataParallel(Counts())
optimizer = torch.optim.SGD(model.parameters(), lr=float(dist.get_world_size()))
sampler = outpace.sampler(range(SAMPLES))
loader = DataLoader(range(SAMPLES), batch_size=2, sampler=sampler)
model, optimizer = outpace.attach(model, optimizer)
for epoch in range(sampler.epoch, EPOCHS):
    sampler.set_epoch(epoch)
    for samples in loader:
        optimizer.zero_grad()
        model(epoch, samples).backward()
        optimizer.step()
dist.destroy_process_group()
