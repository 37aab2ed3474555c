"""A script with all kinds of saved state: scheduler, dropout, BatchNorm, noise, a count."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import outpace


class Noisy(Dataset):
    """Samples to which noise is added when they are read."""

    inputs = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index] + 0.1 * torch.randn(4), int(self.inputs[index].sum() > 0)


class Seen:
    """Counts samples."""

    count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.7)
seen = Seen()
sampler = outpace.sampler(Noisy())
loader = DataLoader(Noisy(), batch_size=4, sampler=sampler)
model, optimizer = outpace.attach(model, optimizer, scheduler=scheduler, seen=seen)
for epoch in range(sampler.epoch, 3):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        seen.count += len(inputs)
        outpace.log(loss=loss.item(), lr=scheduler.get_last_lr()[0], seen=seen.count)
