# ruff: noqa: T201
"""A script that prints, on both streams, before, during and after the training."""

import os
import sys

import torch

import outpace

print("before")
model = torch.nn.Linear(2, 1)
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
for step in range(3):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}")
    sys.stderr.write(f"\r{step + 1} of 3")
sys.stderr.write("\n")
print("\n".join(f"{outpace.rank()} {line:06d} {'x' * 90}" for line in range(5000)))
os.write(1, b"no end \xff of line")
