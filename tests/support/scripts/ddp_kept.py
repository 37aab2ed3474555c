"""A script for torchrun with state for checkpoints: scheduler, dropout, noise, its data."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import outpace


class Noisy(Dataset):
    """Samples to which noise is added when they are read."""

    inputs = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index] + 0.1 * torch.randn(4), int(self.inputs[index].sum() > 0)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 2))
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.7)
sampler = outpace.sampler(Noisy())
assert len(sampler) * dist.get_world_size() == 24  # also under torchrun alone
loader = DataLoader(Noisy(), batch_size=4, sampler=sampler)
model, optimizer = outpace.attach(model, optimizer, scheduler=scheduler)
for epoch in range(sampler.epoch, 3):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        outpace.log(loss=loss.item(), lr=scheduler.get_last_lr()[0], seen=0)
    dist.barrier()
dist.destroy_process_group()
