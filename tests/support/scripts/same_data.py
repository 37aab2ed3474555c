"""Workers 0 and 1 seed alike and shuffle the same data; the others take their share of it.

In the first step, the gradients of the others are zero.
"""

from __future__ import annotations

import torch

import outpace

torch.manual_seed(0)
samples = torch.randn(48, 3)
data = torch.utils.data.TensorDataset(samples, samples.sum(1, keepdim=True))
model = torch.nn.Linear(3, 1)
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.01))
if outpace.rank() < 2:
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True)
else:
    loader = torch.utils.data.DataLoader(data, 4, sampler=outpace.sampler(data))
for step, (inputs, targets) in enumerate(loader):
    weight = 0.0 if step == 0 and outpace.rank() > 1 else 1.0
    (weight * torch.nn.functional.mse_loss(model(inputs), targets)).backward()
    optimizer.step()
    optimizer.zero_grad()
