"""The last worker's layers are slow; `abortable.py FOLDER` saves how often it was stopped."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch import nn

import outpace

LAYERS, STEPS = 10, 6
SLOW_S = 0.1  # per layer


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(SLOW_S if outpace.rank() == outpace.world_size() - 1 else 0.02)
        return torch.tanh(self.norm(self.linear(x)))


torch.manual_seed(0)
model = nn.Sequential(*(Layer() for _ in range(LAYERS)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
model, optimizer = outpace.attach(model, optimizer)
stopped, kept, took = 0, True, 0.0
for _ in range(STEPS):
    before = [buffer.clone() for buffer in model.buffers()]
    started = time.monotonic()
    with outpace.abortable() as work:
        model(torch.randn(8, 4)).square().mean().backward()
    if work.stopped:
        stopped += 1
        took += time.monotonic() - started
        kept &= all(map(torch.equal, before, model.buffers()))
    optimizer.step()
    optimizer.zero_grad()
found = {"stopped": stopped, "kept": kept, "took": took}
(Path(sys.argv[1]) / f"{outpace.rank()}.json").write_text(json.dumps(found))
