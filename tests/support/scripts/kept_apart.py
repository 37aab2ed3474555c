"""Workers whose models come apart: each has a learning rate of its own.

The first argument is the optimizer: `sgd`, or `own` for a class that only this script knows.
"""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

import outpace


class Momentum(torch.optim.Optimizer):
    """SGD with momentum, of a class that only this script knows."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    speed = self.state[p].setdefault("speed", torch.zeros_like(p))
                    speed.mul_(0.9).add_(p.grad)
                    p.sub_(group["lr"] * speed)


torch.manual_seed(1)
data = TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
model = torch.nn.Linear(4, 1)
if sys.argv[1] == "own":
    optimizer = Momentum(model.parameters(), lr=0.02)
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
sampler = outpace.sampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
decay = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.7 + 0.1 * outpace.rank())
model, optimizer = outpace.attach(model, optimizer, decay=decay)
for epoch in range(sampler.epoch, 3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        decay.step()
        outpace.log(loss=loss.item(), lr=decay.get_last_lr()[0], seen=0)
