"""Draws random numbers in every way, in steps that may be cut off. `cut_short.py all|one`: cores.

Logs how often BatchNorm has seen a batch, at the beginning of each step and at the end, and how
many steps were cut off: worker 0 asks before the step, the others after it.
"""

from __future__ import annotations

import os
import random
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import outpace

if sys.argv[1] == "one" and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
model = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
)
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.05))
data = TensorDataset(torch.randn(24, 4))
loader = DataLoader(data, 3, shuffle=True, num_workers=outpace.rank() % 2, persistent_workers=False)
seen: torch.Tensor = model[1].num_batches_tracked
stopped = 0
for (batch,) in loader:
    noise = random.random() + float(np.random.rand())
    outpace.log(seen=seen, noise=noise)
    before = int(seen)
    with outpace.abortable() as work:
        model(batch + noise).square().mean().backward()
        assert not work.stopped
    if outpace.rank() == 0:
        is_used = not work.stopped  # puts BatchNorm's count back if it is not
        assert int(seen) == before + is_used
    optimizer.step()
    stopped += work.stopped
    optimizer.zero_grad()
outpace.log(seen=seen, noise=random.random() + float(np.random.rand()), stopped=stopped)
outpace.finish()
