"""Two phases: first only the head is trained, then all; `new`: the second has a new optimizer."""

import sys

import torch

import outpace

kind, path = sys.argv[1:]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
groups = [{"params": model[1].parameters()}, {"params": model[0].parameters(), "lr": 0.0}]
optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
model, optimizer = outpace.attach(model, optimizer)
for step in range(6):
    if step == 3 and kind == "new":
        both = [{"params": model[1].parameters()}, {"params": model[0].parameters()}]
        optimizer = torch.optim.SGD(both, lr=0.05, momentum=0.9)
    elif step == 3:
        for group in optimizer.param_groups:
            group["lr"] = 0.05
        optimizer.load_state_dict({**optimizer.state_dict(), "state": {}})
    optimizer.zero_grad()
    model(torch.full((2, 3), 0.1 * step + 0.1)).square().mean().backward()
    optimizer.step()
outpace.finish()
torch.save(model.state_dict(), path)
