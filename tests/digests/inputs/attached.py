"""A script that attaches: BatchNorm, shuffled data, a schedule, logged values, saved state."""

import sys

import torch

import outpace

source = torch.Generator().manual_seed(0)
inputs = torch.randn(64, 6, generator=source)
targets = (inputs @ torch.randn(6, 3, generator=source)).argmax(1)
data = torch.utils.data.TensorDataset(inputs, targets)

torch.manual_seed(4)
model = torch.nn.Sequential(
    torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
)
make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[sys.argv[1]]
more = {"momentum": 0.9} if sys.argv[1] == "sgd" else {}
model, optimizer = outpace.attach(model, make(model.parameters(), lr=0.05, **more))
sampler = outpace.sampler(data)
loader = torch.utils.data.DataLoader(data, 4, sampler=sampler)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch, target in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch), target)
        loss.backward()
        optimizer.step()
    scheduler.step()
    outpace.log(loss=loss)
outpace.finish()
