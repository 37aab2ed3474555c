"""Trains, and writes the functions of Outpace that each step calls: `FOLDER STEPS`."""

import json
import sys
from pathlib import Path

import torch
from tests.support.counted_calls import CalledFunctions

import outpace

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
model = torch.nn.Linear(100, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer = outpace.attach(model, optimizer)
called = CalledFunctions()
for _ in range(steps):
    optimizer.zero_grad()
    model(torch.ones(4, 100)).square().mean().backward()
    called.begin()
    optimizer.step()
    called.end()
(folder / "worker.json").write_text(json.dumps(called.of_each))
