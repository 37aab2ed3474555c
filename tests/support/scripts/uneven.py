"""Worker 1 takes 4 steps, others 30. With the argument `keep`, a checkpoint has their number."""

import sys

import torch
from steps import Steps

import outpace

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = Steps()
kept = {"steps": steps} if "keep" in sys.argv else {}
model, optimizer = outpace.attach(model, optimizer, **kept)
draws = torch.Generator().manual_seed(outpace.rank())
while steps.done < (4 if outpace.rank() == 1 else 30):
    x = torch.randn(8, 4, generator=draws)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x[:, :1]).backward()
    optimizer.step()
    steps.done += 1
    outpace.log(done=steps.done)
